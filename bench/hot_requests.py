"""The requests that a broker gets most often, as ready-made frames: what `request_time` and `request_calls` send.

Each row is a list of units, and each unit a list of (connection, frame). A row is made with `ask`, which sends one
frame and returns the answer's body, so that it needs no client.
"""

from __future__ import annotations

import itertools
import struct
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from bench.common import RawConnection
from fencepost.protocol import fetch_wire, produce_wire
from fencepost.protocol.codec import decode_response, encode_request
from fencepost.protocol.frame import decode_response_header, encode_request_frame
from fencepost.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from fencepost.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from fencepost.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from fencepost.protocol.messages.end_txn import EndTxnRequest
from fencepost.protocol.messages.find_coordinator import FindCoordinatorRequest
from fencepost.protocol.messages.heartbeat import HeartbeatRequest
from fencepost.protocol.messages.init_producer_id import InitProducerIdRequest
from fencepost.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from fencepost.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from fencepost.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from fencepost.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from fencepost.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from fencepost.protocol.records.batch import set_producer
from fencepost.protocol.records.encoding import encode_batch

__all__ = ["ROWS", "Ask", "Frames", "Row", "ask_in_turn", "produce", "producer"]

Ask = Callable[[bytes], bytes]
"""Sends a frame with its size; returns the answer without its size."""
Frames = list[list[tuple[int, bytes]]]

VALUE = b"x" * 100
PARTITIONS = 1_000
MAX_BYTES = 1 << 20
PRODUCE_VERSION, TRANSACTIONAL_PRODUCE_VERSION, FETCH_VERSION = 9, 12, 17
TXN_COMMIT_VERSION = 5
_numbers = itertools.count()


class Row(NamedTuple):
    """A kind of request. `in_flight`: units that are sent before the first is answered."""

    frames: Callable[[Ask, int], Frames]
    in_flight: int = 5


def message(request: Any, version: int) -> bytes:
    """The request as a frame."""
    return encode_request_frame(request.API_KEY, version, 1, "bench", encode_request(request, version))


def asked(ask: Ask, request: Any, version: int) -> Any:
    """Ask, and decode the answer."""
    answer = ask(message(request, version))
    _, position = decode_response_header(request.API_KEY, version, answer)
    return decode_response(request.API_KEY, version, answer[position:])


def ask_in_turn(connections: Sequence[RawConnection], units: Iterable[list[tuple[int, bytes]]], in_flight: int) -> None:
    """Keep so many units under way, and read all answers."""
    waiting: deque[list[tuple[int, bytes]]] = deque()
    for unit in units:
        for number, frame in unit:
            connections[number].send(frame)
        waiting.append(unit)
        if len(waiting) == in_flight:
            _read(connections, waiting.popleft())
    while waiting:
        _read(connections, waiting.popleft())


def _read(connections: Sequence[RawConnection], unit: list[tuple[int, bytes]]) -> None:
    """Read the answers to a unit."""
    for number, _ in unit:
        connections[number].answer()


def new_topic(ask: Ask, partitions: int = 1) -> str:
    """A topic of the row's own."""
    name = f"bench-{next(_numbers)}"
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    asked(ask, CreateTopicsRequest(topics=[topic], timeout_ms=60_000), 7)
    return name


def topic_id(ask: Ask, name: str) -> Any:
    """Its id."""
    return asked(ask, MetadataRequest(topics=[MetadataRequestTopic(name=name)]), 12).topics[0].topic_id


def producer(ask: Ask, transactional_id: str | None) -> tuple[int, int]:
    """Producer id and epoch."""
    if transactional_id is not None:
        asked(ask, FindCoordinatorRequest(key_type=1, coordinator_keys=[transactional_id]), 4)
    request = InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1
    )
    answer = asked(ask, request, 4)
    return answer.producer_id, answer.producer_epoch


def produce(
    topic: str, owner: tuple[int, int] | None = None, sequence: int = 0, *, transactional_id: str | None = None
) -> bytes:
    """A request of one record."""
    batch = encode_batch(None, values=[VALUE], timestamps=0)
    if owner is not None:
        set_producer(batch, *owner, sequence, transactional=transactional_id is not None)
    wanted = produce_wire.ProducePartition(topic, None, 0, batch)
    request = produce_wire.ProduceRequest(transactional_id, -1, 30_000, [wanted])
    version = PRODUCE_VERSION if transactional_id is None else TRANSACTIONAL_PRODUCE_VERSION
    body = b"".join(produce_wire.encode_request(request, version))
    return encode_request_frame(0, version, 1, "bench", body)


