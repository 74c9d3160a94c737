"""A prepared transaction's identity (KIP-939), as an application stores it beside its own data."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from fencepost.arguments import WHOLE_NUMBER, checked
from fencepost.errors import ConfigurationError, PreparedTransactionLostError
from fencepost.protocol.messages.describe_transactions import TransactionState

COMMITTED_STATES: Final = ("PrepareCommit", "CompleteCommit")
"""Kafka's names, as DescribeTransactions tells them."""

_TEXT = re.compile(r"([0-9]{1,19}):([0-9]{1,5})")


@dataclass(frozen=True, slots=True)
class PreparedTransaction:
    """The (producer id, epoch) that a transaction was written with. `str()` and `parse` are inverse: "123:4"."""

    producer_id: int
    epoch: int

    def __post_init__(self) -> None:
        WHOLE_NUMBER.of("producer_id", self.producer_id)
        WHOLE_NUMBER.of("epoch", self.epoch)
        if self.producer_id >= 2**63 or self.epoch >= 2**15:
            raise ConfigurationError(f"not a producer id and epoch: {self.producer_id}, {self.epoch}")

    def __str__(self) -> str:
        return f"{self.producer_id}:{self.epoch}"

    @classmethod
    @checked
    def parse(cls, text: str) -> PreparedTransaction:
        """From the text form. Raises ConfigurationError for anything else."""
        found = _TEXT.fullmatch(text)
        if found is None:
            raise ConfigurationError(f"a prepared transaction is written producer_id:epoch, not {text!r}")
        return cls(int(found[1]), int(found[2]))


def was_committed(transactional_id: str, prepared: PreparedTransaction, found: TransactionState | None) -> bool:
    """Whether `found`, what the coordinator told of the id before it was claimed anew, is `prepared`, committed.

    True, or PreparedTransactionLostError: it was not committed, or nobody can tell.
    """
    what = f"transaction {prepared} of {transactional_id!r} is not open"
    if found is None or found.error_code != 0:
        raise PreparedTransactionLostError(f"{what}, and the coordinator was not asked, or cannot tell, how it ended")
    # With transaction version 2 a commit raises the epoch.
    same = found.producer_id == prepared.producer_id and found.producer_epoch in (prepared.epoch, prepared.epoch + 1)
    if same and found.transaction_state in COMMITTED_STATES:
        return True
    raise PreparedTransactionLostError(
        f"{what} and cannot be shown to be committed: the last transaction of this id, "
        f"{found.producer_id}:{found.producer_epoch}, was in state {found.transaction_state}"
    )
