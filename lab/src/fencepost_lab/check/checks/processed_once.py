"""A group that sends one output for each input has exactly one output for each input before its position.

Its outputs are the sends with its name as `group` and the input as `source`. It reads its inputs from the first record
on.
"""

from __future__ import annotations

from collections.abc import Iterator

from fencepost_lab.check.history.model import COMMITTED, Anomaly, History
from fencepost_lab.check.history.operations import NEVER, OffsetsFetch, Operation, Position, Read, Send

SendsBySource = dict[Position, list[Send]]


def processed_once(history: History) -> Iterator[Anomaly]:
    """Find inputs with two outputs or none."""
    outputs: dict[str, SendsBySource] = {}
    targets: dict[str, set[tuple[str, int]]] = {}
    for send in history.of(Send):
        if send.group and send.source is not None:
            by_source = outputs.setdefault(send.group, {})
            if send.partition >= 0:
                targets.setdefault(send.group, set()).add((send.topic, send.partition))
            if send.value in history.committed:
                by_source.setdefault(send.source, []).append(send)
    for group, by_source in outputs.items():
        for source, sends in by_source.items():
            if len(sends) > 1:
                values = " and ".join(repr(send.value) for send in sends)
                shown = (*sends, *(history.committed[send.value].operation for send in sends))
                yield Anomaly("processed_once", f"group {group} made {values} of {source}", shown)
        yield from _missing(history, group, by_source, targets.get(group, set()))


def _missing(history: History, group: str, sends: SendsBySource, targets: set[tuple[str, int]]) -> Iterator[Anomaly]:
    """Find inputs before the group's last known position that have no output in complete reads of the targets."""
    fetched = max(
        (fetched for fetched in history.of(OffsetsFetch) if fetched.ok and fetched.group == group),
        key=lambda fetched: fetched.invoked,
        default=None,
    )
    if fetched is None:
        return
    reads = [_last_read(history, target) for target in targets]
    if any(read is None or read.invoked < fetched.completed for read in reads):
        return  # the outputs may have been written after the read
    for topic, partition, end in fetched.offsets:
        for offset, by in _inputs(history, topic, partition):
            source = Position(topic, partition, offset)
            if offset < end and source not in sends:
                message = f"group {group} is at {Position(topic, partition, end)}, and nothing was made of {source}"
                shown: list[Operation] = [by, fetched, *(read for read in reads if read is not None)]
                yield Anomaly("processed_once", message, tuple(shown))


def _last_read(history: History, target: tuple[str, int]) -> Read | None:
    reads = [read for read in history.complete_reads.get(target, []) if read.start == 0]
    return max(reads, key=lambda read: read.invoked, default=None)


def _inputs(history: History, topic: str, partition: int) -> Iterator[tuple[int, Operation]]:
    last = _last_read(history, (topic, partition))
    if last is None or last.completed == NEVER or last.isolation != COMMITTED:
        return
    for batch in last.records:
        for offset in batch.offsets:
            yield offset, last
