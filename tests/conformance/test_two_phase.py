"""Two-phase commit on the wire (KIP-939). Kafka 4.4 has all of it but keeping a prepared transaction."""

from __future__ import annotations

import time

import pytest

from fencepost.protocol.codes import ErrorCode
from tests.support.brokers import BrokerUnderTest
from tests.support.raw_client import Producer, RawClient

NEVER_MS = 2**31 - 1


def prepare(client: RawClient, topic: str, name: str, values: list[bytes]) -> Producer:
    """A 2PC transaction with these values in it, left open."""
    me = client.start_producer(name, two_phase=True)
    answer = client.produce(topic, values, transactional_id=name, producer=me, sequence=0)
    assert answer.error_code == 0
    return me


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
def test_another_connection_ends_what_was_prepared(broker: BrokerUnderTest, client: RawClient, commit: bool) -> None:
    topic, name = client.create_topic(broker.name("t")), broker.name("txn")
    with broker.connect() as task:
        pair = prepare(task, topic, name, [b"a", b"b"])
    with broker.connect() as driver:
        state = driver.describe_transaction(name)
        assert (state.transaction_state, state.transaction_timeout_ms) == ("Ongoing", NEVER_MS)
        assert driver.fetch(topic, committed=True).values == []
        for _ in range(2):
            ended = driver.end_transaction(name, pair, commit=commit)
            assert (ended.error_code, ended.producer_id, ended.producer_epoch) == (0, pair.producer_id, pair.epoch + 1)
        driver.wait_for_state(name, "CompleteCommit" if commit else "CompleteAbort")
        assert driver.fetch(topic, committed=True).values == ([b"a", b"b"] if commit else [])


@pytest.mark.parametrize("timeout_ms", [NEVER_MS, 900_001, 1, 0, -1])
def test_a_two_phase_producer_has_no_timeout(broker: BrokerUnderTest, client: RawClient, timeout_ms: int) -> None:
    """K11: whatever the client asks is ignored, not validated."""
    name = broker.name("txn")
    given = client.settled(lambda: client.init_producer_id(name, two_phase=True, timeout_ms=timeout_ms))
    assert (given.error_code, given.producer_epoch) == (0, 0)
    assert (given.ongoing_txn_producer_id, given.ongoing_txn_producer_epoch) == (-1, -1)
    assert client.describe_transaction(name).transaction_timeout_ms == NEVER_MS


def test_what_is_prepared_is_not_timed_out(broker: BrokerUnderTest, client: RawClient) -> None:
    """The twin without 2PC, begun later, is long gone."""
    topic, name, twin = client.create_topic(broker.name("t")), broker.name("txn"), broker.name("twin")
    given = client.settled(lambda: client.init_producer_id(name, two_phase=True, timeout_ms=200))
    pair = Producer(given.producer_id, given.producer_epoch)
    client.produce(topic, [b"kept"], transactional_id=name, producer=pair, sequence=0)
    other = client.start_producer(twin, timeout_ms=200)
    client.produce(topic, [b"gone"], transactional_id=twin, producer=other, sequence=0)
    client.wait_for_state(twin, "CompleteAbort")
    time.sleep(0.5)
    assert client.describe_transaction(name).transaction_state == "Ongoing"
    assert client.end_transaction(name, pair, commit=True).error_code == 0
    client.wait_for_state(name, "CompleteCommit")
    assert client.fetch(topic, committed=True).values == [b"kept"]


