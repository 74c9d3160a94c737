"""Which guarantee the brokers allow, and that they go on allowing it."""

from __future__ import annotations

from typing import Final

from fencepost.protocol.codes import ErrorCode, describe
from fencepost.spark.errors import LevelUnavailableError
from fencepost.spark.sink.plan_steps import BrokerOffer, DescribeBroker, Level, Plan, ProbeTwoPhase

__all__ = ["check_level", "choose_level", "no_longer"]

_OLDEST_INIT_PRODUCER_ID: Final = 3  # with a pair: KIP-360

_NONE: Final = int(ErrorCode.NONE)


def choose_level(sink: str, required: Level | None) -> Plan[Level]:
    """The strongest level the brokers offer. LevelUnavailableError when it is below `required`, or none is safe."""
    offer: BrokerOffer = yield DescribeBroker()
    level = Level.RESUME
    why = f"InitProducerId goes up to v{offer.init_producer_id_max}, two-phase commit needs v6"
    if not offer.bumps_epochs:
        why = (
            f"they have EndTxn v{offer.end_txn_max} and transaction.version {offer.transaction_version}; the stronger "
            "levels need v5 and 1 (Kafka 4.0 or newer, finalized)"
        )
        if offer.init_producer_id_max < _OLDEST_INIT_PRODUCER_ID:
            raise LevelUnavailableError(
                f"the sink needs InitProducerId v{_OLDEST_INIT_PRODUCER_ID} (KIP-360, Kafka 2.5 or newer), they have "
                f"v{offer.init_producer_id_max}"
            )
        level = Level.RESUME_V1
        if not offer.verifies:
            level = Level.RESUME_UNVERIFIED
            why += (
                "; and they take a batch that comes after its transaction, which Kafka 3.6 or newer refuses (KIP-890, "
                f"with AddPartitionsToTxn v4; they have v{offer.add_partitions_max})"
            )
        if not offer.shows_transactions:
            level = Level.RESUME_UNLISTED
            why += "; and they do not list transactions (KIP-664, Kafka 3.0)"
    elif offer.init_producer_id_max >= 6:
        # 53 before 35: where two-phase commit is not allowed, the question whether it can be kept is not reached.
        code: int = yield ProbeTwoPhase(sink, keep_prepared=True)
        if code == _NONE:
            return Level.KEEP_PREPARED
        why = f"keeping a prepared transaction was answered {describe(code)}"
        code = yield ProbeTwoPhase(sink, keep_prepared=False)
        if code == _NONE:
            level = Level.TWO_PHASE
        else:
            why += f", two-phase commit {describe(code)}"
    if required is not None and level.rank < required.rank:
        raise LevelUnavailableError(f"level {required.value!r} is required, the brokers offer {level.value!r}: {why}")
    return level


def check_level(sink: str, level: Level) -> Plan[None]:
    """LevelUnavailableError when brokers were taken back below the level that a running query has."""
    if not level.must_verify:
        return
    offer: BrokerOffer = yield DescribeBroker()
    if not offer.verifies:
        has = offer.add_partitions_max
        raise no_longer(sink, level, f"one has AddPartitionsToTxn v{has}, needed is v4 (Kafka 3.6 or newer)")


def no_longer(sink: str, level: Level, why: object) -> LevelUnavailableError:
    """Brokers have been taken back below what the sink's level needs, under a query that runs."""
    return LevelUnavailableError(
        f"sink {sink!r} writes at level {level.value!r}, for which brokers are too old now: {why}. Start the query "
        "again: it takes the level that all brokers have"
    )
