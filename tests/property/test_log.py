"""A partition's log against a simple model, over random histories of appends, transactions, syncs, failures and
crashes.

What was synced is there after every crash, once, whole and at its
offset; nothing else appears than a prefix of what was appended; offsets that bound readers and the list of aborted
transactions are those that a plain reading of the log gives; the last stable offset never goes back.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fencepost.broker.disk.changes import carry_out
from fencepost.broker.log import Appended, Duplicate, LogConfig, PartitionLog, Rejected
from fencepost.broker.log.removing import moving
from fencepost.protocol.records.batch import BatchHeader, iter_batches
from fencepost.protocol.records.markers import parse_marker
from fencepost_lab.check.disk import MemoryDisk, PowerCut
from tests.support.batches import batch

NOW = 1_000
DIRECTORY = "topic-0"
PRODUCERS = 4


@dataclass
class Replayed:
    """Expected state of transactions and producers, computed from the batches without the log's code."""

    open: dict[int, int] = field(default_factory=dict)
    aborted: list[tuple[int, int, int]] = field(default_factory=list)  # producer id, first offset, offset of the marker
    epochs: dict[int, int] = field(default_factory=dict)
    last_sequence: dict[int, int] = field(default_factory=dict)
    last_five: dict[int, list[tuple[int, int, int]]] = field(default_factory=dict)  # first, last sequence, base offset

    def feed(self, header: BatchHeader, raw: memoryview) -> None:
        pid = header.producer_id
        if pid < 0:
            return
        if self.epochs.get(pid) != header.producer_epoch:
            self.epochs[pid] = header.producer_epoch
            self.last_sequence[pid] = -1
            self.last_five[pid] = []
        if header.is_control:
            first = self.open.pop(pid, None)
            if first is not None and not parse_marker(raw).commit:
                self.aborted.append((pid, first, header.base_offset))
            return
        self.last_sequence[pid] = header.last_sequence
        self.last_five[pid] = [
            *self.last_five[pid][-4:],
            (header.base_sequence, header.last_sequence, header.base_offset),
        ]
        if header.is_transactional:
            self.open.setdefault(pid, header.base_offset)


