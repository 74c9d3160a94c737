"""What the parts of `AdminCore` share."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from fencepost.client.net.cluster import Cluster
from fencepost.client.net.tasks import first_error, gather
from fencepost.errors import error_for
from fencepost.protocol.codec import Message
from fencepost.protocol.codes import ErrorCode as E

T = TypeVar("T")

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

    async def _of_each_broker(
        self,
        what: str,
        topic: str,
        ask: Callable[[int], Coroutine[Any, Any, list[T]]],
        deadline_ms: int,
    ) -> list[T]:
        """What the coordinators have, whose partitions of `topic` the brokers lead: `ask` of each, put together.

        A broker tells of the partitions that it has loaded, and does not say that others have no coordinator now. So
        all are asked again until every partition has had the same leader before and after. Where the topic may not be
        looked at, or does not exist, brokers are believed. Raises KafkaTimeoutError, or what `ask` raises for good.
        """

        async def ask_all() -> list[T]:
            before = await self._leaders(topic, deadline_ms)
            results = await gather(self.cluster.runtime, [ask(node) for node in sorted(self.cluster.nodes)])
            if (failed := first_error(results)) is not None:
                raise failed
            if await self._leaders(topic, deadline_ms) != before:
                raise error_for(E.NOT_COORDINATOR, what, f"partitions of {topic} have moved meanwhile")
            return [one for result in results if not isinstance(result, Exception) for one in result]

        return await self.cluster.until_answered(what, ask_all, deadline_ms)

    async def _ask_once(self, node_id: int, request: Message, versions: tuple[int, int], deadline_ms: int) -> Any:
        """One request to one broker, its codes not looked at. Raises KafkaError."""
        connection = await self.cluster.connection(node_id, deadline_ms)
        version = connection.version(request.API_KEY, *versions)
        left = deadline_ms - self.cluster.runtime.now_ms()
        return await connection.request(request, version, timeout_ms=left)

    async def _leaders(self, topic: str, deadline_ms: int) -> dict[int, tuple[int, int]]:
        """Node and leader epoch, by partition. Raises LeaderNotAvailableError."""
        await self.cluster.fetch_metadata([topic], deadline_ms, create=False)
        known = self.cluster.topics[topic].partitions if topic in self.cluster.topics else {}
        orphans = [number for number in known if self.cluster.leader(topic, number) < 0]
        if orphans:
            raise error_for(E.LEADER_NOT_AVAILABLE, f"{topic}-{orphans[0]} ({len(orphans)} of {len(known)} partitions)")
        return {number: (partition.leader, partition.leader_epoch) for number, partition in known.items()}

    async def close(self) -> None:
        """Close the connections."""
        self.cluster.close()

    async def leave(self, timeout_ms: int) -> None:
        """Close without the application."""
        self.cluster.close()

    def unsaid(self) -> str:
        """Nothing is left to say: every call waits for its answer."""
        return ""
