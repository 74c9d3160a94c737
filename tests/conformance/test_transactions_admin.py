"""Calls of administrators: lists, descriptions, markers by hand. Expected: Kafka 4.4 (K80 to K83, K33)."""

from __future__ import annotations

import time
from typing import Any

import pytest

from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages import write_txn_markers as wm
from fencepost.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from fencepost.protocol.messages.list_transactions import ListTransactionsRequest
from tests.support.brokers import BrokerUnderTest
from tests.support.raw_client import Producer, RawClient
from tests.support.txn_requests import producers, write_marker
from tests.support.waiting import until


def opened(broker: BrokerUnderTest, client: RawClient) -> tuple[str, str, Producer]:
    topic, name = client.create_topic(broker.name("t")), broker.name("txn")
    me = client.start_producer(name)
    assert client.produce(topic, [b"x"], transactional_id=name, producer=me, sequence=0).error_code == 0
    return topic, name, me


def listed(client: RawClient, names: list[str], version: int = 2, **filters: Any) -> list[str]:
    answer = client.call(ListTransactionsRequest(**filters), version)
    assert answer.error_code == 0
    return sorted(
        listing.transactional_id for listing in answer.transaction_states if listing.transactional_id in names
    )


@pytest.mark.parametrize("version", [0, 1, 2])
def test_lists_by_state_and_producer(broker: BrokerUnderTest, client: RawClient, version: int) -> None:
    empty = broker.name("empty")
    mine = client.start_producer(empty)
    _, name, me = opened(broker, client)
    names = sorted([empty, name])
    assert listed(client, names, version) == names
    assert listed(client, names, version, state_filters=["Ongoing"]) == [name]
    assert listed(client, names, version, state_filters=["Ongoing", "Empty"]) == names
    assert listed(client, names, version, producer_id_filters=[mine.producer_id]) == [empty]
    assert listed(client, names, version, producer_id_filters=[mine.producer_id, me.producer_id]) == names
    for known in ("Dead", "PrepareEpochFence", "PrepareCommit"):
        assert listed(client, names, version, state_filters=[known]) == []
    answer = client.call(ListTransactionsRequest(state_filters=["Prepared", "Ongoing"]), version)
    assert list(answer.unknown_state_filters) == ["Prepared"]


