"""Defects of the straight paths only, not of the general paths."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fencepost.broker.api.records import produce_straight
from fencepost_lab.check.plants.plant import POWER_LOSS, Patches, plant


@plant("clients", *POWER_LOSS)
def straight_answers_before_the_sync(patches: Patches) -> None:
    """The straight path of Produce answers at once, where the handler waits for the sync."""
    patches.setattr(produce_straight, "_must_wait", lambda _core, connection: bool(connection.calls))


@plant("clients")
def straight_does_not_enlist(patches: Patches) -> None:
    """The straight path of Produce does not write down the second and later partitions of a transaction."""
    enlisted = produce_straight._enlisted

    def forgotten(*args: Any) -> Any:
        result = enlisted(*args)
        written = [record.transaction for record in result.records if record.transaction is not None]
        has_others = any(len(transaction.partitions) > 1 for transaction in written)
        return replace(result, records=()) if has_others else result

    patches.setattr(produce_straight, "_enlisted", forgotten)


@plant("clients")
def straight_answers_another_offset(patches: Patches) -> None:
    """The straight path of Produce answers with the offset behind the batch's."""
    encoded = produce_straight._encoded

    def next_ones(asked: Any, appended: Any) -> bytes:
        return encoded(asked, [each._replace(base_offset=each.base_offset + 1) for each in appended])

    patches.setattr(produce_straight, "_encoded", next_ones)
