"""Defects that appear when several tasks share one client."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from fencepost.client.consumer.core import ConsumerCore
from fencepost.client.consumer.subscription import HandOut, SubscriptionState
from fencepost.client.net import turn
from fencepost.client.net.turn import Hold, Polls, Turn
from fencepost.client.producer.delivery_reports import DeliveryReports
from fencepost.client.types import OffsetAndMetadata, TopicPartition
from fencepost.errors import WakeupError
from fencepost_lab.check.plants.plant import Patches, plant

CROWD: Final = (
    *("storm_ms=1000", "crowds=1", "cancel_chance=0.15", "feeders=1"),
    *("producers=1", "copiers=0", "deciders=0", "watchers=0"),
)


@plant("clients", *CROWD)
def cancelled_poll_undoes_another(patches: Patches) -> None:
    """A cancelled poll takes back the last returned records, even if another task received them."""
    original = ConsumerCore.hand_out

    async def hand_out(self: ConsumerCore, *args: Any, **kwargs: Any) -> HandOut:
        last = self._reading._handed
        try:
            return await original(self, *args, **kwargs)
        except BaseException:
            last.delivered = False
            self._reading.take_back(last)
            raise

    patches.setattr(ConsumerCore, "hand_out", hand_out)


@plant("clients", *CROWD)
def polls_of_several_tasks_at_once(patches: Patches) -> None:
    """Several tasks can poll at the same time, and a poll continues beside a later one."""

    def check(self: Polls, number: int) -> None:
        original(self, self._last)

    original = Polls.check
    patches.setattr(turn, "_refusal", lambda hold, before: None)
    patches.setattr(Polls, "check", check)


@plant("clients", *CROWD)
def a_woken_poll_keeps_its_turn(patches: Patches) -> None:
    """After a poll that was woken, other tasks are refused although no call is in progress."""
    holds: list[Hold] = []

    def take(self: Turn, method: str) -> Hold:
        hold = original(self, method)
        holds.append(hold)
        return hold

    def check(self: Polls, number: int) -> None:
        try:
            honest(self, number)
        except WakeupError:
            patches.setattr(Hold, "ended", property(lambda hold: False, lambda hold, value: None))
            raise

    original, honest = Turn.take, Polls.check
    patches.setattr(Turn, "take", take)
    patches.setattr(Polls, "check", check)


@plant("clients", *CROWD)
def undelivered_records_count_as_read(patches: Patches) -> None:
    """Positions move past the records of a poll before its caller received them."""

    def positions(self: SubscriptionState) -> dict[TopicPartition, OffsetAndMetadata]:
        handed, delivered = self._handed, self._handed.delivered
        handed.delivered = True
        try:
            return original(self)
        finally:
            handed.delivered = delivered

    original = SubscriptionState.positions
    patches.setattr(SubscriptionState, "positions", positions)


@plant("clients", *CROWD)
def close_waits_for_polls(patches: Patches) -> None:
    """close() by another task does not end a waiting poll before its timeout."""
    patches.setattr(Polls, "close", lambda self, closing=True: None)


@plant("clients", *CROWD)
def flush_ends_with_the_first_answer(patches: Patches) -> None:
    """A flush returns after the first answer, for any task's records."""

    async def until(self: DeliveryReports, condition: Callable[[], bool], deadline_ms: int | None) -> bool:
        if not condition():
            self._progress.clear()
            await self._progress.wait(None)
        return True

    patches.setattr(DeliveryReports, "until", until)
