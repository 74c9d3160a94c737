"""History of a sink: the batches of the engine, the readable decisions, and the final output."""

from __future__ import annotations

from dataclasses import dataclass, field

from fencepost_lab.check.history import RecordRead

__all__ = ["BatchRecord", "DecisionRead", "SinkHistory"]


@dataclass(frozen=True, slots=True)
class BatchRecord:
    """A micro-batch and its input. `committed`: it is in the engine's commit log, so it never runs again."""

    query: str
    number: int
    values: tuple[str, ...]
    committed: bool


@dataclass(frozen=True, slots=True)
class DecisionRead:
    """A decision that `reader` found; `winners` are (transactional id, producer id, epoch)."""

    reader: str
    query: str
    number: int
    winners: tuple[tuple[str, int, int], ...]


@dataclass(slots=True)
class SinkHistory:
    """A complete run of one or more queries.

    Every value is unique.

    `reads`: the read_committed output to its end. `decisions`: in the order in which each reader found them.
    `in_doubt`: transactions still open at the end. `lost`: queries that stopped because a decided transaction was lost;
    only their last batch may be incomplete.
    """

    batches: list[BatchRecord] = field(default_factory=list)
    reads: list[RecordRead] = field(default_factory=list)
    decisions: list[DecisionRead] = field(default_factory=list)
    in_doubt: list[str] = field(default_factory=list)
    lost: set[str] = field(default_factory=set)
