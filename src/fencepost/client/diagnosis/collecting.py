"""Collects the facts about a cluster by Admin calls with time limits. Each part may fail on its own."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final, TypeVar

from fencepost.client.admin.base import NO_LEADER
from fencepost.client.admin.group_descriptions import GroupDescription
from fencepost.client.admin.groups import GroupListing
from fencepost.client.admin.hanging import hanging_of
from fencepost.client.admin.logs import LogDir
from fencepost.client.admin.share_offsets import ShareOffset
from fencepost.client.admin.topics import ClusterDescription, TopicDescription
from fencepost.client.admin.transactions import ProducerDescription, TransactionDescription
from fencepost.client.diagnosis.calls import DiagnosisCalls
from fencepost.client.diagnosis.coordinator_topics import COORDINATOR_TOPICS, UncreatedTopic, creation_of
from fencepost.client.diagnosis.facts import Ends, Facts, FailureKind, UnansweredQuestion, UnreadableRecords, unknown_of
from fencepost.client.diagnosis.group_rules import REBALANCING
from fencepost.client.diagnosis.holding import OPEN_STATES, partition_words
from fencepost.client.diagnosis.reading import damage_at
from fencepost.client.net.list_offsets import LATEST
from fencepost.client.net.tasks import gather
from fencepost.client.types import Isolation, TopicPartition
from fencepost.counted import counted_noun, some_of
from fencepost.errors import DisconnectedError, KafkaError, KafkaTimeoutError

__all__ = [
    "AWAY",
    "QUICK",
    "SLOW",
    "CollectionLimits",
    "Collector",
    "Rotation",
    "by_reason",
    "checked",
    "unanswered_lists",
    "unanswered_offsets",
]

AWAY: Final = (KafkaTimeoutError, DisconnectedError)
"""Errors of brokers that cannot be reached, as opposed to a refusal."""

QUICK: Final = ("brokers", "topics", "groups", "transactions")
SLOW: Final = ("settings", "disks", "clock", "features", "rights", "coordinators", "records")
MOST_PING_MS: Final = 5_000
MOST_NAMED: Final = 3
LEAST_PING_MS: Final = 1_000  # also when the time of the collection is up

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CollectionLimits:
    """Limits of one collection. Larger clusters are covered in turns.

    Attributes:
        partitions: Number of partitions.
        groups: Number of groups.
        described: Number of open transactions.
        held: Number of partitions whose producers are requested.
        read: Number of partitions in which the records at the position of a group are read.
        topic_names: Only these topics; None: all.
        group_names: Only these groups; None: all.
    """

    partitions: int = 1_000_000
    groups: int = 10_000
    described: int = 10_000
    held: int = 5_000
    read: int = 500
    topic_names: frozenset[str] | None = None
    group_names: frozenset[str] | None = None


class Rotation:
    """Rotates through a long list: each call of `of` returns the next part, with at most `most` items."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._from = 0

    def of(self, names: Sequence[T]) -> Sequence[T]:
        """Return the next part, or the whole list if it is not longer than the limit."""
        if len(names) <= self._most:
            return names
        begin = self._from % len(names)
        self._from = begin + self._most
        return [*names[begin : begin + self._most], *names[: max(begin + self._most - len(names), 0)]]


@dataclass(slots=True)
class _CollectedFacts:
    """Facts that have been collected so far."""

    parts: dict[str, Any] = field(default_factory=dict)
    unknown: list[UnansweredQuestion] = field(default_factory=list)

    def get(self, name: str, default: T) -> T:
        found: T = self.parts.get(name, default)
        return found


