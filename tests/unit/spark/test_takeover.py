"""Ids of Flink's KafkaSink, `{prefix}-{subtask}-{checkpoint}` (FLIP-319), and what a checkpoint says about them."""

from __future__ import annotations

import pytest

from fencepost.spark.takeover import FlinkId, doubt, judge, parse_flink


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
        ("etl", f"etl-3-{'9' * 5_000}", None),
        ("etl", "etl2-3-4", None),
        ("", "-3-4", (3, 4)),
    ],
)
def test_only_whole_ids_of_the_prefix_are_taken(prefix: str, name: str, wanted: tuple[int, int] | None) -> None:
    assert parse_flink(prefix, name) == (None if wanted is None else FlinkId(name, *wanted))


def test_the_checkpoint_divides_and_numbers_are_numbers() -> None:
    ids = ["a-0-10", "a-1-9", "a-0-9", "a-0-2", "b-0-1", "a-10-9"]
    commit, abort = judge("a", ids, 9)
    assert [transaction.transactional_id for transaction in commit] == ["a-0-2", "a-0-9", "a-1-9", "a-10-9"]
    assert [transaction.transactional_id for transaction in abort] == ["a-0-10"]
    assert judge("a", ids, 1)[0] == []


@pytest.mark.parametrize(
    ("number", "checkpoint", "why"),
    [
        (0, 25, "counts its checkpoints from 1"),
        (89, 100, "would be over"),
        (90, 100, ""),
        (110, 100, ""),
        (111, 100, "begun long after"),
        (19, 25, "a checkpoint's or a pool's"),
        (20, 25, ""),
    ],
)
def test_numbers_that_may_be_of_a_pool_or_of_another_job_are_not_trusted(
    number: int, checkpoint: int, why: str
) -> None:
    """Flink counts checkpoints from 1; its pooled ids (FLIP-511) end with small numbers that are no checkpoints."""
    reported = doubt([FlinkId("a-0-100", 0, checkpoint), FlinkId(f"a-1-{number}", 1, number)], checkpoint)
    assert why in reported and bool(reported) == bool(why)
    assert not reported or f"a-1-{number}" in reported
