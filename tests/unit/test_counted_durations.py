"""Durations for people."""

from __future__ import annotations

import pytest

from fencepost.counted import duration_words

SHOWN = {
    -5: "0 s",
    0: "0 s",
    0.4: "0 s",
    850: "850 ms",
    999.6: "1 s",
    1_500: "1.5 s",
    1_960: "2 s",
    9_949: "9.9 s",
    9_950: "10 s",
    42_400: "42 s",
    59_600: "1 min",
    605_000: "10 min 5 s",
    3_599_600: "1 h",
    3 * 3_600_000 + 59_000: "3 h",
    90 * 60_000: "1 h 30 min",
    49 * 3_600_000: "2 d 1 h",
    48 * 3_600_000: "2 d",
}


@pytest.mark.parametrize("ms", SHOWN)
def test_a_duration_has_at_most_two_units(ms: float) -> None:
    assert duration_words(ms) == SHOWN[ms]