@pytest.mark.parametrize("with_pair", [False, True], ids=["without pair", "with its own pair"])
def test_a_plain_init_aborts_what_is_prepared(broker: BrokerUnderTest, client: RawClient, with_pair: bool) -> None:
    """The newcomer gets the epoch after the next; with the transaction's own pair, the next.

    Kafka sends it away with 51 until the markers are written; ours lets the request wait for them.
    """
    topic, name = client.create_topic(broker.name("t")), broker.name("txn")
    pair = prepare(client, topic, name, [b"x"])
    given = client.init_producer_id(name, two_phase=True, producer=pair if with_pair else None)
    if not broker.is_ours:
        assert given.error_code == ErrorCode.CONCURRENT_TRANSACTIONS
        given = client.settled(
            lambda: client.init_producer_id(name, two_phase=True, producer=pair if with_pair else None)
        )
    assert (given.error_code, given.producer_epoch) == (0, pair.epoch + (1 if with_pair else 2))
    assert client.end_transaction(name, pair, commit=True).error_code != 0
    assert client.fetch(topic, committed=True).values == []


def test_a_zombie_cannot_abort_what_another_prepared(broker: BrokerUnderTest, client: RawClient) -> None:
    """K16: Kafka aborts the open transaction and answers 51; ours looks at the pair first: 90."""
    topic, name = client.create_topic(broker.name("t")), broker.name("txn")
    zombie = client.start_producer(name, two_phase=True)
    pair = prepare(client, topic, name, [b"x"])
    assert pair.epoch == zombie.epoch + 1
    answer = client.init_producer_id(name, two_phase=True, producer=zombie)
    if broker.is_ours:
        assert answer.error_code == ErrorCode.PRODUCER_FENCED
        assert client.describe_transaction(name).transaction_state == "Ongoing"
        assert client.end_transaction(name, pair, commit=True).error_code == 0
    else:
        assert answer.error_code == ErrorCode.CONCURRENT_TRANSACTIONS
        client.wait_for_state(name, "CompleteAbort")


def test_keeping_what_is_prepared(broker: BrokerUnderTest, client: RawClient) -> None:
    """KIP-939: init with keep returns the ongoing pair and a new one to end it with. Kafka 4.4 answers 35."""
    topic, name = client.create_topic(broker.name("t")), broker.name("txn")
    pair = prepare(client, topic, name, [b"kept"])
    reply = client.init_producer_id(name, two_phase=True, keep_prepared=True)
    if not broker.is_ours:
        assert (reply.error_code, reply.producer_id) == (ErrorCode.UNSUPPORTED_VERSION, -1)
        assert (reply.ongoing_txn_producer_id, reply.ongoing_txn_producer_epoch) == (-1, -1)
        assert client.describe_transaction(name).transaction_state == "Ongoing"
        return
    assert reply.error_code == 0
    assert (reply.ongoing_txn_producer_id, reply.ongoing_txn_producer_epoch) == (pair.producer_id, pair.epoch)
    following = Producer(reply.producer_id, reply.producer_epoch)
    assert following != pair
    assert client.describe_transaction(name).transaction_state == "Ongoing"
    later = client.init_producer_id(name, two_phase=True, keep_prepared=True)
    assert (later.ongoing_txn_producer_id, later.ongoing_txn_producer_epoch) == (pair.producer_id, pair.epoch)
    assert client.end_transaction(name, following, commit=False).error_code == ErrorCode.PRODUCER_FENCED
    resolver = Producer(later.producer_id, later.producer_epoch)
    assert client.end_transaction(name, resolver, commit=True).error_code == 0
    client.wait_for_state(name, "CompleteCommit")
    assert client.fetch(topic, committed=True).values == [b"kept"]


def test_keeping_nothing(broker: BrokerUnderTest, client: RawClient) -> None:
    """With no transaction open, keep is an ordinary init (ours); 35 at Kafka, and nothing is created."""
    name = broker.name("txn")
    reply = client.settled(lambda: client.init_producer_id(name, two_phase=True, keep_prepared=True))
    if broker.is_ours:
        assert (reply.error_code, reply.producer_epoch) == (0, 0)
        assert (reply.ongoing_txn_producer_id, reply.ongoing_txn_producer_epoch) == (-1, -1)
    else:
        assert reply.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert client.describe_transaction(name).error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