def fetch(named: Any, offset: int | None, *, session: tuple[int, int] = (0, -1), max_wait_ms: int = 500) -> bytes:
    """A request of a consumer; an `offset` of None: the session's partitions as they are."""
    partition = fetch_wire.FetchPartition(0, offset or 0, MAX_BYTES)
    topics = [] if offset is None else [fetch_wire.FetchTopic(None, named, [partition])]
    request = fetch_wire.FetchRequest(
        max_wait_ms=max_wait_ms,
        isolation_level=fetch_wire.READ_COMMITTED,
        session_id=session[0],
        session_epoch=session[1],
        topics=topics,
    )
    return encode_request_frame(
        1, FETCH_VERSION, 1, "bench", b"".join(fetch_wire.encode_request(request, FETCH_VERSION))
    )


def session(ask: Ask, named: Any) -> int:
    """A new session over the topic."""
    answer = memoryview(ask(fetch(named, 0, session=(0, 0), max_wait_ms=0)))
    _, position = decode_response_header(1, FETCH_VERSION, answer)
    return fetch_wire.decode_response(answer[position:], FETCH_VERSION).session_id


def plain(ask: Ask, count: int) -> Frames:
    """Requests of one record."""
    return [[(0, produce(new_topic(ask)))]] * count


def idempotent(ask: Ask, count: int) -> Frames:
    """The same, in the sequence of a producer."""
    topic, owner = new_topic(ask), producer(ask, None)
    return [[(0, produce(topic, owner, number))] for number in range(count)]


def many_partitions(ask: Ask, count: int) -> Frames:
    """Requests of one record for each of many partitions."""
    topic, batch = new_topic(ask, PARTITIONS), encode_batch(None, values=[VALUE], timestamps=0)
    wanted = [produce_wire.ProducePartition(topic, None, partition, batch) for partition in range(PARTITIONS)]
    request = produce_wire.ProduceRequest(None, -1, 30_000, wanted)
    body = b"".join(produce_wire.encode_request(request, PRODUCE_VERSION))
    return [[(0, encode_request_frame(0, PRODUCE_VERSION, 1, "bench", body))]] * max(20, count // PARTITIONS)


def fetch_record(ask: Ask, count: int) -> Frames:
    """A record that is there, without a session."""
    topic = new_topic(ask)
    ask(produce(topic))
    return [[(0, fetch(topic_id(ask, topic), 0))]] * count


def fetch_nothing(ask: Ask, count: int) -> Frames:
    """Nothing, in a session, without waiting."""
    topic = new_topic(ask)
    named = topic_id(ask, topic)
    number = session(ask, named)
    return [[(0, fetch(named, None, session=(number, epoch + 1), max_wait_ms=0))] for epoch in range(count)]


def fetch_next(ask: Ask, count: int) -> Frames:
    """One record, and the fetch of a session that returns it."""
    topic = new_topic(ask)
    named = topic_id(ask, topic)
    number, write = session(ask, named), produce(topic)
    return [[(0, write), (0, fetch(named, epoch, session=(number, epoch + 1)))] for epoch in range(count)]


def fetch_waiting(ask: Ask, count: int) -> Frames:
    """A fetch of a session that waits, and the record that it waits for, of another connection."""
    topic = new_topic(ask)
    named = topic_id(ask, topic)
    number, write = session(ask, named), produce(topic)
    return [[(0, fetch(named, epoch, session=(number, epoch + 1))), (1, write)] for epoch in range(count)]


def transactions(ask: Ask, count: int) -> Frames:
    """A transaction of one record, and its EndTxn v5."""
    topic = new_topic(ask)
    (producer_id, first), units = producer(ask, "bench-txn"), []
    for epoch in range(first, first + count):
        write = produce(topic, (producer_id, epoch), transactional_id="bench-txn")
        end = EndTxnRequest(transactional_id="bench-txn", producer_id=producer_id, producer_epoch=epoch, committed=True)
        units.append([(0, write), (0, message(end, 5))])
    return units


def transactional_offsets(ask: Ask, count: int) -> Frames:
    """A transaction of one offset, TxnOffsetCommit v5, and its EndTxn v5."""
    topic = new_topic(ask)
    (producer_id, first), units = producer(ask, "bench-offsets"), []
    group, member, generation = joined(ask, topic)
    for epoch in range(first, first + count):
        partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=epoch, committed_metadata="")
        commit = TxnOffsetCommitRequest(
            transactional_id="bench-offsets",
            group_id=group,
            member_id=member,
            generation_id=generation,
            producer_id=producer_id,
            producer_epoch=epoch,
            topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=[partition])],
        )
        end = EndTxnRequest(
            transactional_id="bench-offsets", producer_id=producer_id, producer_epoch=epoch, committed=True
        )
        units.append([(0, message(commit, TXN_COMMIT_VERSION)), (0, message(end, 5))])
    return units


