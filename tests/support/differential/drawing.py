"""Random requests: any message of any version, filled from what a run knows, and with what nobody should send.

Every request has a focus (a topic, a group, a transactional id, a producer, a member), and most of its fields take
their value from there, so that many requests are accepted; the others are of the kind that a broker meets by mistake
or by malice. The same random numbers give the same request on both sides, with each side's own ids in it.
"""

from __future__ import annotations

import base64
import dataclasses
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Any
from uuid import NAMESPACE_URL, UUID, uuid5

from fencepost.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnTopic
from tests.support.kio_messages import our_class, taken_apart

UNKNOWN_TOPIC_ID = UUID(int=0xFEED)
INTERNAL = ("__consumer_offsets", "__transaction_state")
SPARES_INTERNAL = frozenset({20, 37})
"""DeleteTopics and CreatePartitions: Kafka does to its internal topics what it is told, and is of no use then."""
BAD_NAMES = ("", ".", "..", "a/b", "x" * 249, "x" * 250, "Zürich")


@dataclass(frozen=True, slots=True)
class ProducerId:
    """Producer id and epoch that a side assigned."""

    producer_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Focus:
    """Names that a request is about. They are the same on both sides, and each side has its own ids for them."""

    topic: str
    partition: int
    group: str
    transactional_id: str
    producer: str
    member: str


class Knowledge(typing.Protocol):
    """Lookup of a side's ids by name."""

    def topic_id(self, topic: str) -> UUID: ...

    def producer(self, name: str) -> ProducerId: ...

    def member(self, name: str) -> tuple[str, int]:
        """Its id and its generation or epoch."""
        ...


