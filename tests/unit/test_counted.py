"""Numbers agree with their nouns and verbs."""

from __future__ import annotations

import pytest

from fencepost.counted import agreeing, counted_noun, noun_for, share_has


@pytest.mark.parametrize(
    ("noun", "plural"),
    [("record", "records"), ("batch", "batches"), ("entry", "entries"), ("day", "days"), ("anomaly", "anomalies")],
)
def test_nouns(noun: str, plural: str) -> None:
    assert [noun_for(count, noun) for count in (0, 1, 2)] == [plural, noun, plural]


def test_verbs() -> None:
    assert [counted_noun(count, "offset", "wait") for count in (0, 1, 2)] == [
        "0 offsets wait",
        "1 offset waits",
        "2 offsets wait",
    ]
    assert [agreeing(count, "are") for count in (0, 1, 2)] == ["are", "is", "are"]
    assert [share_has(count, 3, "record") for count in (1, 2)] == ["1 of 3 records has", "2 of 3 records have"]
