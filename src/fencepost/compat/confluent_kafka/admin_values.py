"""Arguments and results of AdminClient, with the attributes of confluent-kafka."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from fencepost.client.types import OffsetSpec as OurSpec
from fencepost.compat.confluent_kafka.admin_kinds import (
    AclOperation,
    AlterConfigOpType,
    ConfigSource,
    ConsumerGroupState,
    ConsumerGroupType,
    ResourceType,
)
from fencepost.compat.confluent_kafka.base.errors import KafkaError
from fencepost.compat.confluent_kafka.base.values import TopicPartition


class NewTopic:
    """A topic to create. Equality compares name and numbers, not settings."""

    def __init__(
        self,
        topic: str,
        num_partitions: int = -1,
        replication_factor: int = -1,
        replica_assignment: Sequence[Sequence[int]] | None = None,
        config: Mapping[str, str] | None = None,
    ) -> None:
        """Create a description of the topic.

        Args:
            topic: The topic.
            num_partitions: Number of partitions; -1: the broker's default.
            replication_factor: Number of replicas; -1: the broker's default.
            replica_assignment: The brokers of each partition, instead of the two numbers.
            config: Settings of the topic.
        """
        self.topic, self.num_partitions, self.replication_factor = topic, num_partitions, replication_factor
        self.replica_assignment, self.config = replica_assignment, config

    def __repr__(self) -> str:
        count = "" if self.num_partitions < 0 else f",num_partitions={self.num_partitions}"
        return f"NewTopic(topic={self.topic}{count})"

    def __hash__(self) -> int:
        return hash(self.topic)

    def __eq__(self, other: object) -> bool:
        return self._numbers() == other._numbers() if isinstance(other, NewTopic) else NotImplemented

    def _numbers(self) -> tuple[str, int, int]:
        return self.topic, self.num_partitions, self.replication_factor

    def __lt__(self, other: object) -> bool:
        return self.topic < other.topic if isinstance(other, NewTopic) else NotImplemented


class NewPartitions:
    """A new total number of partitions of a topic."""

    def __init__(
        self, topic: str, new_total_count: int, replica_assignment: Sequence[Sequence[int]] | None = None
    ) -> None:
        """Create a request for a topic.

        Args:
            topic: The topic.
            new_total_count: New number of partitions.
            replica_assignment: Brokers of the new partitions; AdminClient refuses it.
        """
        self.topic, self.new_total_count, self.replica_assignment = topic, new_total_count, replica_assignment

    def __repr__(self) -> str:
        return f"NewPartitions(topic={self.topic},new_total_count={self.new_total_count})"

    def __hash__(self) -> int:
        return hash(self.topic)

    def __eq__(self, other: object) -> bool:
        return vars(self) == vars(other) if isinstance(other, NewPartitions) else NotImplemented

    def __lt__(self, other: object) -> bool:
        return self.topic < other.topic if isinstance(other, NewPartitions) else NotImplemented


class TopicCollection:
    """Names of topics."""

    def __init__(self, topic_names: list[str]) -> None:
        """Create a collection from a list of names."""
        self.topic_names = topic_names


class Uuid:
    """An id of 128 bits, shown in base64 with the characters + and /, as confluent-kafka does and Kafka does not."""

    def __init__(self, most_significant_bits: int, least_significant_bits: int) -> None:
        """Create an id from its two halves, which are signed 64-bit numbers."""
        self._bits = (most_significant_bits, least_significant_bits)

    @classmethod
    def of(cls, value: UUID) -> Uuid:
        """Create an id from a standard UUID."""
        most, least = (int.from_bytes(half, signed=True) for half in (value.bytes[:8], value.bytes[8:]))
        return cls(most, least)

    def get_most_significant_bits(self) -> int:
        """Return the first half."""
        return self._bits[0]

    def get_least_significant_bits(self) -> int:
        """Return the second half."""
        return self._bits[1]

    def __str__(self) -> str:
        both = b"".join((half % 2**64).to_bytes(8) for half in self._bits)
        return base64.b64encode(both).decode().rstrip("=")

    __repr__ = __str__

    def __hash__(self) -> int:
        return hash(self._bits)

    def __eq__(self, other: object) -> bool:
        return self._bits == other._bits if isinstance(other, Uuid) else NotImplemented


@dataclass
class Node:
    """A broker."""

    id: int
    host: str
    port: int
    rack: str | None = None

    def __post_init__(self) -> None:
        self.id_string = str(self.id)

    def __str__(self) -> str:
        rack = "" if self.rack is None else f"(rack - {self.rack})"
        return f"({self.id}) {self.host}:{self.port} {rack}"


@dataclass
class TopicPartitionInfo:
    """A partition of a described topic."""

    id: int
    leader: Node | None
    replicas: list[Node]
    isr: list[Node]


@dataclass
class TopicDescription:
    """A described topic."""

    name: str
    topic_id: Uuid | None
    is_internal: bool
    partitions: list[TopicPartitionInfo]
    authorized_operations: list[AclOperation] | None = None


@dataclass
class DescribeClusterResult:
    """A described cluster."""

    controller: Node | None
    nodes: list[Node]
    cluster_id: str | None = None
    authorized_operations: list[AclOperation] | None = None


@dataclass
class ConfigEntry:
    """A setting. `synonyms` is empty, because Fencepost does not request synonyms."""

    name: str
    value: str | None
    source: ConfigSource | int = ConfigSource.UNKNOWN_CONFIG
    is_read_only: bool = False
    is_default: bool = False
    is_sensitive: bool = False
    is_synonym: bool = False
    synonyms: dict[str, ConfigEntry] = field(default_factory=dict)
    incremental_operation: AlterConfigOpType | None = None

    def __repr__(self) -> str:
        return f"ConfigEntry({self})"

    def __str__(self) -> str:
        return f'{self.name}="{self.value}"'


class ConfigResource:
    """A topic, broker or group, which has settings. Equality compares type and name."""

    Type = ResourceType

    def __init__(
        self,
        restype: ResourceType | str | int,
        name: str,
        set_config: Mapping[str, str] | None = None,
        described_configs: dict[str, ConfigEntry] | None = None,
        error: KafkaError | None = None,
        incremental_configs: list[ConfigEntry] | None = None,
    ) -> None:
        """Create a resource.

        Args:
            restype: The type, its name, or its number.
            name: The topic, the broker's id, or the group.
            set_config: New values for alter_configs(), which is refused.
            described_configs: Settings.
            error: An error.
            incremental_configs: Changes.
        """
        if name is None:
            raise ValueError("Expected resource name to be a string")
        if isinstance(restype, str):
            if restype.upper() not in ResourceType.__members__:
                raise ValueError(f"Unknown resource type {restype!r}: should be a ConfigResource.Type")
            self.restype = ResourceType[restype.upper()]
        else:
            self.restype = ResourceType(restype)
        self.restype_int = self.restype.value
        self.name = name
        self.set_config_dict = dict(set_config or {})
        self.incremental_configs = list(incremental_configs or [])
        self.configs, self.error = described_configs, error

    def set_config(self, name: str, value: str, overwrite: bool = True) -> None:
        """Set a value for alter_configs()."""
        if overwrite or name not in self.set_config_dict:
            self.set_config_dict[name] = value

    def add_incremental_config(self, config_entry: ConfigEntry) -> None:
        """Add a change for incremental_alter_configs()."""
        self.incremental_configs.append(config_entry)

    def __repr__(self) -> str:
        return f"ConfigResource({self.restype},{self.name})"

    def __len__(self) -> int:
        return len(self.set_config_dict)

    def __hash__(self) -> int:
        return hash((self.restype, self.name))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ConfigResource):
            return NotImplemented
        return (self.restype, self.name) == (other.restype, other.name)

    def __lt__(self, other: object) -> bool:
        if not isinstance(other, ConfigResource):
            return NotImplemented
        return (self.restype, self.name) < (other.restype, other.name)


@dataclass
class ConsumerGroupTopicPartitions:
    """A group and some of its partitions; None: all partitions."""

    group_id: str
    topic_partitions: list[TopicPartition] | None = None


@dataclass
class ConsumerGroupListing:
    """A listed group."""

    group_id: str
    is_simple_consumer_group: bool
    state: ConsumerGroupState | None = None
    type: ConsumerGroupType | None = None


@dataclass
class ListConsumerGroupsResult:
    """Listed groups, and the errors of brokers that did not answer in time."""

    valid: list[ConsumerGroupListing] = field(default_factory=list)
    errors: list[KafkaError] = field(default_factory=list)


@dataclass
class MemberAssignment:
    """The partitions of a member."""

    topic_partitions: list[TopicPartition] = field(default_factory=list)


@dataclass
class MemberDescription:
    """A member of a group."""

    member_id: str
    client_id: str
    host: str
    assignment: MemberAssignment
    group_instance_id: str | None = None
    target_assignment: MemberAssignment | None = None


@dataclass
class ConsumerGroupDescription:
    """A described group."""

    group_id: str
    is_simple_consumer_group: bool
    members: list[MemberDescription]
    partition_assignor: str
    state: ConsumerGroupState
    coordinator: Node | None
    authorized_operations: list[AclOperation] | None = None
    type: ConsumerGroupType = ConsumerGroupType.UNKNOWN


@dataclass
class DeletedRecords:
    """The first offset of a partition after its records were deleted."""

    low_watermark: int


@dataclass
class ListOffsetsResultInfo:
    """An offset. It is -1 if there is no record at or after the timestamp."""

    offset: int
    timestamp: int
    leader_epoch: int | None


class OffsetSpec:
    """A position in a partition."""

    def __init__(self, value: int) -> None:
        """Create a position from a timestamp in ms, or from one of Kafka's negative numbers."""
        self.value = value

    @classmethod
    def earliest(cls) -> OffsetSpec:
        """Return the position of the first offset."""
        return cls(OurSpec.EARLIEST)

    @classmethod
    def latest(cls) -> OffsetSpec:
        """Return the position of the end."""
        return cls(OurSpec.LATEST)

    @classmethod
    def max_timestamp(cls) -> OffsetSpec:
        """Return the position of the record with the highest timestamp."""
        return cls(OurSpec.MAX_TIMESTAMP)

    @classmethod
    def for_timestamp(cls, timestamp: int) -> OffsetSpec:
        """Return the position of the first record at or after the timestamp in ms."""
        return cls(timestamp)
