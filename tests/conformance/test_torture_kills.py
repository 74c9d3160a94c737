"""A short version of `python -m tests.support.torture --only-kills`: acknowledged records survive every kill."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.torture.__main__ import run


@pytest.mark.parametrize(
    ("fsync", "client"), [("commit", "fencepost"), ("commit", "confluent"), ("never", "fencepost")]
)
def test_acknowledged_records_survive_every_kill(fsync: str, client: str, tmp_path: Path) -> None:
    lines: list[str] = []
    anomalies, happened = run(0.5, 28, tmp_path, lines.append, fsync=fsync, client=client, only_kills=True)
    assert anomalies == [], lines
    assert happened["kill-broker"] >= 3
    assert happened["transactions committed"] > 20 and happened["records read"] > 20
    assert happened["batches checked after the last kill"] > 10 and happened["compactions"] > 0
