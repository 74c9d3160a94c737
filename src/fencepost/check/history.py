"""What happened in a run, as its clients saw it: transactions with their outcome, and what readers read.

A history can be of the simulated world or of any Kafka; the checks in `fencepost.check.checks` judge it. Every written
value is unique in its history, so that a value names its write.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

__all__ = ["Anomaly", "History", "Outcome", "Read", "Transaction", "Write"]


class Outcome(Enum):
    """What the client was told. UNKNOWN: it died, or gave up, before it was told anything."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Write:
    """One record that a transaction sent; `acknowledged` when the broker said that it has it."""

    topic: str
    partition: int
    value: str
    acknowledged: bool = True


@dataclass(slots=True)
class Transaction:
    """One transaction of one producer. `number` counts that producer's transactions; `offsets` is group -> committed
    position.
    """

    producer: str
    number: int
    writes: list[Write] = field(default_factory=list)
    offsets: dict[str, int] = field(default_factory=dict)
    outcome: Outcome = Outcome.UNKNOWN


@dataclass(frozen=True, slots=True)
class Read:
    """One record that a reader got."""

    reader: str
    topic: str
    partition: int
    offset: int
    value: str


@dataclass(slots=True)
class History:
    """A whole run. `reads` are read_committed, in the order in which each reader got them, to the end of the log.

    `committed_offsets` holds each group's position as read at the end.
    """

    transactions: list[Transaction] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    committed_offsets: dict[str, int] = field(default_factory=dict)

    def readers(self) -> dict[str, list[Read]]:
        """Each reader's reads."""
        found: dict[str, list[Read]] = {}
        for read in self.reads:
            found.setdefault(read.reader, []).append(read)
        return found


@dataclass(frozen=True, slots=True)
class Anomaly:
    """Something that must not happen, found by the check of that name."""

    check: str
    detail: str
