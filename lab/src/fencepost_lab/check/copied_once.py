"""A transactional copy of a topic contains each record of its source exactly once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from fencepost_lab.check.history import Anomaly, RecordRead

__all__ = ["copied_once"]


def copied_once(source: Iterable[str], copies: Iterable[RecordRead], separator: str) -> list[Anomaly]:
    """Find values of `source` that `copies` does not contain exactly once.

    A copy's value is the source's value, `separator`, and any text.
    """
    given = set(source)
    seen: dict[str, Counter[str]] = {}
    for read in copies:
        seen.setdefault(read.reader, Counter())[read.value.partition(separator)[0]] += 1
    found = []
    for reader, counted in seen.items() or [("nobody", Counter[str]())]:
        found += [Anomaly("copied_twice", f"{reader} read {n} copies of {v}") for v, n in counted.items() if n > 1]
        found += [Anomaly("copied_never", f"{reader} read no copy of {v}") for v in sorted(given - counted.keys())]
        found += [Anomaly("copied_of_nothing", f"{reader} read {v}") for v in sorted(counted.keys() - given)]
    return found
