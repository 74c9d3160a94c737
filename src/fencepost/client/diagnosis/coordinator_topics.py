"""The internal topics of coordinators, and the settings with which brokers create them at the first request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from fencepost.client.admin.topics import NewTopic
from fencepost.client.net.cluster import CoordinatorKind
from fencepost.protocol.logs.topic_names import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE

__all__ = ["COORDINATOR_TOPICS", "StateTopic", "UncreatedTopic", "creation_of"]


class StateTopic(NamedTuple):
    """The internal topic of a kind of coordinator.

    Attributes:
        kind: Kind of the coordinator; None: only brokers look it up.
        name: Name of the topic.
        replicas: Broker setting of its replication factor.
        in_sync: Broker setting of its least number of in-sync replicas. A coordinator writes with acks=all.
        partitions: Broker setting of its number of partitions.
        configs: Settings that the brokers give the topic, with their values.
        configs_from: The other ones, with the broker settings that have their values.
        feature: The brokers have these coordinators if this feature has a level; "": always.
    """

    kind: CoordinatorKind | None
    name: str
    replicas: str
    in_sync: str
    partitions: str
    configs: Mapping[str, str]
    configs_from: Mapping[str, str]
    feature: str = ""

    @property
    def settings(self) -> list[str]:
        """The broker settings that decide how it is created."""
        return list(dict.fromkeys([self.replicas, self.in_sync, self.partitions, *self.configs_from.values()]))

    def created(self, values: Mapping[str, str]) -> NewTopic:
        """Return the topic as a broker with these settings creates it."""
        configs = {**self.configs, **{name: values[source] for name, source in self.configs_from.items()}}
        return NewTopic(self.name, int(values[self.partitions]), int(values[self.replicas]), configs)


# A policy for new topics at the controller may look at the settings. They are those that Kafka 3.9 and 4.4 send.
COORDINATOR_TOPICS: Final[Mapping[str, StateTopic]] = {
    "transactions": StateTopic(
        CoordinatorKind.TRANSACTION,
        TRANSACTION_STATE,
        "transaction.state.log.replication.factor",
        "transaction.state.log.min.isr",
        "transaction.state.log.num.partitions",
        {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "unclean.leader.election.enable": "false",
        },
        {
            "min.insync.replicas": "transaction.state.log.min.isr",
            "segment.bytes": "transaction.state.log.segment.bytes",
        },
    ),
    "groups": StateTopic(
        CoordinatorKind.GROUP,
        CONSUMER_OFFSETS,
        "offsets.topic.replication.factor",
        "min.insync.replicas",
        "offsets.topic.num.partitions",
        {"cleanup.policy": "compact", "compression.type": "producer"},
        {"segment.bytes": "offsets.topic.segment.bytes"},
    ),
    "share groups": StateTopic(
        None,
        SHARE_GROUP_STATE,
        "share.coordinator.state.topic.replication.factor",
        "share.coordinator.state.topic.min.isr",
        "share.coordinator.state.topic.num.partitions",
        {"cleanup.policy": "delete", "compression.type": "producer", "retention.ms": "-1"},
        {
            "min.insync.replicas": "share.coordinator.state.topic.min.isr",
            "segment.bytes": "share.coordinator.state.topic.segment.bytes",
        },
        "share.version",
    ),
}
"""By the objects that its coordinators keep."""


class UncreatedTopic(NamedTuple):
    """A coordinator's topic that does not exist yet: the settings of the broker that asks for the fewest replicas.

    Attributes:
        replicas: Replication factor.
        in_sync: Least number of in-sync replicas, limited by `replicas` where the brokers do so.
        brokers: Number of brokers in the cluster, with those that are registered and stopped (Kafka 4.0 and later).
        refusal: The controller's reason for refusing to create it; "": it would create it. None: not asked, because
            this principal may not create topics, no controller is among the brokers that answer, or these are older
            than Kafka 2.8.
    """

    replicas: int
    in_sync: int
    brokers: int
    refusal: str | None = None


def creation_of(part: str) -> str:
    """Return the name of the question if brokers can create the topic of these coordinators."""
    return f"creation of {COORDINATOR_TOPICS[part].name}"
