"""Admin calls about many items in one request, each with a result or error of its own."""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, NamedTuple, TypeVar

from fencepost.client.net import retry
from fencepost.client.net.answers import refusal
from fencepost.client.net.cluster import Cluster, Coordinator, CoordinatorKind, Target
from fencepost.client.net.retry import RETRIABLE
from fencepost.client.net.tasks import gather
from fencepost.errors import ItemsFailedError, KafkaError, KafkaTimeoutError, ProtocolError, error_for
from fencepost.protocol.codec import Message
from fencepost.protocol.codes import ErrorCode as E

__all__ = [
    "ItemAnswer",
    "ManyItems",
    "Outcomes",
    "by_coordinator",
    "each_item",
    "each_of_groups",
    "each_of_targets",
    "outcomes_of",
    "outcomes_together",
]

I = TypeVar("I")  # noqa: E741 (an item)
_MOVED: Final = frozenset({E.NOT_COORDINATOR, E.COORDINATOR_NOT_AVAILABLE})


class ItemAnswer(NamedTuple):
    """A broker's answer about one item: error code and message, and the result."""

    code: int
    message: str | None = None
    value: Any = None


@dataclass(slots=True)
class Outcomes(Generic[I]):
    """Results of the items that were done, and errors of the others."""

    done: dict[I, Any] = field(default_factory=dict)
    failed: dict[I, KafkaError] = field(default_factory=dict)

    def results(self, operation: str) -> dict[I, Any]:
        """Return the results. Raises ItemsFailedError if an item failed."""
        if self.failed:
            raise ItemsFailedError.of(operation, self.done, self.failed) from next(iter(self.failed.values()))
        return self.done

    def only(self) -> Any:
        """Return the result of the only item. Raises its error."""
        for error in self.failed.values():
            raise error
        return next(iter(self.done.values()))

    def put(self, item: I, answer: ItemAnswer, operation: str, unanswered: Sequence[KafkaError] = ()) -> None:
        """Add the outcome of an item. `unanswered` are the attempts before this answer."""
        if answer.code == 0:
            self.done[item] = answer.value
        else:
            self.failed[item] = refusal(answer.code, operation, answer.message, unanswered)

    def add(self, other: Outcomes[I]) -> None:
        """Add the outcomes of other items."""
        self.done |= other.done
        self.failed |= other.failed


@dataclass(slots=True, frozen=True)
class ManyItems(Generic[I]):
    """A request about many items.

    Attributes:
        make: Returns the request for these items.
        versions: Lowest and highest version of the request.
        read: Returns the answers of a response by item.
        operation: Describes an item in error messages.
        final: Retriable codes that are not worth a retry here.
        of_several: Describes a request about several items; "": the name of the request.
    """

    make: Callable[[Sequence[I]], Message]
    versions: tuple[int, int]
    read: Callable[[Any], Mapping[I, ItemAnswer]]
    operation: Callable[[I], str]
    final: Collection[int] = ()
    of_several: str = ""

    def is_retriable(self, api_key: int, code: int) -> bool:
        """Return true if a retry may succeed."""
        return code not in self.final and retry.action(api_key, code) in RETRIABLE


async def each_item(
    cluster: Cluster, target: Target, items: Iterable[I], call: ManyItems[I], deadline_ms: int
) -> Outcomes[I]:
    """Send a request about all items, and repeat it for those with a retriable error.

    Raises:
        KafkaError: The first request failed as a whole. Later such errors become the errors of the remaining items.
    """
    outcomes: Outcomes[I] = Outcomes()
    unanswered: list[KafkaError] = []
    pending, attempt = list(dict.fromkeys(items)), 0
    while pending:
        request = call.make(pending)
        try:
            reply = await cluster.call(
                target,
                request,
                call.versions,
                deadline_ms=deadline_ms,
                code_of=lambda answer: _common_code(call, answer),
                operation=call.operation(pending[0]) if len(pending) == 1 else call.of_several,
                unanswered=unanswered,
            )
            last = _sort(call, request.API_KEY, pending, reply, outcomes, unanswered)
            pending = [item for item in pending if item not in outcomes.done and item not in outcomes.failed]
            if pending and last is not None:
                await cluster.pause_after(last, attempt, deadline_ms, call.operation(pending[0]))
        except KafkaError as error:
            if not outcomes.done and not outcomes.failed:
                raise
            outcomes.failed |= dict.fromkeys(pending, error)
            break
        attempt += 1
    return outcomes


def _common_code(call: ManyItems[Any], reply: Any) -> int:
    """Return the code that all items have, unless it is final."""
    codes = {answer.code for answer in call.read(reply).values()}
    common = codes.pop() if len(codes) == 1 else 0
    return 0 if common in call.final else common


