"""Fencepost's clients with the interface of confluent-kafka. Neither confluent-kafka nor librdkafka is needed.

    from fencepost.compat.confluent_kafka import Consumer, Producer

docs/migration.md has a table of the names that work, differ or are refused.
"""

from __future__ import annotations

import fencepost
from fencepost.compat.confluent_kafka import admin, error, serialization
from fencepost.compat.confluent_kafka.admin_kinds import (
    ConsumerGroupState,
    ConsumerGroupType,
    ElectionType,
    IsolationLevel,
)
from fencepost.compat.confluent_kafka.admin_values import (
    ConsumerGroupTopicPartitions,
    Node,
    TopicCollection,
    TopicPartitionInfo,
    Uuid,
)
from fencepost.compat.confluent_kafka.base.errors import KafkaError, KafkaException
from fencepost.compat.confluent_kafka.base.values import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    OFFSET_STORED,
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    TIMESTAMP_NOT_AVAILABLE,
    Message,
    TopicPartition,
)
from fencepost.compat.confluent_kafka.consumer import Consumer
from fencepost.compat.confluent_kafka.deserializing_consumer import DeserializingConsumer
from fencepost.compat.confluent_kafka.partitioners import consistent, fnv1a, murmur2
from fencepost.compat.confluent_kafka.producer import Producer
from fencepost.compat.confluent_kafka.refused import DeserializingShareConsumer, ShareConsumer, libversion
from fencepost.compat.confluent_kafka.serializing_producer import SerializingProducer

__all__ = [
    "OFFSET_BEGINNING",
    "OFFSET_END",
    "OFFSET_INVALID",
    "OFFSET_STORED",
    "TIMESTAMP_CREATE_TIME",
    "TIMESTAMP_LOG_APPEND_TIME",
    "TIMESTAMP_NOT_AVAILABLE",
    "Consumer",
    "ConsumerGroupState",
    "ConsumerGroupTopicPartitions",
    "ConsumerGroupType",
    "DeserializingConsumer",
    "DeserializingShareConsumer",
    "ElectionType",
    "IsolationLevel",
    "KafkaError",
    "KafkaException",
    "Message",
    "Node",
    "Producer",
    "SerializingProducer",
    "ShareConsumer",
    "TopicCollection",
    "TopicPartition",
    "TopicPartitionInfo",
    "Uuid",
    "admin",
    "consistent",
    "error",
    "fnv1a",
    "libversion",
    "murmur2",
    "serialization",
    "version",
]


__version__ = fencepost.__version__


def version() -> str:
    """Return Fencepost's version."""
    return fencepost.__version__
