"""Compaction on a disk in memory. What has to stay follows from KIP-58, KIP-98 and KIP-534, not from our own output."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Generator
from typing import Any

import pytest

from fencepost.broker.disk.changes import carry_out
from fencepost.broker.log import Appended, Duplicate, LogConfig, PartitionLog
from fencepost.broker.log.cleaning import compaction
from fencepost.broker.log.cleaning.compaction import Abandoned, Compaction, Step, plan
from fencepost.broker.log.removing import moving
from fencepost.broker.log.results import CorruptSegment, Rejected
from fencepost.protocol.records import walk
from fencepost.protocol.records.batch import BatchHeader, iter_batches
from fencepost.protocol.records.decoding import decode_batches
from fencepost_lab.check.disk import MemoryDisk, PowerCut
from tests.support.batches import keyed

NOW = 100_000
DAY = 24 * 3600 * 1000
CONFIG = LogConfig(
    fsync="never",
    cleanup_policy="compact",
    segment_bytes=600,
    index_interval_bytes=100,
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=DAY,
    producer_id_expiration_ms=2**40,
)
Row = tuple[int, int, bytes | None, bytes | None]


def opened(disk: MemoryDisk | None = None, config: LogConfig = CONFIG) -> PartitionLog:
    return PartitionLog.open(disk or MemoryDisk(durable=config.fsync != "never"), "t-0", config, NOW)


def add(log: PartitionLog, batch: bytes) -> Appended:
    answer = log.append(batch, NOW)
    assert isinstance(answer, Appended), answer
    return answer


def sync(log: PartitionLog) -> None:
    end = log.log_end_offset
    for file in log.unsynced():
        file.sync()
    log.mark_synced(end)


def compact(log: PartitionLog, now_ms: int = NOW) -> Compaction | None:
    """One round; None when there is nothing to do."""
    if log.config.fsync == "commit":
        sync(log)
    wanted = plan(log, now_ms)
    if wanted is None:
        return None
    round_ = Compaction(log, wanted, now_ms)
    for step in round_.steps():
        carry_out_step(step)
    return round_


def carry_out_step(step: Step) -> None:
    if isinstance(step, Generator):
        carry_out(step)
    else:
        for file in step:
            file.sync()


def rows(log: PartitionLog, *, committed_only: bool = False) -> list[Row]:
    """(offset, timestamp, key, value) of everything that a reader gets."""
    found: list[Row] = []
    offset, bound = log.log_start_offset, log.last_stable_offset if committed_only else log.high_watermark
    while offset < bound:
        result = log.read(offset, 500, committed_only=committed_only)
        assert result.error_code == 0, result.message
        aborted = result.aborted if committed_only else None
        columns = decode_batches(result.records, start_offset=offset, aborted=aborted)
        assert columns.next_offset > offset
        found += [row[:4] for row in columns.records()]
        offset = columns.next_offset
    return found


def headers(log: PartitionLog) -> list[BatchHeader]:
    found = []
    for segment in log.segments:
        found += [header for header, _ in iter_batches(segment.log.read(0, segment.size))]
    return found


def latest(all_rows: list[Row], below: int) -> list[Row]:
    """Return the rows that compaction must leave: the last of each key below an offset, and all from it on."""
    last = {key: offset for offset, _, key, _ in all_rows if offset < below}
    return [row for row in all_rows if row[0] >= below or last[row[2]] == row[0]]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_of_each_key_the_last_record_stays_at_its_offset(codec: str) -> None:
    log = opened()
    for n in range(60):
        add(log, keyed((b"k%d" % (n % 7), b"v%d" % n * 9), (b"once %d" % n, b"w"), timestamp=n, compression=codec))
    before = rows(log)
    end = log.segments[-1].base_offset
    done = compact(log)
    assert done is not None and done.clean_offset == end > 0
    expected = latest(before, end)
    assert rows(log) == expected
    assert len(expected) < len(before)
    assert (done.records_read, done.records_retained) == (end, len([row for row in expected if row[0] < end]))
    for offset in range(log.log_end_offset):  # a fetch from any offset gets the next record that is there
        result = log.read(offset, 1)
        got = [row[0] for row in decode_batches(result.records, start_offset=offset).records()]
        if got:
            assert got[0] == next(row[0] for row in expected if row[0] >= offset)


def test_nothing_is_done_twice_and_a_restart_knows_how_far_it_came() -> None:
    disk = MemoryDisk()
    log = opened(disk, dataclasses.replace(CONFIG, fsync="commit"))
    for n in range(40):
        add(log, keyed((b"k", b"v%d" % n * 20)))
        sync(log)
    assert compact(log) is not None
    point, seen = log.clean_point, rows(log)
    assert compact(log) is None
    disk.crash(3)
    log = opened(disk, log.config)
    assert (log.clean_point, rows(log), log.report.cuts) == (point, seen, [])
    assert compact(log) is None


def test_a_tombstone_goes_after_its_delete_horizon_and_not_before() -> None:
    log = opened()
    add(log, keyed((b"gone", b"v"), timestamp=500))
    add(log, keyed((b"gone", None), (b"kept", b"v"), timestamp=700))
    log.roll()
    assert compact(log) is not None
    assert rows(log) == [(1, 700, b"gone", None), (2, 701, b"kept", b"v")]
    (marked,) = headers(log)
    assert marked.has_delete_horizon and marked.base_timestamp == NOW + DAY
    assert (marked.base_offset, marked.last_offset_delta, marked.max_timestamp) == (1, 1, 701)
    for later, stays in ((NOW + DAY - 1, True), (NOW + DAY, False)):
        add(log, keyed((b"other", b"v")))
        log.roll()
        assert compact(log, later) is not None
        assert ((1, 700, b"gone", None) in rows(log)) is stays
        assert (2, 701, b"kept", b"v") in rows(log)


def test_aborted_records_go_and_markers_stay_as_long_as_a_batch_of_theirs_does() -> None:
    log = opened()
    add(log, keyed((b"a", b"old"), timestamp=1))
    add(log, keyed((b"a", b"aborted"), producer_id=5, epoch=0, sequence=0, transactional=True, timestamp=2))
    add(log, keyed((b"b", b"committed"), producer_id=6, epoch=0, sequence=0, transactional=True, timestamp=3))
    log.append_marker(5, 1, False, 0, NOW)
    log.append_marker(6, 1, True, 0, NOW)
    log.roll()
    assert compact(log) is not None
    assert rows(log, committed_only=True) == [(0, 1, b"a", b"old"), (2, 3, b"b", b"committed")]
    assert rows(log) == rows(log, committed_only=True)
    # The aborted batch is gone, its marker is removable once its horizon is over; the other's is needed.
    assert [(h.base_offset, h.is_control) for h in headers(log)] == [(0, False), (2, False), (3, True), (4, True)]
    log.append(keyed((b"b", b"newer")), NOW)
    log.roll()
    assert compact(log) is not None  # first sight of a marker without batches: it gets its horizon
    assert [h.has_delete_horizon for h in headers(log) if h.base_offset == 3] == [True]
    # Producer 5's marker is the last that is known of it; it stays as long as the producer does.
    log.producers.expire(NOW + 2**41, 1, lambda _: False, 0)
    log.append(keyed((b"c", b"")), NOW)
    log.roll()
    assert compact(log, NOW + DAY) is not None
    assert 3 not in [h.base_offset for h in headers(log)]


def test_the_last_batch_of_a_producer_stays_without_its_records() -> None:
    disk = MemoryDisk(durable=False)
    log = opened(disk)
    first = keyed((b"k", b"1"), (b"k", b"2"), producer_id=5, epoch=3, sequence=7)
    log.config = dataclasses.replace(CONFIG, producer_state_check="kafka")
    add(log, first)
    add(log, keyed((b"k", b"3")))
    log.roll()
    assert compact(log) is not None
    empty = headers(log)[0]
    assert (empty.base_offset, empty.last_offset, empty.record_count) == (0, 1, 0)
    assert (empty.producer_id, empty.producer_epoch, empty.base_sequence, empty.last_sequence) == (5, 3, 7, 8)
    assert rows(log) == [(2, 1_000, b"k", b"3")]
    log.close()
    for name in disk.listdir("t-0"):
        if name.endswith(".snapshot"):
            disk.remove(f"t-0/{name}")  # only the log itself is left to tell
    again = opened(disk)
    assert isinstance(again.append(first, NOW), Duplicate)
    assert isinstance(again.append(keyed((b"k", b"4"), producer_id=5, epoch=3, sequence=9), NOW), Appended)


def test_an_open_transaction_and_the_active_segment_are_not_touched() -> None:
    log = opened()
    add(log, keyed((b"k", b"1")))
    log.roll()
    add(log, keyed((b"k", b"2"), producer_id=5, epoch=0, sequence=0, transactional=True))
    log.roll()
    add(log, keyed((b"k", b"3")))
    log.roll()
    add(log, keyed((b"k", b"4")))
    assert log.last_stable_offset == 1
    assert compact(log) is not None
    assert [row[3] for row in rows(log)] == [b"1", b"2", b"3", b"4"]
    log.append_marker(5, 1, True, 0, NOW)
    assert compact(log) is not None
    assert [row[3] for row in rows(log)] == [b"3", b"4"]


def test_an_abort_marker_in_the_active_segment_is_known_below_it() -> None:
    log = opened()
    add(log, keyed((b"k", b"committed")))
    add(log, keyed((b"k", b"aborted"), producer_id=5, epoch=0, sequence=0, transactional=True))
    log.roll()
    log.append_marker(5, 1, False, 0, NOW)
    assert compact(log) is not None
    assert [row[3] for row in rows(log)] == [b"committed"]
    assert rows(log, committed_only=True) == rows(log)


def test_lags_and_the_dirty_ratio_decide() -> None:
    log = opened(config=dataclasses.replace(CONFIG, segment_bytes=10_000))
    for stamp in (1_000, 2_000):
        add(log, keyed((b"k", b"v" * 100), timestamp=stamp))
        log.roll()
    assert plan(log, NOW) is not None
    log.config = dataclasses.replace(log.config, min_compaction_lag_ms=NOW - 2_000)
    assert (found := plan(log, NOW)) is not None and found.end_offset == 2
    log.config = dataclasses.replace(log.config, min_compaction_lag_ms=NOW - 1_999)
    assert (found := plan(log, NOW)) is not None and found.end_offset == 1
    log.config = dataclasses.replace(log.config, min_compaction_lag_ms=NOW)
    assert plan(log, NOW) is None
    log.config = dataclasses.replace(log.config, min_compaction_lag_ms=0, min_cleanable_dirty_ratio=0.6)
    assert compact(log) is not None
    add(log, keyed((b"k", b"v" * 100)))
    log.roll()
    assert plan(log, NOW) is None  # half of it is dirty
    log.config = dataclasses.replace(log.config, max_compaction_lag_ms=NOW - 1_000)
    assert plan(log, NOW) is None
    log.config = dataclasses.replace(log.config, max_compaction_lag_ms=NOW - 1_001)
    assert (found := plan(log, NOW)) is not None and found.overdue
    log.config = dataclasses.replace(log.config, cleanup_policy="delete")
    assert plan(log, NOW) is None


def test_more_keys_than_fit_take_several_rounds() -> None:
    log = opened(config=dataclasses.replace(CONFIG, compaction_keys_max=10))
    for n in range(120):
        add(log, keyed((b"k%d" % (n % 40), b"v%d" % n)))
    before, end = rows(log), log.segments[-1].base_offset
    rounds = 0
    while compact(log) is not None:
        rounds += 1
    assert rounds > 3
    assert rows(log) == latest(before, end)


def test_small_segments_are_joined_and_their_files_are_gone() -> None:
    disk = MemoryDisk(durable=False)
    log = opened(disk)
    for n in range(60):
        add(log, keyed((b"k%d" % (n % 3), b"v" * 50)))
    many = len(log.segments)
    while compact(log) is not None:
        add(log, keyed((b"k", b"v")))
        log.roll()
        if len(log.segments) <= 3:
            break
    assert len(log.segments) < many
    names = [name for name in disk.listdir("t-0") if name.endswith(".log")]
    assert len(names) == len(log.segments)
    assert not [name for name in disk.listdir("t-0") if name.endswith((".cleaned", ".swap"))]


def test_damage_ends_the_round_and_nothing_is_replaced() -> None:
    disk = MemoryDisk(durable=False)
    log = opened(disk)
    for n in range(40):
        add(log, keyed((b"k", b"v%d" % n * 9)))
    files = {name: disk.read_bytes(f"t-0/{name}") for name in disk.listdir("t-0") if name.endswith(".log")}
    disk.flip_bit("t-0/" + sorted(files)[1], 80)
    wanted = plan(log, NOW)
    assert wanted is not None
    round_ = Compaction(log, wanted, NOW)
    with pytest.raises(CorruptSegment, match="CRC"):
        list(round_.steps())
    round_.discard()
    assert {name for name in disk.listdir("t-0") if name.endswith(".log")} == set(files)


def test_a_round_gives_up_when_its_segments_go_away() -> None:
    log = opened(config=dataclasses.replace(CONFIG, segment_bytes=200_000))
    for n in range(30):
        add(log, keyed((b"k", b"v%d" % n * 5_000)))
    log.roll()
    wanted = plan(log, NOW)
    assert wanted is not None
    steps = Compaction(log, wanted, NOW).steps()
    next(steps)
    carry_out(moving(log, -1))
    with pytest.raises(Abandoned):
        list(steps)


def test_a_replacement_goes_on_while_the_log_waits_for_a_refused_append() -> None:
    """The disk refuses an append and its undoing, once the replacement has begun; the next append mends the log."""
    disk = MemoryDisk(durable=True)
    log = opened(disk)
    for n in range(200):
        add(log, keyed((b"k%d" % (n % 3), b"v%d" % n * 100)))
    sync(log)
    wanted = plan(log, NOW)
    assert wanted is not None
    expected = [row for row in latest(rows(log), wanted.end_offset) if row[0] < wanted.end_offset]
    refused = 0
    for step in Compaction(log, wanted, NOW).steps():
        if not isinstance(step, Generator):
            carry_out_step(step)
            continue
        for action in step:
            action()
            disk.is_read_only = True
            refused += isinstance(log.append(keyed((b"new", b"value")), NOW), Rejected)
            assert log.read_only
            disk.is_read_only = False
        add(log, keyed((b"new", b"value")))
        assert not log.read_only
    assert refused > 2
    assert [row for row in rows(log) if row[0] < wanted.end_offset] == expected


def test_a_gap_that_compaction_did_not_make_is_damage() -> None:
    """Also in a log that is compacted: above the compacted part there are no gaps."""
    disk = MemoryDisk(durable=False)
    log = opened(disk)
    for n in range(40):
        add(log, keyed((b"k", b"v%d" % n * 9)))
    assert compact(log) is not None
    for n in range(40):
        add(log, keyed((b"k", b"v%d" % n * 9)))
    middle = log.segments[len(log.segments) // 2]
    assert middle.base_offset > log.clean_point.gaps_below
    offset, position = middle.base_offset, middle.size
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(middle, "size", 0)
        patch.setattr(middle, "next_offset", middle.base_offset)
        result = log.read(offset, 1000)
    assert position > 0 and result.error_code == 2, result.message


def _history(log: PartitionLog, pids: int = 1) -> None:
    for n in range(24):
        add(log, keyed((b"k%d" % (n % 5), b"v%d" % n * 6)))
        if log.config.fsync == "commit" and n == 0:
            sync(log)
        if n % 4 == 0:
            pid, commit = 5 + n % pids, n % 8 == 0
            state = log.producers.get(pid)
            epoch = state.epoch if state else 0
            add(
                log,
                keyed((b"k%d" % (n % 5), b"t%d" % n), producer_id=pid, epoch=epoch, sequence=0, transactional=True),
            )
            log.append_marker(pid, epoch + 1, commit, 0, NOW)


@pytest.mark.parametrize("end", ["kill", "crash"])
def test_a_crash_at_any_operation_leaves_the_old_or_the_new(end: str) -> None:
    """Every change of the disk in two rounds of compaction is the last one before the power goes."""
    config = dataclasses.replace(CONFIG, fsync="commit")
    changes = 0
    while True:
        disk = MemoryDisk()
        log = opened(disk, config)
        _history(log)
        sync(log)
        visible = rows(log, committed_only=True)
        final = {key: (offset, value) for offset, _, key, value in visible}
        stops = log.segments[-1].base_offset
        disk.power_cut_after(changes)
        finished = False
        with contextlib.suppress(PowerCut):
            compact(log)
            log.roll()
            compact(log)
            finished = True
        disk.heal()
        if end == "crash":
            disk.crash(changes)
        else:
            disk.kill()
        log = opened(disk, config)
        assert log.report.cuts == [] and log.report.damaged == []
        seen = rows(log, committed_only=True)
        assert {key: (offset, value) for offset, _, key, value in seen} == final
        assert set(seen) <= set(visible)
        assert [row for row in seen if row[0] >= stops] == [row for row in visible if row[0] >= stops]
        assert not [name for name in disk.listdir("t-0") if name.endswith((".cleaned", ".swap"))]
        assert {s.producer_id: s.epoch for s in log.producers} == {5: 6}  # six transactions, each bumped it
        compact(log)
        assert {key: (offset, value) for offset, _, key, value in rows(log, committed_only=True)} == final
        if finished:
            break
        changes += 1
    assert changes > 20


def test_what_a_scan_of_a_compacted_log_says_of_producers_is_what_was_known() -> None:
    disk = MemoryDisk(durable=False)
    log = opened(disk)
    _history(log)
    log.roll()
    assert compact(log) is not None
    known = {s.producer_id: (s.epoch, s.last_sequence, s.txn_first_offset) for s in log.producers}
    log.close()
    for name in disk.listdir("t-0"):
        if name.endswith(".snapshot"):
            disk.remove(f"t-0/{name}")
    again = opened(disk)
    assert {s.producer_id: (s.epoch, s.last_sequence, s.txn_first_offset) for s in again.producers} == known
    assert again.last_stable_offset == again.log_end_offset


def test_keys_that_are_long_are_told_apart() -> None:
    log = opened(config=dataclasses.replace(CONFIG, segment_bytes=4_000))
    long: Callable[[int], bytes] = lambda n: b"x" * 200 + b"%d" % n  # noqa: E731 - shorter than a function
    for n in range(60):
        add(log, keyed((long(n % 4), b"v%d" % n)))
    before, end = rows(log), log.segments[-1].base_offset
    assert compact(log) is not None
    assert rows(log) == latest(before, end)


def test_a_batch_of_very_many_records_is_compacted_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests are served between two steps, so none may be as long as a batch can be."""
    log = opened()
    add(log, keyed(*((b"k%d" % (n % 9_000), b"v%d" % n) for n in range(10_000)), timestamp=1, compression="zstd"))
    for n in range(20):
        add(log, keyed((b"other", b"%d" % n * 50), timestamp=1))
    before = rows(log)
    round_, looked_at = compacted_counting(log, monkeypatch, compaction, "_short")
    assert sum(looked_at) > 2 * 10_000
    assert max(looked_at) <= 250
    assert rows(log) == latest(before, round_.clean_offset)