class Driver:
    """Applies one operation after the other to the log and to the model, and compares."""

    def __init__(self, config: LogConfig) -> None:
        self.config = config
        self.disk = MemoryDisk(durable=config.fsync != "never")
        self.attempts: set[bytes] = set()  # what was handed to the log, without offset and leader epoch
        self.appended: list[bytes] = []  # every batch of the log, with its offset, in order
        self.promised = 0  # log end offset that must survive
        self.counter = 0
        self.stable_seen = 0
        self.checks = 0
        self.log = self.open()

    def open(self) -> PartitionLog:
        self.sync_failed = False
        return PartitionLog.open(self.disk, DIRECTORY, self.config, NOW)

    def replayed(self) -> Replayed:
        model = Replayed()
        for raw in self.appended:
            for header, view in iter_batches(raw):
                model.feed(header, view)
        return model

    def end(self) -> int:
        return max((header.last_offset + 1 for raw in self.appended for header, _ in iter_batches(raw)), default=0)

    def note(self, data: bytes, offset: int) -> None:
        self.appended.append(offset.to_bytes(8, "big") + data[8:12] + bytes(4) + data[16:])

    def append(self, pid: int, transactional: bool, count: int) -> None:
        model = self.replayed()
        transactional = transactional or pid in model.open
        self.counter += 1
        values = [b"%d/%d" % (self.counter, i) + b"." * (self.counter * 7 % 90) for i in range(count)]
        sequence = model.last_sequence.get(pid, -1) + 1
        epoch = model.epochs.get(pid, 0)
        stamp = NOW + self.counter % 5
        data = batch(
            *values, producer_id=pid, epoch=epoch, sequence=sequence, transactional=transactional, timestamp=stamp
        )
        self.attempts.add(data[16:])
        self.took(data, self.log.append(data, NOW))

    def append_plain(self, count: int) -> None:
        self.counter += 1
        data = batch(*[b"plain %d/%d" % (self.counter, i) for i in range(count)], timestamp=NOW)
        self.attempts.add(data[16:])
        self.took(data, self.log.append(data, NOW))

    def took(self, data: bytes, answer: Appended | Duplicate | Rejected) -> None:
        if isinstance(answer, Rejected):
            assert answer.error_code == 56, answer
            assert self.log.failure is not None
            return
        assert isinstance(answer, Appended), answer
        assert answer.base_offset == self.end()
        self.note(data, answer.base_offset)

    def repeat(self, pid: int, back: int) -> None:
        """A retry of one of the last five batches: success with its first offset, and nothing is written."""
        remembered = self.replayed().last_five.get(pid, [])
        if back < len(remembered):
            first, last, base = remembered[-1 - back]
            original = next(raw for raw in self.appended if raw[:8] == base.to_bytes(8, "big"))
            before = self.log.log_end_offset
            answer = self.log.append(bytes(8) + original[8:], NOW)
            assert isinstance(answer, Duplicate), (answer, first, last)
            assert (answer.base_offset, self.log.log_end_offset) == (base, before)
            self.checks += 1

    def gap(self, pid: int) -> None:
        model = self.replayed()
        sequence = model.last_sequence.get(pid, -1) + 3
        data = batch(b"gap", producer_id=pid, epoch=model.epochs.get(pid, 0), sequence=sequence, transactional=True)
        answer = self.log.append(data, NOW)
        assert isinstance(answer, Rejected)
        assert answer.error_code == (45 if pid in model.epochs else 59)
        assert answer.log_start_offset == (-1 if pid in model.epochs else -2)

    def marker(self, pid: int, commit: bool) -> None:
        epoch = self.replayed().epochs.get(pid, 0) + 1
        answer = self.log.append_marker(pid, epoch, commit, 0, NOW, transaction_version=2)
        if isinstance(answer, Rejected):
            assert answer.error_code == 56
            return
        found = self.log.segments[-1]
        raw = found.log.read(found.size - 78, 78)  # the size of every marker: 61 bytes of header, 17 of record
        self.note(raw, answer.base_offset)

    def sync(self) -> None:
        end = self.log.log_end_offset
        try:
            for file in self.log.unsynced():
                file.sync()
        except OSError as error:
            self.sync_failed = True
            self.log.sync_failed(error)
            return
        self.log.mark_synced(end)
        if not self.sync_failed:  # a write that failed harms nothing that was whole before it
            self.promised = max(self.promised, end)

    def delete_before(self, tenths: int) -> None:
        target = self.log.high_watermark * tenths // 10
        assert carry_out(moving(self.log, target)) >= target

    def reopen(self, how: str, seed: int) -> None:
        torn = self.log.read_only  # what a failed write left at the end may still be there, and is cut then
        if how == "close" and not self.log.read_only:
            self.log.close()
            self.promised = self.end()
            self.disk.kill()
        elif how == "crash" and self.config.fsync != "never":
            self.disk.crash(seed)
        else:
            self.disk.kill()
            # What a failed sync dropped is still in the page cache; everything that was written is.
            self.promised = self.end()
        self.log = self.open()
        if how != "crash" and not torn:
            assert self.log.report.cuts == []
        adopt(self)

    def truncate_model(self, end: int) -> None:
        """The log may have lost a tail that nobody was promised; never more, and always at a batch boundary."""
        assert self.promised <= end <= self.end()
        remaining = []
        for raw in self.appended:
            header = next(iter_batches(raw))[0]
            if header.last_offset < end:
                remaining.append(raw)
        self.appended = remaining
        assert self.end() == end
        if self.config.fsync == "interval":
            self.stable_seen = 0  # readers saw what a power loss may take back: that is the bargain of this setting

    def check(self) -> None:
        """The whole log equals the model."""
        log = self.log
        model = self.replayed()
        assert log.log_end_offset == self.end()
        assert log.high_watermark <= log.log_end_offset
        if self.config.fsync == "commit":
            assert log.high_watermark == self.promised
        expected = [raw for raw in self.appended if self.last(raw) >= log.log_start_offset]
        expected = [raw for raw in expected if self.last(raw) < log.high_watermark]
        assert self.read_all(False) == b"".join(expected)
        if log.log_start_offset == 0:
            assert dict(log.producers.open_transactions) == model.open
            states = {s.producer_id: s for s in log.producers}
            assert {pid: s.epoch for pid, s in states.items()} == model.epochs
            assert {pid: s.last_sequence for pid, s in states.items()} == model.last_sequence
            fives = {pid: [tuple(b[:3]) for b in s.batches] for pid, s in states.items()}
            assert fives == model.last_five
        stable = log.last_stable_offset
        assert self.stable_seen <= stable <= log.high_watermark
        assert all(max(first, log.log_start_offset) >= stable for first in model.open.values())
        if self.config.fsync != "commit":
            first_open = min(model.open.values(), default=log.high_watermark)
            assert stable == max(min(first_open, log.high_watermark), log.log_start_offset)
        self.stable_seen = stable
        self.checks += 1

    @staticmethod
    def last(raw: bytes) -> int:
        return next(iter_batches(raw))[0].last_offset

    def read_all(self, committed_only: bool) -> bytes:
        """Everything a reader gets, in small bites, checking each bite's list of aborted transactions."""
        offset, pieces = self.log.log_start_offset, []
        aborted = self.replayed().aborted
        bound = self.log.last_stable_offset if committed_only else self.log.high_watermark
        while offset < bound:
            result = self.log.read(offset, 300 + offset * 13 % 700, committed_only=committed_only)
            assert result.error_code == 0, result.message
            assert len(result.records) > 0
            headers = [header for header, _ in iter_batches(result.records)]
            end = headers[-1].last_offset + 1
            assert end <= bound and headers[0].base_offset <= offset <= headers[0].last_offset
            if committed_only:
                due = [(pid, first) for pid, first, last in aborted if last >= offset and first < end]
                assert result.aborted == sorted(due, key=lambda entry: entry[1])
            pieces.append(bytes(result.records))
            offset = end
        return b"".join(pieces)