class Drawing:
    """Fills one request. `version` matters for what an array may hold; fields that it lacks are dropped on encoding."""

    def __init__(self, random: Random, focus: Focus, topics: Sequence[str], knowledge: Knowledge, fresh: str) -> None:
        self._random = random
        self._focus = focus
        self._topics = topics
        self._knowledge = knowledge
        self._run = fresh.partition("-new-")[0]
        self._fresh = fresh
        self._internal: Sequence[str] = INTERNAL
        self._by_name: Mapping[str, Callable[[], Any]] = {
            "topic_id": self._topic_id,
            "group_id": self._group,
            "groups_names": self._group,
            "group_ids": self._group,
            "groups": self._group,
            "transactional_id": self._transactional_id,
            "transactional_ids": self._transactional_id,
            "v3_and_below_transactional_id": self._transactional_id,
            "coordinator_keys": self._key,
            "key": self._key,
            "topic_names": self._topic,
            "topic": self._topic,
            "topic_name": self._topic,
            "partition": self._partition,
            "partition_index": self._partition,
            "partition_indexes": self._partition,
            "partitions": self._partition,
            "partition_id": self._partition,
            "member_id": lambda: self._member()[0],
            "generation_id": lambda: self._member()[1],
            "generation_id_or_member_epoch": lambda: self._member()[1],
            "member_epoch": lambda: self._member()[1],
            "producer_id": lambda: self._producer().producer_id,
            "v3_and_below_producer_id": lambda: self._producer().producer_id,
            "producer_epoch": self._producer_epoch,
            "v3_and_below_producer_epoch": self._producer_epoch,
            "producer_id_filters": lambda: self._producer().producer_id,
            "group_instance_id": lambda: None,
            "instance_id": lambda: None,
        }

    def request(self, api_key: int) -> Any:
        """A whole request."""
        self._internal = () if api_key in SPARES_INTERNAL else INTERNAL
        return self._filled(our_class(api_key, "Request"))

    def often(self, chance: float = 0.85) -> bool:
        return self._random.random() < chance

    # --- by what a field is called ---

    def _topic(self) -> str:
        if self.often():
            return self._focus.topic
        return self._random.choice([*self._topics, *self._internal, *BAD_NAMES, "missing"])

    def _topic_id(self) -> UUID:
        if self.often():
            return self._knowledge.topic_id(self._focus.topic)
        return self._random.choice([UUID(int=0), UNKNOWN_TOPIC_ID, self._knowledge.topic_id(self._topics[0])])

    def _partition(self) -> int:
        return self._focus.partition if self.often() else self._random.choice([0, 1, 2, 99, -1, 2**31 - 1])

    def _group(self) -> str:
        return (
            self._focus.group
            if self.often()
            else self._random.choice(["", f"{self._run}-missing", f"{self._run}-{'g' * 300}"])
        )

    def _transactional_id(self) -> str:
        return (
            self._focus.transactional_id
            if self.often()
            else self._random.choice(["", f"{self._run}-missing", f"{self._run}-{'t' * 300}"])
        )

    def _key(self) -> str:
        return self._random.choice([self._focus.group, self._focus.transactional_id, f"{self._run}-missing", ""])

    def _producer(self) -> ProducerId:
        if self.often(0.92):
            return self._knowledge.producer(self._focus.producer)
        return ProducerId(self._random.choice([-1, 987_654_321, 2**63 - 1]), 0)

    def _producer_epoch(self) -> int:
        epoch = self._knowledge.producer(self._focus.producer).epoch
        return epoch if self.often() else self._random.choice([epoch - 1, epoch + 1, 0, -1, 32_767])

    def _member(self) -> tuple[str, int]:
        member_id, epoch = self._knowledge.member(self._focus.member)
        if self.often():
            return member_id, epoch
        return self._random.choice(["", "stranger", member_id]), self._random.choice([epoch - 1, epoch + 1, 0, -1, -2])

    # --- by what a field is ---

    def _filled(self, cls: Any) -> Any:
        chosen = {field.name: self._value(cls, field, hints(cls)[field.name]) for field in dataclasses.fields(cls)}
        return cls(**chosen)

    def _value(self, cls: Any, field: dataclasses.Field[Any], hint: Any) -> Any:
        special = SPECIAL.get((cls.__name__, field.name)) or SPECIAL.get(("", field.name))
        if special is not None:
            return special(self)
        kind, is_array, nullable = taken_apart(hint)
        if nullable and not self.often(0.9):
            return None
        if is_array:
            count = self._random.choice([0, 1, 1, 1, 1, 2])
            elements = [self._plain(cls, field.name, kind) for _ in range(count)]
            return elements + elements[:1] if elements and not self.often(0.96) else elements
        return self._plain(cls, field.name, kind)

    def _plain(self, cls: Any, name: str, kind: Any) -> Any:
        if dataclasses.is_dataclass(kind):
            return self._filled(kind)
        if name == "name" and "Topic" in cls.__name__:
            return self._topic()
        if name in self._by_name:
            value = self._by_name[name]()
            if value is None or isinstance(value, kind):
                return value
        return self._by_type(kind)

    def _by_type(self, kind: Any) -> Any:
        if kind is bool:
            return self._random.random() < 0.5
        if kind is int:
            return self._random.choice([0, 0, 1, 2, -1])
        if kind is float:
            return self._random.choice([0.0, 1.0, -1.0])
        if kind is str:
            return self._random.choice(["", "a", self._focus.topic, "x" * 40])
        if kind is bytes:
            return self._random.choice([b"", b"a", b"\0" * 20])
        if kind is UUID:
            return self._topic_id()
        raise TypeError(f"nobody told how to draw {kind}")

    def partitions(self) -> list[int]:
        return [self._partition() for _ in range(self._random.choice((1, 1, 2)))]

    # --- share groups ---

    def share_group(self) -> str:
        return f"{self._run}-share" if self.often() else self._group()

    def share_member(self) -> str:
        """Clients name themselves, with a UUID as Kafka writes it."""
        name = f"{self.share_name()} {self._random.random() < 0.1}"
        return base64.urlsafe_b64encode(uuid5(NAMESPACE_URL, name).bytes).decode().rstrip("=")

    def share_name(self) -> str:
        """Under which a side knows that member's epoch."""
        return f"{self._run}-share {self._focus.member[-2:]}"

    def share_epoch(self) -> int:
        epoch = self._knowledge.member(self.share_name())[1]
        return max(epoch, 0) if self.often() else self._random.choice([epoch - 1, epoch + 1, 0, -1, -2])

    def names(self) -> list[str] | None:
        return None if self.often(0.2) else [self._topic() for _ in range(self._random.choice((0, 1, 1, 2)))]

    def own(self, *kinds: str) -> str:
        """A user's or client's name that no other run has."""
        return f"{self._run}-{self._random.choice(kinds)}"

    def topics_to_add(self) -> list[Any]:
        kind = AddPartitionsToTxnTopic
        return [kind(name=self._topic(), partitions=self.partitions()) for _ in range(self._random.choice((1, 1, 2)))]

    def choice(self, *values: Any) -> Any:
        return self._random.choice(values)

    def new_name(self) -> str:
        """A topic that does not exist yet, mostly."""
        return self._fresh if self.often(0.8) else self._topic()


