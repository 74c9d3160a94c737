"""Base offsets that no CRC covers: each batch of a compacted segment gets each other base offset."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest

from fencepost.broker.log.batch_walk import ANYWHERE, BatchWalk, IntactBatch, SegmentBounds
from fencepost_lab.check.disk import MemoryDisk
from tests.support.batches import batch
from tests.support.damage_cases import is_in_order, suspects

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
    checked = ambiguous = 0
    for true_bases in itertools.combinations(range(END), len(counts)):
        if not is_in_order(placed(counts, true_bases), 0, END):
            continue
        for number, wrong in itertools.product(range(len(counts)), range(END + 4)):
            bases = [*true_bases[:number], wrong, *true_bases[number + 1 :]]
            found = suspects(placed(counts, bases), 0, END)
            if not found:
                continue  # as stored, or moved within a gap, which nothing tells
            if number == len(counts) - 1 and wrong == bases[-2] + counts[-2]:
                continue  # read, because a file that was cut ends so; the rest is reported as missing
            assert number in found
            expected = {other: true_bases[other] for other in range(len(counts)) if other not in found}
            assert read(counts, bases) == expected, (true_bases, bases)
            checked += 1
            ambiguous += len(found) > 1
    assert checked > 1000 and ambiguous > 50


def placed(counts: Sequence[int], bases: Sequence[int]) -> list[range]:
    """Return the offsets of the batches."""
    return [range(base, base + count) for count, base in zip(counts, bases, strict=True)]