class Collector:
    """Collects the facts about one cluster repeatedly."""

    def __init__(
        self, calls: DiagnosisCalls, patience_ms: int, *, timeout_ms: int, bounds: CollectionLimits | None = None
    ) -> None:
        """Create a collector.

        Args:
            calls: The Admin calls.
            patience_ms: Time limit of each call, in ms.
            timeout_ms: Time limit of one collection, in ms.
            bounds: Limits of one collection.
        """
        self._calls = calls
        self._patience_ms = patience_ms
        self._timeout_ms = timeout_ms
        self._began_ms = self._until_ms = 0
        self._silent: Mapping[int, KafkaError] = {}
        self._bounds = bounds or CollectionLimits()
        self._partitions = Rotation(self._bounds.partitions)
        self._groups = Rotation(self._bounds.groups)

    def _left_ms(self) -> int:
        return min(self._patience_ms, self._until_ms - self._calls.cluster.runtime.now_ms())

    def _patience(self) -> int:
        """Return the time limit of the next call in ms. Raises KafkaTimeoutError if the collection's time is up."""
        left_ms = self._left_ms()
        if left_ms <= 0:
            raise KafkaTimeoutError(f"not asked, because earlier questions took the {self._timeout_ms} ms for all")
        return left_ms

    async def _ask(self, call: Callable[..., Coroutine[Any, Any, T]], argument: object) -> T:
        """Make a call with the time that is left when it begins. Raises KafkaError."""
        return await call(argument, api_timeout_ms=self._patience())

    async def collect(
        self,
        parts: Iterable[str] = (*QUICK, *SLOW),
        *,
        progress: Callable[[str], None] = lambda _: None,
    ) -> Facts:
        """Return the facts of these parts. Raises KafkaError if no broker answers."""
        self._began_ms = self._calls.cluster.runtime.now_ms()
        self._until_ms = self._began_ms + self._timeout_ms
        cluster = await self._calls.describe_cluster(api_timeout_ms=self._patience())
        wanted, facts = set(parts), _CollectedFacts()
        progress(f"asking {counted_noun(len(cluster.brokers), 'broker')}")
        await self._each(facts, {"brokers": lambda: self._brokers(cluster)}, wanted)
        await self._each(
            facts,
            {
                "topics": self._topics,
                "groups": self._consumer_groups,
                "disks": lambda: self._disks(cluster),
                "clock": self._clock,
                "features": lambda: self._features(cluster),
                "rights": self._rights,
            },
            wanted,
        )
        progress("asking the coordinators")
        await self._each(
            facts,
            {
                "offsets": lambda: self._group_offsets(facts),
                "settings": lambda: self._settings(facts),
                "transactions": lambda: self._transactions(facts),
                "coordinators": lambda: self._coordinators(cluster, facts),
                "records": lambda: self._records(facts),
            },
            {*wanted, *(["offsets"] if "groups" in wanted else [])},
        )
        await self._recheck(facts)
        if "brokers" in wanted and any(each.failure_kind is FailureKind.NO_ANSWER for each in facts.unknown):
            facts.parts |= await self._brokers(cluster)  # one may have stopped to answer since the first ping
        elif "brokers" in wanted:
            facts.parts["throttled"] |= self._calls.throttled_since(self._began_ms)
        return Facts(self._calls.cluster.runtime.wall_ms(), cluster, **facts.parts, unknown=tuple(facts.unknown))

    async def _each(
        self,
        facts: _CollectedFacts,
        asks: Mapping[str, Callable[[], Coroutine[Any, Any, Mapping[str, Any]]]],
        wanted: set[str],
    ) -> None:
        names = [name for name in asks if name in wanted]
        answers = await gather(self._calls.cluster.runtime, [asks[name]() for name in names])
        for name, answer in zip(names, map(checked, answers), strict=True):
            if isinstance(answer, KafkaError):
                if isinstance(answer, AWAY):  # if all brokers are away, this raises
                    await self._calls.ping(max(self._left_ms(), LEAST_PING_MS))
                facts.unknown.append(unknown_of("groups" if name == "offsets" else name, answer))
            else:
                facts.unknown += answer.get("unknown", ())
                facts.parts |= {part: value for part, value in answer.items() if part != "unknown"}

    # --- brokers ---

    async def _brokers(self, cluster: ClusterDescription) -> Mapping[str, Any]:
        nodes = [node.id for node in cluster.brokers]
        ping_ms = max(min(MOST_PING_MS, self._left_ms()), LEAST_PING_MS)
        calls = [self._calls.ping_node(node, ping_ms) for node in nodes]
        answers = dict(zip(nodes, map(checked, await gather(self._calls.cluster.runtime, calls)), strict=True))
        throttled = self._calls.throttled_since(self._began_ms)
        # A quota holds requests back, so a broker that throttles may not answer in time. It is not away.
        self._silent = {
            node: answer for node, answer in answers.items() if isinstance(answer, KafkaError) and node not in throttled
        }
        return {"silent": {node: str(error) for node, error in self._silent.items()}, "throttled": throttled}

    def _answering(self, cluster: ClusterDescription) -> list[int]:
        return [node.id for node in cluster.brokers if node.id not in self._silent]

    async def _disks(self, cluster: ClusterDescription) -> Mapping[str, Any]:
        nodes = self._answering(cluster)
        calls = [self._ask(self._calls.describe_log_dirs, [node]) for node in nodes]
        dirs: list[LogDir] = []
        unknown = []
        for node, answer in zip(nodes, map(checked, await gather(self._calls.cluster.runtime, calls)), strict=True):
            if isinstance(answer, KafkaError):
                unknown.append(unknown_of(f"disks of broker {node}", answer))
                continue
            dirs += answer
            if any(each.error_code == 0 and each.total_bytes < 0 for each in answer):
                reason = "this broker does not report free space (Kafka 3.3 and later do)"
                unknown.append(UnansweredQuestion(f"free space of broker {node}", reason, FailureKind.TOO_OLD))
        return {"log_dirs": dirs, "unknown": unknown}

    async def _clock(self) -> Mapping[str, Any]:
        wall_ms = self._calls.cluster.runtime.wall_ms
        asked_ms = wall_ms()
        quorum = await self._calls.describe_metadata_quorum(api_timeout_ms=self._patience())
        ahead_ms = quorum.clock_ahead_ms(asked_ms, wall_ms())
        reason = "the controller does not report its time (Kafka 3.3 and later do)"
        unknown = [UnansweredQuestion("clock", reason, FailureKind.TOO_OLD)] if ahead_ms is None else []
        return {"clock_ahead_ms": ahead_ms, "unknown": unknown}

    async def _features(self, cluster: ClusterDescription) -> Mapping[str, Any]:
        answering = self._answering(cluster)
        # One old broker decides the answer. A silent one may be old, so without another old one it is not known.
        all_new = None if self._silent else True
        return {
            "features": await self._calls.features(api_timeout_ms=self._patience()),
            "fences_by_group": await self._calls.these_fence_by_group(answering, self._patience()) and all_new,
            "limits_in_sync": await self._calls.limits_in_sync(answering, self._patience()) and all_new,
        }

    async def _rights(self) -> Mapping[str, Any]:
        operations = await self._calls.authorized_operations(api_timeout_ms=self._patience())
        unknown = []
        hidden = await self._calls.hidden_kinds(operations, self._patience())
        if hidden:
            reason = (
                f"without DESCRIBE on all {', '.join(hidden)}, brokers leave out the objects that this principal may "
                "not see"
            )
            unknown.append(UnansweredQuestion("rights", reason, FailureKind.NOT_ALLOWED))
        rights = None if operations is None else tuple(sorted(operations))
        return {"rights": rights, "hidden": tuple(hidden), "unknown": unknown}

    async def _coordinators(self, cluster: ClusterDescription, found: _CollectedFacts) -> Mapping[str, Any]:
        """Look up a coordinator of each kind.

        The request would create a missing internal topic. Find out instead if the brokers are able to create it.
        """
        topics: Mapping[str, TopicDescription] = found.get("topics", {})
        answering = self._answering(cluster)
        uncreated: dict[str, UncreatedTopic] = {}
        unknown = []
        for part, topic in COORDINATOR_TOPICS.items():
            try:
                if topic.name not in topics:
                    missing = await self._calls.uncreated(topic, answering, self._patience())
                    uncreated |= {} if missing is None else {part: missing}
                elif topic.kind is not None:
                    await self._calls.find_coordinator(topic.kind, self._patience())
            except KafkaError as error:
                is_creation = topic.name not in topics
                each = unknown_of(creation_of(part) if is_creation else part, error)
                if is_creation or each.failure_kind is not FailureKind.NOT_ALLOWED:  # else "rights" tells it
                    unknown.append(each)
        return {"uncreated": uncreated, "unknown": unknown}

    # --- topics and transactions ---

    async def _topics(self) -> Mapping[str, Any]:
        names = self._bounds.topic_names
        if names is not None and not names:
            return {}
        topics = await self._calls.describe_topics(names, api_timeout_ms=self._patience())
        led = {  # partitions without a leader cannot be queried
            TopicPartition(name, number): at.leader
            for name, topic in sorted(topics.items())
            for number, at in topic.partitions.items()
            if at.leader >= 0
        }
        failed = {partition: self._silent[leader] for partition, leader in led.items() if leader in self._silent}
        wanted = self._partitions.of([partition for partition in led if partition not in failed])
        if not wanted:
            return {"topics": topics, "unknown": unanswered_offsets(failed)}
        try:
            stable = await self._calls.offsets_at(LATEST, wanted, self._patience(), Isolation.READ_COMMITTED)
            # Requested after the stable offsets, so that an end is never before a last stable offset.
            high = await self._calls.offsets_at(LATEST, stable.done, self._patience())
        except KafkaError as error:
            return {"topics": topics, "unknown": [*unanswered_offsets(failed), unknown_of("offsets", error)]}
        ends = {partition: Ends(stable.done[partition].offset, at.offset) for partition, at in high.done.items()}
        found = await self._producers(ends)
        found["unknown"] += unanswered_offsets(failed | stable.failed | high.failed)
        return {"topics": topics, "ends": ends, **found}

    async def _producers(self, ends: Mapping[TopicPartition, Ends]) -> dict[str, Any]:
        behind = [
            partition
            for _, partition in sorted(
                (at.stable - at.end, partition) for partition, at in ends.items() if at.stable < at.end
            )
        ]
        selected = behind[: self._bounds.held]
        answers = await gather(
            self._calls.cluster.runtime,
            [self._ask(self._calls.describe_producers, [partition]) for partition in selected],
        )
        producers: dict[TopicPartition, Sequence[ProducerDescription] | UnansweredQuestion] = {}
        part = "transactions that hold readers back"
        for partition, answer in zip(selected, map(checked, answers), strict=True):
            producers[partition] = unknown_of(part, answer) if isinstance(answer, KafkaError) else answer[partition]
        # Only the first reason of each kind, because the others are the same.
        refused = {
            each.failure_kind: each for each in reversed(producers.values()) if isinstance(each, UnansweredQuestion)
        }
        unknown = list(refused.values())
        if len(selected) < len(behind):
            unknown.append(
                UnansweredQuestion(
                    part, f"only {len(selected)} of {len(behind)} partitions were asked", FailureKind.NOT_ASKED
                )
            )
        return {"producers": producers, "unknown": unknown}

    async def _settings(self, found: _CollectedFacts) -> Mapping[str, Any]:
        topics: Mapping[str, TopicDescription] = found.get("topics", {})
        least, refusal = await self._calls.least_in_sync(sorted(topics), self._patience())
        unknown = [] if refusal is None else [unknown_of("settings", refusal)]
        return {"least_in_sync": least, "unknown": unknown}

    async def _transactions(self, found: _CollectedFacts) -> Mapping[str, Any]:
        outcomes = await self._calls.transactions_by_broker(self._silent, self._patience())
        listed = sorted(chain.from_iterable(outcomes.done.values()))
        producers: Mapping[TopicPartition, Any] = found.get("producers", {})
        holding = {
            each.producer_id
            for answer in producers.values()
            if not isinstance(answer, UnansweredQuestion)
            for each in answer
        }
        wanted = [each.transactional_id for each in listed if each.state in OPEN_STATES or each.producer_id in holding]
        selected = wanted[: self._bounds.described]
        described = await self._calls.describe_transactions(selected, api_timeout_ms=self._patience())
        unknown = unanswered_lists("transactions", outcomes.failed)
        if len(selected) < len(wanted):
            reason = f"only {len(selected)} of {len(wanted)} open transactions were described"
            unknown.append(UnansweredQuestion("transactions", reason, FailureKind.NOT_ASKED))
        return {
            "listed": listed,
            "described": {each.transactional_id: each for each in described},
            "unknown": unknown,
        }

    async def _recheck(self, found: _CollectedFacts) -> None:
        """Request the producers that seem to hang once more. Their transaction may have ended between two requests."""
        producers: dict[TopicPartition, Any] = found.get("producers", {})
        described: Mapping[str, TransactionDescription] = found.get("described", {})
        known = {partition: seen for partition, seen in producers.items() if not isinstance(seen, UnansweredQuestion)}
        suspected = {each.partition for each in hanging_of(known, described.values(), float("inf"))}
        if not suspected or "described" not in found.parts:
            return
        again = (await self._producers({partition: Ends(0, 1) for partition in suspected}))["producers"]
        for partition, seen in again.items():
            before = {(each.producer_id, each.transaction_start_offset) for each in known[partition]}
            producers[partition] = (
                seen
                if isinstance(seen, UnansweredQuestion)
                else [each for each in seen if (each.producer_id, each.transaction_start_offset) in before]
            )

    # --- groups ---

    async def _consumer_groups(self) -> Mapping[str, Any]:
        names = self._bounds.group_names
        outcomes = await self._calls.groups_by_broker(self._silent, self._patience())
        listed = sorted(chain.from_iterable(outcomes.done.values()))
        groups = [each for each in listed if names is None or each.group_id in names]
        in_turn = self._groups.of(groups)
        group_ids = [each.group_id for each in in_turn if each.group_type.lower() != "share"]
        sharing = [each.group_id for each in in_turn if each.group_type.lower() == "share"]
        runtime = self._calls.cluster.runtime
        answers = await gather(runtime, [self._committed(group) for group in group_ids])
        committed = dict(zip(group_ids, map(checked, answers), strict=True))
        starts = await gather(runtime, [self._shared(group) for group in sharing])
        shared = dict(zip(sharing, map(checked, starts), strict=True))
        errors = [answer for answer in committed.values() if isinstance(answer, KafkaError)]
        unknown = list({each.failure_kind: each for each in (unknown_of("groups", error) for error in errors)}.values())
        unknown += unanswered_lists("groups", outcomes.failed)
        return {"groups": groups, "committed": committed, "shared": shared, "unknown": unknown}

    async def _records(self, found: _CollectedFacts) -> Mapping[str, Any]:
        """Read the next records of the groups that are behind, in the partitions with the largest lag."""
        ends: Mapping[TopicPartition, Ends] = found.get("ends", {})
        committed: Mapping[str, Mapping[TopicPartition, int] | KafkaError] = found.get("committed", {})
        positions: dict[tuple[TopicPartition, int], list[str]] = {}  # with the groups that stand there
        for group, partitions in committed.items():
            if not isinstance(partitions, KafkaError):
                for partition, at in partitions.items():
                    if partition in ends and 0 <= at < ends[partition].stable:
                        positions.setdefault((partition, at), []).append(group)
        selected = sorted(positions, key=lambda each: (each[1] - ends[each[0]].stable, each))[: self._bounds.read]
        if selected:
            self._patience()  # raises if no time is left
        cluster, deadline_ms = self._calls.cluster, self._until_ms
        answers = await gather(cluster.runtime, [damage_at(cluster, *each, deadline_ms) for each in selected])
        damaged: dict[TopicPartition, UnreadableRecords] = {}
        unknown: dict[FailureKind, UnansweredQuestion] = {}
        for (partition, _), answer in zip(selected, map(checked, answers), strict=True):
            if isinstance(answer, KafkaError):
                each = unknown_of("records", answer)
                unknown.setdefault(each.failure_kind, each)
            elif answer is not None and (partition not in damaged or answer.offset < damaged[partition].offset):
                damaged[partition] = answer
        if len(selected) < len(positions):
            for position in selected:
                del positions[position]
            groups = sorted(set(chain.from_iterable(positions.values())))
            total = len(selected) + len(positions)
            reason = (
                f"the next records were read at {len(selected)} of {total} positions of groups, those with the largest "
                f"lag; left out: positions of {some_of(groups, MOST_NAMED)}"
            )
            unknown[FailureKind.NOT_ASKED] = UnansweredQuestion("records", reason, FailureKind.NOT_ASKED)
        return {"damaged": damaged, "unknown": list(unknown.values())}

    async def _committed(self, group: str) -> Mapping[TopicPartition, int]:
        found = await self._calls.group_offsets(group, require_stable=False, api_timeout_ms=self._patience())
        return {partition: at.offset for partition, at in found.items()}

    async def _shared(self, group: str) -> Mapping[TopicPartition, ShareOffset]:
        return await self._calls.share_group_offsets(group, api_timeout_ms=self._patience())

    async def _group_offsets(self, found: _CollectedFacts) -> Mapping[str, Any]:
        """Describe groups that may be stuck: those that rebalance, and those with members that are behind."""
        ends: Mapping[TopicPartition, Ends] = found.get("ends", {})
        committed: Mapping[str, Mapping[TopicPartition, int] | KafkaError] = found.get("committed", {})

        def is_behind(group: str) -> bool:
            partitions = committed.get(group, {})
            return not isinstance(partitions, KafkaError) and any(
                partition in ends and at < ends[partition].end for partition, at in partitions.items()
            )

        groups: Sequence[GroupListing] = found.get("groups", [])
        selected = [
            each.group_id
            for each in groups
            if each.group_id in committed
            and (each.state in REBALANCING or (each.state == "Stable" and is_behind(each.group_id)))
        ]
        answers = await gather(
            self._calls.cluster.runtime,
            [self._ask(self._calls.describe_group, group) for group in selected],
        )
        members: dict[str, GroupDescription] = {}
        unknown = {}
        for group, answer in zip(selected, map(checked, answers), strict=True):
            if isinstance(answer, KafkaError):
                each = unknown_of("groups", answer)
                unknown[each.failure_kind] = each
            else:
                members[group] = answer
        return {"members": members, "unknown": list(unknown.values())}


