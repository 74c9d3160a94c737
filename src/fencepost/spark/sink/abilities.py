"""The sink's guarantee, and the abilities of the brokers that it follows from."""

from __future__ import annotations

from enum import Enum
from typing import Final

from fencepost.values import Value

__all__ = ["VERIFYING_VERSION", "BrokerAbilities", "Guarantee"]

VERIFYING_VERSION: Final = 4  # of AddPartitionsToTxn; brokers that have it verify transactions (KIP-890, part 1)


class Guarantee(Enum):
    """The promise of a sink about a decided batch (docs/guarantees.md)."""

    DURABLE = "durable"  # a decided batch cannot be lost: the brokers have two-phase transactions
    TIMED = "timed"  # a decided batch is lost if it is not completed within transaction.timeout.ms; the query stops

    def __str__(self) -> str:
        return f"{self.value}: {_PROMISES[self]}"


_PROMISES = {
    Guarantee.DURABLE: "a decided batch cannot be lost",
    Guarantee.TIMED: "a decided batch is lost if it is not completed within transaction.timeout.ms; the query then "
    "stops with PreparedTransactionLostError",
}


class BrokerAbilities(Value):
    """The abilities of all brokers of a cluster that decide which steps the sink takes.

    Attributes:
        two_phase: A transaction can be without a timeout (KIP-939, EnableTwoPhaseCommit).
        keeps_prepared: An open transaction can lose its timeout later (KIP-939, KeepPreparedTxn). Implies `two_phase`.
        raises_epochs: Every end of a transaction raises the epoch (KIP-890, EndTxn v5 and transaction.version 1).
    """

    two_phase: bool
    keeps_prepared: bool
    raises_epochs: bool

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee that the sink can give with these abilities."""
        return Guarantee.DURABLE if self.two_phase else Guarantee.TIMED

    @property
    def begins_two_phase(self) -> bool:
        """Return whether tasks begin their transactions without a timeout, because it cannot be removed later."""
        return self.two_phase and not self.keeps_prepared

    @property
    def must_verify(self) -> bool:
        """Return whether a batch may only go to a broker that verifies that its transaction is open.

        Where no end raises the epoch, the epoch does not keep a late batch out.
        """
        return not self.raises_epochs
