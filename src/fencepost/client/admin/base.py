"""What the parts of `AdminCore` share."""

from __future__ import annotations

from typing import Final

from fencepost.client.net.cluster import Cluster
from fencepost.protocol.codes import ErrorCode as E

DEFAULT_API_TIMEOUT_MS: Final = 60_000


def unless_missing(code: int) -> int:
    """For `code_of`: 3 is a final answer where it does not help to wait for the topic to appear."""
    return 0 if code == E.UNKNOWN_TOPIC_OR_PARTITION else int(code)


class AdminBase:
    """A client of a cluster, with a patience for its calls; it keeps nothing of its own."""

    def __init__(self, cluster: Cluster, api_timeout_ms: int = DEFAULT_API_TIMEOUT_MS) -> None:
        self.cluster = cluster
        self._api_timeout_ms = api_timeout_ms

    def _deadline(self, api_timeout_ms: int | None) -> int:
        patience = self._api_timeout_ms if api_timeout_ms is None else api_timeout_ms
        return self.cluster.runtime.now_ms() + patience

    async def close(self) -> None:
        """Close the connections."""
        self.cluster.close()

    async def leave(self, timeout_ms: int) -> None:
        """Close without the application."""
        self.cluster.close()

    def unsaid(self) -> str:
        """Nothing is left to say: every call waits for its answer."""
        return ""
