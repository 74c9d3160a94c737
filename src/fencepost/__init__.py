"""Fencepost: exactly-once Kafka for Python and Spark.

Public names are imported on first use, which keeps `import fencepost` fast.

PYTEST_DONT_REWRITE: without this, pytest warns if a program imports fencepost before it runs pytest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fencepost.on_first_use import loaded_from

__version__ = "1.0.0"

if TYPE_CHECKING:
    from fencepost import config as config
    from fencepost import errors as errors
    from fencepost.broker.embedded import Broker as Broker
    from fencepost.client.aio import AsyncAdmin as AsyncAdmin
    from fencepost.client.aio import AsyncConsumer as AsyncConsumer
    from fencepost.client.aio import AsyncProducer as AsyncProducer
    from fencepost.client.aio import AsyncShareConsumer as AsyncShareConsumer
    from fencepost.client.blocking import Admin as Admin
    from fencepost.client.blocking import Consumer as Consumer
    from fencepost.client.blocking import Producer as Producer
    from fencepost.client.blocking import ShareConsumer as ShareConsumer
    from fencepost.client.partition_assignor import Assignment as Assignment
    from fencepost.client.partition_assignor import PartitionAssignor as PartitionAssignor
    from fencepost.client.partition_assignor import Subscription as Subscription
    from fencepost.client.prepared import PreparedTransaction as PreparedTransaction
    from fencepost.client.records import Record as Record
    from fencepost.client.records import SharedRecord as SharedRecord
    from fencepost.client.types import AcknowledgeType as AcknowledgeType
    from fencepost.client.types import GroupMetadata as GroupMetadata
    from fencepost.client.types import Isolation as Isolation
    from fencepost.client.types import OffsetAndMetadata as OffsetAndMetadata
    from fencepost.client.types import OffsetSpec as OffsetSpec
    from fencepost.client.types import RebalanceListener as RebalanceListener
    from fencepost.client.types import RecordMetadata as RecordMetadata
    from fencepost.client.types import TopicPartition as TopicPartition

_HOMES = {
    "AcknowledgeType": "fencepost.client.types",
    "Admin": "fencepost.client.blocking",
    "Assignment": "fencepost.client.partition_assignor",
    "AsyncAdmin": "fencepost.client.aio",
    "AsyncConsumer": "fencepost.client.aio",
    "AsyncProducer": "fencepost.client.aio",
    "AsyncShareConsumer": "fencepost.client.aio",
    "Broker": "fencepost.broker.embedded",
    "Consumer": "fencepost.client.blocking",
    "GroupMetadata": "fencepost.client.types",
    "Isolation": "fencepost.client.types",
    "OffsetAndMetadata": "fencepost.client.types",
    "OffsetSpec": "fencepost.client.types",
    "PartitionAssignor": "fencepost.client.partition_assignor",
    "PreparedTransaction": "fencepost.client.prepared",
    "Producer": "fencepost.client.blocking",
    "RebalanceListener": "fencepost.client.types",
    "Record": "fencepost.client.records",
    "RecordMetadata": "fencepost.client.types",
    "ShareConsumer": "fencepost.client.blocking",
    "SharedRecord": "fencepost.client.records",
    "Subscription": "fencepost.client.partition_assignor",
    "TopicPartition": "fencepost.client.types",
    "config": "fencepost.config",
    "errors": "fencepost.errors",
}

__all__ = [
    "AcknowledgeType",
    "Admin",
    "Assignment",
    "AsyncAdmin",
    "AsyncConsumer",
    "AsyncProducer",
    "AsyncShareConsumer",
    "Broker",
    "Consumer",
    "GroupMetadata",
    "Isolation",
    "OffsetAndMetadata",
    "OffsetSpec",
    "PartitionAssignor",
    "PreparedTransaction",
    "Producer",
    "RebalanceListener",
    "Record",
    "RecordMetadata",
    "ShareConsumer",
    "SharedRecord",
    "Subscription",
    "TopicPartition",
    "__version__",
    "config",
    "errors",
]

__getattr__, __dir__ = loaded_from(globals(), _HOMES)
