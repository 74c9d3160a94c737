"""A short version of `python -m tests.support.kill_rounds`: kill -9 under load loses, doubles and tears nothing."""

from __future__ import annotations

import pytest

from fencepost_lab.check.history import Outcome
from tests.support.kill_rounds import run


@pytest.mark.parametrize(("fsync", "rounds"), [("commit", 8), ("never", 6)])
def test_what_was_told_is_there_after_every_kill(fsync: str, rounds: int) -> None:
    summary = run(rounds, seed=20 + rounds, fsync=fsync)
    assert summary.anomalies == []
    assert summary.rounds == rounds
    assert summary.transactions[Outcome.COMMITTED] > 20 and summary.records_read > 20
    assert summary.verified.batches > 10
