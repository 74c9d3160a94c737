"""Outcomes of past transactions, as tagged fields of DescribeTransactions carry them.

Apache Kafka does not have these fields. A request asks for them with its own tag, so only clients that know the
fields receive them.
"""

from __future__ import annotations

from enum import IntEnum

__all__ = ["Ending"]


class Ending(IntEnum):
    """Outcome of the transaction that used one (producer id, epoch) pair. The numbers are on the wire."""

    NOT_REPORTED = 0
    """The broker does not have the field, or the request did not ask for it."""
    OPEN = 1
    COMMITTED = 2
    """The commit is durable. Some of its markers may still be unwritten."""
    ABORTED = 3
    """Aborted by EndTxn, or by a producer that took over the transactional id."""
    TIMED_OUT = 4
    """Aborted by the coordinator after `transaction.timeout.ms`."""
    NEVER_BEGUN = 5
    """The coordinator gave this pair to a producer, which wrote nothing with it."""
    UNKNOWN = 6
    """The broker does not know the id or the pair, or has forgotten it."""
