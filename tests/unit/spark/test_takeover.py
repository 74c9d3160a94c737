"""Ids of Flink's KafkaSink, `{prefix}-{subtask}-{checkpoint}` (FLIP-319), and what a checkpoint says about them."""

from __future__ import annotations

import pytest

from fencepost.spark.takeover import FlinkId, judge, parse_flink


@pytest.mark.parametrize(
    ("prefix", "name", "wanted"),
    [
        ("etl", "etl-0-12", (0, 12)),
        ("etl-eu", "etl-eu-3-4", (3, 4)),
        ("etl", "etl-eu-3-4", None),
        ("etl", "etl-1-3-4", None),
        ("etl-1", "etl-1-3-4", (3, 4)),
        ("etl", "etl-03-4", None),
        ("etl", "etl-3-\u0664", None),
        ("etl", "etl-3", None),
        ("etl", "etl2-3-4", None),
        ("", "-3-4", (3, 4)),
    ],
)
def test_only_whole_ids_of_the_prefix_are_taken(prefix: str, name: str, wanted: tuple[int, int] | None) -> None:
    assert parse_flink(prefix, name) == (None if wanted is None else FlinkId(name, *wanted))


def test_the_checkpoint_divides_and_numbers_are_numbers() -> None:
    ids = ["a-0-10", "a-1-9", "a-0-9", "a-0-2", "b-0-1", "a-10-9"]
    commit, abort = judge("a", ids, 9)
    assert [one.transactional_id for one in commit] == ["a-0-2", "a-0-9", "a-1-9", "a-10-9"]
    assert [one.transactional_id for one in abort] == ["a-0-10"]
    assert judge("a", ids, 1)[0] == []
