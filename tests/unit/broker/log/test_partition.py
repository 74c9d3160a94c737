"""One partition's log on a disk in memory: what is appended, refused, read, removed."""

from __future__ import annotations

import dataclasses

import pytest

from fencepost.broker.disk.changes import carry_out
from fencepost.broker.log import Appended, Duplicate, LogConfig, PartitionLog, Rejected, segment
from fencepost.broker.log.removing import moving, retaining
from fencepost.protocol.records.batch import parse_header, seal
from fencepost_lab.check.disk import MemoryDisk
from tests.support.batches import batch, put_at, records_section
from tests.support.small_logs import GOOD, NEVER, NOW, SMALL, filled, headers, opened, sync


def flipped(data: bytes, position: int) -> bytes:
    damaged = bytearray(data)
    damaged[position] ^= 1
    return bytes(damaged)


@pytest.mark.parametrize(
    ("records", "code"),
    [
        (b"", 87),
        (flipped(GOOD, -1), 2),
        (flipped(GOOD, 17), 2),
        (GOOD[:40], 2),
        (GOOD[:-1], 87),
        (GOOD + b"x", 87),
        (GOOD + GOOD, 87),
        (GOOD[:16] + b"\x01" + GOOD[17:], 87),
        (GOOD[:16] + b"\x00" + GOOD[17:], 87),
        (GOOD[:16] + b"\x03" + GOOD[17:], 2),
        (batch(b"x" * 2000), 10),
        (batch(b"x", control=True), 87),
        (batch(b"x", producer_id=5, epoch=0), 87),
        (batch(b"x", transactional=True), 87),
        (batch(b"x", b"y", last_offset_delta=2), 87),
        (batch(b"x", b"y", last_offset_delta=0), 87),
        (bytes(seal(b"", record_count=0, base_timestamp=0, max_timestamp=0)), 87),
        (batch(b"x", base_offset=3), 87),
        (batch(b"x", log_append_time=True), 32),
        (batch(b"x", timestamp=NOW + 3_600_001), 32),
    ],
)
def test_what_no_client_may_append(records: bytes, code: int) -> None:
    log = opened(dataclasses.replace(NEVER, max_message_bytes=1000))
    answer = log.append(records, NOW)
    assert isinstance(answer, Rejected)
    assert answer.error_code == code
    assert (log.log_end_offset, log.size_bytes) == (0, 0)


def test_an_append_sets_offset_and_leader_epoch_and_nothing_else() -> None:
    log = opened()
    given = bytearray(GOOD)
    assert log.append(given, NOW) == Appended(0, 1, -1, 0)
    assert log.append(memoryview(given), NOW) == Appended(2, 3, -1, 0)
    assert bytes(given) == GOOD  # the caller's buffer is its own
    expected = bytearray(GOOD + GOOD)
    put_at(expected, 0, 0)
    put_at(memoryview(expected)[len(GOOD) :], 2, 0)
    assert log.read(0, 1 << 20).records == bytes(expected)


def test_log_append_time_is_stamped_with_a_valid_crc() -> None:
    log = opened(dataclasses.replace(NEVER, message_timestamp_type="LogAppendTime"))
    assert log.append(batch(b"x", b"y", timestamp=5), 4_000) == Appended(0, 1, 4_000, 0)
    result = log.read(0, 1 << 20)  # checks the CRC
    assert result.error_code == 0
    header = headers(result.records)[0]
    assert (header.timestamp_type, header.max_timestamp, header.base_timestamp) == ("log_append_time", 4_000, 5)
    assert log.offset_for_timestamp(4_000) == (4_000, 0)
    assert log.offset_of_max_timestamp() == (4_000, 0)