OPERATIONS = st.one_of(
    st.tuples(st.just("append"), st.integers(0, PRODUCERS - 1), st.booleans(), st.integers(1, 4)),
    st.tuples(st.just("append"), st.integers(0, PRODUCERS - 1), st.booleans(), st.integers(1, 4)),
    st.tuples(st.just("append_plain"), st.integers(1, 4)),
    st.tuples(st.just("marker"), st.integers(0, PRODUCERS - 1), st.booleans()),
    st.tuples(st.just("repeat"), st.integers(0, PRODUCERS - 1), st.integers(0, 4)),
    st.tuples(st.just("gap"), st.integers(0, PRODUCERS - 1)),
    st.tuples(st.just("sync")),
    st.tuples(st.just("sync")),
    st.tuples(st.just("roll")),
    st.tuples(st.just("check")),
    st.tuples(st.just("read_committed")),
    st.tuples(st.just("reopen"), st.sampled_from(["close", "kill", "crash", "crash"]), st.integers(0, 2**31)),
    st.tuples(st.just("power_cut"), st.integers(0, 6), st.integers(0, 2**31)),
)
FAULTS = st.one_of(
    st.tuples(st.just("fail_write"), st.integers(0, 200)),
    st.tuples(st.just("fail_sync")),
)


def run(driver: Driver, operations: list[tuple[object, ...]]) -> None:
    cut_seed = 0
    for name, *arguments in operations:
        try:
            if name == "power_cut":
                driver.disk.power_cut_after(int(str(arguments[0])))
                cut_seed = int(str(arguments[1]))
            elif name == "fail_write":
                driver.disk.fail_next_write(written=int(str(arguments[0])))
            elif name == "fail_sync":
                driver.disk.fail_next_sync()
            elif name == "roll":
                driver.log.roll()
            elif name == "read_committed":
                driver.read_all(True)
            elif name == "reopen":
                driver.reopen(str(arguments[0]), int(str(arguments[1])))
            else:
                getattr(driver, str(name))(*arguments)
        except PowerCut:
            restart(driver, cut_seed)
        except OSError:
            # roll, close and open pass a disk's failure on; the process would end.
            restart(driver, cut_seed)
    restart(driver, 1)
    driver.read_all(True)
    assert driver.checks > 0


def restart(driver: Driver, seed: int) -> None:
    """The process or the machine died in the middle of something."""
    if driver.config.fsync == "never":
        driver.disk.kill()
        driver.promised = driver.end()
    else:
        driver.disk.crash(seed)
    driver.log = driver.open()
    adopt(driver)
    driver.check()


def adopt(driver: Driver) -> None:
    """Take over the batches that a restart may leave beyond the promised ones, and check each.

    Each was handed in and is there once, behind all promised batches. It may also be from a failed write whose removal
    was lost with the power.
    """
    driver.truncate_model(driver.promised)
    while (end := driver.end()) < driver.log.log_end_offset:
        result = driver.log.read(end, 1)
        assert result.error_code == 0, result.message
        header, view = next(iter_batches(result.records))
        assert header.base_offset == end
        raw = bytes(view)
        assert header.is_control or raw[16:] in driver.attempts
        assert header.is_control or raw[16:] not in {other[16:] for other in driver.appended}
        driver.appended.append(raw)
    driver.promised = driver.end()


