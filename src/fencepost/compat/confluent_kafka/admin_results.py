"""Convert the results of Fencepost's Admin to those of confluent-kafka."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from fencepost.client.admin.configs import ConfigEntry as OurEntry
from fencepost.client.admin.group_descriptions import GroupDescription, GroupMember
from fencepost.client.admin.groups import GroupListing
from fencepost.client.admin.topics import ClusterDescription
from fencepost.client.admin.topics import TopicDescription as OurTopic
from fencepost.client.net.topology import Node as OurNode
from fencepost.client.types import OffsetAt
from fencepost.client.types import TopicPartition as OurTopicPartition
from fencepost.compat.confluent_kafka.admin_kinds import (
    AclOperation,
    ConsumerGroupState,
    ConsumerGroupType,
)
from fencepost.compat.confluent_kafka.admin_values import (
    ConfigEntry,
    ConsumerGroupDescription,
    ConsumerGroupListing,
    DeletedRecords,
    DescribeClusterResult,
    ListConsumerGroupsResult,
    ListOffsetsResultInfo,
    MemberAssignment,
    MemberDescription,
    Node,
    TopicDescription,
    TopicPartitionInfo,
    Uuid,
)
from fencepost.compat.confluent_kafka.base.errors import error_of
from fencepost.compat.confluent_kafka.base.values import TopicPartition
from fencepost.errors import KafkaError, error_for
from fencepost.protocol.codes import ErrorCode

STATE_NAMES: Final = {
    ConsumerGroupState.PREPARING_REBALANCING: "PreparingRebalance",
    ConsumerGroupState.COMPLETING_REBALANCING: "CompletingRebalance",
    ConsumerGroupState.STABLE: "Stable",
    ConsumerGroupState.DEAD: "Dead",
    ConsumerGroupState.EMPTY: "Empty",
}
_STATES: Final = {name: state for state, name in STATE_NAMES.items()}
_TYPES: Final = {"classic": ConsumerGroupType.CLASSIC, "consumer": ConsumerGroupType.CONSUMER}
_CONSUMERS: Final = "consumer"


def topic(found: tuple[OurTopic | None, Mapping[int, OurNode]]) -> TopicDescription:
    """Convert a described topic. Raises UnknownTopicOrPartitionError if it does not exist."""
    described, nodes = found
    if described is None:
        raise error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    partitions = [
        TopicPartitionInfo(number, _node(nodes, each.leader), _nodes(nodes, each.replicas), _nodes(nodes, each.in_sync))
        for number, each in described.partitions.items()
    ]
    topic_id = None if described.topic_id is None else Uuid.of(described.topic_id)
    rights = _operations(described.authorized_operations)
    return TopicDescription(described.name, topic_id, described.is_internal, partitions, rights)


def cluster(found: ClusterDescription, rights: Iterable[Any] | None) -> DescribeClusterResult:
    """Convert a described cluster."""
    nodes = {node.id: node for node in found.brokers}
    everyone = [Node(*node) for node in found.brokers]
    return DescribeClusterResult(_node(nodes, found.controller_id), everyone, found.cluster_id, _operations(rights))


def _node(nodes: Mapping[int, OurNode], number: int) -> Node | None:
    return None if number not in nodes else Node(*nodes[number])


def _nodes(nodes: Mapping[int, OurNode], numbers: Iterable[int]) -> list[Node]:
    return [Node(*nodes[number]) if number in nodes else Node(number, "", -1) for number in numbers]


def _operations(rights: Iterable[Any] | None) -> list[AclOperation] | None:
    """Convert those of the operations that confluent-kafka knows."""
    if rights is None:
        return None
    known = {each.value for each in AclOperation}
    return [AclOperation(int(each)) for each in sorted(rights) if int(each) in known]


def deleted(low_watermark: int) -> DeletedRecords:
    """Convert the first offset after a deletion."""
    return DeletedRecords(low_watermark)


def offset(at: OffsetAt) -> ListOffsetsResultInfo:
    """Convert a result of ListOffsets."""
    return ListOffsetsResultInfo(at.offset, at.timestamp_ms, at.leader_epoch if at.leader_epoch >= 0 else None)


def config_entries(found: Mapping[str, OurEntry]) -> dict[str, ConfigEntry]:
    """Convert settings, by name."""
    return {name: _config_entry(entry) for name, entry in found.items()}


def _config_entry(entry: OurEntry) -> ConfigEntry:
    source = int(entry.source)  # confluent-kafka has the number here, not the member
    return ConfigEntry(entry.name, entry.value, source, entry.is_read_only, entry.is_default, entry.is_sensitive)


def listed(groups: Iterable[GroupListing], errors: Iterable[KafkaError] = ()) -> ListConsumerGroupsResult:
    """Convert listed groups, and errors of brokers. Groups of other clients than consumers are left out."""
    return ListConsumerGroupsResult(
        [
            ConsumerGroupListing(
                each.group_id,
                not each.protocol_type,
                _STATES.get(each.state, ConsumerGroupState.UNKNOWN),
                _TYPES.get(each.group_type.lower(), ConsumerGroupType.UNKNOWN),
            )
            for each in groups
            if each.protocol_type in ("", _CONSUMERS)
        ],
        [error_of(each) for each in errors],
    )


def group(found: GroupDescription, coordinator: OurNode | None) -> ConsumerGroupDescription:
    """Convert a described group, with its coordinator."""
    return ConsumerGroupDescription(
        found.group_id,
        not found.protocol_type,
        [_member(each, found.group_type) for each in found.members],
        found.protocol,
        _STATES.get(found.state, ConsumerGroupState.UNKNOWN),
        None if coordinator is None else Node(*coordinator),
        _operations(found.authorized_operations),
        _TYPES.get(found.group_type, ConsumerGroupType.UNKNOWN),
    )


def _member(member: GroupMember, group_type: str) -> MemberDescription:
    target = _assignment(member.target) if group_type == _CONSUMERS else None
    return MemberDescription(
        member.member_id,
        member.client_id,
        member.client_host,
        _assignment(member.assigned),
        member.group_instance_id,
        target,
    )


def _assignment(partitions: Iterable[OurTopicPartition]) -> MemberAssignment:
    return MemberAssignment([TopicPartition(*partition) for partition in partitions])
