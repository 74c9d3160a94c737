"""Windows with a watermark and a stream-stream join, killed and started again: each result is in the topic once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from fencepost.broker.embedded import Broker
from tests.spark.copying import PARTITIONS, Copy
from tests.spark.stateful import WINDOW_S

RECORDS = 600
START_S = 1_600_000_000
LATE_S = 3600  # two records so much later push the watermark over all windows

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture
def copy(pyspark_python: str, tmp_path: Path) -> Iterator[Copy]:
    with Broker({"transaction.two.phase.commit.enable": True}) as broker:
        made = Copy(broker.bootstrap_servers, tmp_path, level="keep-prepared", python=pyspark_python)
        made.create()
        yield made


def produce(copy: Copy) -> None:
    """One record a second, in turn to both partitions, so that both have the same event time."""
    producer = Producer({"bootstrap.servers": copy.servers})
    for number in [*range(RECORDS), RECORDS + LATE_S, RECORDS + LATE_S + 1]:
        producer.produce(
            copy.source,
            value=f"{copy.name} {number}",
            partition=number % PARTITIONS,
            timestamp=(START_S + number) * 1000,
        )
    assert producer.flush(120) == 0


def test_windows_and_a_join_survive_kills(copy: Copy) -> None:
    produce(copy)
    # The first decision is the first batch that emits a window; the kill comes before it is known to Spark.
    kills = [
        {"step": "WriteDecision", "when": "after", "nth": 2, "mode": "all", "name": "windows"},
        {"step": "EndTransactions", "when": "before", "nth": 8, "mode": "all", "name": "later"},
    ]
    killed = 0
    for kill in kills:
        copy.run_until_killed(kill, "stateful.py")
        killed += "windows are done" in copy.output.read_text()
    assert killed == 1  # once in each of the two queries
    copy.run_alone_to_the_end(script="stateful.py")
    windows = Counter(f"window {START_S + first} {WINDOW_S}" for first in range(0, RECORDS, WINDOW_S))
    pairs = Counter(f"pair {number}" for number in [*range(RECORDS), RECORDS + LATE_S, RECORDS + LATE_S + 1])
    copy.check_values(windows + pairs)
