"""A checkpoint that is restored or loses files: the query says so, nothing is written, and it can be repaired."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from fencepost import Admin
from fencepost.broker.embedded import Broker
from fencepost.spark import repair_checkpoint

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker({"transaction.two.phase.commit.enable": True}) as running:
        yield running


class Stream:
    """A query from topic to topic, run until its input is used up."""

    def __init__(self, spark: Any, broker: Broker, folder: Path) -> None:
        self.spark, self.servers, self.checkpoint = spark, broker.bootstrap_servers, folder / "checkpoint"
        self.sink = f"loss-{uuid.uuid4().hex[:8]}"
        with Admin(self.servers) as admin:
            for name in ("in", "out"):
                admin.create_topic(f"{self.sink}-{name}", 2)

    def produce(self, first: int, end: int) -> None:
        producer = Producer({"bootstrap.servers": self.servers})
        for number in range(first, end):
            producer.produce(f"{self.sink}-in", key=str(number % 11), value=str(number))
        assert producer.flush(120) == 0

    def run(self, **options: str) -> None:
        servers = {"kafka.bootstrap.servers": self.servers}
        rows = self.spark.readStream.format("fencepost").options(**servers)
        rows = rows.option("subscribe", f"{self.sink}-in").option("startingOffsets", "earliest").load()
        writer = rows.select("key", "value").writeStream.format("fencepost").options(**servers).options(**options)
        writer = writer.option("topic", f"{self.sink}-out").option("sink.id", self.sink)
        writer.option("checkpointLocation", str(self.checkpoint)).trigger(availableNow=True).start().awaitTermination()

    def values(self) -> list[int]:
        consumer = Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": uuid.uuid4().hex,
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
            }
        )
        consumer.assign([TopicPartition(f"{self.sink}-out", number, 0) for number in range(2)])
        found: list[int] = []
        ended = 0
        while ended < 2:
            for message in consumer.consume(1000, 10):
                if message.error():
                    ended += 1
                else:
                    found.append(int(message.value() or b"-1"))
        consumer.close()
        return sorted(found)


def drop_the_last_batch(checkpoint: Path) -> None:
    """Remove the files of the last batch, as a loss of power may: Spark does not sync its files."""
    for log in ("offsets", "commits"):
        for name in ("1", ".1.crc"):
            (checkpoint / log / name).unlink(missing_ok=True)


def go_back_to_the_copy(checkpoint: Path) -> None:
    shutil.rmtree(checkpoint)
    shutil.copytree(checkpoint.with_name("copy"), checkpoint)


@pytest.mark.parametrize(
    ("loses", "batches", "error"),
    [
        (drop_the_last_batch, 2, "BatchChangedError"),
        (go_back_to_the_copy, 2, "BatchChangedError"),
        (go_back_to_the_copy, 3, "CheckpointRolledBackError"),
    ],
)
def test_a_checkpoint_that_is_not_what_was_written_stops_the_query_and_can_be_repaired(
    spark: Any, broker: Broker, tmp_path: Path, loses: Callable[[Path], None], batches: int, error: str
) -> None:
    stream = Stream(spark, broker, tmp_path)
    for batch in range(batches):
        stream.produce(100 * batch, 100 * (batch + 1))
        stream.run()
        if batch == 0:
            shutil.copytree(stream.checkpoint, tmp_path / "copy")
    loses(stream.checkpoint)
    stream.produce(100 * batches, 100 * batches + 300)
    for _ in range(2):  # and at every restart
        with pytest.raises(Exception, match=error):
            stream.run()
    assert stream.values() == list(range(100 * batches))
    repaired = repair_checkpoint(stream.servers, stream.sink, str(stream.checkpoint))
    assert repaired.written
    assert repaired.decision.batch_id == batches - 1
    stream.run()
    assert stream.values() == list(range(100 * batches + 300))


def test_the_batch_number_can_be_trusted_as_an_older_release_did(spark: Any, broker: Broker, tmp_path: Path) -> None:
    stream = Stream(spark, broker, tmp_path)
    for batch in range(2):
        stream.produce(100 * batch, 100 * (batch + 1))
        stream.run()
    drop_the_last_batch(stream.checkpoint)
    stream.produce(200, 210)
    stream.run(**{"same.batch": "number"})
    assert stream.values() == list(range(200))  # 200 to 209 came under a number that was written