QUOTAS = ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate", "no_such")
SETTINGS = ("retention.ms", "cleanup.policy", "max.message.bytes", "compression.type", "segment.bytes", "no.such", "")
# Where neither a field's name nor its type says what makes sense in it.
SPECIAL: Mapping[tuple[str, str], Callable[[Drawing], Any]] = {
    ("CreatableTopic", "name"): Drawing.new_name,
    ("CreatableTopic", "num_partitions"): lambda draw: draw.choice(1, 1, 2, 3, 0, -1, -2),
    ("CreatableTopic", "replication_factor"): lambda draw: draw.choice(1, 1, 1, -1, 0, 2),
    ("CreatableTopic", "assignments"): lambda draw: [],
    ("CreatePartitionsTopic", "count"): lambda draw: draw.choice(1, 2, 4, 4, 5, 0, -1),
    ("CreatePartitionsTopic", "assignments"): lambda draw: None,
    ("CreatePartitionsRequest", "validate_only"): lambda draw: draw.choice(True, True, False),
    ("InitProducerIdRequest", "transaction_timeout_ms"): lambda draw: draw.choice(
        60_000, 60_000, 60_000, 0, -1, 2**31 - 1
    ),
    ("InitProducerIdRequest", "keep_prepared_txn"): lambda draw: False,  # Kafka has it not (docs: two-phase commit)
    ("InitProducerIdRequest", "enable2_pc"): lambda draw: draw.choice(False, False, False, True),
    ("JoinGroupRequest", "session_timeout_ms"): lambda draw: draw.choice(60_000, 60_000, 60_000, 0, 2**31 - 1),
    ("JoinGroupRequest", "rebalance_timeout_ms"): lambda draw: 150,
    ("JoinGroupRequest", "protocol_type"): lambda draw: draw.choice("consumer", "consumer", "consumer", "connect", ""),
    ("JoinGroupRequestProtocol", "name"): lambda draw: draw.choice("range", "range", "range", "sticky"),
    ("SyncGroupRequest", "protocol_type"): lambda draw: draw.choice("consumer", "consumer", "connect"),
    ("SyncGroupRequest", "protocol_name"): lambda draw: draw.choice("range", "range", "sticky"),
    # An empty AddPartitionsToTxn begins a transaction at Kafka, and none here (docs).
    ("AddPartitionsToTxnTopic", "partitions"): Drawing.partitions,
    ("AddPartitionsToTxnRequest", "v3_and_below_topics"): Drawing.topics_to_add,
    ("ListOffsetsPartition", "timestamp"): lambda draw: draw.choice(-1, -1, -2, -3, 0, 10**15, -4, -5, -6, -9),
    ("ListOffsetsRequest", "replica_id"): lambda draw: -1,
    ("ListOffsetsRequest", "isolation_level"): lambda draw: draw.choice(0, 1, 1, 2),
    ("OffsetForLeaderEpochRequest", "replica_id"): lambda draw: -1,
    ("DeleteRecordsPartition", "offset"): lambda draw: draw.choice(0, 1, -1, -2, 10**6),
    ("DescribeConfigsResource", "resource_type"): lambda draw: draw.choice(2, 2, 2, 0, 1, 99),
    ("AlterConfigsResource", "resource_type"): lambda draw: draw.choice(2, 2, 2, 0, 99),
    ("AlterableConfig", "name"): lambda draw: draw.choice(*SETTINGS),
    ("AlterableConfig", "value"): lambda draw: draw.choice("1000000000", "compact", "2000000", "lz4", "x", "", None),
    ("AlterableConfig", "config_operation"): lambda draw: draw.choice(0, 0, 1, 2, 3, 9),
    ("CreatableTopicConfig", "name"): lambda draw: draw.choice(*SETTINGS),
    ("CreatableTopicConfig", "value"): lambda draw: draw.choice("1000000000", "compact", "2000000", "lz4", "x", None),
    # Kafka fails on ANY (1) and MATCH (2), and then adds none of the request's bindings: test_rights.py has these.
    ("AclCreation", "resource_type"): lambda draw: draw.choice(2, 2, 3, 4, 5),
    ("AclCreation", "resource_pattern_type"): lambda draw: draw.choice(3, 3, 4),
    ("AclCreation", "operation"): lambda draw: draw.choice(*range(2, 13)),
    ("AclCreation", "permission_type"): lambda draw: draw.choice(2, 3, 3),
    ("AclCreation", "principal"): lambda draw: draw.choice("User:a", "User:b", "User:*", "a", ""),
    ("AclCreation", "host"): lambda draw: draw.choice("*", "*", "127.0.0.1", ""),
    ("", "resource_type_filter"): lambda draw: draw.choice(2, 2, 3, 4, 5, 1),
    ("", "pattern_type_filter"): lambda draw: draw.choice(1, 2, 3, 4),
    ("", "principal_filter"): lambda draw: draw.choice("User:a", None, "User:b"),
    ("", "host_filter"): lambda draw: draw.choice("*", None, "127.0.0.1"),
    ("", "operation"): lambda draw: draw.choice(*range(1, 13)),
    ("", "permission_type"): lambda draw: draw.choice(1, 2, 3, 3),
    ("", "resource_name"): lambda draw: draw._topic(),
    ("", "configuration_keys"): lambda draw: draw.choice(None, [], ["cleanup.policy"], ["no.such", "retention.ms"]),
    # Of what a node can be: its number is 1 on both sides, and it stays registered.
    # Kafka's coordinators count their starts: a number between would be old for one that was restarted more often.
    ("WritableTxnMarker", "coordinator_epoch"): lambda draw: draw.choice(-1, -1, 1_000, 1_000, -1),
    ("UnregisterBrokerRequest", "broker_id"): lambda draw: draw.choice(99, -1, 2**31 - 1),
    ("ReassignablePartition", "replicas"): lambda draw: draw.choice([1], [1], None, [2], [1, 1], []),
    ("TopicData", "topic_name"): lambda draw: draw.choice("__cluster_metadata", "__cluster_metadata", draw._topic()),
    ("ListConfigResourcesRequest", "resource_types"): lambda draw: draw.choice([], [2], [4, 32], [16], [1], [99]),
    # Quotas and passwords of nobody who works here: none is to wait.
    ("ComponentData", "entity_type"): lambda draw: draw.choice("user", "client-id", "ip", "nobody"),
    ("ComponentData", "match_type"): lambda draw: draw.choice(0, 0, 1, 2, 3),
    ("ComponentData", "match"): lambda draw: draw.choice(draw.own("user", "client"), None),
    ("EntityData", "entity_type"): lambda draw: draw.choice("user", "user", "client-id", "ip", "nobody"),
    ("EntityData", "entity_name"): lambda draw: draw.own("user", "client"),
    ("OpData", "key"): lambda draw: draw.choice(*QUOTAS),
    ("OpData", "value"): lambda draw: draw.choice(1e9, 1e9, 2e9, 1.5, 0.0, -1.0),
    ("UserName", "name"): lambda draw: draw.own("user", "nobody"),
    ("ScramCredentialDeletion", "name"): lambda draw: draw.own("user", "nobody"),
    ("ScramCredentialUpsertion", "name"): lambda draw: draw.choice(draw.own("user"), draw.own("user"), ""),
    ("SaslHandshakeRequest", "mechanism"): lambda draw: draw.choice("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "", "9"),
    ("", "mechanism"): lambda draw: draw.choice(1, 1, 2, 0, 9),
    ("", "iterations"): lambda draw: draw.choice(4096, 4096, 8192, 1, 16_385),
    ("", "salted_password"): lambda draw: draw.choice(b"x" * 32, b"y" * 64),
    # Share groups. A fetch waits until there is something, for what a first one makes ready is not there at once.
    ("ShareGroupHeartbeatRequest", "group_id"): Drawing.share_group,
    ("ShareGroupHeartbeatRequest", "member_id"): Drawing.share_member,
    ("ShareGroupHeartbeatRequest", "member_epoch"): Drawing.share_epoch,
    ("ShareGroupHeartbeatRequest", "subscribed_topic_names"): Drawing.names,
    ("ShareGroupDescribeRequest", "group_ids"): lambda draw: [draw.share_group()],
    ("ShareFetchRequest", "group_id"): Drawing.share_group,
    ("ShareFetchRequest", "member_id"): Drawing.share_member,
    ("ShareFetchRequest", "max_wait_ms"): lambda draw: 300,
    ("ShareFetchRequest", "min_bytes"): lambda draw: 1,
    ("ShareFetchRequest", "max_bytes"): lambda draw: 1 << 20,
    ("ShareFetchRequest", "max_records"): lambda draw: draw.choice(500, 500, 1),
    ("ShareFetchRequest", "batch_size"): lambda draw: 500,
    ("ShareFetchRequest", "share_acquire_mode"): lambda draw: draw.choice(0, 0, 1),
    ("ShareFetchRequest", "forgotten_topics_data"): lambda draw: [],
    ("ShareAcknowledgeRequest", "group_id"): Drawing.share_group,
    ("ShareAcknowledgeRequest", "member_id"): Drawing.share_member,
    ("", "share_session_epoch"): lambda draw: draw.choice(0, 0, 0, 1, 2, -1),
    ("", "is_renew_ack"): lambda draw: draw.choice(False, False, False, True),
    ("", "acknowledge_types"): lambda draw: draw.choice([1], [1], [2], [3], [0], [4], [9]),
    ("DescribeShareGroupOffsetsRequestGroup", "group_id"): Drawing.share_group,
    ("AlterShareGroupOffsetsRequest", "group_id"): Drawing.share_group,
    ("DeleteShareGroupOffsetsRequest", "group_id"): Drawing.share_group,
    ("", "acks"): lambda draw: draw.choice(-1, -1, 1),
    ("", "timeout_ms"): lambda draw: 30_000,
    ("", "retention_time_ms"): lambda draw: -1,
    ("", "replica_id"): lambda draw: -1,
    ("", "include_cluster_authorized_operations"): lambda draw: False,
    ("", "include_topic_authorized_operations"): lambda draw: False,
    ("", "include_authorized_operations"): lambda draw: False,
    ("", "allow_auto_topic_creation"): lambda draw: False,
    ("", "committed_offset"): lambda draw: draw.choice(0, 1, 5, -1, -2, 2**62),
    ("", "key_type"): lambda draw: draw.choice(0, 1, 1, 2, 9, -1),
    ("", "endpoint_type"): lambda draw: draw.choice(1, 1, 1, 2, 0),
    ("", "response_partition_limit"): lambda draw: draw.choice(2_000, 2_000, 1, 0, -1),
    ("", "cursor"): lambda draw: None,
}


@cache
def hints(cls: Any) -> dict[str, Any]:
    """The annotations of a message's class, as types."""
    return typing.get_type_hints(cls)
