"""Helpers of the conformance tests of consumer groups."""

from __future__ import annotations

from typing import Any

from fencepost.protocol.messages.list_groups import ListGroupsRequest
from fencepost.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.support.brokers import BrokerUnderTest
from tests.support.group_member import RawMember, describe, topic_id
from tests.support.raw_client import RawClient


def stable(client: RawClient, group: str) -> bool:
    return describe(client, group).group_state == "Stable"


def alone(broker: BrokerUnderTest, client: RawClient, partitions: int = 4) -> tuple[RawMember, str]:
    """A member that has a new topic to itself."""
    topic = client.create_topic(broker.name("t"), partitions)
    member = RawMember(client, broker.name("g"), [topic])
    member.until(lambda: len(member.owned) == partitions)
    return member, topic


def listed(client: RawClient, **filters: list[str]) -> dict[str, tuple[str, str, str]]:
    groups = client.call(ListGroupsRequest(**filters), 5).groups
    return {group.group_id: (group.protocol_type, group.group_state, group.group_type) for group in groups}


def commit_as(member: RawMember, topic: str, partition: int, offset: int, epoch: int, **fields: Any) -> int:
    version = fields.pop("version", 9)
    wanted = OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
    named = OffsetCommitRequestTopic(name=topic, partitions=[wanted])
    if version >= 10:
        named = OffsetCommitRequestTopic(topic_id=topic_id(member.client, topic), partitions=[wanted])
    said = {"member_id": member.member_id, **fields}
    request = OffsetCommitRequest(group_id=member.group, generation_id_or_member_epoch=epoch, topics=[named], **said)
    return int(member.client.call(request, version).topics[0].partitions[0].error_code)
