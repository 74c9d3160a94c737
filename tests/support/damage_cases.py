"""The cases of the damage campaign: a file, a byte, a kind of damage, and the steps that follow."""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from fencepost.protocol.records.batch import iter_batches

__all__ = ["KINDS", "ROUTES", "STOPS", "Case", "Hit", "cases", "hit_of", "is_in_order", "ordered", "suspects"]

_OFFSET_BYTES = 8
KINDS = ("flip", "zero", "cut", "double")
ROUTES = ("fetch", "compact", "retain", "repair")
"""The step that meets the damage first."""
STOPS = ("stop", "kill")
_ABOUT = {
    "compacted": "keys-0/",
    "scanned": "paid-0/",
    "announced": "keys-0/",
    "cleaned": "keys-0/",
    "doomed": "-delete/",
}
"""The damaged files of a directory that differs from another directory in these files only."""


class Case(NamedTuple):
    """One byte of one file of one directory, its damage, and the steps that follow. `bit` is used by "flip" only."""

    image: str
    path: str
    byte: int
    kind: str
    bit: int = 0
    stop: str = "kill"
    route: str = "fetch"

    def applied(self, data: bytes) -> bytes | None:
        """Return the damaged file; None when this kind changes nothing there."""
        at = self.byte
        if self.kind == "flip":
            return data[:at] + bytes([data[at] ^ (1 << self.bit)]) + data[at + 1 :]
        if self.kind == "zero":
            return data[:at] + b"\0" + data[at + 1 :] if data[at] else None
        if self.kind == "cut":
            return data[:at]
        return data[: at + 1] + data[at : at + 1] + data[at + 1 :]

    @property
    def topic(self) -> str:
        """The topic whose partition the file belongs to; empty for the files beside the partitions."""
        directory = self.path.rpartition("/")[0]
        return directory.rpartition("-")[0] if not directory.endswith("-delete") else ""

    @property
    def stratum(self) -> tuple[str, ...]:
        """Everything but the byte: directory, kind of file, kind of damage, way of stopping, first step."""
        return self.image, re.sub(r"[0-9a-f-]{20,}", "N", self.path), self.kind, self.stop, self.route


class Hit(NamedTuple):
    """The offsets of its topic that a case destroys, and whether a marker is among them."""

    offsets: frozenset[int]
    marker: bool = False


def cases(found: Mapping[str, Mapping[str, bytes]], rng: random.Random, share: float = 1.0) -> Iterator[Case]:
    """Yield a case for each byte of each log and each kind of damage, and one for each byte of each other file. One bit
    of each byte flips. Stop and first step are drawn. Of a directory in which a kill interrupted something, only the
    files that it concerns are damaged."""
    for image, files in found.items():
        about = _ABOUT.get(image, "")
        for path, data in sorted(files.items()):
            for byte in range(len(data) if about in path else 0):
                for kind in KINDS if ".log" in path else (rng.choice(KINDS),):
                    case = Case(image, path, byte, kind, rng.randrange(8), rng.choice(STOPS), rng.choice(ROUTES))
                    if (share >= 1 or rng.random() < share) and case.applied(data) is not None:
                        yield case


def ordered(every: Iterable[Case], rng: random.Random) -> list[Case]:
    """Return the cases in an order that meets each stratum once before any stratum comes again."""
    strata: dict[tuple[str, ...], list[Case]] = defaultdict(list)
    for case in every:
        strata[case.stratum].append(case)
    left = list(strata.values())
    for stratum in left:
        rng.shuffle(stratum)
    found: list[Case] = []
    while left:
        rng.shuffle(left)
        found += [stratum.pop() for stratum in left]
        left = [stratum for stratum in left if stratum]
    return found


def hit_of(case: Case, data: bytes) -> Hit:
    """Return the batches that the damage touches, and a neighbour that may as well be the damaged one."""
    if not case.path.endswith((".log", ".log.swap")):
        return Hit(frozenset())
    position, marker, touched = 0, False, set[int]()
    stored: list[range] = []
    moved: tuple[int, range] | None = None
    for header, view in iter_batches(data):
        end = position + len(view)
        stored.append(range(header.base_offset, header.last_offset + 1))
        if end > case.byte and (position <= case.byte or case.kind == "cut"):
            touched.add(len(stored) - 1)
            marker = marker or header.is_control
            if case.kind in ("flip", "zero") and case.byte < position + _OFFSET_BYTES:
                base = int.from_bytes((case.applied(data) or data)[position : position + _OFFSET_BYTES])
                moved = (len(stored) - 1, range(base, base + len(stored[-1])))
        position = end
    if moved is not None:
        stored_now = [*stored[: moved[0]], moved[1], *stored[moved[0] + 1 :]]
        touched |= suspects(stored_now, int(case.path.rpartition("/")[2].partition(".")[0]), stored[-1].stop)
    return Hit(frozenset(offset for number in touched for offset in stored[number]), marker)


def suspects(batches: Sequence[range], first: int, end: int) -> set[int]:
    """Return the numbers of the batches of a segment that may be the ones with a damaged base offset.

    Another base offset of such a batch alone would put the segment in order. A segment that is in order has none.
    """
    if is_in_order(batches, first, end):
        return set()
    return {
        number
        for number, batch in enumerate(batches)
        if any(
            is_in_order([*batches[:number], range(base, base + len(batch)), *batches[number + 1 :]], first, end)
            for base in range(first, end)
        )
    }


def is_in_order(batches: Sequence[range], first: int, end: int) -> bool:
    """Return true if the offsets of batches ascend from `first`, with gaps anywhere but at the segment's end."""
    places = [range(first, first), *batches]
    return batches[-1].stop == end and all(before.stop <= behind.start for before, behind in pairwise(places))
