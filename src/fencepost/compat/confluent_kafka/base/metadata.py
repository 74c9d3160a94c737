"""The results of list_topics(), with the attributes of confluent-kafka."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from fencepost.client.net.cluster import Cluster
from fencepost.compat.confluent_kafka.base.errors import KafkaError

_FOREVER_MS: Final = 2**31 - 1


@dataclass(repr=False)
class BrokerMetadata:
    """A broker."""

    id: int
    host: str
    port: int

    def __repr__(self) -> str:
        return f"BrokerMetadata({self.id}, {self.host}:{self.port})"

    def __str__(self) -> str:
        return f"{self.host}:{self.port}/{self.id}"


@dataclass(repr=False)
class PartitionMetadata:
    """A partition. `leader` is -1 if there is none."""

    id: int
    leader: int
    replicas: list[int]
    isrs: list[int]
    error: KafkaError | None = None

    def __repr__(self) -> str:
        return f"PartitionMetadata({self.id})"

    def __str__(self) -> str:
        return str(self.id)


@dataclass(repr=False)
class TopicMetadata:
    """A topic, with its partitions by number."""

    topic: str
    partitions: dict[int, PartitionMetadata] = field(default_factory=dict)
    error: KafkaError | None = None

    def __repr__(self) -> str:
        count = len(self.partitions)
        return (
            f"TopicMetadata({self.topic}, {count} partitions)" if self.error is None else f"{self.topic}: {self.error}"
        )

    def __str__(self) -> str:
        return self.topic


@dataclass(repr=False)
class ClusterMetadata:
    """The brokers and topics of a cluster. `orig_broker_id` is -1, because the answering broker is not stored."""

    cluster_id: str | None
    controller_id: int
    brokers: dict[int, BrokerMetadata]
    topics: dict[str, TopicMetadata]
    orig_broker_id: int = -1
    orig_broker_name: str | None = None

    def __repr__(self) -> str:
        return f"ClusterMetadata({self.cluster_id})"

    def __str__(self) -> str:
        return str(self.cluster_id)


async def metadata_of(cluster: Cluster, topic: str | None, timeout_ms: int | None) -> ClusterMetadata:
    """Request metadata, without creating topics.

    Args:
        cluster: The client's view of the cluster.
        topic: The topic; None: all; "": none.
        timeout_ms: Maximum wait in ms; None: no limit.

    Raises:
        KafkaError: The brokers did not answer.
    """
    names = None if topic is None else [topic] if topic else []
    deadline_ms = cluster.runtime.now_ms() + (_FOREVER_MS if timeout_ms is None else timeout_ms)
    reply = await cluster.fetch_metadata(names, deadline_ms, create=False)
    topics = {}
    for described in reply.topics:
        if described.name is None:
            continue
        partitions = {
            each.partition_index: PartitionMetadata(
                each.partition_index,
                each.leader_id,
                list(each.replica_nodes),
                list(each.isr_nodes),
                _error(each.error_code),
            )
            for each in sorted(described.partitions, key=lambda partition: partition.partition_index)
        }
        topics[described.name] = TopicMetadata(described.name, partitions, _error(described.error_code))
    brokers = {node.id: BrokerMetadata(node.id, node.host, node.port) for node in cluster.nodes.values()}
    return ClusterMetadata(cluster.cluster_id, cluster.controller_id, brokers, topics)


def _error(code: int) -> KafkaError | None:
    return None if code == 0 else KafkaError(code)
