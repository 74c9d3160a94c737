"""Consume: our consumer (records, Arrow, exact ranges) beside confluent-kafka's consume(), on the same broker.

python -m bench.consume --broker kafka --records 2000000
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from functools import partial

import pyarrow as pa
from confluent_kafka import Consumer as Confluent
from confluent_kafka import TopicPartition as ConfluentPartition

import fencepost
from bench.common import Contest, arguments, broker, new_topic

Work = Callable[[str, str, int], None]


def fill(servers: str, topic: str, value: bytes, records: int) -> None:
    rows = 10_000
    table = pa.table({"value": pa.array([value] * rows, pa.binary())})
    with fencepost.Producer(servers) as producer:
        for _ in range(records // rows):
            producer.send_arrow(topic, table)


def confluent(servers: str, topic: str, records: int) -> None:
    consumer = Confluent(
        {
            "bootstrap.servers": servers,
            "group.id": uuid.uuid4().hex,
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    consumer.assign([ConfluentPartition(topic, 0, 0)])
    seen = 0
    while seen < records:
        for message in consumer.consume(10_000, 1.0):
            if message.value() is not None:
                seen += 1
    consumer.close()


def ours(servers: str, topic: str, records: int) -> None:
    with fencepost.Consumer(servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([fencepost.TopicPartition(topic, 0)])
        seen = 0
        while seen < records:
            for record in consumer.poll(1000):
                if record.value is not None:
                    seen += 1


def ours_arrow(servers: str, topic: str, records: int) -> None:
    with fencepost.Consumer(servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([fencepost.TopicPartition(topic, 0)])
        seen = 0
        while seen < records:
            seen += len(consumer.poll_arrow(1000))


def ours_range(servers: str, topic: str, records: int) -> None:
    with fencepost.Consumer(servers) as consumer:
        seen = sum(len(piece.columns) for piece in consumer.fetch_range(topic, 0, 0, records))
    if seen != records:
        raise RuntimeError(f"{seen} of {records}")


def measure(servers: str, size: int, records: int, rounds: int) -> Contest:
    """All contestants over the same topic; `size` is that of each value in bytes."""
    works: dict[str, Work] = {
        "confluent-kafka consume()": confluent,
        "fencepost poll()": ours,
        "fencepost poll_arrow()": ours_arrow,
        "fencepost fetch_range()": ours_range,
    }
    contest = Contest("records/s", "confluent-kafka consume()")
    topic = new_topic(servers)
    fill(servers, topic, b"x" * size, records)
    contest.run(
        {name: partial(work, servers, topic) for name, work in works.items()}, dict.fromkeys(works, records), rounds
    )
    return contest


def main() -> None:
    options = arguments("Consume, side by side", 2_000_000)
    with broker(options.broker) as servers:
        print(measure(servers, options.size, options.records, options.rounds).report())


if __name__ == "__main__":
    main()
