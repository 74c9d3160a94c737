"""Whose is the sink, and has this claim decided: the question where an abort does not use a claim up.

From transaction.version 1 with EndTxn v5 on one request answers both and raises the epoch (KIP-890). Before that, an
aborted or empty transaction leaves the epoch as it is, so that the claim could still decide; and a late
AddPartitionsToTxn can open the transaction of a decided claim again, so that EndTxn does not tell what was decided.
There the epoch is raised by InitProducerId with the claim's own pair (KIP-360), and the decisions say the rest.
"""

from __future__ import annotations

from typing import Final

from fencepost.protocol.codes import ErrorCode
from fencepost.spark.sink import names
from fencepost.spark.sink.decision import Pair
from fencepost.spark.sink.plan_steps import End, EndTransactions, HasDecided, Plan, UseUp

__all__ = ["ask_by_fencing", "ask_owner"]

_OTHER_WAY: Final = int(ErrorCode.INVALID_TXN_STATE)
_SETTLED: Final = frozenset(
    int(code)
    for code in (
        ErrorCode.NONE,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
    )
)


def ask_owner(sink: str, claim: Pair) -> Plan[int]:
    """What EndTxn v5(abort) with the claim would be answered; the claim is used up by it.

    90 also where nobody else has claimed: the coordinator forgets what was asked when it moves.
    """
    # Ended first: InitProducerId with a pair raises the epoch twice while a transaction is open, and is then refused.
    (code,) = yield EndTransactions((End(names.sink_id(sink), claim, commit=False),))
    if code not in _SETTLED:
        return int(code)
    return (yield from ask_by_fencing(sink, claim))


def ask_by_fencing(sink: str, claim: Pair) -> Plan[int]:
    """As ask_owner, where a partition may take a batch whose transaction is over; with any release (Level.fences).

    There EndTxn would let a late decision in behind it. InitProducerId leaves a marker of the next epoch where a
    transaction is open, and is then refused: 90 also where nobody else has claimed.
    """
    refused: int = yield UseUp(sink, claim)
    if refused != ErrorCode.NONE:
        return refused
    # Read after the epoch was raised: nothing can be decided with the claim any more.
    has_decided: bool = yield HasDecided(sink, claim)
    return _OTHER_WAY if has_decided else int(ErrorCode.NONE)
