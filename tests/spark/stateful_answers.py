"""The records that the queries of stateful.py read and write, by the definition of their operators."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

WINDOW_S = 10
LATENESS_S = 60
START_S, SECONDS = 1_600_000_000, 600
LATE_S = 3600  # two records so much later push the watermark over all windows
EVENTS = [*range(SECONDS), SECONDS + LATE_S, SECONDS + LATE_S + 1]

QUERIES = ("windows", "pairs", "outer", "within", "function with state", "processor")


def expected(query: str, events: Sequence[int] = EVENTS) -> Counter[str]:
    """The records that the query writes, as "key value". The last two of `events` end everything that came before."""
    past, all_tens = events[:-2], {number // WINDOW_S for number in events[:-2]}
    in_ten = {ten: sum(number // WINDOW_S == ten for number in past) for ten in all_tens}
    found: dict[str, list[str]] = {
        "windows": [f"window {START_S + ten * WINDOW_S} {count}" for ten, count in in_ten.items()],
        "pairs": [f"pair {number}" for number in events],
        "outer": [f"outer {number} {number}" for number in events if number % 2 == 0]
        + [f"outer {number} alone" for number in past if number % 2],
        "within": [f"within {half}" for half in {number // 2 for number in events}],
        "function with state": [f"counted {ten} {count}" for ten, count in in_ten.items()],
        "processor": [f"counted {ten} {count}" for ten, count in in_ten.items()],
    }
    return Counter(found[query])
