"""Plans that ask the brokers for their abilities, and VerifyClaim for brokers below transaction.version 1."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from fencepost.protocol.codes import ErrorCode, describe
from fencepost.spark.errors import GuaranteeUnavailableError
from fencepost.spark.sink import names
from fencepost.spark.sink.abilities import VERIFYING_VERSION, BrokerAbilities, Guarantee
from fencepost.spark.sink.decision import Pair
from fencepost.spark.sink.plan_steps import (
    BrokerVersions,
    BumpEpoch,
    DescribeBroker,
    EndTransactions,
    EndTxn,
    HasDecided,
    Plan,
    ProbeTwoPhase,
)

__all__ = ["ask_abilities", "check_abilities", "downgraded_error", "probe_abilities", "verify_claim"]

# The lowest versions that the sink needs.
_INIT_WITH_PAIR: Final = 3  # InitProducerId (KIP-360)
_DESCRIBE: Final = 0  # DescribeTransactions (KIP-664)
# The versions of the stronger abilities.
_END_WITH_EPOCH: Final = 5  # EndTxn (KIP-890, part 2)
_INIT_TWO_PHASE: Final = 6  # InitProducerId (KIP-939)

_NONE: Final = int(ErrorCode.NONE)
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


def ask_abilities(sink: str, required: Guarantee | None) -> Plan[BrokerAbilities]:
    """Return the abilities of the brokers.

    Raises GuaranteeUnavailableError if they do not suffice for the required guarantee, or for any.
    """
    abilities, weakness = yield from probe_abilities(sink)
    if required is Guarantee.DURABLE and abilities.guarantee is Guarantee.TIMED:
        raise GuaranteeUnavailableError(
            f"sink {sink!r}: require.guarantee=durable needs two-phase transactions (KIP-939), and {weakness}. Switch "
            "them on at the brokers (transaction.two.phase.commit.enable), or use require.guarantee=timed"
        )
    return abilities


def probe_abilities(sink: str) -> Plan[tuple[BrokerAbilities, str]]:
    """Return the abilities of the brokers, and the reason why they have no more; "" if they have all.

    Raises GuaranteeUnavailableError if they do not suffice for any guarantee.
    """
    versions: BrokerVersions = yield DescribeBroker()
    raises_epochs = versions.end_txn >= _END_WITH_EPOCH and versions.transaction_version >= 1
    if not raises_epochs:
        lacking = list(_lacking(versions))
        if lacking:
            raise GuaranteeUnavailableError(
                f"exactly-once is not possible with these brokers: {'; '.join(lacking)}. Upgrade all brokers to Kafka "
                "3.6 or newer, or write with delivery=at-least-once"
            )
        reason = f"the brokers have EndTxn v{versions.end_txn} and transaction.version {versions.transaction_version}"
        return BrokerAbilities(two_phase=False, keeps_prepared=False, raises_epochs=False), reason
    if versions.init_producer_id < _INIT_TWO_PHASE:
        reason = f"the brokers have InitProducerId v{versions.init_producer_id}, needed is v{_INIT_TWO_PHASE}"
        return BrokerAbilities(two_phase=False, keeps_prepared=False, raises_epochs=True), reason
    # 53 comes before 35: brokers that do not allow two-phase commit never check whether they can keep a transaction.
    code: int = yield ProbeTwoPhase(sink, keep_prepared=True)
    if code == _NONE:
        return BrokerAbilities(two_phase=True, keeps_prepared=True, raises_epochs=True), ""
    reason = f"the brokers answer {describe(code)} to a request to keep a prepared transaction"
    code = yield ProbeTwoPhase(sink, keep_prepared=False)
    if code == _NONE:
        return BrokerAbilities(two_phase=True, keeps_prepared=False, raises_epochs=True), reason
    reason = f"the brokers answer {describe(code)} to a request to begin a two-phase transaction"
    return BrokerAbilities(two_phase=False, keeps_prepared=False, raises_epochs=True), reason


def _lacking(versions: BrokerVersions) -> Iterator[str]:
    """Yield the abilities without which the sink could lose or double rows, or leave transactions open."""
    if versions.add_partitions_to_txn < VERIFYING_VERSION:
        yield (
            "they accept a batch after the end of its transaction (they have AddPartitionsToTxn "
            f"v{versions.add_partitions_to_txn}, and verify transactions from v{VERIFYING_VERSION} on: KIP-890)"
        )
    if versions.describe_transactions < _DESCRIBE:
        yield "they do not list and describe transactions (KIP-664)"
    if versions.init_producer_id < _INIT_WITH_PAIR:
        yield (
            f"they have InitProducerId v{versions.init_producer_id}, and the sink needs v{_INIT_WITH_PAIR} (KIP-360)"
        )


def check_abilities(sink: str, abilities: BrokerAbilities) -> Plan[None]:
    """Raise GuaranteeUnavailableError if brokers were downgraded below the abilities that a running query needs."""
    if not abilities.must_verify:
        return
    versions: BrokerVersions = yield DescribeBroker()
    lacking = list(_lacking(versions))
    if lacking:
        raise downgraded_error(sink, "; ".join(lacking))


def downgraded_error(sink: str, reason: object) -> GuaranteeUnavailableError:
    """Return the error for brokers that were downgraded under a running query."""
    return GuaranteeUnavailableError(
        f"sink {sink!r} can no longer write exactly once, because a broker was downgraded: {reason}. Nothing of the "
        "batch is decided. Upgrade all brokers to Kafka 3.6 or newer, and start the query again"
    )


def verify_claim(sink: str, claim: Pair) -> Plan[int]:
    """Return the code that EndTxn v5(abort) with the claim would have. The claim can decide nothing afterwards.

    The code is also 90 if nobody else has claimed the sink, but its coordinator has moved: the coordinator does not
    store that it answered InitProducerId.
    """
    # An abort leaves the epoch as it is, and a late AddPartitionsToTxn can open a decided claim's transaction again.
    # End it first: while a transaction is open, InitProducerId with a pair raises the epoch twice and is then refused.
    (code,) = yield EndTransactions((EndTxn(names.sink_id(sink), claim, commit=False),))
    if code not in _SETTLED:
        return int(code)
    refused: int = yield BumpEpoch(sink, claim)
    if refused != ErrorCode.NONE:
        return refused
    # Read after the epoch was raised, when the claim can no longer decide anything.
    has_decided: bool = yield HasDecided(sink, claim)
    return _OTHER_WAY if has_decided else int(ErrorCode.NONE)
