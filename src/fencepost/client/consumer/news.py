"""A rebalance's news on its way to the poll that serves it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fencepost.client.calling import CallUser, call_here
from fencepost.client.net.runtime import Event
from fencepost.client.rebalance import RebalanceListener, listener_method
from fencepost.client.types import TopicPartition


@dataclass(slots=True)
class News:
    """`kind`: "assigned", "revoked" or "lost"."""

    kind: str
    partitions: list[TopicPartition]
    served: Event
    told: bool = False  # the listener's method has begun, or there is none

    async def tell(self, listener: RebalanceListener | None, call_user: CallUser) -> None:
        """Tell the listener. Raises what it raises."""
        method = listener_method(listener, self.kind)

        def run() -> Any:
            self.told = True
            return None if method is None else method(self.partitions)

        await (call_here if method is None else call_user)(run)
