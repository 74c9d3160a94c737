"""A query whose checkpoint goes while it runs, or has no room: it ends with the reason, and writes nothing twice."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException

from fencepost import Admin, Consumer, Producer, TopicPartition
from fencepost.broker.embedded import Broker
from tests.spark.checkpoints import delete_unwritten_plan
from tests.support.readme import ROOT
from tests.support.small_disk import small_disk
from tests.support.waiting import until

pytestmark = pytest.mark.spark

RECORDS = 20
FAQ = (ROOT / "docs" / "faq.md").read_text()


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


class Running:
    """A query from topic to topic that runs until it is stopped."""

    def __init__(
        self, spark: Any, broker: Broker, checkpoint: Path, sink: dict[str, str], *, starts: bool = True
    ) -> None:
        self.spark, self.servers, self.checkpoint, self.sink = spark, broker.bootstrap_servers, checkpoint, sink
        self.name = f"taken-{uuid.uuid4().hex[:8]}"
        self.record_count = 0
        with Admin(self.servers) as admin:
            for topic in ("in", "out"):
                admin.create_topic(f"{self.name}-{topic}", 1)
        self.add()
        if starts:
            self.start()
            until(self.is_up_to_date, within_s=120)

    def add(self) -> None:
        with Producer(self.servers) as producer:
            for number in range(self.record_count, self.record_count + RECORDS):
                producer.send(f"{self.name}-in", str(number).encode())
        self.record_count += RECORDS

    def start(self) -> None:
        where = {"kafka.bootstrap.servers": self.servers}
        rows = self.spark.readStream.format("fencepost").options(**where).option("subscribe", f"{self.name}-in")
        rows = rows.option("startingOffsets", "earliest").load().select("value")
        writer = rows.writeStream.format("fencepost").options(**where, **self.sink).option("topic", f"{self.name}-out")
        writer = writer.option("checkpointLocation", str(self.checkpoint))
        self.query = writer.trigger(processingTime="100 milliseconds").start()

    def is_up_to_date(self) -> bool:
        assert self.query.isActive, self.query.exception()
        # `offsets` of the next batch come first, so all batches are finished.
        finished = {path.name for path in (self.checkpoint / "commits").glob("[0-9]*")}
        planned = {path.name for path in (self.checkpoint / "offsets").glob("[0-9]*")}
        return sum(self.values().values()) >= self.record_count and planned == finished

    def ends_with(self, words: str) -> None:
        with pytest.raises(StreamingQueryException, match=words):
            self.query.awaitTermination(120)

    def values(self) -> Counter[int]:
        """Return the committed values."""
        partition = TopicPartition(f"{self.name}-out", 0)
        found: Counter[int] = Counter()
        with (
            Admin(self.servers) as admin,
            Consumer(self.servers, auto_offset_reset="earliest", isolation_level="read_committed") as consumer,
        ):
            end = admin.list_offsets({partition: -1})[partition].offset
            consumer.assign([partition])
            while consumer.position(partition) < end:
                found.update(int(record.value or b"-1") for record in consumer.poll(1000))
        return found


@pytest.mark.parametrize("sink", [{}, {"sink.id": "a-name"}], ids=["unnamed", "named"])
@pytest.mark.parametrize("away", ["all", "metadata"])
def test_a_checkpoint_that_is_deleted_under_the_query_is_named(
    spark: Any, broker: Broker, tmp_path: Path, sink: dict[str, str], away: str
) -> None:
    """Spark makes the folder again and plans into it. Nothing after that could be told from a new query."""
    running = Running(spark, broker, tmp_path / "checkpoint", sink)
    metadata = running.checkpoint / "metadata"
    text = metadata.read_text()
    if away == "all":
        shutil.rmtree(running.checkpoint)
    else:
        metadata.unlink()
    running.add()
    running.ends_with("CheckpointLostError: batch 1 was not decided.*does not have the file metadata any more")
    assert running.values() == Counter(range(RECORDS))
    with pytest.raises(PySparkException, match="STREAMING_CHECKPOINT_MISSING_METADATA_FILE"):
        running.start()
    if away == "metadata":  # put back, as the error says
        metadata.write_text(text)
        running.start()
        until(running.is_up_to_date, within_s=120)
        running.query.stop()
        assert running.values() == Counter(range(2 * RECORDS))


@pytest.mark.parametrize("other_files", [(), (".0.crc", ".1.tmp")])
def test_a_query_that_was_stopped_in_its_first_write(
    spark: Any, broker: Broker, tmp_path: Path, other_files: Sequence[str]
) -> None:
    """Spark refuses its own temporary file, also for its own source and sink. docs/faq.md names the way out."""
    (words,) = re.findall(r"^\*\*`\[(\w+)\] .*should be empty on batch 0`\*\* \(Spark's\)$", FAQ, re.MULTILINE)
    running = Running(spark, broker, tmp_path / "own", {}, starts=False)
    for checkpoint in (running.checkpoint, tmp_path / "rate"):
        (checkpoint / "offsets").mkdir(parents=True)
        for name in (".0.1b4e28ba-2fa1-11d2-883f-0016d3cca427.tmp", *other_files):
            (checkpoint / "offsets" / name).touch()
    running.start()
    running.ends_with(words)
    rates = spark.readStream.format("rate").load().writeStream.format("noop")
    with pytest.raises(StreamingQueryException, match=words):
        rates.option("checkpointLocation", str(tmp_path / "rate")).start().awaitTermination(120)
    delete_unwritten_plan(running.checkpoint)
    running.start()
    until(running.is_up_to_date, within_s=120)
    running.query.stop()
    delete_unwritten_plan(running.checkpoint)  # which has a plan now
    running.add()
    running.start()
    until(running.is_up_to_date, within_s=120)
    running.query.stop()
    assert running.values() == Counter(range(2 * RECORDS))


def test_a_checkpoint_without_room_ends_the_query_and_nothing_comes_twice(
    spark: Any, broker: Broker, tmp_path: Path
) -> None:
    with small_disk(tmp_path / "disk", 400 << 10) as disk:
        running = Running(spark, broker, disk / "checkpoint", {})
        filler = os.open(disk / "filler", os.O_CREAT | os.O_WRONLY)
        with contextlib.suppress(OSError):  # until there is no room
            while True:
                os.write(filler, bytes(512))
        os.close(filler)
        running.add()
        for _ in range(2):
            running.ends_with("No space left on device")
            assert set(running.values().values()) == {1}
            running.start()
        running.ends_with("No space left on device")
        (disk / "filler").unlink()
        running.start()
        until(running.is_up_to_date, within_s=120)
        running.query.stop()
        assert running.values() == Counter(range(2 * RECORDS))
