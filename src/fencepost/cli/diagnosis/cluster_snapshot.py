"""Collect the facts about a cluster for a diagnosis, with the decisions of Spark sinks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Final, TypeVar

from fencepost.client.admin.group_descriptions import GroupDescription
from fencepost.client.admin.share_offsets import ShareOffset
from fencepost.client.admin.transactions import ProducerDescription, TransactionDescription, TransactionListing
from fencepost.client.diagnosis.calls import DiagnosisCalls
from fencepost.client.diagnosis.collecting import QUICK, SLOW, CollectionLimits, Collector, checked
from fencepost.client.diagnosis.facts import Facts, SinkBatch, UnansweredQuestion, unknown_of
from fencepost.client.net.list_offsets import LATEST
from fencepost.client.net.tasks import gather
from fencepost.client.types import TopicPartition
from fencepost.errors import KafkaError
from fencepost.spark.cluster_calls import ClusterCalls
from fencepost.spark.sink.decision import Decision
from fencepost.spark.sink.decision_store import DecisionStore
from fencepost.spark.sink.repair import WinnerState, winner_state

__all__ = [
    "CALL_SHARE",
    "MOST_PARTITIONS",
    "PAGE_BOUNDS",
    "Calls",
    "ClusterSnapshot",
    "GroupDetail",
    "SnapshotCollector",
    "TransactionDetail",
    "sink_batches",
    "winner_states",
]

PAGE_BOUNDS: Final = CollectionLimits(partitions=5_000, groups=100, described=1_000, held=100, read=50)
MOST_PARTITIONS: Final = 50  # partitions of one transaction whose producers are described
SLOW_EVERY_MS: Final = 30_000
CALL_SHARE: Final = 0.3  # one call's share of the time limit, so that an unanswered call leaves time for others
SLOW_FIELDS: Final = (
    *("log_dirs", "least_in_sync", "clock_ahead_ms", "features", "fences_by_group", "rights"),
    *("hidden", "certificates", "damaged", "uncreated", "limits_in_sync"),
)

T = TypeVar("T")


class Calls(ClusterCalls, DiagnosisCalls):
    """The requests that the commands and the web page need."""


@dataclass(frozen=True, slots=True)
class ClusterSnapshot(Facts):
    """Facts about a cluster, and the last decisions of the queries of Spark sinks."""

    decisions: Sequence[Decision] = ()


@dataclass(frozen=True, slots=True)
class TransactionDetail:
    """One transaction, and its producer in each of its partitions. None: the partition has no state of the producer."""

    transaction: TransactionDescription
    producers: Mapping[TopicPartition, ProducerDescription | KafkaError | None]


@dataclass(frozen=True, slots=True)
class GroupDetail:
    """One group, its committed offsets and the known ends of their partitions.

    A share group has start offsets instead.
    """

    described: GroupDescription
    committed: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]
    shared: Mapping[TopicPartition, ShareOffset] = field(default_factory=dict)


class SnapshotCollector:
    """A collector of facts about one cluster, for repeated use."""

    def __init__(
        self,
        calls: Calls,
        decision_topic: str,
        patience_ms: int,
        *,
        timeout_ms: int | None = None,
        bounds: CollectionLimits = PAGE_BOUNDS,
    ) -> None:
        """Create a collector.

        Args:
            calls: The client.
            decision_topic: The decision topic of Spark sinks.
            patience_ms: Time limit of each call, in ms.
            timeout_ms: Time limit of one collection, in ms; None: 10 times `patience_ms`.
            bounds: Limits of the number of objects to examine.
        """
        self._calls = calls
        self._store = DecisionStore(calls, decision_topic)
        self._patience_ms = patience_ms
        limit_ms = 10 * patience_ms if timeout_ms is None else timeout_ms
        self._collector = Collector(calls, patience_ms, timeout_ms=limit_ms, bounds=bounds)
        self._last: ClusterSnapshot | None = None
        self._slow_ms = 0

    @classmethod
    def within(
        cls, calls: Calls, decision_topic: str, timeout_ms: int, bounds: CollectionLimits | None = None
    ) -> SnapshotCollector:
        """Create a collector for a command, whose collections take at most `timeout_ms`."""
        patience_ms = max(round(timeout_ms * CALL_SHARE), 1)
        return cls(calls, decision_topic, patience_ms, timeout_ms=timeout_ms, bounds=bounds or CollectionLimits())

    async def collect(
        self, parts: Iterable[str] = (*QUICK, *SLOW, "sinks"), progress: Callable[[str], None] = lambda _: None
    ) -> ClusterSnapshot:
        """Return the facts of these parts. Raises KafkaError if no broker answers."""
        wanted = tuple(parts)
        # Read decisions before the transactions, so that the listing is newer than the decisions.
        before = await self._decisions() if "sinks" in wanted else []
        facts = await self._collector.collect([part for part in wanted if part != "sinks"], progress=progress)
        snapshot = ClusterSnapshot(**{each.name: getattr(facts, each.name) for each in fields(facts)})
        if isinstance(before, UnansweredQuestion):
            return replace(snapshot, unknown=(*snapshot.unknown, before))
        batches = sink_batches(before, snapshot.listed, before) if snapshot.knows("transactions") else []
        if any(each.open or each.lost for each in batches):  # check that these decisions are still the last ones
            after = await self._decisions()
            batches = [] if isinstance(after, UnansweredQuestion) else sink_batches(before, snapshot.listed, after)
        return replace(snapshot, decisions=tuple(before), sinks=batches)

    async def collect_cached(self) -> ClusterSnapshot:
        """Return a snapshot in which facts that change slowly are up to SLOW_EVERY_MS old. Raises KafkaError."""
        now_ms = self._calls.cluster.runtime.now_ms()
        if self._last is None or now_ms - self._slow_ms >= SLOW_EVERY_MS:
            snapshot = await self.collect()
            self._slow_ms = now_ms
        else:
            last, snapshot = self._last, await self.collect((*QUICK, "sinks"))
            slow = [each for each in last.unknown if each.part not in (*QUICK, "sinks") and snapshot.knows(each.part)]
            earlier = {name: getattr(last, name) for name in SLOW_FIELDS}
            snapshot = replace(
                snapshot, unknown=(*snapshot.unknown, *(each for each in slow if _is_slow(each))), **earlier
            )
        self._last = snapshot
        return snapshot

    async def _decisions(self) -> list[Decision] | UnansweredQuestion:
        deadline_ms = self._calls.cluster.runtime.now_ms() + self._patience_ms
        decisions: list[Decision] = []
        try:
            if await self._store.is_there(deadline_ms):  # `read` would create the topic
                for sink in await self._store.sinks(deadline_ms):
                    decisions += await self._store.read(sink, deadline_ms)
        except KafkaError as error:
            return unknown_of("sinks", error)
        return decisions

    # --- one object at a time ---

    async def transaction(self, transactional_id: str) -> TransactionDetail:
        """Describe a transaction and its producers in at most MOST_PLACES partitions. Raises KafkaError."""
        (description,) = await self._calls.describe_transactions([transactional_id], api_timeout_ms=self._patience_ms)
        partitions = description.partitions[:MOST_PARTITIONS] if description.error_code == 0 else ()
        calls = [
            self._calls.describe_producers([partition], api_timeout_ms=self._patience_ms) for partition in partitions
        ]
        answers = await gather(self._calls.cluster.runtime, calls)
        producers: dict[TopicPartition, ProducerDescription | KafkaError | None] = {}
        for partition, answer in zip(partitions, map(checked, answers), strict=True):
            if isinstance(answer, KafkaError):
                producers[partition] = answer
                continue
            own = [each for each in answer[partition] if each.producer_id == description.producer_id]
            producers[partition] = own[0] if own else None
        return TransactionDetail(description, producers)

    async def group(self, group_id: str) -> GroupDetail:
        """Describe a group with its committed offsets and the ends of their partitions. Raises KafkaError."""
        described = await self._calls.describe_group(group_id, api_timeout_ms=self._patience_ms)
        committed: dict[TopicPartition, int] = {}
        shared: dict[TopicPartition, ShareOffset] = {}
        if described.group_type.lower() == "share":
            shared = await self._calls.share_group_offsets(group_id, api_timeout_ms=self._patience_ms)
        else:
            offsets = await self._calls.group_offsets(group_id, require_stable=False, api_timeout_ms=self._patience_ms)
            committed = {partition: at.offset for partition, at in offsets.items()}
        partitions = sorted(
            {*committed, *shared, *(partition for member in described.members for partition in member.assigned)}
        )
        names = {partition.topic for partition in partitions}
        there = await self._calls.describe_topics(names, api_timeout_ms=self._patience_ms) if names else {}
        led = [
            partition
            for partition in partitions
            if partition.topic in there
            and partition.partition in there[partition.topic].partitions
            and there[partition.topic].partitions[partition.partition].leader >= 0
        ]
        ends = await self._calls.offsets_at(LATEST, led, self._patience_ms)
        return GroupDetail(described, committed, {partition: at.offset for partition, at in ends.done.items()}, shared)


def _is_slow(each: UnansweredQuestion) -> bool:
    """Return true for a part that only a full collection contains."""
    return each.part in SLOW or each.part.startswith(("disks of", "free space of"))


def winner_states(
    before: Iterable[Decision], listed: Iterable[TransactionListing], after: Iterable[Decision]
) -> Iterator[tuple[Decision, dict[str, WinnerState]]]:
    """Yield the last decisions of the queries, with the state of each of their transactions by transactional id.

    A decision counts only if it was its query's last one before and after the listing. Only then does no other
    transaction use its ids.
    """
    states = {each.transactional_id: each.state for each in listed}
    last = {(each.sink, each.query_id): each for each in after}
    for each in before:
        if last.get((each.sink, each.query_id)) == each:
            names = (winner.transactional_id for winner in each.winners)
            yield each, {name: winner_state(states.get(name)) for name in names}


def sink_batches(
    before: Iterable[Decision], listed: Iterable[TransactionListing], after: Iterable[Decision]
) -> list[SinkBatch]:
    """Return the decisions of `winner_states`, with their open and their lost transactions."""
    return [
        SinkBatch(
            each.sink,
            each.query_id,
            each.batch_id,
            tuple(name for name, state in states.items() if state is WinnerState.OPEN),
            tuple(name for name, state in states.items() if state is WinnerState.LOST),
        )
        for each, states in winner_states(before, listed, after)
    ]
