"""A scripted broker for consumers: topics with batches of several leader epochs, one group, two nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fencepost.client.consumer.core import ConsumerCore
from fencepost.client.net.cluster import Cluster
from fencepost.client.types import TopicPartition
from fencepost.config import ConsumerConfig
from fencepost.protocol import fetch_wire
from fencepost.protocol.consumer_protocol import encode_assignment
from fencepost.protocol.cursor import Buffer
from fencepost.protocol.messages import heartbeat, join_group, leave_group, list_offsets, sync_group
from fencepost.protocol.messages import offset_commit as oc
from fencepost.protocol.messages import offset_fetch as of
from fencepost.protocol.messages import offset_for_leader_epoch as epochs
from fencepost.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatResponse,
    ResponseTopicPartitions,
)
from fencepost.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from fencepost.protocol.records.encoding import encode_batch
from tests.support.batches import put_at
from tests.unit.client.scripted import Runtime, ScriptedBroker, ScriptedStream, World, topic_id

OFFERED = {1: (4, 17), 2: (1, 11), 8: (2, 9), 9: (1, 9), 11: (0, 9), 12: (0, 4), 13: (0, 5), 14: (0, 5), 23: (2, 4)}
TOPIC = "t"
PARTITION = TopicPartition(TOPIC, 0)


def offsets_answer(request: Any, found: Callable[[Any], Mapping[str, int]]) -> list_offsets.ListOffsetsResponse:
    """The answer to ListOffsets with, for each partition that is asked for, the fields that `found` gives."""
    return list_offsets.ListOffsetsResponse(
        topics=[
            list_offsets.ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    list_offsets.ListOffsetsPartitionResponse(
                        partition_index=partition.partition_index, **found(partition)
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


class ScriptedConsumerBroker(ScriptedBroker):
    """`log` holds (first offset, leader epoch, values) of the batches of t-0."""

    def __init__(self, *, partitions: int = 1) -> None:
        super().__init__(partitions=partitions)
        self.offered |= OFFERED | {68: (0, 1)}
        self.log: list[tuple[int, int, Sequence[bytes]]] = []
        self.leader_epoch = 0
        self.session_id = 0
        self.throttle_ms = 0
        self.preferred = -1
        self.generation = 0
        self.committed: dict[int, tuple[int, int]] = {}  # partition -> (offset, leader epoch)
        self.member_epoch = 0
        self.fetches: list[fetch_wire.FetchRequest] = []
        self.batches_at_once = 1_000  # in an answer
        self.hold_ms = 0  # an empty fetch waits as long as it may

    @property
    def end(self) -> int:
        return max((first + len(values) for first, _, values in self.log), default=0)

    def handle(self, api_key: int, version: int, body: memoryview) -> bytes | None:
        if api_key != 1:
            return super().handle(api_key, version, body)
        request = fetch_wire.decode_request(body, version)
        self.fetches.append(request)
        self.requests.append((1, version, request))
        script = self.scripts[1].pop(0) if self.scripts[1] else self.answer_1
        answer = script(version, request)
        results = [partition for topic in answer.topics for partition in topic.partitions]
        if not answer.error_code and not any(result.records or result.error_code for result in results):
            self.hold_ms = request.max_wait_ms
        return b"".join(fetch_wire.encode_response(answer, version))

    def answer_1(self, version: int, request: fetch_wire.FetchRequest) -> fetch_wire.FetchResponse:
        topics = [
            fetch_wire.FetchTopicResult(
                topic.topic, topic.topic_id, [self._fetched(partition) for partition in topic.partitions]
            )
            for topic in request.topics
        ]
        return fetch_wire.FetchResponse(topics, session_id=self.session_id, throttle_ms=self.throttle_ms)

    def _fetched(self, wanted: fetch_wire.FetchPartition) -> fetch_wire.FetchPartitionResult:
        if 0 <= wanted.current_leader_epoch < self.leader_epoch:
            return fetch_wire.FetchPartitionResult(wanted.partition, error_code=74)  # FENCED_LEADER_EPOCH
        records = b""
        behind = [entry for entry in self.log if entry[0] + len(entry[2]) > wanted.fetch_offset]
        for first, epoch, values in behind[: self.batches_at_once]:
            if wanted.partition == 0 and self.preferred < 0:
                batch = encode_batch(values=values)
                put_at(batch, first, epoch)
                records += bytes(batch)
        end = self.end if wanted.partition == 0 else 0
        result = fetch_wire.FetchPartitionResult(wanted.partition, 0, end, end, 0, None, records)
        result.preferred_read_replica = self.preferred
        return result

    def answer_2(self, version: int, request: Any) -> Any:
        return offsets_answer(
            request, lambda partition: {"offset": self.end if partition.timestamp == -1 else 0, "timestamp": -1}
        )

    def answer_3(self, version: int, request: Any) -> Any:
        partitions = [
            MetadataResponsePartition(partition_index=n, leader_id=1, leader_epoch=self.leader_epoch)
            for n in range(self.partitions)
        ]
        names = [TOPIC] if request.topics is None else [topic.name or TOPIC for topic in request.topics]
        topics = [MetadataResponseTopic(name=name, topic_id=topic_id(name), partitions=partitions) for name in names]
        brokers = [MetadataResponseBroker(node_id=n, host=f"broker{n}", port=9092) for n in (1, 2)]
        return MetadataResponse(brokers=brokers, controller_id=1, topics=topics)

    def answer_8(self, version: int, request: Any) -> Any:
        return self.commit(request)

    def commit(self, request: Any, code: int = 0) -> Any:
        """An OffsetCommit with one code for all partitions."""
        topics = []
        for topic in request.topics:
            for partition in topic.partitions:
                if code == 0:
                    self.committed[partition.partition_index] = (
                        partition.committed_offset,
                        partition.committed_leader_epoch,
                    )
            parts = [
                oc.OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=code)
                for partition in topic.partitions
            ]
            topics.append(oc.OffsetCommitResponseTopic(name=topic.name, partitions=parts))
        return oc.OffsetCommitResponse(topics=topics)

    def answer_9(self, version: int, request: Any) -> Any:
        groups = []
        for group in request.groups:
            topics = [
                of.OffsetFetchResponseTopics(
                    name=topic.name,
                    partitions=[
                        of.OffsetFetchResponsePartitions(
                            partition_index=n,
                            committed_offset=self.committed.get(n, (-1, -1))[0],
                            committed_leader_epoch=self.committed.get(n, (-1, -1))[1],
                            metadata="",
                        )
                        for n in topic.partition_indexes
                    ],
                )
                for topic in group.topics
            ]
            groups.append(of.OffsetFetchResponseGroup(group_id=group.group_id, topics=topics))
        return of.OffsetFetchResponse(groups=groups)

    def answer_11(self, version: int, request: Any) -> Any:
        if not request.member_id:
            return join_group.JoinGroupResponse(error_code=79, member_id=f"m{len(self.asked(11))}")
        self.generation += 1
        chosen = request.protocols[0]
        return join_group.JoinGroupResponse(
            generation_id=self.generation,
            protocol_type="consumer",
            protocol_name=chosen.name,
            leader="somebody else",
            member_id=request.member_id,
        )

    def answer_12(self, version: int, request: Any) -> Any:
        return heartbeat.HeartbeatResponse()

    def answer_13(self, version: int, request: Any) -> Any:
        return leave_group.LeaveGroupResponse()

    def answer_14(self, version: int, request: Any) -> Any:
        partitions = [TopicPartition(TOPIC, n) for n in range(self.partitions)]
        return sync_group.SyncGroupResponse(assignment=encode_assignment(partitions))

    def answer_23(self, version: int, request: Any) -> Any:
        """Answer OffsetForLeaderEpoch: an epoch ends at the first batch of a later epoch."""
        topics = []
        for topic in request.topics:
            parts = []
            for partition in topic.partitions:
                later = [first for first, epoch, _ in self.log if epoch > partition.leader_epoch]
                parts.append(
                    epochs.EpochEndOffset(
                        partition=partition.partition,
                        leader_epoch=partition.leader_epoch,
                        end_offset=min(later, default=self.end),
                    )
                )
            topics.append(epochs.OffsetForLeaderTopicResult(topic=topic.topic, partitions=parts))
        return epochs.OffsetForLeaderEpochResponse(topics=topics)

    def answer_68(self, version: int, request: Any) -> Any:
        """Everything to the one member; an acknowledgement or a plain heartbeat keeps the epoch."""
        if request.member_epoch == 0:
            self.member_epoch += 1
            parts = ResponseTopicPartitions(topic_id=topic_id(TOPIC), partitions=list(range(self.partitions)))
            target = Assignment(topic_partitions=[parts])
            return self.beat(assignment=target)
        return self.beat()

    def beat(self, code: int = 0, assignment: Assignment | None = None) -> Any:
        """A heartbeat's answer."""
        return ConsumerGroupHeartbeatResponse(
            error_code=code,
            member_id="me",
            member_epoch=self.member_epoch,
            heartbeat_interval_ms=1000,
            assignment=assignment,
        )


