"""Decide which open transactions of a Flink KafkaSink to commit and which to abort.

The sink's transactional ids are `{prefix}-{subtask}-{checkpoint}` (FLIP-319). Transactions up to the checkpoint that
the job is restored from, or was stopped with, must be committed. Transactions of later checkpoints must be aborted.

This holds for TransactionNamingStrategy.INCREMENTING, Flink's default. With POOLING the last number is the smallest
free one. Then only the state in the savepoint has the transactions to commit, and only Flink can read it: see `doubt`
and POOLED.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

__all__ = ["POOLED", "FlinkId", "doubt", "judge", "parse_flink"]

_REST: Final = re.compile(r"(0|[1-9]\d{0,18})-(0|[1-9]\d{0,18})", re.ASCII)
PLAUSIBLE: Final = 10  # in checkpoints; Flink ends a transaction after its checkpoint or after one of the next
POOL_MOST: Final = 20  # numbers below this may be a pool's
POOLED: Final = (
    "Ids of TransactionNamingStrategy.POOLING name no checkpoint; only Flink can read from its savepoint which of them "
    "to commit. Start the job from the savepoint, stop it with a new one, and take over from the new one. Abort the "
    "transactions that are still open then (`transactions list --prefix`, `transactions abort ID`)"
)


class FlinkId(NamedTuple):
    """A transactional id of a Flink sink. `checkpoint` is the number at its end."""

    transactional_id: str
    subtask: int
    checkpoint: int


def parse_flink(prefix: str, transactional_id: str) -> FlinkId | None:
    """Parse a transactional id. Returns None if its prefix is another, even a longer one such as "etl-eu" for "etl"."""
    head = f"{prefix}-"
    match = _REST.fullmatch(transactional_id[len(head) :]) if transactional_id.startswith(head) else None
    return FlinkId(transactional_id, int(match[1]), int(match[2])) if match is not None else None


def doubt(found: Iterable[FlinkId], checkpoint: int) -> str:
    """Return the reason why the numbers may not be checkpoint numbers; "" if there is no doubt."""
    for flink_id in found:
        if flink_id.checkpoint == 0:
            return f"{flink_id.transactional_id!r} ends with 0, and Flink counts its checkpoints from 1"
        if flink_id.checkpoint < checkpoint - PLAUSIBLE:
            return f"{flink_id.transactional_id!r} is far from checkpoint {checkpoint}: its transaction would be over"
        if flink_id.checkpoint > checkpoint + PLAUSIBLE:
            return f"{flink_id.transactional_id!r} is far from checkpoint {checkpoint}: it would have begun long after"
        if flink_id.checkpoint < POOL_MOST:
            return f"{flink_id.transactional_id!r} ends with a small number, which could be a checkpoint's or a pool's"
    return ""


def judge(prefix: str, transactional_ids: Iterable[str], checkpoint: int) -> tuple[list[FlinkId], list[FlinkId]]:
    """Return the ids to commit and the ids to abort, each sorted by checkpoint and subtask. Other ids are left out."""
    found = [flink_id for name in transactional_ids if (flink_id := parse_flink(prefix, name)) is not None]
    found.sort(key=lambda flink_id: (flink_id.checkpoint, flink_id.subtask))
    commit = [flink_id for flink_id in found if flink_id.checkpoint <= checkpoint]
    return commit, found[len(commit) :]
