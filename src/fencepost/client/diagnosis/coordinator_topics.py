"""The internal topics of coordinators, and the settings with which brokers create them at the first request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from fencepost.client.net.cluster import CoordinatorKind
from fencepost.protocol.logs.topic_names import CONSUMER_OFFSETS, TRANSACTION_STATE

__all__ = ["COORDINATOR_TOPICS", "StateTopic", "UncreatedTopic"]


class StateTopic(NamedTuple):
    """The internal topic of a kind of coordinator.

    Attributes:
        kind: Kind of the coordinator.
        name: Name of the topic.
        replicas: Broker setting of its replication factor.
        in_sync: Broker setting of its least number of in-sync replicas. A coordinator writes with acks=all.
    """

    kind: CoordinatorKind
    name: str
    replicas: str
    in_sync: str


COORDINATOR_TOPICS: Final[Mapping[str, StateTopic]] = {
    "transactions": StateTopic(
        CoordinatorKind.TRANSACTION,
        TRANSACTION_STATE,
        "transaction.state.log.replication.factor",
        "transaction.state.log.min.isr",
    ),
    "groups": StateTopic(
        CoordinatorKind.GROUP, CONSUMER_OFFSETS, "offsets.topic.replication.factor", "min.insync.replicas"
    ),
}
"""By the part of the facts that its coordinators report."""


class UncreatedTopic(NamedTuple):
    """A coordinator's topic that does not exist yet: the settings of the broker that asks for the fewest replicas.

    Attributes:
        replicas: Replication factor.
        in_sync: Least number of in-sync replicas, limited by `replicas` where the brokers do so.
        brokers: Number of brokers in the cluster, with those that are registered and stopped (Kafka 4.0 and later).
    """

    replicas: int
    in_sync: int
    brokers: int
