"""A query that Spark's own connector has run, played by hand: its checkpoint, its output, and how it goes on here."""

from __future__ import annotations

import json
import pickle
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fencepost import Admin, Consumer, Producer, TopicPartition
from fencepost.broker.embedded import Broker
from fencepost.cli.main import main
from fencepost.spark.adoption.batch_rows import BatchRows, write_rows
from fencepost.spark.sink import runner
from fencepost.spark.sink.content import row_hashes
from fencepost.spark.sink.runner import ClusterClient, SinkLink
from fencepost.spark.sink.steps import SinkConfig
from fencepost.spark.sink.writer import StreamWriter
from tests.support.apache_kafka import ApacheKafka
from tests.unit.spark import adoption_files as files

COLUMNS = [("value", "string")]


def forget() -> None:
    """As another process, which knows nothing of the cluster."""
    for link in runner._links.values():
        link.close()
    runner._links.clear()


class Query:
    """A query from `orders` to a topic of its own."""

    def __init__(self, broker: Broker | ApacheKafka, folder: Path, last: int = 2, *, begun: bool = False) -> None:
        """Spark's own connector has run it: batch N has written the rows `N-0` and `N-1`."""
        self.servers, self.folder = broker.bootstrap_servers, folder / "checkpoint"
        self.id, self.topic = str(uuid.uuid4()), f"out-{uuid.uuid4().hex[:8]}"
        self.rows_file = folder / "batch.rows"
        self.routed = False  # whether the rows name their topic, in place of the option
        with Admin(self.servers) as admin:
            admin.create_topic(self.topic, 2)
        self.produce(*(value for batch_id in range(last + (not begun)) for value in self.values(batch_id)), hours_ago=1)
        self.checkpoint(last, begun=begun)

    def checkpoint(self, last: int, *, begun: bool = False) -> None:
        """As Spark leaves it."""
        found = files.checkpoint(last, begun=begun, planned_ms=int(time.time() * 1000) - 1000)
        found["metadata"] = json.dumps({"id": self.id}).encode()
        found[".metadata.crc"] = files.crc_of(found["metadata"])
        (self.folder / "commits").mkdir(parents=True, exist_ok=True)
        for name, data in found.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)

    def finished(self, batch_id: int) -> None:
        """Spark's note of it."""
        (self.folder / "commits" / str(batch_id)).write_bytes(files.COMMIT)

    @staticmethod
    def values(batch_id: int) -> list[str]:
        return [f"{batch_id}-0", f"{batch_id}-1"]

    def produce(self, *values: str, hours_ago: float = 0) -> None:
        """By Spark's own sink."""
        with Producer(self.servers) as producer:
            for number, value in enumerate(values):
                at_ms = int((time.time() - 3600 * hours_ago) * 1000)
                producer.send(self.topic, value.encode(), partition=number % 2, timestamp_ms=at_ms)

    def describe(self, batch_id: int, values: Sequence[str] | None = None, *, keep: bool = False) -> list[str]:
        """The option that names its rows."""
        row_values = self.values(batch_id) if values is None else values
        hashes = row_hashes(pa.record_batch({"value": pa.array(row_values, pa.string())}), self.topic)
        rows = pa.table({"value": pa.array(row_values, pa.string()), "topic": [self.topic] * len(row_values)})
        write_rows(self.rows_file, BatchRows(self.id, batch_id, (self.topic,), hashes, rows if keep else None))
        return ["--rows", str(self.rows_file)]

    def command(self, name: str, *words: str) -> int:
        """Its status."""
        forget()
        with pytest.raises(SystemExit) as ended:
            main(["spark", name, str(self.folder), *words, "-b", self.servers])
        return int(ended.value.code or 0)

    def adopt(self, *words: str) -> int:
        return self.command("adopt", "--topic", self.topic, *words)

    def plan(self, batch_id: int, **more: str) -> StreamWriter:
        """The writer that Spark's planning process of the moved query hands to its tasks."""
        offsets = self.folder / "offsets"
        if not (offsets / str(batch_id)).exists():
            (offsets / str(batch_id)).write_bytes(files.entry(files.line(batch_id + 1, 2)))
        options = {"kafka.bootstrap.servers": self.servers, "topic": self.topic, "checkpointlocation": str(self.folder)}
        options |= {name.replace("_", "."): text for name, text in more.items()}
        if self.routed:
            del options["topic"]
        columns = [*COLUMNS, ("topic", "string")] if self.routed else COLUMNS
        planned: StreamWriter = pickle.loads(pickle.dumps(StreamWriter(options, columns)))
        return planned

    def message(self, writer: StreamWriter, batch_id: int) -> Any:
        values = self.values(batch_id)
        columns = {"value": values, "topic": [self.topic] * len(values)} if self.routed else {"value": values}
        return writer.write_partition(iter([pa.record_batch(columns)]), self.id, batch_id)

    def batch(self, batch_id: int, **more: str) -> Any:
        """The moved query runs a batch to its end. The message of its task."""
        forget()
        writer = self.plan(batch_id, **more)
        message = self.message(writer, batch_id)
        StreamWriter(writer._options, writer._columns).commit([message], batch_id)
        self.finished(batch_id)
        return message.message

    def output(self) -> list[str]:
        """As committed readers see it."""
        found: list[str] = []
        with Consumer(self.servers, auto_offset_reset="earliest", isolation_level="read_committed") as consumer:
            partitions = [TopicPartition(self.topic, number) for number in (0, 1)]
            consumer.assign(partitions)
            link = ClusterClient({"bootstrap.servers": self.servers})
            ends = {at: link.io.run(link.admin.list_offsets({at: -1}))[at].offset for at in partitions}
            while any(consumer.position(at) < end for at, end in ends.items()):
                found += [record.value.decode() for record in consumer.poll(1000) if record.value is not None]
        return sorted(found)

    def expected(self, last: int) -> list[str]:
        return sorted(value for batch_id in range(last + 1) for value in self.values(batch_id))

    def known(self) -> tuple[int | None, int | None, bool]:
        """The sink's memory: the last decided batch, the first batch, and whether the query was released."""
        link = ClusterClient({"bootstrap.servers": self.servers})
        for query in SinkLink(link, SinkConfig()).queries(self.id):
            if query.query_id == self.id:
                first = None if query.beginning is None else query.beginning.first_batch
                return query.batch_id, first, query.beginning is not None and query.beginning.is_released
        return None, None, False
