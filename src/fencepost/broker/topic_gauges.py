"""Numbers by topic, partition and group, in bounds: each is a series that Prometheus stores.

Counters show the topics that were created first, because a counter that comes and goes looks like a restart. Gauges
show the largest. The numbers of the others are in the counters and histograms by API.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from heapq import nlargest
from itertools import islice
from operator import itemgetter
from typing import Final, NamedTuple, TypeVar

from fencepost.broker.metrics.counters import LogExtent
from fencepost.broker.metrics.traffic import TopicTraffic
from fencepost.broker.parts import BrokerParts
from fencepost.broker.share.share_partitions import reads_committed

__all__ = ["MOST_OFFSETS", "MOST_SERIES", "MOST_TOPICS", "GroupLags", "TopicNumbers", "group_lags", "topic_numbers"]

MOST_TOPICS: Final = 1_000
MOST_SERIES: Final = 2_000
"""Partitions, and groups with a topic, that are shown."""
MOST_OFFSETS: Final = 50_000
"""Committed offsets, and records of share groups, that are looked at for one answer: they take some 10 ms."""

K = TypeVar("K")
V = TypeVar("V", LogExtent, int)


class TopicNumbers(NamedTuple):
    """Counts and sizes by topic and partition.

    Attributes:
        traffic: Counts by topic.
        sizes: Bytes of the opened logs, by topic.
        logs: The largest opened logs.
        stable_lag: Offsets between the last stable offset and the high watermark, if not 0; the largest.
        unopened: Number of logs that were not opened since the start.
        hidden: Number of topics and partitions that are left out.
    """

    traffic: Mapping[str, TopicTraffic]
    sizes: Mapping[str, int]
    logs: Mapping[tuple[str, int], LogExtent]
    stable_lag: Mapping[tuple[str, int], int]
    unopened: int
    hidden: int


class GroupLags(NamedTuple):
    """Lag by (group, topic), and the number of groups with a topic, or of groups, that are left out."""

    by_pair: Mapping[tuple[str, str], int]
    hidden: int


def topic_numbers(core: BrokerParts) -> TopicNumbers:
    """Return the numbers of all topics, in bounds."""
    logs: dict[tuple[str, int], LogExtent] = {}
    lags: dict[tuple[str, int], int] = {}
    unopened = 0
    traffic: dict[str, TopicTraffic] = {}
    sizes: dict[str, int] = {}
    for topic in core.topics:
        total = 0
        for partition in topic.partitions:
            log = partition.opened
            if log is None:
                unopened += 1
                continue
            extent = LogExtent(log.size_bytes, log.log_start_offset, log.log_end_offset)
            total += extent.size_bytes
            logs[topic.name, partition.index] = extent
            if log.high_watermark > log.last_stable_offset:
                lags[topic.name, partition.index] = log.high_watermark - log.last_stable_offset
        if len(traffic) < MOST_TOPICS:
            traffic[topic.name] = copy(topic.traffic)
            sizes[topic.name] = total
    count = sum(1 for _ in core.topics)
    shown = _largest(logs)
    hidden = count - len(traffic) + len(logs) - len(shown)
    return TopicNumbers(traffic, sizes, shown, _largest(lags), unopened, hidden)


def group_lags(core: BrokerParts) -> GroupLags:
    """Return the lags of groups by topic, the largest if there are too many.

    A topic is left out if one of the partitions with an offset of the group was not opened since the start: the sum
    would be too small. Members that read open it.
    """
    sums = _Sums(MOST_OFFSETS)
    groups = core.groups.coordinator.committed_offsets()
    for group_id, offsets in groups:
        for (topic, index), stored in islice(offsets.items(), sums.left):
            partition = core.topics.partition(topic, index)
            log = None if partition is None else partition.opened
            lag = None if log is None else max(0, log.high_watermark - stored.value.offset)
            sums.add((group_id, topic), lag)
        sums.left -= len(offsets)
        if sums.left < 0:
            sums.unknown |= {(group_id, topic) for topic, _ in offsets}
            break
    hidden = (sums.left < 0) + sum(1 for _ in groups)
    hidden += _add_shared(core, sums)
    known = {pair: lag for pair, lag in sums.found.items() if pair not in sums.unknown}
    shown = _largest(known)
    return GroupLags(shown, len(known) - len(shown) + hidden)


class _Sums:
    """Lags by group and topic, and the number of offsets that may still be looked at."""

    def __init__(self, most: int) -> None:
        self.found: dict[tuple[str, str], int] = {}
        self.unknown: set[tuple[str, str]] = set()
        self.left = most

    def add(self, pair: tuple[str, str], lag: int | None) -> None:
        """Add the lag in one partition; None: it is unknown, and so is the sum."""
        if lag is None:
            self.unknown.add(pair)
        else:
            self.found[pair] = self.found.get(pair, 0) + lag


def _add_shared(core: BrokerParts, sums: _Sums) -> int:
    """Add the lags of share groups as DescribeShareGroupOffsets reports them, and return the number left out."""
    left_out: set[str] = set()
    for key, shared in core.shares.all():
        name = core.topic_name(None, key.topic_id)
        partition = None if name is None else core.topics.partition(name, key.partition)
        if name is None or partition is None:
            continue
        pair = key.group_id, name
        sums.left -= 1 + shared.window
        if sums.left < 0:
            left_out.add(key.group_id)
            sums.unknown.add(pair)
            continue
        log = partition.opened
        if log is None:
            sums.add(pair, None)
            continue
        committed = reads_committed(core.settings.of_group(key.group_id))
        sums.add(pair, shared.lag(log.last_stable_offset if committed else log.high_watermark))
    return len(left_out)


def _largest(values: Mapping[K, V]) -> dict[K, V]:
    if len(values) <= MOST_SERIES:
        return dict(values)
    return dict(nlargest(MOST_SERIES, values.items(), key=itemgetter(1)))