def _sort(
    call: ManyItems[I],
    api_key: int,
    pending: Sequence[I],
    reply: Any,
    outcomes: Outcomes[I],
    unanswered: Sequence[KafkaError],
) -> KafkaError | None:
    """Put answered items into the outcomes. Return the last retriable error."""
    answers, last = call.read(reply), None
    for item in pending:
        answer = answers.get(item)
        if answer is None:
            outcomes.failed[item] = ProtocolError(f"{call.operation(item)}: the broker's response does not have it")
        elif answer.code != 0 and call.is_retriable(api_key, answer.code):
            last = error_for(answer.code, call.operation(item), answer.message)
        else:
            outcomes.put(item, answer, call.operation(item), unanswered)
    return last


async def each_of_targets(
    cluster: Cluster, asks: Sequence[tuple[Target, Sequence[I], ManyItems[I]]], deadline_ms: int
) -> Outcomes[I]:
    """Send one request to each of several targets, about its items, side by side: one may not answer.

    Raises:
        KafkaError: The only target did not answer. If there are several, the items of such a target fail with it.
    """
    calls = [each_item(cluster, target, items, call, deadline_ms) for target, items, call in asks]
    return await outcomes_together(cluster, [items for _, items, _ in asks], calls)


async def outcomes_together(
    cluster: Cluster, batches: Sequence[Iterable[I]], calls: Sequence[Coroutine[Any, Any, Outcomes[I]]]
) -> Outcomes[I]:
    """Make the calls about these batches of items side by side. Raises KafkaError like `each_of_targets`."""
    outcomes: Outcomes[I] = Outcomes()
    for items, result in zip(batches, await gather(cluster.runtime, calls), strict=True):
        if isinstance(result, Outcomes):
            outcomes.add(result)
        elif isinstance(result, KafkaError) and len(batches) > 1:
            outcomes.failed |= dict.fromkeys(items, result)
        else:
            raise result
    return outcomes


async def outcomes_of(cluster: Cluster, calls: Mapping[I, Coroutine[Any, Any, Any]]) -> Outcomes[I]:
    """Make the calls of the items side by side."""
    results = await gather(cluster.runtime, list(calls.values()))
    outcomes: Outcomes[I] = Outcomes()
    for item, result in zip(calls, results, strict=True):
        if isinstance(result, KafkaError):
            outcomes.failed[item] = result
        elif isinstance(result, Exception):
            raise result
        else:
            outcomes.done[item] = result
    return outcomes


async def each_of_groups(
    cluster: Cluster, group_ids: Iterable[str], call: ManyItems[str], deadline_ms: int
) -> Outcomes[str]:
    """Send one request to each coordinator of the groups, side by side. Groups that have moved are looked up again.

    Raises:
        KafkaError: The only coordinator did not answer before any group had an outcome.
    """
    outcomes: Outcomes[str] = Outcomes()
    coordinator_call = ManyItems(call.make, call.versions, call.read, call.operation, {*call.final, *_MOVED})
    pending, attempt = list(dict.fromkeys(group_ids)), 0
    while pending:
        last: KafkaError | None = None
        batches = await by_coordinator(cluster, pending, deadline_ms)
        asks = [(target, batch, coordinator_call) for target, batch in batches]
        try:
            found = await each_of_targets(cluster, asks, deadline_ms)
        except KafkaError as error:
            if not outcomes.done and not outcomes.failed:
                raise
            found = Outcomes({}, dict.fromkeys(pending, error))
        for group_id in pending:
            failed = found.failed.get(group_id)
            if failed is not None and failed.code in _MOVED:
                cluster.forget_coordinator(Coordinator(CoordinatorKind.GROUP, group_id))
                last = found.failed.pop(group_id)
        outcomes.add(found)
        pending = [each for each in pending if each not in outcomes.done and each not in outcomes.failed]
        if pending and last is not None:
            try:
                await cluster.pause_after(last, attempt, deadline_ms, call.operation(pending[0]))
            except KafkaTimeoutError as error:
                outcomes.failed |= dict.fromkeys(pending, error)
                break
        attempt += 1
    return outcomes


async def by_coordinator(
    cluster: Cluster, group_ids: Sequence[str], deadline_ms: int
) -> list[tuple[Coordinator, list[str]]]:
    """Return the groups of each coordinator. A group with an unknown coordinator is in a list of its own."""
    await cluster.learn_coordinators(CoordinatorKind.GROUP, group_ids, deadline_ms)
    batches: dict[object, tuple[Coordinator, list[str]]] = {}
    for group_id in group_ids:
        target = Coordinator(CoordinatorKind.GROUP, group_id)
        node = cluster.known_coordinator(target)
        batches.setdefault(group_id if node is None else node, (target, []))[1].append(group_id)
    return list(batches.values())
