"""Committed, killed, started again: every marker is there. Kafka 4.4 loses some (K31), not at will."""

from __future__ import annotations

import pytest

from fencepost.protocol.codes import ErrorCode
from fencepost_lab.torture.broker_process import BrokerProcess
from tests.support.brokers import BrokerUnderTest
from tests.support.raw_client import Producer
from tests.support.txn_requests import producers

pytestmark = pytest.mark.slow
TRANSACTIONS = 24
ENABLED = {"transaction.two.phase.commit.enable": True}


def test_every_answered_end_is_finished_after_kill_9() -> None:
    """A partition each; the broker is killed the moment the last EndTxn is answered, before or after its marker."""
    process = BrokerProcess(ENABLED)
    process.start()
    try:
        broker = BrokerUnderTest("fencepost", process)
        names = [f"txn-{number}" for number in range(TRANSACTIONS)]
        with broker.connect() as client:
            topic = client.create_topic("t", partitions=TRANSACTIONS)
            pairs = [client.start_producer(name) for name in names]
            for number, (name, me) in enumerate(zip(names, pairs, strict=True)):
                answer = client.produce(topic, [b"x"], partition=number, transactional_id=name, producer=me, sequence=0)
                assert answer.error_code == 0
            for number, (name, me) in enumerate(zip(names, pairs, strict=True)):
                assert client.end_transaction(name, me, commit=number % 3 > 0).error_code == 0
        process.kill()
        process.start()
        with broker.connect_again() as client:
            for number, (name, me) in enumerate(zip(names, pairs, strict=True)):
                committed = number % 3 > 0
                client.wait_for_state(name, "CompleteCommit" if committed else "CompleteAbort")
                assert all(state.current_txn_start_offset == -1 for state in producers(client, topic, number))
                # One marker, or two, when the first was there and the record that says so was not.
                assert client.end_offset(topic, number, committed=True) == client.end_offset(topic, number) >= 2
                assert client.fetch(topic, partition=number, committed=True).values == ([b"x"] if committed else [])
                ended = client.end_transaction(name, me, commit=committed)
                assert (ended.error_code, ended.producer_epoch) == (0, me.epoch + 1)
                late = client.produce(topic, [b"y"], partition=number, transactional_id=name, producer=me, sequence=1)
                assert late.error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    finally:
        process.stop()


def test_a_kept_transaction_through_kill_9_again_and_again() -> None:
    """KIP-939: both pairs survive; each further keep, before and after a kill, fences the resolver before it."""
    process = BrokerProcess(ENABLED)
    process.start()
    try:
        broker = BrokerUnderTest("fencepost", process)
        with broker.connect() as client:
            topic = client.create_topic("t")
            me = client.start_producer("kept", two_phase=True)
            produced = client.produce(topic, [b"x"], transactional_id="kept", producer=me, sequence=0)
            assert produced.error_code == 0
        resolvers: list[Producer] = []
        for _ in range(3):
            with broker.connect_again() as client:
                given = client.init_producer_id("kept", two_phase=True, keep_prepared=True)
                assert (given.error_code, given.ongoing_txn_producer_id) == (0, me.producer_id)
                assert given.ongoing_txn_producer_epoch == me.epoch
                resolvers.append(Producer(given.producer_id, given.producer_epoch))
                assert client.fetch(topic, committed=True).values == []
            process.kill()
            process.start()
        with broker.connect_again() as client:
            assert client.describe_transaction("kept").transaction_state == "Ongoing"
            for earlier in (me, *resolvers[:-1]):
                refused = client.end_transaction("kept", earlier, commit=False)
                assert refused.error_code == ErrorCode.PRODUCER_FENCED
            late = client.produce(topic, [b"late"], transactional_id="kept", producer=me, sequence=1)
            assert late.error_code == ErrorCode.INVALID_PRODUCER_EPOCH
            for _ in range(2):
                assert client.end_transaction("kept", resolvers[-1], commit=True).error_code == 0
            client.wait_for_state("kept", "CompleteCommit")
            assert client.fetch(topic, committed=True).values == [b"x"]
    finally:
        process.stop()
