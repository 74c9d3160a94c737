"""Warns of a consumer that makes no progress, with the reason: after ten seconds, and every ten seconds again."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Final

from fencepost.client.group.member import Member
from fencepost.client.types import TopicPartition

log = logging.getLogger("fencepost.client.consumer")

TELL_AFTER_MS: Final = 10_000  # without assignment or position


class StallWarning:
    """The time without an assignment, and the time without a position by partition."""

    def __init__(self, group_id: str | None, now_ms: Callable[[], int]) -> None:
        self._group_id = group_id
        self._now_ms = now_ms
        self._unsettled_ms = self._logged_ms = now_ms()
        self._missing_since_ms: dict[TopicPartition, int] = {}

    def joining(self) -> None:
        """Start the time for a membership that begins."""
        self._unsettled_ms = self._logged_ms = self._now_ms()

    def settled(self) -> None:
        """Restart the time, because the assignment is current."""
        self._unsettled_ms = self._now_ms()

    def log_if_due(
        self,
        group: Member | None,
        missing: Iterable[TopicPartition],
        reason: Callable[[list[TopicPartition]], str],
    ) -> None:
        """Log a warning if it is due.

        Args:
            group: The membership, or None.
            missing: The partitions without a position.
            reason: Returns a text with the reasons for some of these.
        """
        now_ms = self._now_ms()
        before = self._missing_since_ms
        self._missing_since_ms = {partition: before.get(partition, now_ms) for partition in missing}
        if now_ms - self._logged_ms < TELL_AFTER_MS:
            return
        if group is not None and now_ms - self._unsettled_ms >= TELL_AFTER_MS:
            self._logged_ms = now_ms
            waited_s = (now_ms - self._unsettled_ms) // 1000
            log.warning("group %r: not settled for %d s: %s", self._group_id, waited_s, group.waiting_for())
        late = [partition for partition, since in self._missing_since_ms.items() if now_ms - since >= TELL_AFTER_MS]
        if late:
            self._logged_ms = now_ms
            log.warning("no position for more than 10 s: %s", reason(late))
