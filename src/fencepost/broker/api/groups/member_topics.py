"""Topics and partitions of members in heartbeats and descriptions of groups (KIP-848, KIP-932)."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from fencepost.broker.api.common import may_see
from fencepost.broker.connection import Call
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.logs.consumer_group_log import TopicIdPartition
from fencepost.protocol.messages import consumer_group_describe, share_group_describe

__all__ = ["by_topic", "by_topic_name", "hide_unless_all_seen", "sees_all"]


def by_topic(partitions: Iterable[TopicIdPartition]) -> dict[UUID, list[int]]:
    """Return the partitions of each topic in order."""
    indexes: dict[UUID, list[int]] = {}
    for topic_id, index in sorted(partitions):
        indexes.setdefault(topic_id, []).append(index)
    return indexes


def by_topic_name(call: Call, partitions: Iterable[TopicIdPartition]) -> list[tuple[UUID, str, list[int]]]:
    """Return (topic id, name, partitions). Topics deleted in the meantime are omitted."""
    catalogue = call.core.topics
    listed = [(catalogue.by_id(topic_id), indexes) for topic_id, indexes in by_topic(partitions).items()]
    return [(topic.topic_id, topic.name, indexes) for topic, indexes in listed if topic is not None]


def sees_all(call: Call, topics: Iterable[str]) -> bool:
    """Return true if the client may see all of these topics."""
    return all(may_see(call, name) for name in topics)


def hide_unless_all_seen(
    call: Call,
    group: consumer_group_describe.DescribedGroup | share_group_describe.DescribedGroup,
    topics: Iterable[str],
) -> None:
    """Hide a group from clients that may not see all of its topics."""
    if not sees_all(call, sorted(topics)):
        group.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        group.error_message = "The group uses topics that the client may not describe."
        group.members = ()
