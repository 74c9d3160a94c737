"""Topics for tests of the source's readers, and their rows in a form to compare."""

from __future__ import annotations

import json
import pickle
import uuid
from typing import Any

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from fencepost.broker.embedded import Broker
from fencepost.client.admin.core import AdminCore
from fencepost.protocol.records.encoding import encode_batch
from fencepost.spark.sink import wire
from fencepost.spark.sink.runner import ClusterClient
from fencepost.spark.source.batch import BatchReader
from fencepost.spark.source.reader import (
    StreamReader,
)

HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])


SCHEMA = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
    ]
)


WITH_HEADERS = StructType([*SCHEMA.fields, StructField("headers", ArrayType(HEADER))])


class Topic:
    """A topic that is written with raw batches."""

    def __init__(self, broker: Broker, partitions: int = 2, **configs: str) -> None:
        self.name = f"in-{uuid.uuid4().hex[:8]}"
        self.servers = broker.bootstrap_servers
        self.link = ClusterClient({"bootstrap.servers": self.servers})
        settings = {key.replace("_", "."): value for key, value in {"retention_ms": "-1", **configs}.items()}
        self.admin = AdminCore(self.link.admin.cluster)
        self.link.io.run(self.admin.create_topic(self.name, partitions, configs=settings))

    def write(self, partition: int, values: list[str], at_ms: int = 1_600_000_000_000, **stamp: Any) -> None:
        transactional_id = stamp.pop("transactional_id", None)
        batch = encode_batch(
            keys=[b"k"] * len(values),
            values=[value.encode() for value in values],
            timestamps=[at_ms + number for number in range(len(values))],
            **stamp,
        )
        cluster = self.link.admin.cluster
        deadline_ms = cluster.runtime.now_ms() + 20_000
        sent = wire.produce_batch(cluster, transactional_id, self.name, partition, batch, deadline_ms)
        assert self.link.io.run(sent) == 0

    def write_transaction(self, partition: int, values: list[str], commit: bool | None) -> None:
        """`commit` None: it stays open."""
        name = f"t-{uuid.uuid4().hex}"
        owner = self.link.io.run(self.link.admin.init_producer_id(name))
        stamp = {"producer_id": owner.producer_id, "producer_epoch": owner.producer_epoch, "base_sequence": 0}
        self.write(partition, values, transactional=True, transactional_id=name, **stamp)
        if commit is not None:
            ended = self.link.admin.end_transaction(name, owner.producer_id, owner.producer_epoch, commit, version=5)
            assert self.link.io.run(ended).error_code == 0

    def open_ids(self) -> list[str]:
        """Transactions that are open on the topic."""
        run, admin = self.link.io.run, self.link.admin
        listed = [listing.transactional_id for listing in run(admin.list_transactions(states=("Ongoing",)))]
        described = run(admin.describe_transactions(listed))
        return [
            transaction.transactional_id
            for transaction in described
            if any(at.topic == self.name for at in transaction.partitions)
        ]

    def end(self, *ids: str) -> None:
        """Commit them."""
        assert ids
        for found in self.link.io.run(self.link.admin.describe_transactions(ids)):
            owner = found.producer_id, found.producer_epoch
            ended = self.link.admin.end_transaction(found.transactional_id, *owner, True, version=5)
            assert self.link.io.run(ended).error_code == 0

    def options(self, **more: str) -> dict[str, str]:
        lowered = {key.lower(): value for key, value in more.items()}
        if not {"subscribe", "assign", "subscribepattern"} & lowered.keys():
            lowered["subscribe"] = self.name
        return {"kafka.bootstrap.servers": self.servers, **lowered}

    def stream(self, **more: str) -> StreamReader:
        return StreamReader(self.options(startingOffsets="earliest", **more), SCHEMA)


def plain(offsets: dict[str, dict[str, int]]) -> dict[str, dict[str, int]]:
    """As Spark's own source reads it: an entry without partitions says nothing."""
    assert all(("@" in name) == (not parts) for name, parts in offsets.items())
    return {name: parts for name, parts in offsets.items() if parts}


def values(reader: StreamReader | BatchReader, partitions: Any) -> list[str]:
    """Every value, after the trip that PySpark sends reader and partitions on."""
    reader = pickle.loads(pickle.dumps(reader))
    read = [batch for part in partitions for batch in reader.read(pickle.loads(pickle.dumps(part)))]
    return [value.decode() for batch in read for value in batch.column("value").to_pylist()]


def offsets(topic: Topic, *at: int) -> str:
    return json.dumps({topic.name: {str(number): offset for number, offset in enumerate(at)}})
