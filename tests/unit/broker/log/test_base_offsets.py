"""Base offsets that no CRC covers: each batch of a compacted segment gets each other base offset."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest

from fencepost.broker.log.batch_walk import ANYWHERE, BatchWalk, IntactBatch, SegmentBounds
from fencepost_lab.check.disk import MemoryDisk
from tests.support.batches import batch

END = 9
"""The segment's last offset is END - 1, as its neighbours say."""


def read(counts: Sequence[int], bases: Sequence[int]) -> dict[int, int]:
    """Return the base offsets at which the walk reads the batches, by their number in the file."""
    batches = [batch(*(b"%d" % number for number in range(count))) for count in counts]
    stored = [base.to_bytes(8) + data[8:12] + bytes(4) + data[16:] for base, data in zip(bases, batches, strict=True)]
    starts = dict(zip(itertools.accumulate(map(len, stored[:-1]), initial=0), itertools.count(), strict=False))
    disk = MemoryDisk(durable=False)
    file = disk.open("segment")
    file.append(b"".join(stored))
    walk = BatchWalk(file, "segment", file.size(), SegmentBounds(0, END, ANYWHERE))
    found = [item for item in walk.items(0, 0) if isinstance(item, IntactBatch)]
    return {starts[item.position]: item.header.base_offset for item in found}


@pytest.mark.parametrize("counts", [(1, 1, 1, 1), (2, 1, 1, 1), (1, 2, 1, 1), (1, 1, 2, 1), (1, 1, 1, 2)], ids=str)
def test_a_batch_is_read_unless_it_may_be_the_damaged_one(counts: tuple[int, ...]) -> None:
    """A batch may be the damaged one if another base offset of it alone would put the segment in order."""
    checked = ambiguous = 0
    for true_bases in possible(counts):
        for number, wrong in itertools.product(range(len(counts)), range(END + 4)):
            bases = [*true_bases[:number], wrong, *true_bases[number + 1 :]]
            if fits(counts, bases):
                continue  # as stored, or moved within a gap, which nothing tells
            if number == len(counts) - 1 and wrong == bases[-2] + counts[-2]:
                continue  # read, because a file that was cut ends so; the rest is reported as missing
            suspects = {
                other
                for other in range(len(counts))
                if any(fits(counts, [*bases[:other], base, *bases[other + 1 :]]) for base in range(END))
            }
            assert number in suspects
            expected = {other: true_bases[other] for other in range(len(counts)) if other not in suspects}
            assert read(counts, bases) == expected, (true_bases, bases)
            checked += 1
            ambiguous += len(suspects) > 1
    assert checked > 1000 and ambiguous > 50


def possible(counts: Sequence[int]) -> list[list[int]]:
    """Return all base offsets that the batches of a segment may have."""
    return [list(bases) for bases in itertools.combinations(range(END), len(counts)) if fits(counts, bases)]


def fits(counts: Sequence[int], bases: Sequence[int]) -> bool:
    """Return true if the batches are in order, with gaps anywhere but at the segment's end."""
    ends = [base + count for base, count in zip(bases, counts, strict=True)]
    return ends[-1] == END and all(end <= base for end, base in zip(ends, bases[1:], strict=False))
