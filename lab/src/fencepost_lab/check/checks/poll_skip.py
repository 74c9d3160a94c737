"""Polls skip no record: a reader that moves past a record that another reader returned has returned it too."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence

from fencepost_lab.check.history.model import COMMITTED, Anomaly, History
from fencepost_lab.check.history.operations import Poll, Read
from fencepost_lab.check.history.polls import PollStream, streams


def poll_skip(history: History) -> Iterator[Anomaly]:
    """Find offsets that a reader passed over.

    Every reader must return the records that a read_committed reader returned.
    """
    committed, everything = _offsets_read(history, COMMITTED), _offsets_read(history)
    for stream in streams(history):
        if not stream.offsets:
            continue
        known = committed if stream.isolation == COMMITTED else everything
        others = known[stream.topic, stream.partition]
        got = set(stream.offsets)
        first = stream.start if stream.start >= 0 else min(got)
        between = others[bisect_left(others, first) : bisect_right(others, max(got))]
        skipped = [offset for offset in between if offset not in got]
        if skipped:
            yield _anomaly(history, stream, skipped)


def _offsets_read(history: History, *isolations: str) -> dict[tuple[str, int], list[int]]:
    """Return the offsets read in each partition, sorted and without repetition."""
    found: defaultdict[tuple[str, int], set[int]] = defaultdict(set)
    for _, batch in history.readings(*isolations):
        found[batch.topic, batch.partition].update(batch.offsets)
    return {partition: sorted(offsets) for partition, offsets in found.items()}


def _anomaly(history: History, stream: PollStream, skipped: Sequence[int]) -> Anomaly:
    offset = skipped[0]
    after = next(poll for poll, got in zip(stream.polls, stream.offsets, strict=True) if got > offset)
    name = f"{stream.topic}-{stream.partition}"
    message = f"{stream.process} passed over offset {offset} of {name}"
    if len(skipped) > 1:
        message += f" and {len(skipped) - 1} more"
    earlier = [poll for poll, got in zip(stream.polls, stream.offsets, strict=True) if got < offset][-1:]
    start = [stream.positioned_by] if stream.positioned_by is not None and not earlier else []
    other = _reader_of(history, stream, offset)
    return Anomaly("poll_skip", message, (*start, *earlier, after, other))


def _reader_of(history: History, stream: PollStream, offset: int) -> Poll | Read:
    isolations = (COMMITTED,) if stream.isolation == COMMITTED else ()
    return next(
        reading
        for reading, batch in history.readings(*isolations)
        if (batch.topic, batch.partition) == (stream.topic, stream.partition) and offset in batch.offsets
    )
