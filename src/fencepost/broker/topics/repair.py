"""Find damage in the logs of a stopped broker, and accept it.

The damaged file is first copied (`.log.damaged`, `.log.damaged.1` and so on; no copy is overwritten) and synced. Then a
new segment replaces it in the steps of compaction, so that a crash leaves the old or the new one. In the new segment an
empty batch covers the offsets of each damaged range, as after compaction. Readers then skip the range, and for
transactions and groups the newest readable record counts. The other batches are those that readers got before:
`log.batch_walk` checks them in both cases. As at a start of the broker, opening the logs finishes what a crash
interrupted.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import NamedTuple
from uuid import UUID

from fencepost.broker.disk.changes import carry_out
from fencepost.broker.disk.files import Files
from fencepost.broker.log.batch_walk import DamagedRange
from fencepost.broker.log.cleaning.swap import announcing, finish
from fencepost.broker.log.layout import CLEANED, LOG, file_name
from fencepost.broker.log.partition import PartitionLog
from fencepost.broker.log.reading import Gap, batches_of
from fencepost.broker.log.recovery import rebuild_aborted
from fencepost.broker.log.removing import moving
from fencepost.broker.log.segment import Segment
from fencepost.broker.settings.values import BrokerConfig
from fencepost.broker.timing.clock import CoreTime
from fencepost.broker.topics.catalogue import TopicCatalogue
from fencepost.protocol.records.batch import parse_header, seal
from fencepost.protocol.records.walk import rebuild

__all__ = ["DAMAGED", "UnreadableOffsets", "repair"]

DAMAGED = ".damaged"
_TEMPORARY = ".tmp"
_COPY_BYTES = 1 << 20


class UnreadableOffsets(NamedTuple):
    """Offsets of a partition that cannot be read."""

    topic: str
    partition: int
    gap: Gap


def repair(
    files: Files,
    config: BrokerConfig,
    new_id: Callable[[], UUID],
    now_ms: int,
    *,
    accept: bool,
    begins: Callable[[str, int], None] = lambda *_: None,
) -> Iterator[UnreadableOffsets]:
    """Yield all damage; with `accept` accept the loss of each after it was yielded.

    `begins` is called with topic and partition before the partition is read. Raises OSError or UnusableDirectory.
    """
    topics = TopicCatalogue(files, config, new_id, CoreTime(now_ms), lambda _: None)
    topics.load()
    for topic in list(topics):
        for partition in topic.partitions:
            point = topics.points.of(topic.topic_id, partition.index)
            if point.offset > 0 or files.exists(partition.directory):
                begins(topic.name, partition.index)
                log = partition.log
                everything = batches_of(log, log.log_start_offset, log.log_end_offset)
                gaps = [item for item in everything if isinstance(item, Gap)]
                yield from (UnreadableOffsets(topic.name, partition.index, gap) for gap in gaps)
                if gaps and accept:
                    topics.lost_records(partition)
                    _accept(log)
    topics.close()


def _accept(log: PartitionLog) -> None:
    end = log.log_end_offset
    log.roll()
    for file in log.unsynced():
        file.sync()
    log.mark_synced(end)
    log.snapshots.keep_from(end)  # older snapshots refer to segments that are about to be rewritten
    first = log.segments[0].base_offset
    if log.log_start_offset < first:
        carry_out(moving(log, first))
    for segment, following in itertools.pairwise(list(log.segments)):
        segment.next_offset = following.base_offset
        if any(isinstance(item, DamagedRange) for item in segment.walk()):
            _rewrite(log, segment)


def _rewrite(log: PartitionLog, segment: Segment) -> None:
    """Rewrite the segment, with an empty batch for each range of missing offsets."""
    files, base = log.files, segment.base_offset
    number = log.segments.index(segment)
    target = Segment(files, log.directory, base, CLEANED)
    target.log.truncate(0)
    target.size = 0
    target.reset_indexes()
    target.next_offset, target.gaps_below = segment.next_offset, segment.gaps_below
    for item in segment.walk():
        if not isinstance(item, DamagedRange):
            _put(log, target, bytes(item.batch))
        elif item.first_offset < item.next_offset:
            _put(log, target, _filler(item.first_offset, item.next_offset))
    segment.load_aborted()
    if segment.aborted_lost:
        rebuild_aborted([*log.segments[:number], target], target)
    else:
        for entry in segment.aborted.entries():
            target.aborted.add(entry)
    target.aborted.create()
    target.flush_indexes(final=True)
    for file in (target.log, *target.index_files()):
        file.sync()
    _keep_copy(log, segment)
    target.close()
    segment.close()
    carry_out(announcing(files, log.directory, base))
    finish(files, log.directory, base, ())
    new = Segment(files, log.directory, base)
    new.next_offset, new.gaps_below, new.touched_ms = segment.next_offset, segment.gaps_below, segment.touched_ms
    log.segments[number] = new


def _put(log: PartitionLog, target: Segment, batch: bytes) -> None:
    target.index_batch(parse_header(batch), target.size, len(batch), log.config.index_interval_bytes)
    target.log.append(batch)
    target.size += len(batch)


def _filler(first_offset: int, next_offset: int) -> bytes:
    """Return an empty batch for these offsets."""
    template = parse_header(seal(b"", record_count=1, base_timestamp=-1, max_timestamp=-1))
    header = template._replace(
        base_offset=first_offset, last_offset_delta=next_offset - 1 - first_offset, partition_leader_epoch=0
    )
    return rebuild(header, ())


def _keep_copy(log: PartitionLog, segment: Segment) -> None:
    """Copy the damaged file durably, under a new name."""
    files, stem = log.files, f"{log.directory}/{file_name(segment.base_offset, LOG)}{DAMAGED}"
    numbered = (f"{stem}.{number}" for number in itertools.count(1))
    path = stem
    while files.exists(path):
        if _is_copy(files, path, segment):
            return  # left by an interrupted attempt
        path = next(numbered)
    copy = files.open(stem + _TEMPORARY)
    copy.truncate(0)
    for position in range(0, segment.size, _COPY_BYTES):
        copy.append(segment.log.read(position, _COPY_BYTES))
    copy.sync()
    copy.close()
    files.rename(stem + _TEMPORARY, path)
    files.sync_directory(log.directory)


def _is_copy(files: Files, path: str, segment: Segment) -> bool:
    copy = files.open(path)
    try:
        positions = range(0, max(copy.size(), segment.size), _COPY_BYTES)
        return all(copy.read(at, _COPY_BYTES) == segment.log.read(at, _COPY_BYTES) for at in positions)
    finally:
        copy.close()
