"""Defects of the log: idempotence, the stable offset, aborted ranges, durability, recovery, compaction."""

from __future__ import annotations

from typing import Any

from fencepost.broker.log import batch_walk, recovery, segment
from fencepost.broker.log.cleaning.compaction import Compaction
from fencepost.broker.log.partition import PartitionLog
from fencepost.broker.log.producers import table
from fencepost.broker.log.producers.idempotence import ProducerRefusal, RepeatedBatch, check_batch
from fencepost.broker.topics.durability import Durability
from fencepost.protocol.records import decoding
from fencepost_lab.check.disk import MemoryDisk
from fencepost_lab.check.plants.plant import COMPACTED, KILLED, POWER_LOSS, WATCHED, Patches, plant


@plant("clients")
def every_sequence_accepted(patches: Patches) -> None:
    """Repeated batches are appended again."""
    patches.setattr(table, "check_batch", lambda *args, **kwargs: None)


@plant("clients", *POWER_LOSS)
def sequence_window_of_none(patches: Patches) -> None:
    """Only the latest batch is remembered, so an older repeated batch is appended again."""
    check = check_batch

    def forgetful(state: Any, batch: Any, **kwargs: Any) -> Any:
        verdict = check(state, batch, **kwargs)
        old = state is not None and batch.epoch == state.epoch and batch.last_sequence < state.last_sequence
        return None if old and not isinstance(verdict, ProducerRefusal) else verdict

    patches.setattr(table, "check_batch", forgetful)


@plant("clients", *POWER_LOSS)
def producer_state_lost_at_the_start(patches: Patches) -> None:
    """After a crash a partition has no producer state, so repeated batches are appended again."""
    original = PartitionLog.__init__

    def forgetful(self: PartitionLog, files: Any, directory: str, config: Any, recovered: Any, begin: Any) -> None:
        original(self, files, directory, config, recovered, begin)
        for producer_id in list(self.producers._states):
            state = self.producers._states[producer_id]
            state.batches, state.seen = [], 0
            state.last_sequence = -1

    patches.setattr(PartitionLog, "__init__", forgetful)
    patches.setattr(table, "check_batch", _first_always(check_batch))


def _first_always(check: Any) -> Any:
    def lenient(state: Any, batch: Any, **kwargs: Any) -> Any:
        if state is not None and state.last_sequence < 0 and batch.epoch == state.epoch:
            return None
        return check(state, batch, **kwargs)

    return lenient


@plant("clients")
def stable_offset_is_the_high_watermark(patches: Patches) -> None:
    """Readers of committed records receive records of open transactions."""
    patches.setattr(PartitionLog, "last_stable_offset", property(lambda self: self.high_watermark))


@plant("clients")
def stable_offset_off_by_one(patches: Patches) -> None:
    """The first record of an open transaction can be read."""
    original: Any = PartitionLog.last_stable_offset

    def further(self: PartitionLog) -> int:
        stable: int = original.fget(self)
        return min(stable + 1, self.high_watermark)

    patches.setattr(PartitionLog, "last_stable_offset", property(further))


@plant("clients")
def aborted_ranges_hidden(patches: Patches) -> None:
    """A fetch names no aborted transactions."""
    patches.setattr(PartitionLog, "aborted_between", lambda self, start, end: [])


@plant("clients", *WATCHED)
def aborted_range_forgotten_across_fetches(patches: Patches) -> None:
    """A fetch names only those aborted transactions that begin in it."""
    original = PartitionLog.aborted_between

    def beginning(self: PartitionLog, start: int, end: int) -> Any:
        return [aborted for aborted in original(self, start, end) if aborted.first_offset >= start]

    patches.setattr(PartitionLog, "aborted_between", beginning)


@plant("clients", *POWER_LOSS)
def aborted_index_lost_at_the_start(patches: Patches) -> None:
    """Recovery does not rebuild the aborted ranges."""
    original = recovery._scan_segment

    def scan(config: Any, found: Any, scanned: Any, position: int, offset: int) -> Any:
        result = original(config, found, scanned, position, offset)
        scanned.aborted.truncate(0)
        return result

    patches.setattr(recovery, "_scan_segment", scan)


@plant("clients", *POWER_LOSS)
def fsync_skipped(patches: Patches) -> None:
    """The disk reports a sync that it did not do."""
    patches.setattr(MemoryDisk, "sync", lambda self, node, path: None)


@plant("clients", *POWER_LOSS, "sync_error_chance=0.6")
def failed_sync_ignored(patches: Patches) -> None:
    """A failed sync counts as a successful one."""
    synced = Durability.synced
    patches.setattr(Durability, "synced", lambda self, now_ms, token, failed=(): synced(self, now_ms, token))