def initialized(ask: Ask, count: int) -> Frames:
    """InitProducerId v4 of the same id, as after each start of its producer."""
    producer(ask, "bench-init")
    request = InitProducerIdRequest(
        transactional_id="bench-init", transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1
    )
    return [[(0, message(request, 4))]] * count


def added(ask: Ask, count: int) -> Frames:
    """AddPartitionsToTxn v3 of one partition, and EndTxn v3: a transaction without records of an older client."""
    topic = new_topic(ask)
    producer_id, epoch = producer(ask, "bench-added")
    add = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="bench-added",
        v3_and_below_producer_id=producer_id,
        v3_and_below_producer_epoch=epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[0])],
    )
    end = EndTxnRequest(transactional_id="bench-added", producer_id=producer_id, producer_epoch=epoch, committed=True)
    return [[(0, message(add, 3)), (0, message(end, 3))]] * count


def joined(ask: Ask, topic: str) -> tuple[str, str, int]:
    """The group, its only member, and the generation."""
    group = f"group-{next(_numbers)}"
    asked(ask, FindCoordinatorRequest(key_type=0, coordinator_keys=[group]), 4)
    subscription = struct.pack(">hih", 0, 1, len(topic)) + topic.encode() + struct.pack(">i", -1)
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=300_000,
        rebalance_timeout_ms=300_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription)],
    )
    request.member_id = asked(ask, request, 5).member_id
    answer = asked(ask, request, 5)
    sync = SyncGroupRequest(
        group_id=group,
        generation_id=answer.generation_id,
        member_id=answer.member_id,
        assignments=[SyncGroupRequestAssignment(member_id=answer.member_id, assignment=b"")],
    )
    asked(ask, sync, 3)
    return group, answer.member_id, answer.generation_id


def commits(ask: Ask, count: int) -> Frames:
    """OffsetCommit v8 of one partition, of a member."""
    topic = new_topic(ask)
    group, member, generation = joined(ask, topic)
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
    request = OffsetCommitRequest(
        group_id=group,
        member_id=member,
        generation_id_or_member_epoch=generation,
        topics=[OffsetCommitRequestTopic(name=topic, partitions=[partition])],
    )
    return [[(0, message(request, 8))]] * count


def heartbeats(ask: Ask, count: int) -> Frames:
    """Heartbeat v4 of a member."""
    group, member, generation = joined(ask, new_topic(ask))
    return [[(0, message(HeartbeatRequest(group_id=group, member_id=member, generation_id=generation), 4))]] * count


def consumer_heartbeats(ask: Ask, count: int) -> Frames:
    """ConsumerGroupHeartbeat v1 of a member to which nothing is new."""
    topic, group = new_topic(ask), f"group-{next(_numbers)}"
    asked(ask, FindCoordinatorRequest(key_type=0, coordinator_keys=[group]), 4)
    request = ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id=f"member-{group}",
        member_epoch=0,
        rebalance_timeout_ms=300_000,
        subscribed_topic_names=[topic],
        topic_partitions=[],
    )
    epoch = asked(ask, request, 1).member_epoch
    following = ConsumerGroupHeartbeatRequest(group_id=group, member_id=request.member_id, member_epoch=epoch)
    return [[(0, message(following, 1))]] * count


ROWS: dict[str, Row] = {
    "one record": Row(plain),
    "one record, idempotent": Row(idempotent),
    "one record to each of 1,000 partitions": Row(many_partitions),
    "fetch of a record": Row(fetch_record),
    "fetch of nothing": Row(fetch_nothing),
    "one record, and its fetch": Row(fetch_next),
    "a fetch that waits, and its record": Row(fetch_waiting, 1),
    "one record and its EndTxn": Row(transactions),
    "offsets in a transaction, and its EndTxn": Row(transactional_offsets),
    "InitProducerId": Row(initialized),
    "AddPartitionsToTxn, and its EndTxn": Row(added),
    "OffsetCommit": Row(commits),
    "Heartbeat": Row(heartbeats),
    "ConsumerGroupHeartbeat": Row(consumer_heartbeats),
}
