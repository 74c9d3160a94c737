"""Transactions that a Flink KafkaSink left behind: which to commit, which to abort.

Its transactional ids are `{prefix}-{subtask}-{checkpoint}` (FLIP-319). What was prepared up to the checkpoint that the
job is restored from, or was stopped with, is to be committed; what is of later checkpoints is to be aborted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

__all__ = ["FlinkId", "judge", "parse_flink"]

_REST: Final = re.compile(r"(0|[1-9]\d*)-(0|[1-9]\d*)", re.ASCII)


class FlinkId(NamedTuple):
    """A transactional id of a Flink sink."""

    transactional_id: str
    subtask: int
    checkpoint: int


def parse_flink(prefix: str, transactional_id: str) -> FlinkId | None:
    """None for an id that is not of exactly this prefix: "etl" does not own what "etl-eu" has written."""
    head = f"{prefix}-"
    match = _REST.fullmatch(transactional_id[len(head) :]) if transactional_id.startswith(head) else None
    return FlinkId(transactional_id, int(match[1]), int(match[2])) if match is not None else None


def judge(prefix: str, transactional_ids: Iterable[str], checkpoint: int) -> tuple[list[FlinkId], list[FlinkId]]:
    """(to commit, to abort), each in order of checkpoint and subtask; other ids are left out."""
    found = [one for name in transactional_ids if (one := parse_flink(prefix, name)) is not None]
    found.sort(key=lambda one: (one.checkpoint, one.subtask))
    commit = [one for one in found if one.checkpoint <= checkpoint]
    return commit, found[len(commit) :]