@plant("clients", *POWER_LOSS)
def answers_before_the_sync(patches: Patches) -> None:
    """The broker answers a write before it is synced."""
    patches.setattr(Durability, "when_durable", lambda self, now_ms, action: action(now_ms))


@plant("clients", *POWER_LOSS)
def high_watermark_before_the_sync(patches: Patches) -> None:
    """Readers receive records that a power loss can still remove."""
    original = PartitionLog._appended

    def early(self: PartitionLog, size: int, batches: int = 1) -> None:
        original(self, size, batches)
        self._advance(self.log_end_offset)

    patches.setattr(PartitionLog, "_appended", early)


@plant("clients", *POWER_LOSS)
def recovery_ignores_the_last_batch(patches: Patches) -> None:
    """The start cuts off the last batch of a log, even if it was synced."""
    walk = segment.Segment.walk

    def shorter(self: segment.Segment, *args: Any, **kwargs: Any) -> Any:
        items = walk(self, *args, **kwargs)
        return iter(list(items)[:-1]) if self.next_offset == batch_walk.ANYWHERE else items

    patches.setattr(segment.Segment, "walk", shorter)


@plant("clients", *COMPACTED)
def compaction_removes_markers_early(patches: Patches) -> None:
    """Compaction removes markers before it has seen the end of their transactions."""
    original = Compaction._filtered_marker

    def early(self: Compaction, header: Any, batch: Any, segment: Any, at: int, target: Any, is_end: bool) -> Any:
        filtered = original(self, header, batch, segment, at, target, is_end)
        return filtered if is_end else None

    patches.setattr(Compaction, "_filtered_marker", early)


@plant("clients", *COMPACTED)
def compaction_drops_the_newest(patches: Patches) -> None:
    """Compaction removes a record whose key has its own offset as the newest."""
    original = Compaction._stays

    def stays(self: Compaction, header: Any, record: Any) -> bool:
        return original(self, header, record) and record.offset % 5 != 3

    patches.setattr(Compaction, "_stays", stays)


@plant("clients", *KILLED, "flip_chance=0.9")
def crc_not_checked(patches: Patches) -> None:
    """Neither broker nor client detects a damaged batch."""
    walk = segment.Segment.whole_batches

    def trusting(self: segment.Segment, data: bytes, position: int, base_offset: int, verify: bool) -> Any:
        return walk(self, data, position, base_offset, False)

    patches.setattr(segment.Segment, "whole_batches", trusting)
    patches.setattr(batch_walk, "is_intact", lambda header, batch: True)
    patches.setattr(decoding, "verify_crc", lambda batch: True)


@plant("clients", *KILLED, "restore_chance=0.9")
def lost_offsets_given_out_again(patches: Patches) -> None:
    """A log that ends before its last synced offset is continued there, and no error is reported."""
    patches.setattr(recovery, "_end_at", lambda files, directory, found, end: None)


@plant("clients", *POWER_LOSS)
def sequence_window_of_four(patches: Patches) -> None:
    """The broker recognizes the last four batches again, but a client may have five in flight."""
    check = check_batch

    def forgetful(state: Any, batch: Any, **kwargs: Any) -> Any:
        if state is None or not state.batches:
            return check(state, batch, **kwargs)
        all_batches = state.batches
        state.batches = all_batches[-4:]
        verdict = check(state, batch, **kwargs)
        state.batches = all_batches
        is_fifth = len(all_batches) > 4 and batch.last_sequence == all_batches[0].last_sequence
        is_old = is_fifth and batch.epoch == state.epoch
        return None if is_old and not isinstance(verdict, RepeatedBatch) else verdict

    patches.setattr(table, "check_batch", forgetful)


@plant("clients", "storm_ms=5000", "crash_interval_ms=400", "power_cut_chance=0.0", "restore_chance=0.9")
def synced_is_not_noted_at_the_start(patches: Patches) -> None:
    """Recovery points that a power loss made outdated are not renewed at the start."""
    original = PartitionLog._synced

    def once(self: PartitionLog, offset: int) -> None:
        if offset > self.synced_offset:
            original(self, offset)

    patches.setattr(PartitionLog, "_synced", once)


@plant("clients", *KILLED, "full_chance=0.5", "flip_chance=0.9", "restore_chance=0.0")
def no_room_for_recovery_points(patches: Patches) -> None:
    """Space for a recovery point is allocated when it is written, at a time at which the disk may be full."""
    original = PartitionLog._write

    def without(self: PartitionLog, *args: Any) -> Any:
        point, self._point = self._point, None
        try:
            return original(self, *args)
        finally:
            self._point = point

    patches.setattr(PartitionLog, "_write", without)
