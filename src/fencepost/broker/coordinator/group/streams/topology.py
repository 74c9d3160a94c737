"""Configuration of a topology for the present topics: internal topics to create, tasks, or an error.

Pure functions.

Source: `InternalTopicManager`, `RepartitionTopics`, `CopartitionedTopicsEnforcer` and `ChangelogTopics` of Apache Kafka
4.3.1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from types import MappingProxyType

from fencepost.counted import counted_noun
from fencepost.protocol.logs.streams_group_log import InternalTopic, StreamsTaskId, Subtopology, Topology
from fencepost.values import Value

__all__ = ["ConfiguredTopology", "InvalidTopology", "Status", "StatusCode", "configure", "required_topics", "tasks_of"]

PartitionsOf = Callable[[str], int | None]
"""Return the number of partitions of a topic, or None if it does not exist."""
_MOST_NAMED = 3


class StatusCode(IntEnum):
    """Status of a group in a heartbeat's answer, with the codes of the wire."""

    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4


class Status(Value):
    """A status code with its message."""

    code: StatusCode
    detail: str


class InvalidTopology(ValueError):
    """The topology is invalid, whatever topics exist."""


class ConfiguredTopology(Value):
    """The tasks per subtopology and the missing internal topics, or the problem that prevents an assignment."""

    tasks: Mapping[str, int] = MappingProxyType({})
    missing: tuple[InternalTopic, ...] = ()
    problem: Status | None = None

    @property
    def is_ready(self) -> bool:
        """True if tasks can be assigned."""
        return self.problem is None


class _Wrong(Exception):
    def __init__(self, code: StatusCode, detail: str) -> None:
        super().__init__(detail)
        self.status = Status(code, detail)


def required_topics(topology: Topology) -> set[str]:
    """Return every topic that the topology reads, and the internal topics."""
    found: set[str] = set()
    for part in topology.subtopologies:
        found.update(part.source_topics)
        found.update(topic.name for topic in (*part.repartition_source_topics, *part.changelog_topics))
    return found


def tasks_of(tasks: Mapping[str, int]) -> list[StreamsTaskId]:
    """Return the tasks, by subtopology."""
    return [StreamsTaskId(part, number) for part in sorted(tasks) for number in range(tasks[part])]


def configure(topology: Topology, partitions_of: PartitionsOf) -> ConfiguredTopology:
    """Configure the topology for the present topics. Raises InvalidTopology."""
    try:
        missing = {t for part in topology.subtopologies for t in part.source_topics if partitions_of(t) is None}
        if missing:
            raise _Wrong(StatusCode.MISSING_SOURCE_TOPICS, f"Topics that are read do not exist: {_named(missing)}.")
        counts = _repartition_counts(topology, partitions_of)
        _copartition(topology, partitions_of, counts)
        tasks = {part.subtopology_id: _width(part, partitions_of, counts) for part in topology.subtopologies}
        wanted = _internal_topics(topology, counts, tasks)
        for topic in wanted:
            found = partitions_of(topic.name)
            if found is not None and found != topic.partitions:
                raise _Wrong(
                    StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
                    f"Topic {topic.name} exists with {counted_noun(found, 'partition')}, and the topology "
                    f"needs {topic.partitions}.",
                )
    except _Wrong as wrong:
        return ConfiguredTopology(problem=wrong.status)
    absent = tuple(topic for topic in wanted if partitions_of(topic.name) is None)
    problem = None
    if absent:
        detail = f"Internal topics do not exist yet: {_named(topic.name for topic in absent)}"
        problem = Status(StatusCode.MISSING_INTERNAL_TOPICS, detail)
    return ConfiguredTopology(tasks, absent, problem)


def _count(topic: str, partitions_of: PartitionsOf, counts: Mapping[str, int]) -> int | None:
    """Return the number of partitions of an existing topic, or else the decided number."""
    found = partitions_of(topic)
    return counts.get(topic) if found is None else found


