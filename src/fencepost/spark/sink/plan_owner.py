"""AskOwner below transaction.version 1: one request per part of the question.

From transaction.version 1 with EndTxn v5 on, one request says who owns the sink and whether the claim has decided, and
raises the epoch (KIP-890). Before that, an aborted or empty transaction leaves the epoch as it is, so the claim could
still decide. A late AddPartitionsToTxn can also open the transaction of a decided claim again, so EndTxn does not tell
whether the claim has decided. Therefore InitProducerId with the claim's own pair raises the epoch (KIP-360), and the
decision topic says the rest.
"""

from __future__ import annotations

from typing import Final

from fencepost.protocol.codes import ErrorCode
from fencepost.spark.sink import names
from fencepost.spark.sink.decision import Pair
from fencepost.spark.sink.plan_steps import End, EndTransactions, HasDecided, Plan, UseUp

__all__ = ["ask_owner"]

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
    """Return the code that EndTxn v5(abort) with the claim would have. The claim can decide nothing afterwards.

    The code is also 90 if nobody else has claimed the sink, but its coordinator has moved: the coordinator does not
    store that it answered InitProducerId.
    """
    # Ended first: while a transaction is open, InitProducerId with a pair raises the epoch twice and is then refused.
    (code,) = yield EndTransactions((End(names.sink_id(sink), claim, commit=False),))
    if code not in _SETTLED:
        return int(code)
    refused: int = yield UseUp(sink, claim)
    if refused != ErrorCode.NONE:
        return refused
    # Read after the epoch was raised: nothing can be decided with the claim any more.
    has_decided: bool = yield HasDecided(sink, claim)
    return _OTHER_WAY if has_decided else int(ErrorCode.NONE)