def test_what_a_failed_write_left_is_cut_at_the_next_start() -> None:
    """The write of a batch stops after a byte, and the byte cannot be taken back."""
    driver = Driver(small("commit"))
    before: list[tuple[object, ...]] = [("append", 0, False, 1), ("sync",), ("fail_write", 1), ("fail_write", 0)]
    run(driver, [*before, ("append", 0, False, 1), ("repeat", 0, 0), ("reopen", "close", 0), ("check",)])
    assert driver.end() == 1


def test_what_was_whole_before_a_failed_write_is_promised_by_a_sync() -> None:
    """The byte that cannot be taken back makes the log read-only, and a sync is true all the same."""
    driver = Driver(small("commit"))
    torn: list[tuple[object, ...]] = [("append_plain", 1), ("fail_write", 1), ("fail_write", 0), ("append_plain", 1)]
    run(driver, [*torn, ("sync",), ("check",), ("reopen", "crash", 0), ("check",)])
    assert driver.end() == 1


def small(fsync: Any) -> LogConfig:
    return LogConfig(fsync=fsync, segment_bytes=900, index_interval_bytes=150, snapshot_interval_bytes=500)


CHECKED = settings(max_examples=60, report_multiple_bugs=False)


@pytest.mark.parametrize("fsync", ["commit", "interval"])
@CHECKED
@given(operations=st.lists(OPERATIONS, min_size=20, max_size=120))
def test_crashes_lose_only_what_was_not_promised(fsync: str, operations: list[tuple[object, ...]]) -> None:
    run(Driver(small(fsync)), operations)


@CHECKED
@given(operations=st.lists(st.one_of(OPERATIONS, FAULTS), min_size=20, max_size=120))
def test_failing_writes_and_syncs_lose_nothing_promised(operations: list[tuple[object, ...]]) -> None:
    run(Driver(small("commit")), operations)


@CHECKED
@given(operations=st.lists(OPERATIONS, min_size=20, max_size=120))
def test_never_syncing_survives_the_death_of_the_process(operations: list[tuple[object, ...]]) -> None:
    run(Driver(small("never")), operations)


@CHECKED
@given(
    operations=st.lists(
        st.one_of(OPERATIONS, st.tuples(st.just("delete_before"), st.integers(0, 10))), min_size=20, max_size=120
    )
)
def test_deleting_records_keeps_the_rest(operations: list[tuple[object, ...]]) -> None:
    run(Driver(small("commit")), operations)


def history(seed: int, faults: bool, deletes: bool) -> list[tuple[object, ...]]:
    """A long one, with few syncs, so that several segments are open to a crash."""
    rng = random.Random(seed)
    makers: list[tuple[int, Callable[[], tuple[object, ...]]]] = [
        (30, lambda: ("append", rng.randrange(PRODUCERS), rng.random() < 0.5, rng.randint(1, 4))),
        (10, lambda: ("append_plain", rng.randint(1, 4))),
        (12, lambda: ("marker", rng.randrange(PRODUCERS), rng.random() < 0.5)),
        (5, lambda: ("repeat", rng.randrange(PRODUCERS), rng.randrange(5))),
        (3, lambda: ("gap", rng.randrange(PRODUCERS))),
        (rng.choice([2, 15]), lambda: ("sync",)),
        (3, lambda: ("roll",)),
        (4, lambda: ("check",)),
        (4, lambda: ("read_committed",)),
        (5, lambda: ("reopen", rng.choice(["close", "kill", "crash", "crash"]), rng.randrange(2**31))),
        (3, lambda: ("power_cut", rng.randrange(7), rng.randrange(2**31))),
        (2 * faults, lambda: ("fail_write", rng.randrange(200))),
        (1 * faults, lambda: ("fail_sync",)),
        (2 * deletes, lambda: ("delete_before", rng.randrange(11))),
    ]
    chosen = rng.choices([maker for _, maker in makers], [weight for weight, _ in makers], k=120)
    return [maker() for maker in chosen]


@pytest.mark.parametrize(
    ("fsync", "faults", "deletes"),
    [
        ("commit", False, False),
        ("commit", True, False),
        ("commit", False, True),
        ("commit", True, True),
        ("interval", False, False),
        ("never", False, True),
    ],
)
def test_long_histories(fsync: Any, faults: bool, deletes: bool) -> None:
    for seed in range(30):
        try:
            run(Driver(small(fsync)), history(seed, faults, deletes))
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
