"""Common base of the parts of `AdminCore`."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, TypeVar

from fencepost.client.admin.items import Outcomes, outcomes_of
from fencepost.client.net.cluster import Cluster
from fencepost.client.net.tasks import gather, within
from fencepost.client.telemetry.reporting import ReportingCore
from fencepost.client.telemetry.standard_names import ADMIN
from fencepost.counted import counted_noun
from fencepost.errors import KafkaError, KafkaTimeoutError, error_for
from fencepost.protocol.codec import Message
from fencepost.protocol.codes import ErrorCode as E

T = TypeVar("T")
I = TypeVar("I")  # noqa: E741 (an item)

DEFAULT_API_TIMEOUT_MS: Final = 60_000
NO_LEADER: Final = -1  # in place of a broker id
FIRST_LOOKS_MS: Final = (2, 5, 10, 20, 50)  # a broker usually shows a change within a few ms
MOST_PER_LOOK_MS: Final = 3_000  # time limit of one request; a slower broker is skipped


class AdminBase(ReportingCore):
    """Calls to a cluster, each with a time limit; it has no state of its own."""

    ROLE = ADMIN

    def __init__(self, cluster: Cluster, api_timeout_ms: int = DEFAULT_API_TIMEOUT_MS) -> None:
        self.cluster = cluster
        self._api_timeout_ms = api_timeout_ms
        self._start_reports()

    def _deadline(self, api_timeout_ms: int | None) -> int:
        patience = self._api_timeout_ms if api_timeout_ms is None else api_timeout_ms
        return self.cluster.runtime.now_ms() + patience

    async def _of_each_broker(
        self,
        operation: str,
        topic: str,
        ask: Callable[[int, int], Coroutine[Any, Any, list[T]]],
        deadline_ms: int,
        away: Mapping[int, KafkaError] | None = None,
    ) -> Outcomes[int]:
        """Collect the results of `ask` from all brokers that lead partitions of a coordinator topic, by broker id.

        A broker reports only the partitions that it has loaded, and does not report partitions without a coordinator.
        So the requests are repeated until every partition had the same leader before and after, and every leader has
        answered. If the topic does not exist or may not be described, all brokers are asked, and their results are used
        as they are.

        Args:
            operation: Name of the request, for messages.
            topic: The coordinators' topic.
            ask: Asks the broker of this node id, until a time by the runtime's clock, in ms.
            deadline_ms: Time at which to give up, on the runtime's clock.
            away: Brokers that are known not to answer. They are not asked, and fail with these errors.

        Returns:
            The results. If some brokers have not answered in time, they have failed; NO_LEADER has failed if partitions
            have no leader.

        Raises:
            KafkaTimeoutError: No broker answered in time, or the partitions have moved each time.
            KafkaError: A broker refused the request.
        """
        silent, partly = away or {}, Outcomes[int]()

        async def ask_all() -> Outcomes[int]:
            nonlocal partly
            # One of several brokers may not answer. Then time must be left to ask another one for the leaders, and to
            # look at these again after the answers.
            several = len(self.cluster.nodes) > 1
            before = await self._leaders(topic, self._share(1 / 2, deadline_ms) if several else deadline_ms)
            nodes = sorted({node for node, _ in before.values() if node >= 0} if before else self.cluster.nodes)
            asked = [node for node in nodes if node not in silent]
            until_ms = self._share(3 / 4, deadline_ms) if len(nodes) > 1 else deadline_ms
            outcomes = await outcomes_of(self.cluster, {node: ask(node, until_ms) for node in asked})
            errors = list(outcomes.failed.values())
            for error in errors:
                if not self.cluster.worth_retrying(error):
                    raise error
            if await self._leaders(topic, deadline_ms) != before:
                raise error_for(E.NOT_COORDINATOR, operation, f"partitions of {topic} have moved meanwhile")
            outcomes.failed |= {node: silent[node] for node in nodes if node in silent}
            if orphans := [number for number, (node, _) in before.items() if node < 0]:
                words = f"{topic}-{orphans[0]} ({len(orphans)} of {counted_noun(len(before), 'partition')})"
                outcomes.failed[NO_LEADER] = error_for(E.LEADER_NOT_AVAILABLE, words)
                errors.append(outcomes.failed[NO_LEADER])
            if len(outcomes.done) >= len(partly.done):
                partly = outcomes
            if errors:
                raise errors[0]
            return outcomes

        try:
            return await self.cluster.until_answered(operation, ask_all, deadline_ms)
        except KafkaTimeoutError:
            if not partly.done:
                raise
            return partly

    def _share(self, share: float, deadline_ms: int) -> int:
        """Return the time at which this share of the rest of the time is over."""
        now_ms = self.cluster.runtime.now_ms()
        return now_ms + int((deadline_ms - now_ms) * share)

    async def _ask_once(
        self, node_id: int, request: Message, versions: tuple[int, int], deadline_ms: int, lane: str = ""
    ) -> Any:
        """Send one request to one broker, and return its response without checking its error codes.

        `lane` as in Cluster.connection. Raises KafkaError.
        """
        connection = await self.cluster.connection(node_id, deadline_ms, lane)
        version = connection.version(request.API_KEY, *versions)
        left = deadline_ms - self.cluster.runtime.now_ms()
        return await connection.request(request, version, timeout_ms=left)

    async def _until_shown(
        self, operation: str, shown_difference: Callable[[int], Coroutine[Any, Any, str]], deadline_ms: int
    ) -> None:
        """Wait until all brokers show a change that the cluster has accepted.

        The controller accepts a change, and the brokers learn of it a moment later. This client's next call may go to
        any of them. Unreachable brokers are ignored, because a broker catches up with the controller before it serves
        again. Brokers that reject the request are ignored too: the client may lack the permission, or the broker may
        not support the request.

        Args:
            operation: Name of the change, for messages.
            shown_difference: Asks the broker of this node id, and returns the difference from the change; "" if there
                is none. It may raise KafkaError.
            deadline_ms: Time at which to give up, on the runtime's clock.

        Raises:
            KafkaTimeoutError: The change was made, and a broker still does not show it.
        """
        waiting, attempt, runtime = sorted(self.cluster.nodes), 0, self.cluster.runtime
        while waiting:
            patience_ms = max(1, min(MOST_PER_LOOK_MS, deadline_ms - runtime.now_ms()))
            differences_of = [
                within(runtime, shown_difference(node), patience_ms, f"broker {node}") for node in waiting
            ]
            seen = dict(zip(waiting, await gather(runtime, differences_of), strict=True))
            for result in seen.values():
                if isinstance(result, Exception) and not isinstance(result, KafkaError):
                    raise result
            late = {node: result for node, result in seen.items() if isinstance(result, str) and result}
            waiting = list(late)
            if waiting and attempt < len(FIRST_LOOKS_MS):
                await runtime.sleep_ms(FIRST_LOOKS_MS[attempt])
            elif waiting:
                shown = "; ".join(f"broker {node} still shows {difference}" for node, difference in late.items())
                error = KafkaTimeoutError(f"the cluster has made the change, but {shown}")
                await self.cluster.pause_after(error, attempt - len(FIRST_LOOKS_MS), deadline_ms, operation)
            attempt += 1
        self.cluster.lasting_errors.succeeded(operation)

    async def _until_shown_or_failed(
        self,
        outcomes: Outcomes[I],
        operation: str,
        shown_difference: Callable[[int], Coroutine[Any, Any, str]],
        deadline_ms: int,
    ) -> None:
        """Wait like `_until_shown`. If a broker does not show the change in time, its items fail with that error."""
        try:
            await self._until_shown(operation, shown_difference, deadline_ms)
        except KafkaTimeoutError as error:
            outcomes.failed |= dict.fromkeys(outcomes.done, error)
            outcomes.done.clear()

    async def _leaders(self, topic: str, deadline_ms: int) -> dict[int, tuple[int, int]]:
        """Return node and leader epoch by partition. The node is negative if the partition has no leader."""
        await self.cluster.fetch_metadata([topic], deadline_ms, create=False)
        known = self.cluster.topics[topic].partitions if topic in self.cluster.topics else {}
        return {
            number: (self.cluster.leader(topic, number), partition.leader_epoch) for number, partition in known.items()
        }

    def metrics(self) -> dict[str, float]:
        """Return the counters of requests by broker, by Kafka's names in snake_case. Any thread may call it."""
        return self.cluster.links.metrics(self.cluster.nodes)

    async def close(self, timeout_ms: int | None = None) -> None:
        """Close the connections. Waits only for `on_error`, `on_statistics` and the last push of metrics."""
        deadline_ms = None if timeout_ms is None else self.cluster.runtime.now_ms() + timeout_ms
        try:
            await self.telemetry.end(deadline_ms)
        finally:
            await self._disconnect(deadline_ms)

    async def leave(self, timeout_ms: int) -> None:
        """Close for an application that did not."""
        await self.close(timeout_ms)

    def close_warning(self) -> str:
        """Return "", because nothing is pending."""
        return ""
