"""Cost of a Spark query to the broker after a month: one batch a second, 10 tasks and a decision each.

The tasks reuse the ids that the sink has free, two for each (tests/unit/spark/test_steady_state.py checks that they
stay so few). Some seconds of each day are played. Their cost must be the same on the tenth day and on the last.
"""

from __future__ import annotations

import tracemalloc
from typing import NamedTuple

import pytest

from fencepost.protocol.codes import ErrorCode
from tests.support.broker_driver import BrokerDriver
from tests.unit.broker.coordinator.test_damaged_internal_topics import CONFIG, create, end, init, write

DAY_MS = 86_400_000
BATCHES, TASKS = 4, 10  # of a day, of a batch
MEASURED = 3  # days, the last ones
SINK = "fencepost-sink/q"
SETTINGS = {
    **CONFIG,
    "log.segment.bytes": 10_000,  # compaction leaves the last segment as it is
    "log.cleaner.backoff.ms": 600_000,
    "log.retention.check.interval.ms": 3_600_000,
}


class Cost(NamedTuple):
    ids: int
    producers: int  # that the output's partition remembers
    log_bytes: int  # of the coordinator's log, with everything beside it
    start_records: int  # that a start after a kill reads
    start_bytes: int  # of memory, of a broker that has just started


def transact(driver: BrokerDriver, name: str, value: bytes, *, keep: bool) -> None:
    code, *pair = init(driver, name)
    assert code == ErrorCode.NONE
    write(driver, name, (pair[0], pair[1]), value)
    if keep:
        code, *pair = init(driver, name, keep_prepared_txn=True)
        assert code == ErrorCode.NONE
    assert end(driver, name, (pair[0], pair[1])) == ErrorCode.NONE


def play(driver: BrokerDriver, number: int, reused: bool) -> None:
    for task in range(TASKS):
        turn = number % 2 if reused else number
        transact(driver, f"{SINK}/{turn * TASKS + task:032x}", b"row", keep=True)
    transact(driver, SINK, b"decision", keep=False)
    driver.pass_time(1000)


def killed(driver: BrokerDriver) -> Cost:
    """Start the broker as after a kill, and return its state and the cost of the start."""
    log_bytes = sum(map(len, driver.disk.tree("__transaction_state-0").values()))
    tracemalloc.start()
    driver.start()
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    partition = driver.core.topics.partition("t", 0)
    assert partition is not None
    ids, producers = len(driver.core.transactions.coordinator), len(partition.log.producers)
    return Cost(ids, producers, log_bytes, driver.core.metrics.values["start_records_read"], held)


def most(days: range, driver: BrokerDriver, *, reused: bool) -> Cost:
    """Of each cost the highest of these days, at the end of their work: expiry and compaction come when they come."""
    found = []
    for day in days:
        for number in range(BATCHES):
            play(driver, day * BATCHES + number, reused)
        if day in days[-MEASURED:]:
            found.append(killed(driver))
        driver.pass_time(DAY_MS - BATCHES * 1000)
    return Cost(*map(max, zip(*found, strict=True)))


def is_flat(then: Cost, now: Cost) -> bool:
    """Return true if no cost has grown by more than half. Growth with time would be about threefold."""
    return all(new <= 1.5 * old for old, new in zip(then, now, strict=True))


def test_a_month_costs_what_ten_days_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fencepost.broker.coordinator.txn.ending.LAST_CLIENT_EPOCH", 20)  # ids change producers often
    driver = BrokerDriver(SETTINGS)
    create(driver)
    then = most(range(10), driver, reused=True)
    now = most(range(10, 30), driver, reused=True)
    assert then.ids == 2 * TASKS + 1
    assert then.start_records > 0
    assert is_flat(then, now), (then, now)


def test_ids_that_are_never_used_again_are_not_flat() -> None:
    driver = BrokerDriver(SETTINGS)
    create(driver)
    then = most(range(2), driver, reused=False)
    now = most(range(2, 6), driver, reused=False)
    assert not is_flat(then, now)