def test_a_batch_of_very_many_records_is_written_anew_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    log = opened()
    add(log, keyed(*((b"k%d" % (n % 4_000), b"v%d" % n) for n in range(5_000)), timestamp=1))
    for n in range(20):
        add(log, keyed((b"other", b"%d" % n * 50), timestamp=1))
    _, written = compacted_counting(log, monkeypatch, walk, "time_delta")
    assert sum(written) >= 4_000
    assert max(written) <= 250


def test_very_many_small_batches_are_compacted_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """As those of an internal topic are: looking at one is more work than looking at the record in it."""
    log = opened(config=dataclasses.replace(CONFIG, segment_bytes=100_000))
    for n in range(2_000):
        add(log, keyed((b"k%d" % (n % 500), b"v%d" % n), timestamp=1))
    before = rows(log)
    round_, looked_at = compacted_counting(log, monkeypatch, compaction, "_short")
    assert sum(looked_at) > 2 * 1_000
    assert max(looked_at) <= 50
    assert rows(log) == latest(before, round_.clean_offset)


def compacted_counting(
    log: PartitionLog, monkeypatch: pytest.MonkeyPatch, module: object, name: str
) -> tuple[Compaction, list[int]]:
    """One round over the log, and how often each of its steps called that function."""
    wanted = plan(log, NOW)
    assert wanted is not None
    round_ = Compaction(log, wanted, NOW)
    calls, real = [0], getattr(module, name)

    def counted(*arguments: Any) -> Any:
        calls[-1] += 1
        return real(*arguments)

    monkeypatch.setattr(module, name, counted)
    for step in round_.steps():
        calls.append(0)
        carry_out_step(step)
    return round_, calls
