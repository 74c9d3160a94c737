"""Offsets of a streaming source, pure: what a micro-batch takes, and how it is split into tasks.

An offset is {topic: {partition: next offset}}; as JSON, Spark's own form: {"topic": {"0": 5}}, in one fixed order,
because Spark compares the text to see whether there is anything new.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, Final, NamedTuple

from fencepost.client.types import TopicPartition
from fencepost.errors import ConfigurationError

__all__ = ["EARLIEST", "LATEST", "Offsets", "Range", "from_json", "limit", "split", "starting", "to_json"]

EARLIEST: Final = -2
LATEST: Final = -1

Offsets = dict[TopicPartition, int]


class Range(NamedTuple):
    """[start, end) of one partition."""

    topic: str
    partition: int
    start: int
    end: int


def to_json(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """Sorted by topic and partition number."""
    made: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        made.setdefault(topic, {})[str(partition)] = offset
    return made


def from_json(offsets: Mapping[str, Mapping[str, int]]) -> Offsets:
    """The inverse of `to_json`."""
    return {TopicPartition(topic, int(p)): at for topic, parts in offsets.items() for p, at in parts.items()}


def starting(text: str, option: str, partitions: set[TopicPartition], named_only: int) -> Offsets:
    """ "earliest", "latest", or JSON per partition with -2 and -1 for these; as EARLIEST, LATEST or an offset each.

    JSON has to name every partition, as Spark asks. `named_only` is the marker that the option may not use (a stream
    has no use for an end called earliest). Raises ConfigurationError.
    """
    word = text.strip().lower()
    if word in ("earliest", "latest"):
        at = EARLIEST if word == "earliest" else LATEST
        if at == named_only:
            raise ConfigurationError(f"option {option} cannot be {word}")
        return dict.fromkeys(partitions, at)
    given = _parsed(text, option)
    missing = partitions - set(given)
    unknown = set(given) - partitions
    if missing or unknown:
        raise ConfigurationError(
            f"option {option} has to name exactly the partitions that are read: "
            + "; ".join(
                f"{word} {', '.join(f'{one.topic}-{one.partition}' for one in sorted(which))}"
                for word, which in (("missing", missing), ("unknown", unknown))
                if which
            )
        )
    bad = [at for at in given.values() if at < EARLIEST or at == named_only]
    if bad:
        raise ConfigurationError(f"option {option}: {bad[0]} is not an offset here")
    return given


def _parsed(text: str, option: str) -> Offsets:
    try:
        value: Any = json.loads(text)
        return {
            TopicPartition(str(topic), int(partition)): int(at)
            for topic, parts in value.items()
            for partition, at in parts.items()
        }
    except (ValueError, AttributeError, TypeError) as error:
        raise ConfigurationError(f'option {option}={text!r}: earliest, latest or {{"topic":{{"0":5}}}}') from error


def limit(start: Offsets, end: Offsets, max_rows: int | None) -> Offsets:
    """How far a batch may go: each partition its share of `max_rows` by its backlog, rounded up while some are left.

    Never beyond `end`, never behind `start`; a partition that is not in `start` begins with nothing taken.
    """
    backlog = {one: max(at - start.get(one, at), 0) for one, at in end.items()}
    total = sum(backlog.values())
    if max_rows is None or total <= max_rows:
        return {one: max(at, start.get(one, at)) for one, at in end.items()}
    taken: Offsets = {}
    left, backlog_left = max_rows, total
    for one in sorted(end):
        share = 0 if not backlog_left else -(-left * backlog[one] // backlog_left)
        share = min(share, backlog[one], left)
        taken[one] = start.get(one, end[one]) + share
        left -= share
        backlog_left -= backlog[one]
    return taken


def split(ranges: list[Range], min_partitions: int | None) -> list[Range]:
    """One task per range; with `min_partitions`, long ones are cut so that there are about that many. Deterministic."""
    ranges = sorted(one for one in ranges if one.end > one.start)
    if min_partitions is None or not ranges or len(ranges) >= min_partitions:
        return ranges
    total = sum(one.end - one.start for one in ranges)
    cut: list[Range] = []
    for one in ranges:
        size = one.end - one.start
        parts = max(1, min(size, round(size * min_partitions / total)))
        bounds = [one.start + size * number // parts for number in range(parts + 1)]
        cut += [one._replace(start=low, end=high) for low, high in pairwise(bounds)]
    return cut
