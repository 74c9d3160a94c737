"""Compacted logs against a simple model, over random histories of appends, transactions, tombstones, rounds of
compaction, deleted records and power cuts at any change of the disk.

What a reader of committed records gets is, per key, the last one that was committed (a tombstone may be gone once its
horizon has passed); every record that is there was appended at that offset; what the log knows of producers does not
change by compaction, by a crash, or by a scan without snapshots; nothing hangs.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Generator
from dataclasses import dataclass, field

import pytest

from fencepost.broker.disk.changes import carry_out
from fencepost.broker.log import Appended, LogConfig, PartitionLog
from fencepost.broker.log.cleaning.compaction import Abandoned, Compaction, plan
from fencepost.broker.log.removing import moving
from fencepost.protocol.records.decoding import decode_batches
from fencepost_lab.check.disk import MemoryDisk, PowerCut
from tests.support.batches import keyed

DIRECTORY = "topic-0"
RETENTION_MS = 1_000
KEYS = 8
PRODUCERS = 3
CONFIG = LogConfig(
    fsync="commit",
    cleanup_policy="compact",
    segment_bytes=700,
    index_interval_bytes=150,
    snapshot_interval_bytes=600,
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=RETENTION_MS,
    producer_id_expiration_ms=2**50,
    compaction_keys_max=12,
)
Row = tuple[int, bytes, bytes | None]


@dataclass
class Model:
    """Simple model of the log: all rows, committed and open rows, producers, and the log start offset."""

    rows: dict[int, tuple[bytes, bytes | None]] = field(default_factory=dict)
    committed: list[Row] = field(default_factory=list)
    open: dict[int, list[Row]] = field(default_factory=dict)
    producers: dict[int, tuple[int, int]] = field(default_factory=dict)  # epoch, last sequence
    log_start: int = 0

    def last(self) -> dict[bytes, tuple[int, bytes | None]]:
        """Per key the last committed record below the first open transaction."""
        stable = min((rows[0][0] for rows in self.open.values()), default=2**62)
        found: dict[bytes, tuple[int, bytes | None]] = {}
        for offset, key, value in sorted(self.committed):
            if self.log_start <= offset < stable:
                found[key] = (offset, value)
        return found


class World:
    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.disk = MemoryDisk()
        self.now_ms = 1_000_000
        self.model = Model()
        self.counter = 0
        self.rounds = 0
        self.cuts = self.survived = 0
        self.unanswered: tuple[int, int, Callable[[int], None]] | None = None  # of an append that the power cut
        self.log = self.opened()

    def opened(self) -> PartitionLog:
        return PartitionLog.open(self.disk, DIRECTORY, CONFIG, self.now_ms)

    def sync(self) -> None:
        end = self.log.log_end_offset
        for file in self.log.unsynced():
            file.sync()
        self.log.mark_synced(end)

    def append(self) -> None:
        pid = self.chance.choice([-1, *range(PRODUCERS)])
        count = self.chance.randint(1, 3)
        records = []
        for _ in range(count):
            self.counter += 1
            key = b"k%d" % self.chance.randrange(KEYS)
            if self.chance.random() < 0.1:
                key *= 20
            records.append((key, None if self.chance.random() < 0.2 else b"v%d" % self.counter * 5))
        epoch, sequence = self.model.producers.get(pid, (0, -1))
        in_transaction = pid in self.model.open or (pid >= 0 and self.chance.random() < 0.6)
        data = keyed(
            *records,
            producer_id=pid,
            epoch=epoch if pid >= 0 else -1,
            sequence=sequence + 1 if pid >= 0 else -1,
            transactional=in_transaction,
            timestamp=self.now_ms,
            compression=self.chance.choice(["none", "none", "lz4", "zstd"]),
        )

        def appended(base_offset: int) -> None:
            rows = [(base_offset + i, key, value) for i, (key, value) in enumerate(records)]
            self.model.rows.update({offset: (key, value) for offset, key, value in rows})
            if pid >= 0:
                self.model.producers[pid] = (epoch, sequence + count)
            if in_transaction:
                self.model.open.setdefault(pid, []).extend(rows)
            else:
                self.model.committed += rows

        self.unanswered = (self.log.log_end_offset, count, appended)
        answer = self.log.append(data, self.now_ms)
        assert isinstance(answer, Appended), answer
        self.sync()
        appended(answer.base_offset)
        self.unanswered = None

    def end_transaction(self) -> None:
        if self.model.open:
            pid = self.chance.choice(sorted(self.model.open))
            commit = self.chance.random() < 0.6
            epoch, sequence = self.model.producers[pid]
            bump = self.chance.random() < 0.7
            version = 2 if bump else 1
            answer = self.log.append_marker(pid, epoch + bump, commit, 0, self.now_ms, transaction_version=version)
            assert isinstance(answer, Appended)
            rows = self.model.open.pop(pid)
            self.model.committed += rows if commit else []
            self.model.producers[pid] = (epoch + 1, -1) if bump else (epoch, sequence)
            self.sync()

    def compact(self) -> None:
        wanted = plan(self.log, self.now_ms)
        if wanted is None:
            return
        with contextlib.suppress(Abandoned):
            for step in Compaction(self.log, wanted, self.now_ms).steps():
                if isinstance(step, Generator):
                    for write in step:
                        write()
                        self.serve(0.3)
                else:
                    for file in step:
                        file.sync()
                    self.serve(0.02)
            self.rounds += 1

    def serve(self, chance: float) -> None:
        """Requests are served between two steps."""
        if self.chance.random() < chance:
            self.append()
        if self.chance.random() < chance / 10:
            self.check()

    def power_cut(self) -> None:
        """The power goes in the middle of rolling and compacting."""
        self.disk.power_cut_after(self.chance.randrange(60))
        with contextlib.suppress(PowerCut):
            self.log.roll()
            self.sync()
            self.compact()
        self.disk.heal()
        self.disk.crash(self.chance.randrange(2**30))
        self.cuts += 1
        self.log = self.opened()
        assert self.log.report.damaged == []
        if self.unanswered is None:
            assert self.log.report.cuts == []
            return
        (end, count, appended), self.unanswered = self.unanswered, None
        assert self.log.log_end_offset in (end, end + count)  # an append that was cut off is there as a whole or not
        if self.log.log_end_offset > end:
            appended(end)
            self.survived += 1

    def restart(self) -> None:
        if self.chance.random() < 0.5:
            self.log.close()
        self.disk.kill()
        if self.chance.random() < 0.3 and self.model.log_start == 0:
            for name in self.disk.listdir(DIRECTORY):
                if name.endswith(".snapshot"):  # only the log is left to tell
                    self.disk.remove(f"{DIRECTORY}/{name}")
        self.log = self.opened()
        assert self.log.report.cuts == [] and self.log.report.damaged == []

    def pass_time(self) -> None:
        self.now_ms += self.chance.choice([1, RETENTION_MS // 2, 2 * RETENTION_MS])

    def delete_records(self) -> None:
        if self.chance.random() < 0.1:
            offset = self.chance.randint(self.log.log_start_offset, self.log.high_watermark)
            self.model.log_start = carry_out(moving(self.log, offset))

    def visible(self) -> list[Row]:
        found: list[Row] = []
        log = self.log
        offset = log.log_start_offset
        while offset < log.last_stable_offset:
            read = log.read(offset, 400, committed_only=True)
            assert read.error_code == 0, read.message
            columns = decode_batches(read.records, start_offset=offset, aborted=read.aborted)
            assert columns.next_offset > offset
            found += [(row[0], row[2] or b"", row[3]) for row in columns.records()]
            offset = columns.next_offset
        return found

    def check(self) -> None:
        model, log = self.model, self.log
        rows = self.visible()
        assert [row[0] for row in rows] == sorted({row[0] for row in rows})
        committed = set(model.committed)
        got: dict[bytes, tuple[int, bytes | None]] = {}
        for row in rows:
            assert row in committed, f"{row} was not committed"
            got[row[1]] = (row[0], row[2])
        due = model.last()
        for key, (offset, value) in due.items():
            assert got.get(key) == (offset, value) or (value is None and key not in got), (key, got.get(key), value)
        assert set(got) <= set(due)
        assert {s.producer_id: (s.epoch, s.last_sequence) for s in log.producers} == model.producers
        assert set(log.producers.open_transactions) == set(model.open)
        if not model.open:
            assert log.last_stable_offset == log.log_end_offset


STEPS = (
    *["append"] * 12,
    *["end_transaction"] * 5,
    "compact",
    "compact",
    "power_cut",
    "restart",
    "pass_time",
    "delete_records",
    "check",
)


@pytest.mark.parametrize("first", range(0, 80, 20))
def test_compaction_keeps_what_counts(first: int) -> None:
    rounds = cuts = survived = 0
    for seed in range(first, first + 20):
        world = World(seed)
        try:
            for _ in range(150):
                getattr(world, world.chance.choice(STEPS))()
            world.check()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        rounds, cuts, survived = rounds + world.rounds, cuts + world.cuts, survived + world.survived
    assert rounds > 50 and cuts > 20 and survived > 0
