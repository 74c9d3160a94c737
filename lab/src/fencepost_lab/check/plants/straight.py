"""Defects of the straight paths only, not of the general paths."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fencepost.broker.api.records import produce_straight
from fencepost.broker.api.records.produce_common import CommonProduce, Taken, encode_common_answer
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

    def next_ones(produce: CommonProduce, taken: list[Taken]) -> bytes:
        later = [(name, index, base + 1, append_ms, start) for name, index, base, append_ms, start in taken]
        return encode_common_answer(produce, later)

    patches.setattr(produce_straight, "encode_common_answer", next_ones)
