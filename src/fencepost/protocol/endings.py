"""The answers to "how did this transaction end?", as they travel in tagged fields of DescribeTransactions.

No Apache Kafka has these fields. A request asks for them with a tag of its own, so only clients that know the fields
get them.
"""

from __future__ import annotations

from enum import IntEnum

__all__ = ["Ending"]


class Ending(IntEnum):
    """How the transaction ended that was written with one (producer id, epoch) pair. The numbers are on the wire."""

    NOT_TOLD = 0
    """The broker does not have the field, or was not asked."""
    OPEN = 1
    COMMITTED = 2
    """The commit is durable; its last markers may still be on their way."""
    ABORTED = 3
    """By EndTxn, or by a producer that took over the transactional id."""
    TIMED_OUT = 4
    """Aborted by the coordinator because `transaction.timeout.ms` was over."""
    NEVER_BEGUN = 5
    """The pair was given out for the transactional id, and nothing was written with it."""
    UNKNOWN = 6
    """The id or the pair is unknown, or forgotten."""
