"""Check the demo's output: read the output topic with librdkafka, which shares no code with Fencepost, and compare.

The run passes if every input flight is in the output exactly once and nothing else is. The counts per carrier and class
must equal those that pandas computed, and no transaction may be open.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from fencepost_lab.demo.flights import Expected

__all__ = ["DemoVerdict", "judge", "read_committed"]

READ_TIMEOUT_SECONDS = 60.0


@dataclass(slots=True)
class DemoVerdict:
    """Findings of the check.

    Attributes:
        records: Number of records in the output.
        flights: Number of distinct flight ids.
        duplicates: Number of surplus records.
        missing: Number of flights that are not in the output.
        unknown: Number of records without a flight of the input.
        mismatches: (carrier, class) -> (found, expected) of counts that differ.
        in_doubt: Transactional ids of open transactions.
    """

    records: int = 0
    flights: int = 0
    duplicates: int = 0
    missing: int = 0
    unknown: int = 0
    mismatches: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    in_doubt: list[str] = field(default_factory=list)

    @property
    def exactly_once(self) -> bool:
        """True if the run passed. A run without any output does not pass."""
        wrong = self.duplicates or self.missing or self.unknown or self.mismatches or self.in_doubt
        return self.flights > 0 and not wrong


def judge(values: Iterable[bytes | None], expected: Expected, in_doubt: list[str]) -> DemoVerdict:
    """Compare the output's values with the expected ones."""
    times_by_flight: Counter[int] = Counter()
    counts: Counter[tuple[str, str]] = Counter()
    unknown = 0
    for value in values:
        row = _parse(value)
        flight_id = row.get("flight_id", -1)
        if not 0 <= flight_id < expected.flights:
            unknown += 1
            continue
        times_by_flight[flight_id] += 1
        counts[row["carrier"], row["delay_class"]] += 1
    keys = counts.keys() | expected.by_carrier_and_class.keys()
    pairs = {key: (counts[key], expected.by_carrier_and_class.get(key, 0)) for key in keys}
    return DemoVerdict(
        records=sum(times_by_flight.values()) + unknown,
        flights=len(times_by_flight),
        duplicates=sum(times_by_flight.values()) - len(times_by_flight),
        missing=expected.flights - len(times_by_flight),
        unknown=unknown,
        mismatches={key: pair for key, pair in sorted(pairs.items()) if pair[0] != pair[1]},
        in_doubt=in_doubt,
    )


def _parse(value: bytes | None) -> dict[str, Any]:
    """Return the row in a record's value; empty for a value that the query did not write."""
    try:
        row = json.loads(value or b"")
    except ValueError:
        return {}
    return row if isinstance(row, dict) else {}


def read_committed(bootstrap_servers: str, topic: str) -> Iterator[bytes | None]:
    """Yield the value of every committed record, up to the end offsets at the start.

    Raises:
        TimeoutError: The end was not reached, for example because of an open transaction.
    """
    from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "fencepost-demo-verdict",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
        }
    )
    try:
        partitions = sorted(consumer.list_topics(topic, timeout=20).topics[topic].partitions)
        ends = {p: consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=20)[1] for p in partitions}
        consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in partitions])
        waiting = {p for p, end in ends.items() if end > 0}
        deadline = time.monotonic() + READ_TIMEOUT_SECONDS
        while waiting:
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"{topic}: partitions {sorted(waiting)} not read to their end within {READ_TIMEOUT_SECONDS:.0f} s"
                )
            for message in consumer.consume(10_000, timeout=1.0):
                error = message.error()
                if error is None:
                    yield message.value()
                elif error.code() == KafkaError._PARTITION_EOF:
                    partition, offset = message.partition(), message.offset()
                    if partition is not None and offset is not None and offset >= ends[partition]:
                        waiting.discard(partition)
                else:
                    raise KafkaException(error)
    finally:
        consumer.close()