def test_a_repeat_is_answered_with_its_first_offset_and_the_log_start() -> None:
    log = opened()
    log.append(GOOD, NOW)
    first = batch(b"x", producer_id=5, epoch=0, sequence=0, timestamp=77)
    log.append(first, NOW)
    assert log.append(first, NOW) == Duplicate(2, 2, 77, 0)
    carry_out(moving(log, -1))
    assert log.append(first, NOW) == Duplicate(2, 2, 77, 3)  # observed: also when the batch is deleted
    gap = log.append(batch(b"x", producer_id=5, epoch=0, sequence=9), NOW)
    assert isinstance(gap, Rejected) and (gap.error_code, gap.log_start_offset) == (45, 3)
    unknown = log.append(batch(b"x", producer_id=6, epoch=0, sequence=9), NOW)
    assert isinstance(unknown, Rejected) and (unknown.error_code, unknown.log_start_offset) == (59, 3)
    lenient = log.append(batch(b"x", producer_id=6, epoch=0, sequence=9), NOW, produce_version=7)
    assert lenient == Appended(3, 3, -1, 3, unknown_producer=True)


def test_the_high_watermark_waits_for_the_sync_with_fsync_commit_only() -> None:
    waiting, eager = opened(LogConfig(fsync="commit")), opened(LogConfig(fsync="interval"))
    for log in (waiting, eager):
        log.append(GOOD, NOW)
    assert (waiting.high_watermark, waiting.log_end_offset, eager.high_watermark) == (0, 2, 2)
    assert waiting.read(0, 1 << 20).records == b""
    waiting.append(GOOD, NOW)
    waiting.mark_synced(2)
    assert waiting.high_watermark == 2
    assert len(headers(waiting.read(0, 1 << 20).records)) == 1


def test_the_last_stable_offset_waits_for_the_marker_to_be_durable() -> None:
    log = opened(LogConfig(fsync="commit"))
    log.append(batch(b"x", producer_id=5, epoch=0, sequence=0, transactional=True), NOW)
    log.append(GOOD, NOW)
    log.mark_synced(1)
    assert (log.high_watermark, log.last_stable_offset) == (1, 0)
    assert isinstance(log.append_marker(5, 1, False, 0, NOW), Appended)
    assert log.last_stable_offset == 0
    assert dict(log.producers.open_transactions) == {}
    log.mark_synced(3)  # of all but the marker
    assert (log.high_watermark, log.last_stable_offset) == (3, 0)
    sync(log)
    assert (log.high_watermark, log.last_stable_offset) == (4, 4)
    assert log.read(0, 1 << 20, committed_only=True).aborted == [(5, 0)]


def test_aborted_transactions_are_listed_by_first_offset_over_segments_and_after_a_restart() -> None:
    disk = MemoryDisk()
    log = opened(SMALL, disk)

    def write(pid: int, sequence: int) -> None:
        data = batch(b"x" * 40, producer_id=pid, epoch=0, sequence=sequence, transactional=True)
        assert isinstance(log.append(data, NOW), Appended)

    write(1, 0)  # 0: ends last
    write(2, 0)  # 1
    for n in range(1, 6):
        write(1, n)  # 2...6
    log.append_marker(2, 1, False, 0, NOW)  # 7
    write(3, 0)  # 8
    log.append_marker(3, 1, True, 0, NOW)  # 9: committed
    log.append_marker(1, 1, False, 0, NOW)  # 10
    assert len(log.segments) > 2

    def aborted(offset: int) -> list[tuple[int, int]]:
        return log.read(offset, 1, committed_only=True).aborted

    for again in range(3):
        assert log.last_stable_offset == 11
        assert [aborted(o) for o in (0, 1, 3, 7, 8, 10)] == [
            [(1, 0)],
            [(1, 0), (2, 1)],
            [(1, 0), (2, 1)],
            [(1, 0), (2, 1)],
            [(1, 0)],
            [(1, 0)],
        ]
        if again == 0:
            log.close()
        disk.kill()
        log = PartitionLog.open(disk, "t-0", SMALL, NOW)


def test_a_damaged_index_of_aborted_transactions_is_made_again() -> None:
    disk = MemoryDisk()
    log = opened(SMALL, disk)
    log.append(batch(b"x", producer_id=1, epoch=0, sequence=0, transactional=True), NOW)
    log.append_marker(1, 1, False, 0, NOW)
    log.roll()
    log.append(GOOD, NOW)
    log.close()
    disk.flip_bit("t-0/00000000000000000000.txnindex", 1)  # the version
    log = PartitionLog.open(disk, "t-0", SMALL, NOW, clean=True)
    assert log.read(0, 1 << 20, committed_only=True).aborted == [(1, 0)]


