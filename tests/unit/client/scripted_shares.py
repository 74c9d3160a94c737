"""A scripted broker with records of a share group, and a share consumer over it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fencepost.client.net.cluster import Cluster
from fencepost.client.records import SharedRecord
from fencepost.client.share.core import ShareConsumerCore
from fencepost.client.types import AcknowledgeType, TopicPartition
from fencepost.config import ShareConsumerConfig
from fencepost.errors import (
    KafkaError,
)
from fencepost.protocol.messages import share_acknowledge, share_fetch
from fencepost.protocol.messages.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)
from fencepost.protocol.records.encoding import encode_batch
from tests.support.batches import put_at
from tests.unit.client.scripted import World, topic_id
from tests.unit.client.scripted_consumer import HostedRuntime, ScriptedConsumerBroker

TOPIC, STORAGE_ERROR = "t", 56


PARTITION = TopicPartition(TOPIC, 0)


ACCEPT, RELEASE, REJECT, RENEW = AcknowledgeType


class ShareBroker(ScriptedConsumerBroker):
    """Hands out what is in `waiting`: (first offset, values, delivery count), a batch to a fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.offered |= {76: (1, 1), 78: (1, 2), 79: (1, 2)}
        self.waiting: list[tuple[int, list[bytes], int]] = []
        self.said: dict[int, int] = {}
        self.code = 0  # of every acknowledgement
        self.damaged = False
        self.leader = 1

    def answer_3(self, version: int, request: Any) -> Any:
        answer = super().answer_3(version, request)
        for partition in answer.topics[0].partitions:
            partition.leader_id = self.leader
        return answer

    def answer_76(self, version: int, request: Any) -> Any:
        parts = TopicPartitions(topic_id=topic_id(TOPIC), partitions=[0])
        return ShareGroupHeartbeatResponse(
            member_id=request.member_id,
            member_epoch=request.member_epoch + 1,
            heartbeat_interval_ms=5_000,
            assignment=Assignment(topic_partitions=[parts]),
        )

    def note(self, batches: Any) -> None:
        for batch in batches:
            kinds = list(batch.acknowledge_types) * (
                1 if len(batch.acknowledge_types) > 1 else batch.last_offset - batch.first_offset + 1
            )
            self.said |= dict(zip(range(batch.first_offset, batch.last_offset + 1), kinds, strict=True))

    def answer_78(self, version: int, request: Any) -> Any:
        acknowledged = [
            partition for topic in request.topics for partition in topic.partitions if partition.acknowledgement_batches
        ]
        data = share_fetch.PartitionData(current_leader=share_fetch.LeaderIdAndEpoch())
        for partition in acknowledged:
            self.note(partition.acknowledgement_batches)
            data.acknowledge_error_code = self.code
        if self.waiting and request.max_records > 0:
            first, values, count = self.waiting.pop(0)
            batch = encode_batch(values=values)
            put_at(batch, first, 0)
            if self.damaged:
                batch[-1] ^= 1
            data.records = bytes(batch)
            last = first + len(values) - 1
            data.acquired_records = [
                share_fetch.AcquiredRecords(first_offset=first, last_offset=last, delivery_count=count)
            ]
        reported = [data] if data.records or acknowledged else []
        self.hold_ms = 0 if reported else request.max_wait_ms
        return share_fetch.ShareFetchResponse(
            acquisition_lock_timeout_ms=30_000,
            responses=[share_fetch.ShareFetchableTopicResponse(topic_id=topic_id(TOPIC), partitions=reported)],
        )

    def answer_79(self, version: int, request: Any) -> Any:
        parts = []
        for topic in request.topics:
            for partition in topic.partitions:
                self.note(partition.acknowledgement_batches)
                parts.append(
                    share_acknowledge.PartitionData(
                        partition_index=partition.partition_index,
                        error_code=self.code,
                        current_leader=share_acknowledge.LeaderIdAndEpoch(),
                    )
                )
        answered = share_acknowledge.ShareAcknowledgeTopicResponse(topic_id=topic_id(TOPIC), partitions=parts)
        return share_acknowledge.ShareAcknowledgeResponse(responses=[answered])


def core_of(world: World, *, explicit: bool = True, **settings: Any) -> ShareConsumerCore:
    if not isinstance(world.broker, ShareBroker):
        raise TypeError(type(world.broker))
    world.runtime = HostedRuntime(world.broker)
    mode = "explicit" if explicit else "implicit"
    config = ShareConsumerConfig.make(
        {"bootstrap_servers": "broker:9092", "group_id": "g", "share_acknowledgement_mode": mode, **settings}
    )
    return ShareConsumerCore(Cluster(world.runtime, config), config)


async def subscribed(world: World, **settings: Any) -> ShareConsumerCore:
    core = core_of(world, **settings)
    await core.subscribe([TOPIC])
    return core


async def polled(core: ShareConsumerCore) -> list[SharedRecord]:
    for _ in range(20):
        records = await core.poll(200)
        if records:
            return records
    raise AssertionError(core.state())


Outcomes = list[tuple[list[int], type | None]]


def finding_text(core: ShareConsumerCore) -> Outcomes:
    """Return the list that a new acknowledgement callback fills, in order: offsets, and the class of the error."""
    reported: Outcomes = []

    def callback(offsets: Mapping[TopicPartition, list[int]], error: KafkaError | None) -> None:
        reported.extend((each, None if error is None else type(error)) for each in offsets.values())

    core.set_acknowledgement_callback(callback)
    return reported
