"""Compare a batch that Spark's own sink has begun with the records of the output topic, row by row.

A row is represented by the XXH64 of its topic, key, value and headers, as in the sink's decisions. The checkpoint has
the time at which Spark planned the batch, and every record has a timestamp. The rows of the batch are therefore *after*
that time. Clocks differ: records shortly before that time (*around*) may belong to this batch or to an earlier one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from fencepost.counted import agreeing, counted_noun
from fencepost.spark.adoption.verdict import BatchVerdict
from fencepost.spark.sink.content import Hashes

__all__ = ["OutputTail", "Rows", "compare", "missing", "without_rows"]

_NONE: Final = np.empty(0, np.uint64)


@dataclass(frozen=True, eq=False)
class Rows:
    """The distinct row checksums in ascending order (`hashes`), and the number of rows with each (`counts`)."""

    hashes: Hashes
    counts: npt.NDArray[np.int64]

    @classmethod
    def of(cls, parts: Sequence[Hashes]) -> Rows:
        """Count equal checksums. `parts` have one checksum for each row, in any order."""
        hashes, counts = np.unique(np.concatenate([_NONE, *parts]), return_counts=True)
        return cls(hashes, counts.astype(np.int64))

    @property
    def total(self) -> int:
        """The number of rows."""
        return int(self.counts.sum())

    def counts_of(self, other: Rows) -> npt.NDArray[np.int64]:
        """Return, for each checksum of `other` in its order, the number of such rows in this object."""
        found = np.zeros(len(other.hashes), np.int64)
        _, here, there = np.intersect1d(self.hashes, other.hashes, assume_unique=True, return_indices=True)
        found[there] = self.counts[here]
        return found


@dataclass(frozen=True, eq=False)
class OutputTail:
    """The end of the output topics.

    Attributes:
        after: Records whose timestamp is not before the time at which the batch was planned.
        around: Records from the interval before that time, which is as long as clocks may differ.
        deleted: Partitions whose records of that time may have been deleted, as "topic-0".
        keeps_all: True if no topic is compacted. False also if a topic's settings cannot be read.
    """

    after: Rows
    around: Rows
    deleted: tuple[str, ...] = ()
    keeps_all: bool = True


def compare(batch: Rows, tail: OutputTail, *, others_write: bool) -> tuple[BatchVerdict, str]:
    """Return the verdict about a begun batch, and the reason in words.

    Args:
        batch: The batch's rows, as the query computes them.
        tail: The end of the output topics.
        others_write: True if other programs write to the topics, and none of their rows equals a row of the batch.
    """
    if batch.total == 0:
        return BatchVerdict.NOTHING, "it has no rows"
    after, around = tail.after.counts_of(batch), tail.around.counts_of(batch)
    present = int(np.minimum(after, batch.counts).sum())
    foreign = tail.after.total - int(after.sum())
    early = int(around.sum())
    if foreign and not others_write:
        return BatchVerdict.UNDECIDED, (
            f"{counted_noun(foreign, 'record', 'were')} written since the batch was planned and "
            f"{agreeing(foreign, 'are')} not among its rows. Either other "
            "programs write to the topic as well (then say --other-writers), or the query makes other rows each time, "
            "or was changed since, and cannot be compared"
        )
    if present == batch.total:
        more = int(np.maximum(after - batch.counts, 0).sum())
        again = (
            f"; {counted_noun(more, 'record')} more {agreeing(more, 'are')} equal to rows of it, as "
            "repeated tasks leave them"
            if more
            else ""
        )
        return BatchVerdict.WHOLE, f"all of its {counted_noun(batch.total, 'row', 'are')} in the output{again}"
    if present:
        absent = batch.total - present
        words = (
            f"{present} of its {counted_noun(batch.total, 'row')} {agreeing(present, 'are')} in the output, "
            f"and {absent} {agreeing(absent, 'are')} not"
        )
        doubtful = int(around[after < batch.counts].sum())
        if doubtful:
            early_ones = (
                f"they include {counted_noun(doubtful, 'record')} from shortly before it was planned (--clocks-within)"
            )
            return BatchVerdict.UNDECIDED, f"{words}, unless {early_ones}"
        verdict, words = _absent(tail, words)
        return (BatchVerdict.PARTLY if verdict is BatchVerdict.NOTHING else verdict), words
    if early:
        return BatchVerdict.UNDECIDED, (
            f"{counted_noun(early, 'record')} from shortly before the batch was planned {agreeing(early, 'are')} equal "
            "to rows of it: rows of an earlier "
            "batch, or the clocks differ. If they do not differ so much, say --clocks-within with a shorter time"
        )
    return _absent(tail, f"none of its {counted_noun(batch.total, 'row')} is in the output")


def missing(hashes: Hashes, after: Rows) -> npt.NDArray[np.bool_]:
    """Return a mask of the batch's rows that `after` lacks. Of equal rows it marks as many as are missing."""
    order = np.argsort(hashes, kind="stable")
    batch = Rows.of([hashes])
    before = np.concatenate([np.zeros(1, np.int64), np.cumsum(batch.counts)[:-1]]) if len(hashes) else batch.counts
    rank = np.arange(len(hashes)) - np.repeat(before, batch.counts)
    lacks = np.zeros(len(hashes), np.bool_)
    lacks[order] = rank >= np.repeat(after.counts_of(batch), batch.counts)
    return lacks


def without_rows(tail: OutputTail) -> tuple[BatchVerdict, str]:
    """Return the verdict about a batch whose rows are not known, and the reason in words."""
    if tail.after.total + tail.around.total == 0:
        return _absent(tail, "nothing was written to the output since it was planned")
    if tail.after.total == 0:
        return BatchVerdict.UNDECIDED, (
            "nothing was written to the output since it was planned, but "
            f"{counted_noun(tail.around.total, 'record')} shortly before: "
            "rows of an earlier batch, or the clocks differ. If they do not differ so much, say --clocks-within with a "
            "shorter time"
        )
    return BatchVerdict.UNDECIDED, (
        f"{counted_noun(tail.after.total, 'record', 'were')} written to the output since it was planned, and "
        f"{tail.around.total} shortly "
        "before, and the rows of the batch are not known"
    )


def _absent(tail: OutputTail, words: str) -> tuple[BatchVerdict, str]:
    if tail.deleted:
        some = ", ".join(tail.deleted[:5])
        return BatchVerdict.UNDECIDED, f"{words}, but records of that time may have been deleted from {some}"
    if not tail.keeps_all and tail.after.total:
        return BatchVerdict.UNDECIDED, f"{words}, but a topic is compacted, or its cleanup.policy may not be seen"
    return BatchVerdict.NOTHING, words