def test_lists_by_age(broker: BrokerUnderTest, client: RawClient) -> None:
    """An id with nothing begun passes every age; 0 and negative ages pass everything."""
    empty = broker.name("empty")
    client.start_producer(empty)
    _, name, _ = opened(broker, client)
    begun_by_ms = time.time_ns() // 1_000_000
    until(lambda: time.time_ns() // 1_000_000 > begun_by_ms)  # in the millisecond of its begin it is not older than 0
    names = sorted([empty, name])
    for everything in (0, -1, -77):
        assert listed(client, names, duration_filter=everything) == names
    assert listed(client, names, duration_filter=3_600_000) == [empty]
    until(lambda: listed(client, names, duration_filter=50) == names)


def test_lists_by_pattern(broker: BrokerUnderTest, client: RawClient) -> None:
    name = broker.name("txn")
    client.start_producer(name)
    assert listed(client, [name], transactional_id_pattern=f"{name[:-1]}.") == [name]
    assert listed(client, [name], transactional_id_pattern=name[:-1]) == []
    assert listed(client, [name], transactional_id_pattern="") == [name]
    assert listed(client, [name], transactional_id_pattern=None) == [name]
    for bad in ("[", "(", "*", "(?=x)"):
        assert client.call(ListTransactionsRequest(transactional_id_pattern=bad), 2).error_code == 128


def test_descriptions(broker: BrokerUnderTest, client: RawClient) -> None:
    name = broker.name("txn")
    me = client.start_producer(name, timeout_ms=12_345)
    state = client.describe_transaction(name)
    assert (state.error_code, state.transaction_state, state.transaction_timeout_ms) == (0, "Empty", 12_345)
    assert (state.producer_id, state.producer_epoch, state.transaction_start_time_ms) == (me.producer_id, me.epoch, -1)
    unknown = client.describe_transaction(broker.name("nobody"))
    assert (unknown.error_code, unknown.transaction_state, unknown.producer_id) == (105, "", 0)
    assert client.describe_transaction("").error_code == ErrorCode.INVALID_REQUEST


def test_a_partition_that_is_not_there(broker: BrokerUnderTest, client: RawClient) -> None:
    request = DescribeProducersRequest(topics=[TopicRequest(name=broker.name("nowhere"), partition_indexes=[0])])
    (found,) = client.call(request, 0).topics[0].partitions
    assert (found.error_code, found.error_message) == (3, "This server does not host this topic-partition.")


@pytest.mark.parametrize("version", [1, 2])
def test_a_marker_by_hand_ends_what_the_coordinator_calls_ongoing(
    broker: BrokerUnderTest, client: RawClient, version: int
) -> None:
    """A later EndTxn of the opposite result is answered 0 and does not undo it."""
    topic, name, me = opened(broker, client)
    assert write_marker(client, topic, me, commit=False, version=version) == 0
    assert client.describe_transaction(name).transaction_state == "Ongoing"
    assert client.end_offset(topic, committed=True) == 2
    assert client.end_transaction(name, me, commit=True).error_code == 0
    client.wait_for_state(name, "CompleteCommit")
    assert client.fetch(topic, committed=True).values == []


def test_markers_by_hand_where_nothing_is_open(broker: BrokerUnderTest, client: RawClient) -> None:
    """A marker is appended all the same, also for a producer id that the partition has never seen."""
    topic, name, me = opened(broker, client)
    assert client.end_transaction(name, me, commit=True).error_code == 0
    client.wait_for_state(name, "CompleteCommit")
    following = Producer(me.producer_id, me.epoch + 1)
    (known,) = producers(client, topic)  # the coordinator's epoch has risen where its broker was started again
    assert write_marker(client, topic, following, commit=True, coordinator_epoch=known.coordinator_epoch) == 0
    assert write_marker(client, topic, Producer(me.producer_id + 100_000, 3), commit=True) == 0
    assert client.end_offset(topic) == 4
    assert client.fetch(topic, committed=True).values == [b"x"]


def test_markers_by_hand_that_are_refused(broker: BrokerUnderTest, client: RawClient) -> None:
    """A coordinator epoch that has been passed: 52. An old epoch, or a not yet bumped one of version 2: 47."""
    topic, _name, me = opened(broker, client)
    (unmarked,) = producers(client, topic)
    assert unmarked.coordinator_epoch == -1
    assert write_marker(client, topic, me, commit=True, transaction_version=2) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert write_marker(client, broker.name("nowhere"), me, commit=True) == 3
    negative = write_marker(client, topic, Producer(me.producer_id, -1), commit=True)
    # Kafka stumbles over it; ours says what is wrong.
    expected = ErrorCode.INVALID_PRODUCER_EPOCH if broker.is_ours else ErrorCode.UNKNOWN_SERVER_ERROR
    assert negative == expected
    assert write_marker(client, topic, me, commit=True, coordinator_epoch=7) == 0
    assert write_marker(client, topic, me, commit=True, coordinator_epoch=6) == 52
    (known,) = producers(client, topic)
    # The epoch stays, and with it the last sequence.
    assert (known.producer_epoch, known.last_sequence, known.coordinator_epoch) == (me.epoch, 0, 7)


def test_markers_by_hand_are_answered_once_for_each_partition(broker: BrokerUnderTest, client: RawClient) -> None:
    """Also where two of them are of one producer, and not at all where they name no partition. The one that can be
    written comes last: Kafka does not answer where others follow it that cannot."""
    topic = client.create_topic(broker.name("t"))
    me = client.start_producer(broker.name("txn"))
    named: list[dict[str, list[int]]] = [{topic: []}, {topic: [], "missing": [7, 7, 8]}, {topic: [0], "missing": [8]}]
    markers = [
        wm.WritableTxnMarker(
            producer_id=me.producer_id if topics[topic] or "missing" in topics else me.producer_id + 1,
            producer_epoch=me.epoch,
            topics=[
                wm.WritableTxnMarkerTopic(name=name, partition_indexes=indexes) for name, indexes in topics.items()
            ],
        )
        for topics in named
    ]
    (answered,) = client.call(wm.WriteTxnMarkersRequest(markers=markers), 2).markers
    results = {
        found.name: sorted((partition.partition_index, partition.error_code) for partition in found.partitions)
        for found in answered.topics
    }
    assert answered.producer_id == me.producer_id
    missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert results == {topic: [(0, 0)], "missing": [(7, missing), (8, missing)]}


@pytest.mark.parametrize(
    ("producer_id", "epoch", "transaction_version"),
    [(-1, 0, 0), (-1, 32_767, 0), (10**9, -1, 0), (10**9, 0, -1)],
)
def test_markers_of_nobody_and_of_an_unknown_version_are_refused(
    broker: BrokerUnderTest, client: RawClient, producer_id: int, epoch: int, transaction_version: int
) -> None:
    """Kafka stumbles over them, and appends nothing."""
    topic = client.create_topic(broker.name("t"))
    refused = ErrorCode.INVALID_PRODUCER_EPOCH if epoch < 0 else ErrorCode.INVALID_REQUEST
    if not broker.is_ours:
        refused = ErrorCode.UNKNOWN_SERVER_ERROR
    me = Producer(producer_id, epoch)
    assert write_marker(client, topic, me, commit=True, transaction_version=transaction_version) == refused
    assert producers(client, topic) == []
