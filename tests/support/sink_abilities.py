"""The abilities of brokers that the sink can find, by short names for tests."""

from __future__ import annotations

from typing import Final

from fencepost.spark.sink.abilities import BrokerAbilities, Guarantee

KEEPING: Final = BrokerAbilities(two_phase=True, keeps_prepared=True, raises_epochs=True)
"""Fencepost's broker."""
TWO_PHASE: Final = BrokerAbilities(two_phase=True, keeps_prepared=False, raises_epochs=True)
"""Apache Kafka 4.1 or newer with two-phase commit."""
ONE_PHASE: Final = BrokerAbilities(two_phase=False, keeps_prepared=False, raises_epochs=True)
"""Without two-phase commit."""
VERSION_0: Final = BrokerAbilities(two_phase=False, keeps_prepared=False, raises_epochs=False)
"""Before transaction.version 1."""
ALL: Final = {"keeping": KEEPING, "two-phase": TWO_PHASE, "one-phase": ONE_PHASE, "version-0": VERSION_0}


def may_lose(abilities: BrokerAbilities) -> bool:
    """Return whether a timeout can end a decided transaction."""
    return abilities.guarantee is Guarantee.TIMED
