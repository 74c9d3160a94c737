"""One look at a cluster: bounded calls of the Admin API, each of which may be refused by itself."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from fencepost.cli.transaction_view import OPEN_STATES
from fencepost.client.admin.groups import AdminGroups, GroupDescription, GroupListing
from fencepost.client.admin.topics import ClusterDescription, TopicDescription
from fencepost.client.admin.transactions import ProducerDescription, TransactionDescription, TransactionListing
from fencepost.client.net.list_offsets import LATEST
from fencepost.client.net.tasks import gather
from fencepost.client.types import Isolation, TopicPartition
from fencepost.errors import DisconnectedError, KafkaError, KafkaTimeoutError
from fencepost.spark.cluster_calls import ClusterCalls
from fencepost.spark.sink.decision import Decision
from fencepost.spark.sink.decision_store import DecisionStore
from fencepost.spark.source.held_back import Holder, holders

__all__ = ["AWAY", "Calls", "GroupDetail", "Look", "Looker", "Problem", "TransactionDetail"]

AWAY: Final = (KafkaTimeoutError, DisconnectedError)
"""What is raised when the brokers are not there, as opposed to: may not be asked."""

MOST_PARTITIONS: Final = 5_000  # whose offsets are asked for in one look; of more, so many in turn
MOST_GROUPS: Final = 100  # the same: a request each
MOST_DESCRIBED: Final = 1_000  # open transactions
MOST_HELD: Final = 100  # partitions that are asked who holds them back: a request each
MOST_PLACES: Final = 50  # partitions of one transaction that are asked for its producer

T = TypeVar("T")


class Calls(ClusterCalls, AdminGroups):
    """What the page asks of brokers."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A part of the page that is not known, and why, as the brokers or the client say it."""

    part: str
    reason: str


@dataclass(frozen=True, slots=True)
class Ends:
    """Of a partition: where readers of committed records stop, and the high watermark."""

    stable: int
    end: int


@dataclass(frozen=True, slots=True)
class Look:
    """What one look brought. A part that could not be asked is empty, and among the problems."""

    at_ms: int
    cluster: ClusterDescription
    topics: Mapping[str, TopicDescription] = field(default_factory=dict)
    ends: Mapping[TopicPartition, Ends] = field(default_factory=dict)
    held: Mapping[TopicPartition, Holder | KafkaError | None] = field(default_factory=dict)
    listed: Sequence[TransactionListing] = ()
    described: Mapping[str, TransactionDescription] = field(default_factory=dict)
    groups: Sequence[GroupListing] = ()
    committed: Mapping[str, Mapping[TopicPartition, int] | KafkaError] = field(default_factory=dict)
    decisions: Sequence[Decision] = ()
    problems: Sequence[Problem] = ()

    def knows(self, part: str) -> bool:
        """Whether that part could be asked."""
        return all(problem.part != part for problem in self.problems)


@dataclass(frozen=True, slots=True)
class TransactionDetail:
    """One transaction, and its producer in each of its partitions (None: the partition knows nothing of it)."""

    transaction: TransactionDescription
    producers: Mapping[TopicPartition, ProducerDescription | KafkaError | None]


@dataclass(frozen=True, slots=True)
class GroupDetail:
    """One group, its committed offsets and the ends of their partitions."""

    described: GroupDescription
    committed: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]


