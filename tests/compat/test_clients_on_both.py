"""A sample of `python -m tests.support.differential.with_clients`: the same workloads on both brokers, their outcomes
and the ratio of their times; and the faults that it has to find when their mends are taken out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fencepost.broker.api.records import fetching
from fencepost.broker.embedded import Broker
from fencepost.broker.log.partition import PartitionLog
from fencepost.broker.log.read_bounds import measure
from fencepost.broker.log.timestamps import newest
from fencepost.broker.topics.replaced import Replacement
from tests.support.apache_kafka import ApacheKafka
from tests.support.differential.arms import SETTINGS, Arm
from tests.support.differential.with_clients import Compared, compared, python_clients
from tests.support.differential.workloads import ADMINS

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

SEED = 1
FACTOR = 10.0
"""Of the times in a test, where the machine has other work; the faults make it 50 and more."""
CLIENTS = {client.name: client for client in python_clients()}

Arms = tuple[Arm, Arm]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """Embedded, so that mends can be taken out; in an own process in the tool."""
    with Broker(SETTINGS, fsync="commit") as running:
        yield running


@pytest.fixture(scope="module")
def arms(broker: Broker) -> Iterator[Arms]:
    with (
        ApacheKafka(SETTINGS) as kafka,
        Arm("fencepost", broker) as ours,
        Arm("kafka", kafka) as theirs,
    ):
        yield ours, theirs
        ADMINS.clear()


@pytest.fixture
def slow_disk(broker: Broker) -> Iterator[None]:
    """So slow that there is always something between append and sync while others write."""
    fault = broker.faults.disk.slow_sync(0.02, times=None)
    yield
    fault.remove()


def ran(arms: Arms, client: str, workload: str, rounds: int = 1) -> Compared:
    found = compared(*arms, CLIENTS[client], workload, SEED, rounds)
    assert found is not None
    assert len(found.ours) == len(found.kafka) == rounds
    assert any(seen.bad for seen in found.kafka)
    return found


SAMPLE = (
    ("librdkafka", "remade"),
    ("aiokafka", "remade"),
    ("librdkafka", "segments"),
    ("aiokafka", "segments"),
    ("fencepost", "segments"),
    ("fencepost", "compacted"),
)


@pytest.mark.parametrize(("client", "workload"), SAMPLE)
def test_nothing_is_worse_than_at_kafka(arms: Arms, client: str, workload: str) -> None:
    found = ran(arms, client, workload, rounds=2)
    assert found.worse() == []
    assert found.slow(FACTOR) == []


def test_the_newest_timestamp_on_a_slow_disk(arms: Arms, slow_disk: None) -> None:
    assert ran(arms, "librdkafka", "newest").worse() == []


def without_earlier_producers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new topic asks every producer for sequence 0, also those that wrote to the deleted one."""
    monkeypatch.setattr(Replacement, "below", lambda _self, _partition: 0)


def looked_up_above_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest record of the whole log; nothing, if it may not be read yet."""

    def found(log: PartitionLog, decompress: Any, *, committed_only: bool = False) -> tuple[int, int] | None:
        everything = range(log.log_start_offset, log.log_end_offset)
        newest_record = newest(log.segments, everything, log._use_indexes, decompress)
        bound = log.last_stable_offset if committed_only else log.high_watermark
        return None if newest_record is None or newest_record[1] >= bound else newest_record

    monkeypatch.setattr(PartitionLog, "offset_of_max_timestamp", found)


def readiness_that_ends_with_the_segment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plant a defect: the size of an answer ignores records after a closed segment."""

    def size(waiting: Any, reader: Any) -> int | None:
        if waiting._find(reader) or reader.partition is None:
            return None
        log = reader.partition.log
        extent = measure(log, reader.request.fetch_offset, log.high_watermark, waiting._extents.get(reader))
        return 0 if extent is None else min(extent.end - extent.position, reader.request.max_bytes)

    monkeypatch.setattr(fetching.ParkedFetch, "_size", size)


PLANTS: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], str]] = {
    "remade": (without_earlier_producers, "failed"),
    "newest": (looked_up_above_the_bound, "nothing found"),
    "segments": (readiness_that_ends_with_the_segment, "reading"),
}


@pytest.mark.parametrize("workload", PLANTS)
def test_a_mend_that_is_taken_out_is_missed(
    arms: Arms, slow_disk: None, workload: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant, what = PLANTS[workload]
    plant(monkeypatch)
    found = ran(arms, "librdkafka", workload)
    reported = [*found.worse(), *found.slow(FACTOR)]
    assert [text for text in reported if text.startswith(what)], reported