def test_reads_begin_at_the_batch_of_the_offset_and_hold_whole_batches() -> None:
    log = filled(SMALL)
    size = len(headers(log.read(0, 1 << 20).records)) and headers(log.read(0, 1).records)[0].size_bytes
    for offset in range(40):
        assert headers(log.read(offset, 1).records)[0].base_offset == offset // 2 * 2
        assert log.read(offset, size - 1, min_one=False).records == b""
        found = headers(log.read(offset, 2 * size + 1).records)
        assert 1 <= len(found) <= 2
    assert log.read(40, 1 << 20).error_code == 0
    assert log.read(40, 1 << 20).records == b""
    assert log.read(41, 1 << 20).error_code == 1
    assert log.read(-1, 1 << 20).error_code == 1
    carry_out(moving(log, 7))
    assert log.read(6, 1 << 20).error_code == 1
    assert headers(log.read(7, 1).records)[0].base_offset == 6


def test_a_transaction_is_fenced_from_the_answer_to_its_end_until_its_marker() -> None:
    log = opened()
    first = batch(b"x", producer_id=5, epoch=0, sequence=0, transactional=True)
    second = batch(b"x", producer_id=5, epoch=0, sequence=1, transactional=True)
    log.append(first, NOW)
    log.fence(5, 1)
    late = log.append(second, NOW)
    assert isinstance(late, Rejected) and (late.error_code, late.log_start_offset) == (47, -1)
    assert log.last_stable_offset == 0
    log.append_marker(5, 1, True, 0, NOW)
    assert dict(log.producers.fences) == {}
    assert isinstance(log.append(second, NOW), Rejected)
    nxt = batch(b"x", producer_id=5, epoch=1, sequence=0, transactional=True)
    assert isinstance(log.append(nxt, NOW), Appended)
    again = log.append_marker(5, 1, True, 0, NOW)  # the first marker, late
    assert isinstance(again, Rejected) and again.error_code == 47


def test_internal_batches_open_transactions_without_sequences() -> None:
    log = opened()
    assert log.append_internal([(b"k", b"offset")], NOW, producer_id=5, producer_epoch=2) == Appended(0, 0, -1, 0)
    assert log.append_internal([(b"k", b"one"), (b"k", None)], NOW) == Appended(1, 2, -1, 0)
    found = [(header.base_offset, header.partition_leader_epoch) for header in headers(log.read(0, 1 << 20).records)]
    assert found == [(0, 0), (1, 0)]
    assert dict(log.producers.open_transactions) == {5: 0}
    old = log.append_internal([(b"k", b"offset")], NOW, producer_id=5, producer_epoch=1)
    assert isinstance(old, Rejected) and old.error_code == 47
    log.append_marker(5, 3, True, 0, NOW)
    assert log.last_stable_offset == 4


# Damage


@pytest.mark.parametrize("position", [3, 9, 12 + 4, 17, 30, 60, 70, -1])
def test_damaged_bytes_are_never_served(position: int) -> None:
    disk = MemoryDisk()
    log = filled(NEVER, 5, disk)
    size = parse_header(log.read(0, 1).records).size_bytes
    disk.flip_bit("t-0/00000000000000000000.log", 2 * size + (position if position >= 0 else size + position))
    before = log.read(0, 1 << 20)
    assert before.error_code == 2 or [h.base_offset for h in headers(before.records)] == [0, 2]
    for offset in (4, 5):
        result = log.read(offset, 1 << 20)
        assert result.error_code == 2
        assert "t-0/00000000000000000000.log at byte " in result.message
        assert result.records == b""
    assert [h.base_offset for h in headers(log.read(0, 2 * size).records)] == [0, 2]
    log.close()
    for clean in (True, False):  # below a snapshot nothing is scanned: it is still found by reading
        disk.kill()
        log = PartitionLog.open(disk, "t-0", NEVER, NOW, clean=clean)
        assert log.report.cuts == []
        assert log.read(4, 1 << 20).error_code == 2