class HoldingStream(ScriptedStream):
    """Answers behind an empty fetch come when that was held long enough."""

    def __init__(self, broker: ScriptedConsumerBroker, max_frame_bytes: int) -> None:
        super().__init__(broker, max_frame_bytes)
        self._holder = broker
        self._hold_ms = 0

    async def send(self, buffers: Sequence[Buffer]) -> None:
        await super().send(buffers)
        self._hold_ms, self._holder.hold_ms = self._hold_ms + self._holder.hold_ms, 0

    async def receive(self) -> list[memoryview]:
        frames = await super().receive()
        hold_ms, self._hold_ms = self._hold_ms, 0
        await asyncio.sleep(hold_ms / 1000)
        return frames


class HostedRuntime(Runtime):
    """Remembers which hosts were connected to."""

    def __init__(self, broker: ScriptedConsumerBroker) -> None:
        super().__init__(broker)
        self._consumers = broker
        self.hosts: list[str] = []

    async def open(self, host: str, port: int, max_frame_bytes: int) -> ScriptedStream:
        self.hosts.append(host)
        return HoldingStream(self._consumers, max_frame_bytes)


def consumer_of(world: World, **settings: Any) -> ConsumerCore:
    """A consumer of the world's broker, which has to be a ScriptedConsumerBroker."""
    if not isinstance(world.runtime, HostedRuntime):
        if not isinstance(world.broker, ScriptedConsumerBroker):
            raise TypeError(type(world.broker))
        world.runtime = HostedRuntime(world.broker)
    config = ConsumerConfig.make({"bootstrap_servers": "broker1:9092", "auto_offset_reset": "earliest", **settings})
    return ConsumerCore(Cluster(world.runtime, config), config)


async def values_of(core: ConsumerCore, count: int) -> list[bytes | None]:
    """The values of the next `count` records."""
    found: list[bytes | None] = []
    for _ in range(100):
        found += [record.value for record in await core.poll(500)]
        if len(found) >= count:
            break
    return found
