"""Apache Kafka 2.8.2, where nobody lists or describes transactions: what its coordinator tells of them (K110 to K113).

These are the questions that a Spark sink would have there. The expected answers were observed with raw requests.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from fencepost.protocol.codes import ErrorCode as E
from fencepost.protocol.messages.find_coordinator import FindCoordinatorRequest
from fencepost.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tests.support.older_kafka import OlderKafka
from tests.support.raw_client import PASSING, Producer, RawClient
from tests.support.txn_requests import add_partition, end_once

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

TOPIC = "out"
TIMEOUT_MS = 1000  # of the transactions that are to time out


class OldClient(RawClient):
    """In the versions of Kafka 2.8."""

    def _offsets(self, topic: str, partition: int, timestamp: int, committed: bool) -> Any:
        wanted = ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
        topics = [ListOffsetsTopic(name=topic, partitions=[wanted])]
        request = ListOffsetsRequest(replica_id=-1, isolation_level=int(committed), topics=topics)
        return self.call(request, 5).topics[0].partitions[0]

    def find_coordinators(self) -> None:
        request = FindCoordinatorRequest(key="any", key_type=1)
        assert self.settled(lambda: self.call(request, 3)).error_code == 0

    def begin(self, name: str, timeout_ms: int = 60_000, producer: Producer | None = None) -> Producer:
        """InitProducerId until it is not 51; ValueError with what refuses it."""
        ask = partial(self.init_producer_id, name, timeout_ms=timeout_ms, producer=producer, version=4)
        given = self.settled(ask)
        if given.error_code:
            raise ValueError(E(given.error_code).name)
        return Producer(given.producer_id, given.producer_epoch)

    def write(self, name: str, me: Producer, sequence: int = 0) -> int:
        sent = self.produce(TOPIC, [b"x"], transactional_id=name, producer=me, sequence=sequence, version=9)
        return sent.error_code

    def add(self, name: str, me: Producer) -> int:
        return add_partition(self, name, me, TOPIC)

    def end(self, name: str, me: Producer, *, commit: bool) -> int:
        """EndTxn v3 until it is not a passing answer."""
        return self.settled(lambda: end_once(self, name, me, commit=commit, version=3)).error_code

    def held_back(self) -> int:
        """Offsets of the partition that readers of committed records do not get to."""
        return self.end_offset(TOPIC) - self.end_offset(TOPIC, committed=True)


@pytest.fixture(scope="module")
def kafka() -> Iterator[OldClient]:
    look = "transaction.abort.timed.out.transaction.cleanup.interval.ms"
    with OlderKafka("2.8.2", {look: 200}) as running, OldClient(running.bootstrap_servers) as client:
        client.create_topic(TOPIC)
        client.find_coordinators()
        yield client


def opened(kafka: OldClient, name: str, timeout_ms: int = 60_000) -> Producer:
    """A transaction with a batch in it."""
    me = kafka.begin(name, timeout_ms)
    assert (kafka.add(name, me), kafka.write(name, me)) == (0, 0)
    return me


def until(ask: Callable[[], int], wanted: int) -> None:
    deadline = time.monotonic() + 60
    while (seen := ask()) != wanted:
        assert time.monotonic() < deadline, f"{seen}, not {wanted}"
        time.sleep(0.05)


def test_enlisting_a_partition_again_tells_a_fenced_transaction_from_an_open_one(kafka: OldClient) -> None:
    """K110."""
    me = opened(kafka, "open")
    assert [kafka.add("open", me) for _ in range(3)] == [0, 0, 0]
    assert kafka.end("open", me, commit=True) == 0  # the questions have changed nothing
    late = opened(kafka, "late", TIMEOUT_MS)
    until(lambda: kafka.end("late", late, commit=True) if kafka.held_back() == 0 else 0, E.PRODUCER_FENCED)
    assert kafka.add("late", late) == E.PRODUCER_FENCED
    fenced = opened(kafka, "fenced")
    assert kafka.begin("fenced").epoch == fenced.epoch + 2
    assert kafka.add("fenced", fenced) == E.PRODUCER_FENCED


def test_enlisting_a_partition_again_does_not_tell_a_transaction_that_is_over_but_opens_another(
    kafka: OldClient,
) -> None:
    """K111: in Empty, CompleteCommit and CompleteAbort the answer is that of an open one."""
    never = kafka.begin("never")
    assert kafka.end("never", never, commit=True) == E.INVALID_TXN_STATE  # Empty
    assert kafka.add("never", never) == 0
    assert kafka.end("never", never, commit=True) == 0  # so it was open
    for commit, refused in ((True, E.INVALID_TXN_STATE), (False, E.INVALID_TXN_STATE)):
        name = f"over-{commit}"
        me = opened(kafka, name)
        assert kafka.end(name, me, commit=commit) == 0
        assert kafka.end(name, me, commit=commit) == 0  # K112: how it ended is told, for as long as nobody enlists
        assert kafka.end(name, me, commit=not commit) == refused
        assert kafka.add(name, me) == 0
        assert kafka.end(name, me, commit=not commit) == 0  # it was open again


def test_the_end_tells_what_became_of_a_transaction(kafka: OldClient) -> None:
    """K112: asked to commit, 0 is committed, 48 aborted by an EndTxn or never begun, 90 timed out or fenced."""
    committed, aborted = opened(kafka, "committed"), opened(kafka, "aborted")
    assert kafka.end("committed", committed, commit=True) == 0
    assert kafka.end("aborted", aborted, commit=False) == 0
    assert kafka.end("committed", committed, commit=True) == 0
    assert kafka.end("aborted", aborted, commit=True) == E.INVALID_TXN_STATE
    fenced = opened(kafka, "ended")
    kafka.begin("ended")
    assert kafka.end("ended", fenced, commit=True) == E.PRODUCER_FENCED


def test_a_fence_keeps_a_late_batch_out_and_an_end_does_not(kafka: OldClient) -> None:
    """K113."""
    fenced = opened(kafka, "kept-out")
    kafka.begin("kept-out")
    assert kafka.write("kept-out", fenced, 1) == E.INVALID_PRODUCER_EPOCH
    until(kafka.held_back, 0)
    empty = kafka.begin("own-pair")
    assert kafka.begin("own-pair", producer=empty).epoch == empty.epoch + 1
    assert kafka.begin("own-pair", producer=empty).epoch == empty.epoch + 1  # asked again: the same answer
    mine = opened(kafka, "own-pair-open")
    with pytest.raises(ValueError, match="PRODUCER_FENCED"):
        kafka.begin("own-pair-open", producer=mine)
    assert E.CONCURRENT_TRANSACTIONS in PASSING
    ended = opened(kafka, "let-in")
    assert kafka.end("let-in", ended, commit=False) == 0
    until(lambda: kafka.end("let-in", ended, commit=False) + kafka.held_back(), 0)
    assert kafka.write("let-in", ended, 1) == 0
    assert kafka.held_back() == 1
    kafka.begin("let-in")
    assert kafka.held_back() == 1  # no coordinator knows it: nobody ends it