def test_a_torn_tail_is_cut_and_told() -> None:
    for lost in range(1, 150):
        disk = MemoryDisk()
        log = filled(NEVER, 5, disk)
        size = log.size_bytes
        file = disk.open("t-0/00000000000000000000.log")
        file.truncate(size - lost)
        disk.kill()
        log = PartitionLog.open(disk, "t-0", NEVER, NOW)
        batches_left = (size - lost) // (size // 5)
        assert log.log_end_offset == 2 * batches_left
        rest = size - lost - log.size_bytes
        assert [(cut.path, cut.size_bytes) for cut in log.report.cuts] == (
            [("t-0/00000000000000000000.log", rest)] if rest else []
        )
        assert log.append(GOOD, NOW) == Appended(2 * batches_left, 2 * batches_left + 1, -1, 0)
        assert len(headers(log.read(0, 1 << 20).records)) == batches_left + 1


def test_damaged_and_missing_indexes_are_made_again() -> None:
    disk = MemoryDisk()
    filled(SMALL, 30, disk).close()
    names = [n for n in disk.listdir("t-0") if n.endswith((".index", ".timeindex"))]
    assert len(names) > 6
    for number, name in enumerate(names):
        if number % 2:
            disk.remove(f"t-0/{name}")
        elif disk.read_bytes(f"t-0/{name}"):
            disk.flip_bit(f"t-0/{name}", 0, 7)  # a negative first entry
    log = PartitionLog.open(disk, "t-0", SMALL, NOW)
    assert [headers(log.read(o, 1).records)[0].base_offset for o in range(60)] == [o // 2 * 2 for o in range(60)]
    assert log.offset_for_timestamp(123) == (125, 25)


@pytest.mark.parametrize("position", [3, 17, 70, -1])
def test_damage_below_a_synced_point_is_never_cut(position: int) -> None:
    """Not even when both snapshots are lost with it, and everything has to be scanned."""
    disk = MemoryDisk()
    log = filled(LogConfig(fsync="commit"), 5, disk)
    size = parse_header(log.segments[0].log.read(0, 61)).size_bytes
    log.close()
    disk.flip_bit("t-0/00000000000000000000.log", 2 * size + (position if position >= 0 else size + position))
    for name in disk.listdir("t-0"):
        if name.endswith(".snapshot"):
            disk.flip_bit(f"t-0/{name}", 0)
    disk.kill()
    log = PartitionLog.open(disk, "t-0", LogConfig(fsync="commit"), NOW)
    assert log.report.cuts == []
    assert [(each.first_offset, each.next_offset) for each in log.report.damaged] == [(4, 6)]
    assert log.log_end_offset == 10
    assert log.read(4, 1 << 20).error_code == 2
    assert [h.base_offset for h in headers(log.read(6, 1 << 20).records)] == [6, 8]


# A disk that refuses


@pytest.mark.parametrize("written", [0, 1, 16, 17, 60, 70])
def test_a_full_disk_refuses_and_recovers(written: int) -> None:
    disk = MemoryDisk()
    log = filled(LogConfig(fsync="commit"), 3, disk)
    disk.fail_next_write(written=written)
    disk.fail_next_write()  # the truncation that follows, too
    answer = log.append(GOOD, NOW)
    assert isinstance(answer, Rejected) and answer.error_code == 56
    assert log.read_only and log.failure is not None
    sync(log)
    assert len(headers(log.read(0, 1 << 20).records)) == 3
    assert log.append(GOOD, NOW) == Appended(6, 7, -1, 0)  # there is room again
    sync(log)
    disk.crash(1)
    log = PartitionLog.open(disk, "t-0", LogConfig(fsync="commit"), NOW)
    assert log.report.cuts == []
    assert [h.base_offset for h in headers(log.read(0, 1 << 20).records)] == [0, 2, 4, 6]


def test_a_failed_sync_makes_read_only_until_reopened() -> None:
    disk = MemoryDisk()
    log = filled(LogConfig(fsync="commit"), 3, disk)
    sync(log)
    log.append(GOOD, NOW)
    disk.fail_next_sync()
    with pytest.raises(OSError, match="sync") as failed:
        sync(log)
    log.sync_failed(failed.value)
    sync(log)  # succeeds, and means nothing
    assert log.high_watermark == 6
    answer = log.append(GOOD, NOW)
    assert isinstance(answer, Rejected) and answer.error_code == 56
    disk.kill()
    log = PartitionLog.open(disk, "t-0", LogConfig(fsync="commit"), NOW)
    assert log.high_watermark == 8  # found in the page cache, and written again before it was shown
    disk.crash(1)
    assert PartitionLog.open(disk, "t-0", LogConfig(fsync="commit"), NOW).high_watermark == 8


def test_a_failing_read_is_an_answer() -> None:
    disk = MemoryDisk()
    log = filled(NEVER, 3, disk)
    disk.fail_next_read()
    assert log.read(0, 1 << 20).error_code == 56
    assert log.read(0, 1 << 20).error_code == 0


# Time, removal, expiry


def test_offsets_by_timestamp() -> None:
    log = filled(SMALL)
    assert len(log.segments) > 3
    for timestamp in range(200):
        found = log.offset_for_timestamp(timestamp)
        if timestamp > 195:
            assert found is None
        else:
            due = -(-timestamp // 5)  # the records are 5 ms apart
            assert found == (due * 5, due)
    assert log.offset_of_max_timestamp() == (195, 39)
    assert opened().offset_of_max_timestamp() is None


def test_timestamps_inside_a_compressed_batch() -> None:
    zlib = pytest.importorskip("zlib")
    section = records_section([b"a", b"b", b"c"], [100, 300, 200])
    packed = zlib.compressobj(wbits=31)
    sealed = seal(
        packed.compress(section) + packed.flush(),
        record_count=3,
        base_timestamp=100,
        max_timestamp=300,
        compression="gzip",
    )
    log = opened()
    log.append(bytes(sealed), NOW)
    assert [log.offset_for_timestamp(t) for t in (0, 150, 300, 301)] == [(100, 0), (300, 1), (300, 1), None]
    assert log.offset_of_max_timestamp() == (300, 1)


def test_removal_keeps_what_producers_said() -> None:
    """Retention and DeleteRecords must not drop producer state, also when the process dies right after."""
    disk = MemoryDisk()
    log = opened(SMALL, disk)
    log.append(batch(b"x", producer_id=5, epoch=0, sequence=0), NOW)
    for _ in range(20):
        log.append(GOOD, NOW)
    carry_out(moving(log, -1))
    assert log.segments[0].base_offset > 0
    disk.kill()
    log = PartitionLog.open(disk, "t-0", SMALL, NOW)
    assert log.log_start_offset == 41
    assert isinstance(log.append(batch(b"x", producer_id=5, epoch=0, sequence=1), NOW), Appended)


def test_deleting_beyond_the_high_watermark_is_the_callers_mistake() -> None:
    log = opened(LogConfig(fsync="commit"))
    log.append(GOOD, NOW)
    with pytest.raises(ValueError, match="0"):
        carry_out(moving(log, 1))


def test_idle_producers_shrink_except_live_ones_and_open_transactions() -> None:
    log = opened(NEVER)
    for pid, time in ((1, 10), (2, 20), (3, 30), (4, 30)):
        log.append(batch(b"x", producer_id=pid, epoch=0, sequence=0, timestamp=time, transactional=pid == 4), NOW)
    log.producers.expire(500, 100, lambda pid: pid == 3, 1)
    states = {state.producer_id: state for state in log.producers}
    assert set(states) == {2, 3, 4}  # 1 is the longest idle of two that were shrunk
    assert [states[pid].shrunk for pid in (2, 3, 4)] == [True, False, False]
    assert isinstance(log.append(batch(b"x", producer_id=2, epoch=0, sequence=1), NOW), Appended)


def test_segments_roll_by_size_and_by_time() -> None:
    log = opened(dataclasses.replace(NEVER, segment_bytes=3 * len(GOOD), segment_ms=50))
    bases = []
    for _ in range(7):
        log.append(batch(b"one", b"two", timestamp=100), NOW)
        bases.append(log.segments[-1].base_offset)
    assert bases == [0, 0, 0, 6, 6, 6, 12]
    log.append(batch(b"one", b"two", timestamp=150), NOW)
    assert log.segments[-1].base_offset == 12
    log.append(batch(b"one", b"two", timestamp=151), NOW)
    assert log.segments[-1].base_offset == 16


def test_a_log_whose_sync_stalls_rolls_before_its_indexes_overflow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its only segment grows beyond segment.bytes until the first sync, but its index has 31 bits for a position."""
    monkeypatch.setattr(segment, "MOST_INDEXED", 5 * len(GOOD))
    log = opened(LogConfig(fsync="commit", segment_bytes=3 * len(GOOD)))
    bases = []
    for _ in range(9):
        assert isinstance(log.append(GOOD, NOW), Appended)
        bases.append(log.segments[-1].base_offset)
    assert bases == [0, 0, 0, 0, 0, 10, 10, 10, 16]
    sync(log)
    assert [header.base_offset for header in headers(log.read(0, 10_000).records)] == [0, 2, 4, 6, 8]
    assert log.read(16, 10_000).records != b""


def test_a_kill_costs_a_scan_of_what_lies_behind_the_last_snapshot_only() -> None:
    disk = MemoryDisk(durable=False)
    config = dataclasses.replace(NEVER, snapshot_interval_bytes=5_000, index_interval_bytes=500)
    log = filled(config, 1000, disk)
    assert log.size_bytes > 50_000 and len(log.segments) == 1
    disk.kill()
    again = PartitionLog.open(disk, "t-0", config, NOW)
    assert again.report.scanned_bytes < 5_200
    assert again.log_end_offset == 2000
    assert len(b"".join(bytes(again.read(o, 1).records) for o in range(0, 2000, 2))) == again.size_bytes


def test_no_segment_goes_before_a_snapshot_keeps_its_producers() -> None:
    disk = MemoryDisk()
    config = dataclasses.replace(SMALL, fsync="commit")
    log = opened(config, disk)
    log.append(batch(b"x", producer_id=5, epoch=0, sequence=0), NOW)
    sync(log)
    while len(log.segments) < 3:
        log.append(GOOD, NOW)
    end = log.log_end_offset
    for file in log.unsynced():
        file.sync()
    disk.fail_next_write()  # the snapshot
    log.mark_synced(end)
    carry_out(moving(log, -1))
    assert log.segments[0].base_offset == 0
    disk.crash(3)
    log = PartitionLog.open(disk, "t-0", config, NOW)
    assert log.log_start_offset == end
    assert isinstance(log.append(batch(b"x", producer_id=5, epoch=0, sequence=1), NOW), Appended)
    assert log.segments[0].base_offset > 0  # now there is one


def test_the_indexes_of_few_closed_segments_are_in_memory() -> None:
    log = filled(SMALL, batches=200)
    assert len(log.segments) > 40
    for _ in range(2):
        offset, got = 0, 0
        while offset < log.high_watermark:
            read = log.read(offset, 300, committed_only=True)
            got += len(headers(read.records))
            offset = headers(read.records)[-1].last_offset + 1
        assert got == 200
        assert [log.offset_for_timestamp(10 * n) for n in range(200)] == [(10 * n, 2 * n) for n in range(200)]
        assert log.offset_of_max_timestamp() == (1995, 399)
        loaded = [segment for segment in log.segments[:-1] if len(segment.offsets)]
        assert len(loaded) <= 5
    log.close()


def test_a_segment_without_timestamps_gets_old_from_its_last_write_on() -> None:
    log = opened(dataclasses.replace(SMALL, retention_ms=1_000))
    for n in range(20):
        log.append(batch(b"x" * 50, timestamp=-1), NOW + n)
    closed = len(log.segments) - 1
    assert closed > 1
    assert carry_out(retaining(log, NOW + 1_000)) == 0
    assert 0 < carry_out(retaining(log, NOW + 1_010)) <= closed
    assert log.offset_of_max_timestamp() is None
