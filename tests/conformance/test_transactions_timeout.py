"""A transaction that timed out, and one whose producer was fenced: every request of the old epoch, in every version.

Kafka 4.4 answers both alike (K43), by the version of the request. Ours answers a timeout so that the
client's generation can go on (R1); a fenced producer gets Kafka's own answers.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest

from fencepost.protocol.codes import ErrorCode
from tests.support.brokers import BrokerUnderTest
from tests.support.raw_client import Producer, RawClient
from tests.support.txn_requests import add_offsets, add_partition, commit_offsets

OLD_EPOCH, FENCED = int(ErrorCode.INVALID_PRODUCER_EPOCH), int(ErrorCode.PRODUCER_FENCED)
UNKNOWN, ABORTABLE = int(ErrorCode.UNKNOWN_PRODUCER_ID), int(ErrorCode.TRANSACTION_ABORTABLE)
NOT_OPEN = int(ErrorCode.INVALID_TXN_STATE)


class Generation(NamedTuple):
    """The versions a generation of clients sends, and what our broker tells it."""

    init: int
    adds: tuple[int, ...]
    offsets: tuple[int, ...]
    ends: tuple[int, ...]
    produces: tuple[int, ...]
    add_code: int
    offsets_code: int
    commit_code: int
    abort_code: int
    produce_code: int
    log_start: int


GENERATIONS = {
    "A": Generation(1, (0, 1), (0, 2), (0, 1), (3, 7), OLD_EPOCH, OLD_EPOCH, OLD_EPOCH, OLD_EPOCH, OLD_EPOCH, -1),
    "B": Generation(3, (0, 1), (2, 3), (0, 1), (8,), UNKNOWN, 0, UNKNOWN, 0, ABORTABLE, -1),
    "L": Generation(4, (0, 1), (3,), (0, 1), (9, 10), UNKNOWN, 0, UNKNOWN, UNKNOWN, UNKNOWN, -2),
    "C": Generation(5, (2, 3), (3, 4), (2, 3, 4), (9, 11), UNKNOWN, 0, UNKNOWN, 0, OLD_EPOCH, -1),
    "D": Generation(5, (), (5,), (5,), (12,), 0, ABORTABLE, ABORTABLE, 0, ABORTABLE, -1),
}


class Old(NamedTuple):
    topic: str
    name: str
    me: Producer


def timed_out(broker: BrokerUnderTest, client: RawClient, generation: Generation) -> Old:
    """A producer of that generation after the broker has aborted its transaction for its age."""
    topic, name = client.create_topic(broker.name("t"), partitions=2), broker.name("txn")
    given = client.settled(lambda: client.init_producer_id(name, timeout_ms=300, version=generation.init))
    me = Producer(given.producer_id, given.producer_epoch)
    if generation.adds:
        assert add_partition(client, name, me, topic, generation.adds[-1]) == 0
    version = generation.produces[-1]
    assert (
        client.produce(topic, [b"x"], transactional_id=name, producer=me, sequence=0, version=version).error_code == 0
    )
    client.wait_for_state(name, "CompleteAbort")
    return Old(topic, name, me)


def kafka_s(version: int, first_with_90: int) -> int:
    return FENCED if version >= first_with_90 else OLD_EPOCH


@pytest.mark.parametrize("name", GENERATIONS)
def test_adding_after_a_timeout(broker: BrokerUnderTest, client: RawClient, name: str) -> None:
    generation = GENERATIONS[name]
    for version in generation.adds:
        old = timed_out(broker, client, generation)
        expected = generation.add_code if broker.is_ours else kafka_s(version, 2)
        assert add_partition(client, old.name, old.me, old.topic, version) == expected
        assert add_offsets(client, old.name, old.me, broker.name("g"), version) == expected


@pytest.mark.parametrize("name", GENERATIONS)
def test_offsets_after_a_timeout(broker: BrokerUnderTest, client: RawClient, name: str) -> None:
    generation = GENERATIONS[name]
    old = timed_out(broker, client, generation)
    for version in generation.offsets:
        expected = generation.offsets_code if broker.is_ours else OLD_EPOCH
        assert commit_offsets(client, old.name, old.me, broker.name("g"), old.topic, version=version) == expected
    assert client.describe_transaction(old.name).transaction_state == "CompleteAbort"


@pytest.mark.parametrize("name", GENERATIONS)
def test_ending_after_a_timeout(broker: BrokerUnderTest, client: RawClient, name: str) -> None:
    generation = GENERATIONS[name]
    old = timed_out(broker, client, generation)
    for version in generation.ends:
        commit = client.end_transaction(old.name, old.me, commit=True, version=version)
        abort = client.end_transaction(old.name, old.me, commit=False, version=version)
        if broker.is_ours:
            assert (commit.error_code, abort.error_code) == (generation.commit_code, generation.abort_code)
        elif version >= 5:
            assert (commit.error_code, abort.error_code) == (NOT_OPEN, 0)
        else:
            assert (commit.error_code, abort.error_code) == (kafka_s(version, 2), kafka_s(version, 2))
        if version >= 5:
            assert abort.producer_epoch == old.me.epoch + 1


@pytest.mark.parametrize("name", GENERATIONS)
def test_producing_after_a_timeout(broker: BrokerUnderTest, client: RawClient, name: str) -> None:
    """Never with a log start offset that a client could take for retention."""
    generation = GENERATIONS[name]
    old = timed_out(broker, client, generation)
    for version in generation.produces:
        for partition in (0, 1):
            late = client.produce(
                old.topic,
                [b"late"],
                partition=partition,
                transactional_id=old.name,
                producer=old.me,
                sequence=1 - partition,
                version=version,
            )
            if broker.is_ours:
                assert (late.error_code, late.base_offset) == (generation.produce_code, -1)
                assert late.log_start_offset == (generation.log_start if version >= 5 else -1)
            else:
                assert (late.error_code, late.base_offset, late.log_start_offset) == (OLD_EPOCH, -1, -1)
    assert client.fetch(old.topic, committed=True).values == []


@pytest.mark.parametrize("version", [3, 4, 5, 6])
def test_the_old_pair_is_exchanged_for_the_next_one(broker: BrokerUnderTest, client: RawClient, version: int) -> None:
    """Both: once, whatever the number of tries; with the new epoch the next transaction commits."""
    old = timed_out(broker, client, GENERATIONS["D"])
    for _ in range(2):
        given = client.init_producer_id(old.name, producer=old.me, version=version)
        assert (given.error_code, given.producer_id, given.producer_epoch) == (0, old.me.producer_id, old.me.epoch + 1)
    new = Producer(given.producer_id, given.producer_epoch)
    assert client.produce(old.topic, [b"y"], transactional_id=old.name, producer=new, sequence=0).error_code == 0
    assert client.end_transaction(old.name, new, commit=True).error_code == 0
    client.wait_for_state(old.name, "CompleteCommit")
    assert client.fetch(old.topic, committed=True).values == [b"y"]


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4, 5, 6])
def test_an_init_without_the_pair_takes_another_epoch(broker: BrokerUnderTest, client: RawClient, version: int) -> None:
    old = timed_out(broker, client, GENERATIONS["D"])
    given = client.settled(lambda: client.init_producer_id(old.name, version=version))
    assert (given.error_code, given.producer_epoch) == (0, old.me.epoch + 2)


@pytest.mark.parametrize("name", GENERATIONS)
def test_a_fenced_producer_is_told_so_in_every_version(broker: BrokerUnderTest, client: RawClient, name: str) -> None:
    """Another InitProducerId came: 47 or 90 by the request's version at both, and nothing that looks like a timeout."""
    generation = GENERATIONS[name]
    topic, txn = client.create_topic(broker.name("t")), broker.name("txn")
    given = client.settled(lambda: client.init_producer_id(txn, version=generation.init))
    old = Producer(given.producer_id, given.producer_epoch)
    if generation.adds:
        assert add_partition(client, txn, old, topic, generation.adds[-1]) == 0
    last = generation.produces[-1]
    assert client.produce(topic, [b"x"], transactional_id=txn, producer=old, sequence=0, version=last).error_code == 0
    new = client.start_producer(txn)
    assert new.epoch == old.epoch + 2
    client.wait_for_state(txn, "Empty")
    for version in generation.adds:
        assert add_partition(client, txn, old, topic, version) == kafka_s(version, 2)
        assert add_offsets(client, txn, old, broker.name("g"), version) == kafka_s(version, 2)
    for version in generation.offsets:
        assert commit_offsets(client, txn, old, broker.name("g"), topic, version=version) == OLD_EPOCH
    for version in generation.ends:
        for commit in (True, False):
            ended = client.end_transaction(txn, old, commit=commit, version=version)
            assert ended.error_code == kafka_s(version, 2)
    for version in generation.produces:
        late = client.produce(topic, [b"y"], transactional_id=txn, producer=old, sequence=1, version=version)
        assert late.error_code == OLD_EPOCH
    for version in (3, 4, 5, 6):
        assert client.init_producer_id(txn, producer=old, version=version).error_code == kafka_s(version, 4)