def checked(answer: T | Exception) -> T | KafkaError:
    """Return a result or an error of Kafka. Any other exception is a defect here, and is raised."""
    if isinstance(answer, Exception) and not isinstance(answer, KafkaError):
        raise answer
    return answer


def by_reason(failed: Mapping[TopicPartition, KafkaError]) -> list[tuple[list[TopicPartition], KafkaError]]:
    """Return the partitions that have failed for the same reason, each time with the first error."""
    found: dict[str, tuple[list[TopicPartition], KafkaError]] = {}
    for partition, reason in sorted(failed.items(), key=lambda each: each[0]):
        found.setdefault(str(reason), ([], reason))[0].append(partition)
    return list(found.values())


def unanswered_offsets(failed: Mapping[TopicPartition, KafkaError]) -> list[UnansweredQuestion]:
    """Return the question about the offsets of partitions whose leaders do not answer; [] if there are none."""
    which = f" of {partition_words(sorted(failed), MOST_NAMED)}"
    return [unknown_of("offsets", reason, which) for reason in list(failed.values())[:1]]


def unanswered_lists(part: str, failed: Mapping[int, KafkaError]) -> list[UnansweredQuestion]:
    """Return the questions about the objects of the coordinators that are missing in a list, by broker id."""
    found = []
    if silent := sorted(node for node in failed if node != NO_LEADER):
        names = " or ".join(map(str, silent))
        found.append(unknown_of(part, failed[silent[0]], f" whose coordinator is broker {names}"))
    if NO_LEADER in failed:
        topic = COORDINATOR_TOPICS[part].name
        found.append(unknown_of(part, failed[NO_LEADER], f" in the partitions of {topic} without a leader"))
    return found
