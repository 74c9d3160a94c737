"""Our clients with a broker that sends wrong responses: they end with a KafkaError or without one, and do nobody harm.

Long runs: `python -m tests.support.fuzz clients --seed 1 --minutes 15`.
"""

from __future__ import annotations

import pytest

from fencepost.client.admin import items
from tests.support.fuzz.client_side import administer
from tests.support.fuzz.runs import mutate_responses

SEEDS = range(3, 9)


@pytest.mark.slow
def test_no_lie_does_harm() -> None:
    report = mutate_responses(1, applications=30)
    ends = [what for what in report.happened if what.endswith(("Error", "done"))]
    assert len(ends) > 5
    mutations = {
        "damaged",
        "twisted",
        "made up",
        "in another version",
        "of another request",
        "of another size",
        "never",
    }
    assert mutations <= report.happened.keys()
    assert report.transactions > 20


def test_an_answer_that_is_believed_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    # An answer without the item that was asked for is a protocol error; here it is what an unguarded look-up raises.
    monkeypatch.setattr(items, "ProtocolError", IndexError)

    def found(seed: int) -> str:
        try:
            mutate_responses(seed, applications=30, only=[administer])
        except AssertionError as harm:
            return str(harm)
        return ""

    assert any("IndexError" in found(seed) for seed in SEEDS)  # who meets an empty list depends on who answers first
