"""Helpers that the tests of consumers share: fill a topic, poll until a condition holds."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import fencepost
from fencepost.client.types import RebalanceListener
from tests.support.brokers import BrokerUnderTest

PATIENCE_S = 60
# Of record 0, in ms. Not long ago: retention takes what is a week old, however new it is in the log.
FILLED_MS = int(time.time() * 1000) - 60_000


def fill(broker: BrokerUnderTest, topic: str, count: int, partitions: int = 1, first: int = 0) -> None:
    """Records `first` to `first + count - 1`, one partition after the other in turn, a millisecond apart."""
    with fencepost.Producer(broker.bootstrap_servers) as producer:
        for number in range(first, first + count):
            producer.send(topic, b"%d" % number, partition=number % partitions, timestamp_ms=FILLED_MS + number)


def poll_values(consumer: fencepost.Consumer, count: int, seconds: float = PATIENCE_S) -> list[int]:
    """The values of the next `count` records (or more, of the last poll)."""
    found: list[int] = []
    deadline = time.monotonic() + seconds
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count}: {consumer.state()}"
        found += [int(record.value or b"-1") for record in consumer.poll(500)]
    return found


def poll_until(
    consumers: Sequence[fencepost.Consumer], condition: Callable[[], bool], seconds: float = PATIENCE_S
) -> list[fencepost.Record]:
    """Poll them all in turn until `condition()`; what they read meanwhile."""
    found: list[fencepost.Record] = []
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, [consumer.state() for consumer in consumers]
        for consumer in consumers:
            found += consumer.poll(50)
    return found


def shared_out(consumers: Sequence[fencepost.Consumer], partitions: int) -> bool:
    """Return true if each of `partitions` belongs to exactly one of the consumers, evenly."""
    sizes = [len(consumer.assignment()) for consumer in consumers]
    together = {partition for consumer in consumers for partition in consumer.assignment()}
    return sum(sizes) == len(together) == partitions and max(sizes) - min(sizes) <= 1


class RebalanceLog(RebalanceListener):
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.news: list[tuple[str, list[int]]] = []

    def on_partitions_revoked(self, partitions: list[fencepost.TopicPartition]) -> None:
        self.news.append(("revoked", [partition.partition for partition in partitions]))

    def on_partitions_assigned(self, partitions: list[fencepost.TopicPartition]) -> None:
        self.news.append(("assigned", [partition.partition for partition in partitions]))

    def on_partitions_lost(self, partitions: list[fencepost.TopicPartition]) -> None:
        self.news.append(("lost", [partition.partition for partition in partitions]))

    def gone(self) -> set[int]:
        """Partitions that were taken away at some time."""
        return {number for kind, numbers in self.news if kind != "assigned" for number in numbers}