class Turns:
    """Takes so many of a long list at a time, going round."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._from = 0

    def of(self, names: Sequence[T]) -> Sequence[T]:
        """The next ones: all of them, where there are no more than so many."""
        if len(names) <= self._most:
            return names
        begin = self._from % len(names)
        self._from = begin + self._most
        return [*names[begin : begin + self._most], *names[: max(begin + self._most - len(names), 0)]]


class Looker:
    """Looks at one cluster, again and again."""

    def __init__(self, calls: Calls, decision_topic: str, patience_ms: int) -> None:
        """`patience_ms`: for each call."""
        self._calls = calls
        self._store = DecisionStore(calls, decision_topic)
        self._patience_ms = patience_ms
        self._partitions = Turns(MOST_PARTITIONS)
        self._groups = Turns(MOST_GROUPS)

    async def look(self) -> Look:
        """Raises KafkaError when no broker answers, or what all the rest needs may not be asked."""
        cluster = await self._calls.describe_cluster(api_timeout_ms=self._patience_ms)
        found: dict[str, Any] = {}
        problems: list[Problem] = []
        parts: dict[str, Callable[[], Coroutine[Any, Any, Mapping[str, Any]]]] = {
            "topics": self._topics,
            "sinks": self._sinks,
            "transactions": self._transactions,  # after the decisions: see watch._became
            "groups": self._consumer_groups,
        }
        for part, ask in parts.items():
            try:
                found |= await ask()
            except KafkaError as error:
                if isinstance(error, AWAY):  # all of them, or only who was asked for this?
                    await self._calls.describe_cluster(api_timeout_ms=self._patience_ms)
                problems.append(Problem(part, str(error)))
        problems += _refused(found.get("held", {}), found.get("committed", {}))
        return Look(self._calls.cluster.runtime.wall_ms(), cluster, **found, problems=problems)

    async def _topics(self) -> Mapping[str, Any]:
        topics = await self._calls.describe_topics(api_timeout_ms=self._patience_ms)
        # A partition without a leader cannot be asked.
        led = [
            TopicPartition(name, number)
            for name, topic in sorted(topics.items())
            for number, at in topic.partitions.items()
            if at.leader >= 0
        ]
        wanted = dict.fromkeys(self._partitions.of(led), LATEST)
        if not wanted:
            return {"topics": topics}
        stable = await self._calls.list_offsets(
            wanted, isolation=Isolation.READ_COMMITTED, api_timeout_ms=self._patience_ms
        )
        # Asked for later, so that an end is never before what is stable.
        high = await self._calls.list_offsets(wanted, api_timeout_ms=self._patience_ms)
        ends = {place: Ends(stable[place].offset, high[place].offset) for place in wanted}
        behind = sorted((at.stable - at.end, place) for place, at in ends.items() if at.stable < at.end)
        held = await holders(self._calls, [place for _, place in behind[:MOST_HELD]], self._patience_ms)
        return {"topics": topics, "ends": ends, "held": held}

    async def _transactions(self) -> Mapping[str, Any]:
        listed = await self._calls.list_transactions(api_timeout_ms=self._patience_ms)
        open_ids = [each.transactional_id for each in listed if each.state in OPEN_STATES][:MOST_DESCRIBED]
        described = await self._calls.describe_transactions(open_ids, api_timeout_ms=self._patience_ms)
        return {"listed": listed, "described": {each.transactional_id: each for each in described}}

    async def _consumer_groups(self) -> Mapping[str, Any]:
        groups = await self._calls.list_groups(api_timeout_ms=self._patience_ms)
        asked = self._groups.of([each.group_id for each in groups if each.group_type.lower() != "share"])
        answers = await gather(self._calls.cluster.runtime, [self._committed(group) for group in asked])
        return {"groups": groups, "committed": dict(zip(asked, map(_checked, answers), strict=True))}

    async def _committed(self, group: str) -> Mapping[TopicPartition, int]:
        found = await self._calls.group_offsets(group, require_stable=False, api_timeout_ms=self._patience_ms)
        return {place: at.offset for place, at in found.items()}

    async def _sinks(self) -> Mapping[str, Any]:
        deadline_ms = self._calls.cluster.runtime.now_ms() + self._patience_ms
        if not await self._store.is_there(deadline_ms):  # it is not created by looking
            return {"decisions": ()}
        decisions: list[Decision] = []
        for sink in await self._store.sinks(deadline_ms):
            decisions += await self._store.read(sink, deadline_ms)
        return {"decisions": decisions}

    # --- one thing at a time ---

    async def transaction(self, transactional_id: str) -> TransactionDetail:
        """Raises KafkaError."""
        (found,) = await self._calls.describe_transactions([transactional_id], api_timeout_ms=self._patience_ms)
        places = found.partitions[:MOST_PLACES] if found.error_code == 0 else ()
        asked = [self._calls.describe_producers([place], api_timeout_ms=self._patience_ms) for place in places]
        answers = await gather(self._calls.cluster.runtime, asked)
        producers: dict[TopicPartition, ProducerDescription | KafkaError | None] = {}
        for place, answer in zip(places, map(_checked, answers), strict=True):
            if isinstance(answer, KafkaError):
                producers[place] = answer
                continue
            own = [each for each in answer[place] if each.producer_id == found.producer_id]
            producers[place] = own[0] if own else None
        return TransactionDetail(found, producers)

    async def group(self, group_id: str) -> GroupDetail:
        """Raises KafkaError."""
        described = await self._calls.describe_group(group_id, api_timeout_ms=self._patience_ms)
        committed = await self._committed(group_id)
        places = sorted({*committed, *(place for member in described.members for place in member.assigned)})
        names = {place.topic for place in places}
        there = await self._calls.describe_topics(names, api_timeout_ms=self._patience_ms) if names else {}
        led = [
            place
            for place in places
            if place.topic in there
            and place.partition in there[place.topic].partitions
            and there[place.topic].partitions[place.partition].leader >= 0
        ]
        ends = await self._calls.list_offsets(dict.fromkeys(led, LATEST), api_timeout_ms=self._patience_ms)
        return GroupDetail(described, committed, {place: at.offset for place, at in ends.items()})


def _checked(answer: T | Exception) -> T | KafkaError:
    """What is no error of Kafka's is a defect here, and goes on up."""
    if isinstance(answer, Exception) and not isinstance(answer, KafkaError):
        raise answer
    return answer


def _refused(held: Mapping[Any, object], committed: Mapping[Any, object]) -> Iterator[Problem]:
    """A problem for the first of each kind: the others have the same reason."""
    kinds = {"what holds readers back": held, "groups' offsets": committed}
    for part, answers in kinds.items():
        errors = [answer for answer in answers.values() if isinstance(answer, KafkaError)]
        if errors:
            yield Problem(part, f"{errors[0]}" + (f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""))
