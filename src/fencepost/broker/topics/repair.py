"""Looking for damage in the logs of a stopped broker, and accepting it.

What is damaged stays in a file beside the segment (`.log.damaged`). In its place comes an empty batch over the same
offsets, as compaction leaves them: readers go past it, nothing is in doubt any more, and the newest record that can be
read counts. Opening the logs finishes what a crash interrupted, as a start of the broker does.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple
from uuid import UUID

from fencepost.broker.disk.files import Files
from fencepost.broker.log.cleaning.swap import announce, finish
from fencepost.broker.log.layout import CLEANED, LOG, file_name
from fencepost.broker.log.partition import PartitionLog
from fencepost.broker.log.reading import Gap, batches_of
from fencepost.broker.log.recovery import rebuild_aborted, whole_batches
from fencepost.broker.log.segment import Segment
from fencepost.broker.settings.values import BrokerConfig
from fencepost.broker.timing.clock import Now
from fencepost.broker.topics.catalogue import Partition, TopicCatalogue
from fencepost.protocol.records.batch import parse_header, seal
from fencepost.protocol.records.walk import rebuild

__all__ = ["DAMAGED", "Finding", "repair"]

DAMAGED = ".damaged"
_COPY_BYTES = 1 << 20


class Finding(NamedTuple):
    """Offsets of one partition that cannot be read."""

    topic: str
    partition: int
    gap: Gap


def repair(
    files: Files, config: BrokerConfig, new_id: Callable[[], UUID], now_ms: int, *, accept: bool
) -> Iterator[Finding]:
    """What is damaged; with `accept` the loss of each is accepted after it was named. Raises OSError,
    UnusableDirectory."""
    topics = TopicCatalogue(files, config, new_id, Now(now_ms), lambda _: None)
    topics.load()
    for topic in list(topics):
        for partition in topic.partitions:
            point = topics.points.of(topic.topic_id, partition.index)
            if point.offset > 0 or files.exists(partition.directory):
                gaps = [item for item in _everything(partition) if isinstance(item, Gap)]
                yield from (Finding(topic.name, partition.index, gap) for gap in gaps)
                if gaps and accept:
                    topics.lost_records(partition)
                    _accept(partition.log, gaps)
    topics.close()


def _everything(partition: Partition) -> Iterator[object]:
    log = partition.log
    return batches_of(log, log.log_start_offset, log.log_end_offset)


def _accept(log: PartitionLog, gaps: Sequence[Gap]) -> None:
    end = log.log_end_offset
    log.roll()
    for file in log.unsynced():
        file.sync()
    log.mark_synced(end)
    log.snapshots.keep_from(end)  # older ones point into what is about to be written anew
    first = log.segments[0].base_offset
    if log.log_start_offset < first:
        log.delete_records_before(first)
    for segment in log.segments[:-1]:
        inside = [gap for gap in gaps if log.segments[log.segment_of(gap.first_offset)] is segment]
        if inside and inside[-1].next_offset > first:
            _rewrite(log, segment, inside)
    for segment, following in itertools.pairwise(log.segments):
        segment.next_offset = following.base_offset


def _rewrite(log: PartitionLog, segment: Segment, gaps: list[Gap]) -> None:
    """Write the segment anew, with an empty batch in the place of each gap."""
    files, base = log.files, segment.base_offset
    segment.load_aborted()
    if segment.aborted_lost:
        rebuild_aborted(log.segments, segment)
    target = Segment(files, log.directory, base, CLEANED)
    target.log.truncate(0)
    target.size = 0
    target.reset_indexes()
    waiting = [gap for gap in gaps if gap.next_offset > base]
    for _, header, batch in whole_batches(segment):
        while waiting and waiting[0].next_offset <= header.base_offset:
            _put(log, target, _filler(waiting.pop(0), base))
        _put(log, target, bytes(batch))
    for gap in waiting:
        _put(log, target, _filler(gap, base))
    for entry in segment.aborted.entries():
        target.aborted.add(entry)
    target.aborted.create()
    target.flush_indexes(final=True)
    for file in (target.log, *target.index_files()):
        file.sync()
    _copy(log, segment)
    target.close()
    segment.close()
    announce(files, log.directory, base)
    finish(files, log.directory, base, ())
    new = Segment(files, log.directory, base)
    new.next_offset, new.gaps_below, new.touched_ms = segment.next_offset, segment.gaps_below, segment.touched_ms
    log.segments[log.segments.index(segment)] = new


def _put(log: PartitionLog, target: Segment, batch: bytes) -> None:
    target.index_batch(parse_header(batch), target.size, len(batch), log.config.index_interval_bytes)
    target.log.append(batch)
    target.size += len(batch)


def _filler(gap: Gap, least: int) -> bytes:
    first = max(gap.first_offset, least)
    template = parse_header(seal(b"", record_count=1, base_timestamp=-1, max_timestamp=-1))
    header = template._replace(
        base_offset=first, last_offset_delta=gap.next_offset - 1 - first, partition_leader_epoch=0
    )
    return rebuild(header, ())


def _copy(log: PartitionLog, segment: Segment) -> None:
    """Keep the damaged file."""
    copy = log.files.open(f"{log.directory}/{file_name(segment.base_offset, LOG)}{DAMAGED}")
    copy.truncate(0)
    for position in range(0, segment.size, _COPY_BYTES):
        copy.append(segment.log.read(position, _COPY_BYTES))
    copy.sync()
    copy.close()