def _repartition_counts(topology: Topology, partitions_of: PartitionsOf) -> dict[str, int]:
    """Decide the partitions of repartition topics: as requested, or as many as in the topics they are written from."""
    counts = {
        topic.name: topic.partitions
        for part in topology.subtopologies
        for topic in part.repartition_source_topics
        if topic.partitions
    }
    while True:
        open_sinks = False
        progress = False
        for part in topology.subtopologies:
            for sink in part.repartition_sink_topics:
                if sink in counts:
                    continue
                from_topics = [counts[t.name] for t in part.repartition_source_topics if t.name in counts]
                from_topics += [found for t in part.source_topics if (found := partitions_of(t)) is not None]
                if from_topics:
                    counts[sink], progress = max(from_topics), True
                else:
                    open_sinks = True
        if not open_sinks:
            break
        if not progress:
            raise InvalidTopology(
                "The repartition topics are written from each other in a loop, and none has a number of partitions."
            )
    for part in topology.subtopologies:
        if any(topic.name not in counts for topic in part.repartition_source_topics):
            raise InvalidTopology(
                "A repartition topic is read, and nothing writes to it that would say how many partitions it needs."
            )
    return counts


def _copartition(topology: Topology, partitions_of: PartitionsOf, counts: dict[str, int]) -> None:
    """Give repartition topics the number of partitions of the topics they are joined with."""
    internal = [topic for part in topology.subtopologies for topic in part.repartition_source_topics]
    fixed = {topic.name for topic in internal if topic.partitions}
    flexible = {topic.name for topic in internal if not topic.partitions}
    for part in topology.subtopologies:
        for group in part.copartition_groups:
            names = {part.source_topics[i] for i in group.source_topics}
            names |= {part.repartition_source_topics[i].name for i in group.repartition_source_topics}
            if names:
                _copartition_group(names, fixed, flexible, partitions_of, counts)


def _copartition_group(
    names: set[str], fixed: set[str], flexible: set[str], partitions_of: PartitionsOf, counts: dict[str, int]
) -> None:
    known = {name: _count(name, partitions_of, counts) or 0 for name in names}
    repartition = names & (fixed | flexible)
    outside = names - repartition
    deciding = outside or (names & fixed)
    width = max(known.values()) if not deciding else known[min(deciding)]
    if any(known[name] != width for name in deciding):
        listed = ", ".join(f"{name}={known[name]}" for name in sorted(outside or repartition))
        raise _Wrong(
            StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
            f"Topics that are joined need equally many partitions, and have {listed}.",
        )
    for name in sorted(repartition):
        if name in fixed and known[name] != width:
            raise _Wrong(
                StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
                f"Repartition topic {name} has {counted_noun(known[name], 'partition')}, and what it is "
                f"joined with has {width}.",
            )
        counts[name] = width


def _width(part: Subtopology, partitions_of: PartitionsOf, counts: Mapping[str, int]) -> int:
    """Return the number of tasks: the highest number of partitions among the topics that the subtopology reads."""
    names = [*part.source_topics, *(topic.name for topic in part.repartition_source_topics)]
    widths = [_count(name, partitions_of, counts) or 0 for name in names]
    if not widths:
        raise InvalidTopology(f"Subtopology {part.subtopology_id} reads no topic.")
    return max(widths)


def _internal_topics(topology: Topology, counts: Mapping[str, int], tasks: Mapping[str, int]) -> list[InternalTopic]:
    found: dict[str, InternalTopic] = {}
    for part in topology.subtopologies:
        for topic in part.repartition_source_topics:
            wanted = topic.partitions or counts[topic.name]
            found[topic.name] = InternalTopic(topic.name, wanted, topic.replication_factor, topic.configs)
        for topic in part.changelog_topics:
            wanted = topic.partitions or tasks[part.subtopology_id]
            found[topic.name] = InternalTopic(topic.name, wanted, topic.replication_factor, topic.configs)
    return [found[name] for name in sorted(found)]


def _named(topics: Iterable[str]) -> str:
    names = sorted(topics)
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
