"""Topics, groups and transactional ids that chosen nodes of a cluster lead or coordinate."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import fencepost
from fencepost.client.admin.topics import NewTopic
from fencepost.protocol.logs.partitioning import coordinator_partition
from tests.support.apache_kafka_cluster import ApacheKafkaCluster, ClusterNode
from tests.support.waiting import until

__all__ = ["Named", "a_name_for", "follower", "led_by", "named"]


def follower(cluster: ApacheKafkaCluster, admin: fencepost.Admin) -> ClusterNode:
    """A node that is not the active controller, whose absence would hold up everything for a while."""
    leader = admin.describe_metadata_quorum().leader_id
    return next(node for node in cluster.nodes if node.node_id != leader)


def a_name_for(node: int, admin: fencepost.Admin, topic: str, prefix: str) -> str:
    """A group or transactional id whose coordinator is on this node."""

    numbers, count = set[int](), 0

    def leads() -> bool:
        """A node that was stopped leads no partition until the preferred leaders are back."""
        nonlocal count
        admin.elect_leaders()
        partitions = admin.describe_topics([topic])[topic].partitions
        numbers.update(number for number, partition in partitions.items() if partition.leader == node)
        count = len(partitions)
        return bool(numbers)

    until(leads)
    return next(
        name for number in itertools.count() if coordinator_partition(name := f"{prefix}-{number}", count) in numbers
    )


class Named(NamedTuple):
    """A group and a transactional id of each of two nodes. The group has committed in a topic that this node leads."""

    groups: dict[int, str]
    ids: dict[int, str]


def led_by(node: int) -> str:
    """A topic."""
    return f"led-by-{node}"


def named(admin: fencepost.Admin, *nodes: int) -> Named:
    for node in nodes:
        others = [each.id for each in admin.describe_cluster().brokers if each.id != node]
        if not admin.describe_topics([led_by(node)]):
            admin.create_topics([NewTopic(led_by(node), replica_assignments={0: (node, *others)})])
    admin.alter_group_offsets("any", {(led_by(nodes[0]), 0): 0})
    admin.init_producer_id("any")
    groups = {node: a_name_for(node, admin, "__consumer_offsets", "g") for node in nodes}
    ids = {node: a_name_for(node, admin, "__transaction_state", "x") for node in nodes}
    for node, group in groups.items():
        admin.alter_group_offsets(group, {(led_by(node), 0): 0})
    for transactional_id in ids.values():
        admin.init_producer_id(transactional_id)
    return Named(groups, ids)
