"""An event of a rebalance that waits for the poll that handles it."""

from __future__ import annotations

from typing import Any

from fencepost.client.calling import CallUser, SlowCalls, call_here
from fencepost.client.net.runtime import Event
from fencepost.client.types import RebalanceListener, TopicPartition, listener_method
from fencepost.values import MutableValue


class RebalanceEvent(MutableValue, kw_only=False):
    """An event of a rebalance. `kind` is "assigned", "revoked" or "lost"."""

    kind: str
    partitions: list[TopicPartition]
    served: Event
    was_delivered: bool = False  # the listener's method has begun, or there is none

    async def deliver(self, listener: RebalanceListener | None, call_user: CallUser, slow: SlowCalls) -> None:
        """Call the listener. `slow` records a method that takes long. Raises the method's errors."""
        method = listener_method(listener, self.kind)
        begun_ms = slow.now_ms()

        def run() -> Any:
            self.was_delivered = True
            return None if method is None else method(self.partitions)

        try:
            await (call_here if method is None else call_user)(run)
        finally:
            if method is not None:
                slow.record_call("rebalance listener", method, slow.now_ms() - begun_ms)
