"""Offsets of a streaming source: the end of each batch, and its split into tasks. Pure.

An offset of the source is {topic: {partition: next offset}}. Its JSON has the form of Spark's own source,
{"topic": {"0": 5}}, in a fixed order, because Spark compares the text to find new records. The topics' ids follow as
{"topic@id": {}}. No topic name contains '@' and these entries are empty, so a reader of Spark's form finds the same
offsets. Offsets that are only reported also have {"topic@high-watermark:0=9": {}}, the partitions' high watermarks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from itertools import accumulate, pairwise
from typing import Any, Final, NamedTuple

from fencepost.arguments import brief_repr, is_utf8
from fencepost.client.types import TopicPartition
from fencepost.errors import ConfigurationError
from fencepost.protocol.json_text import parse_json
from fencepost.setting import number_in

__all__ = [
    "EARLIEST",
    "FROM_GROUP",
    "LATEST",
    "MOST",
    "JsonOffsets",
    "OffsetRangeLimit",
    "Offsets",
    "Range",
    "assigned",
    "ends_by_name",
    "forbid",
    "from_json",
    "high_watermarks",
    "limit",
    "moments",
    "range_limit",
    "recreated_topics",
    "rows_between",
    "split",
    "starting",
    "to_json",
    "topic_ids",
    "with_high_watermarks",
]

EARLIEST: Final = -2
LATEST: Final = -1
MOST: Final = 2**63 - 1  # the largest offset or time in ms

Offsets = dict[TopicPartition, int]
JsonOffsets = dict[str, dict[str, int]]
_ID: Final = "@"
_HIGH: Final = "@high-watermark:"


class Range(NamedTuple):
    """The offsets [start, end) of one partition. `topic_id` is "" if unknown."""

    topic: str
    partition: int
    start: int
    end: int
    topic_id: str = ""


def to_json(offsets: Mapping[TopicPartition, int], topic_ids: Mapping[str, str] | None = None) -> JsonOffsets:
    """Return offsets in Spark's form, sorted by topic and partition, followed by the topics' known ids."""
    offsets_by_topic: JsonOffsets = {}
    for (topic, partition), offset in sorted(offsets.items()):
        offsets_by_topic.setdefault(topic, {})[str(partition)] = offset
    known = topic_ids or {}
    offsets_by_topic.update({f"{topic}{_ID}{known[topic]}": {} for topic in list(offsets_by_topic) if topic in known})
    return offsets_by_topic


def topic_ids(offsets: Mapping[str, Mapping[str, int]]) -> dict[str, str]:
    """Return the topic ids that `to_json` added; {} for offsets of an older release or of Spark's own source."""
    ids = (name for name, parts in offsets.items() if _ID in name and _HIGH not in name and not parts)
    named = (name.partition(_ID) for name in ids)
    return {topic: topic_id for topic, _, topic_id in named}


def with_high_watermarks(offsets: JsonOffsets, high: Mapping[TopicPartition, int]) -> JsonOffsets:
    """Return the offsets, and the high watermarks of the partitions whose offset is lower."""
    above: dict[str, list[str]] = {}
    for (topic, partition), at in sorted(high.items()):
        if at > offsets.get(topic, {}).get(str(partition), at):
            above.setdefault(topic, []).append(f"{partition}={at}")
    return {**offsets, **{f"{topic}{_HIGH}{','.join(parts)}": {} for topic, parts in above.items()}}


def high_watermarks(offsets: Mapping[str, Mapping[str, int]]) -> Offsets:
    """Return the entries that `with_high_watermarks` added."""
    named = (name.partition(_HIGH) for name in offsets if _HIGH in name)
    entries = ((topic, entry.partition("=")) for topic, _, text in named for entry in text.split(","))
    return {TopicPartition(topic, int(partition)): int(at) for topic, (partition, _, at) in entries}


def recreated_topics(before: Mapping[str, str], after: Mapping[str, str]) -> set[str]:
    """Return the topics whose id has changed, because they were deleted and created again."""
    return {topic for topic, topic_id in before.items() if after.get(topic, topic_id) != topic_id}


def from_json(offsets: Mapping[str, Mapping[str, int]]) -> Offsets:
    """Return the offsets from the form of `to_json`, without topic ids. Raises ConfigurationError for another form."""
    try:
        found = {
            TopicPartition(_topic(name), int(p)): _whole(at)
            for name, parts in offsets.items()
            for p, at in parts.items()
        }
        if min(found.values(), default=0) < 0:
            raise ValueError("an offset below 0")
    except (ValueError, AttributeError, TypeError) as error:
        raise ConfigurationError(
            f'{brief_repr(offsets)} are not offsets of this source, which have the form {{"topic":{{"0":5}}}}: '
            "the files in the checkpoint's folder offsets are damaged, or another source wrote them. Restore the "
            "checkpoint"
        ) from error
    return found


WORDS: Final[Mapping[str, int]] = {"earliest": EARLIEST, "latest": LATEST}
"""Words of startingOffsets and endingOffsets, as in Spark's own source."""

FROM_GROUP: Final[Mapping[str, int | None]] = {
    "committed": None,
    "committed-or-earliest": EARLIEST,
    "committed-or-latest": LATEST,
}
"""Words of startingOffsets for a group's committed offsets, with the start of partitions without one (None: error)."""


FOR_ALL: Final = ("startingTimestamp", "endingTimestamp")
"""Options with one time for all partitions. The other options with times name each partition."""


class OffsetRangeLimit(NamedTuple):
    """A start or an end of reading, as in the option: a word, JSON with offsets, or times in ms since 1970."""

    option: str
    text: str
    by_time: bool


def range_limit(options: Mapping[str, str], which: str, default: str) -> OffsetRangeLimit:
    """Return the start or end that the options give. Raises ConfigurationError.

    As in Spark, one timestamp for all partitions precedes timestamps by partition, and these precede offsets.

    Args:
        options: The options, with lower-case keys.
        which: "starting" or "ending".
        default: The word if no option is given.
    """
    for name, by_time in (
        (f"{which}Timestamp", True),
        (f"{which}OffsetsByTimestamp", True),
        (f"{which}Offsets", False),
    ):
        text = options.get(name.lower())
        if text is not None:
            offset_limit = OffsetRangeLimit(name, text.strip(), by_time)
            _check_form(offset_limit)
            return offset_limit
    return OffsetRangeLimit(f"{which}Offsets", default, by_time=False)


def forbid(offset_limit: OffsetRangeLimit, word: int) -> None:
    """Refuse EARLIEST as an end, or LATEST as the start of a batch read, for all partitions or for one.

    Raises:
        ConfigurationError: The bound has this word. The text names the option.
    """
    if offset_limit.by_time:
        return
    text = offset_limit.text.lower()
    if WORDS.get(text) == word:
        raise ConfigurationError(f"option {offset_limit.option} cannot be {text}")
    if text.startswith("{") and word in _parsed(offset_limit.text, offset_limit.option).values():
        raise ConfigurationError(f"option {offset_limit.option}: {word} is not an offset here")


def _check_form(wanted: OffsetRangeLimit) -> None:
    """Raise ConfigurationError for a text that is wrong for any set of partitions."""
    if wanted.by_time:
        moments(wanted, set())
    elif wanted.text.lower() not in (*WORDS, *FROM_GROUP):
        _parsed(wanted.text, wanted.option)


def moments(offset_limit: OffsetRangeLimit, partitions: set[TopicPartition]) -> Offsets:
    """Return the time of each partition, in ms since 1970. Raises ConfigurationError.

    The option has one number for all partitions, or JSON that names each. If `partitions` is empty, only the option's
    form is checked.
    """
    if offset_limit.option in FOR_ALL:
        try:
            moment = _whole(number_in(offset_limit.text))
        except ValueError as error:
            raise ConfigurationError(
                f"option {offset_limit.option}={offset_limit.text!r}: milliseconds since 1970"
            ) from error
        given, named = dict.fromkeys(partitions, moment), [moment]
    else:
        given = _parsed(offset_limit.text, offset_limit.option)
        named = list(given.values())
    if any(moment < 0 for moment in named):
        raise ConfigurationError(f"option {offset_limit.option}: a moment before 1970")
    if partitions:
        _check_named(given, partitions, offset_limit.option)
    return given


def ends_by_name(offset_limit: OffsetRangeLimit, partitions: Iterable[TopicPartition]) -> Offsets:
    """Return the end of a stream by partition: offsets, or times in ms since 1970. Raises ConfigurationError.

    Unlike the end of a batch read, it stays valid after new partitions were added that it does not name.
    """
    if offset_limit.by_time:
        return moments(offset_limit, set(partitions) if offset_limit.option in FOR_ALL else set())
    if not offset_limit.text.startswith("{"):
        raise ConfigurationError(
            f"option {offset_limit.option}={offset_limit.text!r}: the end of a stream has to be the same after a "
            'restart, so give offsets, {"topic":{"0":5}}, or a moment; trigger(availableNow=True) ends where the '
            "topics end now"
        )
    given = _parsed(offset_limit.text, offset_limit.option)
    if any(at < 0 for at in given.values()):
        raise ConfigurationError(
            f"option {offset_limit.option}: -1 and -2 are no ends of a stream; give offsets or a moment"
        )
    return given


def assigned(text: str) -> set[TopicPartition]:
    """Return the partitions of the option assign. Raises ConfigurationError."""
    try:
        value: Any = parse_json(text)
        found = {TopicPartition(_topic(name), _whole(number)) for name, numbers in value.items() for number in numbers}
    except (ValueError, AttributeError, TypeError) as error:
        raise ConfigurationError(f'option assign={brief_repr(text)}: {{"topic":[0,1]}}') from error
    if not found:
        raise ConfigurationError("option assign names no partition")
    return found


def starting(text: str, option: str, partitions: set[TopicPartition]) -> Offsets:
    """Return EARLIEST, LATEST or an offset for each partition.

    Args:
        text: "earliest", "latest", or JSON that names every partition, as Spark demands, with -2 and -1 for these.
        option: The option's name, for errors. `forbid` refuses the word that an option does not allow.
        partitions: The partitions that are read.

    Raises:
        ConfigurationError: The text has another form, or does not name exactly the partitions.
    """
    word = text.strip().lower()
    if word in WORDS:
        return dict.fromkeys(partitions, WORDS[word])
    given = _parsed(text, option)
    _check_named(given, partitions, option)
    bad = [at for at in given.values() if at < EARLIEST]
    if bad:
        raise ConfigurationError(f"option {option}: {bad[0]} is not an offset here")
    return given


def _check_named(given: Offsets, partitions: set[TopicPartition], option: str) -> None:
    missing = partitions - set(given)
    unknown = set(given) - partitions
    if missing or unknown:
        raise ConfigurationError(
            f"option {option} has to name exactly the partitions that are read: "
            + "; ".join(
                f"{word} {', '.join(f'{partition.topic}-{partition.partition}' for partition in sorted(which))}"
                for word, which in (("missing", missing), ("unknown", unknown))
                if which
            )
        )


def _parsed(text: str, option: str) -> Offsets:
    try:
        value: Any = parse_json(text)
        return {
            TopicPartition(_topic(name), _partition(partition)): _whole(at)
            for name, parts in value.items()
            for partition, at in parts.items()
        }
    except (ValueError, AttributeError, TypeError) as error:
        raise ConfigurationError(
            f'option {option}={brief_repr(text)}: earliest, latest or {{"topic":{{"0":5}}}}'
        ) from error


def _topic(name: str) -> str:
    """Return the name. Raises ValueError for half of a pair of UTF-16, which only JSON can write.

    PySpark's worker cannot send an error with such a name: the query would wait for ever.
    """
    if not is_utf8(name):
        raise ValueError(f"{name!r} is not a topic")
    return name


def _partition(name: str) -> int:
    """Return the number of a partition. Raises ValueError, also for spaces, which Spark's own source refuses."""
    if name != name.strip():
        raise ValueError(f"{name!r} is not a partition")
    return number_in(name)


def _whole(number: Any) -> int:
    """Return a JSON number without its fraction. Raises ValueError for text, true, null and numbers above 64 bits."""
    if isinstance(number, bool) or not isinstance(number, int | float) or not abs(number) <= MOST:
        raise ValueError(f"{number!r} is not a whole number of 64 bits")
    return int(number)


def limit(start: Offsets, end: Offsets, max_rows: int | None) -> Offsets:
    """Return the end of a batch. Each partition gets a share of `max_rows` by its backlog, and at least one offset.

    Every partition with a backlog advances in every batch, so a batch may exceed `max_rows` by as many offsets as
    there are partitions. A partition without rows in a batch would not hold the query's watermark back, and the query
    would drop its rows as late when it reads them. The floating-point arithmetic is that of Spark's own connector, so
    the same offsets give the same batches. The result is never beyond `end` nor before `start`. A partition that is
    not in `start` stays at its `end`.
    """
    begin = {partition: start.get(partition, at) for partition, at in end.items()}
    backlog = {partition: max(at - begin[partition], 0) for partition, at in end.items()}
    total = sum(backlog.values())
    if max_rows is None or not total:
        return {partition: at + backlog[partition] for partition, at in begin.items()}
    shares = {partition: max_rows * (size / total) for partition, size in backlog.items()}
    taken = {partition: math.ceil(share) if share < 1 else math.floor(share) for partition, share in shares.items()}
    return {partition: at + min(taken[partition], backlog[partition]) for partition, at in begin.items()}


def rows_between(start: Offsets, end: Offsets) -> int:
    """Return the number of offsets from `start` to `end`. A partition that is not in `start` counts as 0."""
    return sum(max(at - start.get(partition, at), 0) for partition, at in end.items())


def split(ranges: list[Range], min_partitions: int | None, max_records: int | None = None) -> list[Range]:
    """Split the ranges into tasks of at most `max_records` offsets each, and about `min_partitions` tasks in total.

    Only long ranges are cut. A range that is not longer than one task's share is not cut, and does not count in the
    shares of the others. The arithmetic is that of Spark's own connector, so the same offsets give the same tasks. A
    batch that is read again after a restart is split in the same way.
    """
    pieces = sorted(piece for piece in ranges if piece.end > piece.start)
    if max_records is not None:
        pieces = [part for piece in pieces for part in _cut(piece, -(-_size(piece) // max_records))]
    if min_partitions is None or not pieces or len(pieces) >= min_partitions:
        return pieces
    total = sum(map(_size, pieces))
    long = [piece for piece in pieces if _share(piece, total, min_partitions) > 1]
    total_long = sum(map(_size, long))
    tasks_left = max(min_partitions - (len(pieces) - len(long)), 1)
    parts = {piece: _share(piece, total_long, tasks_left) for piece in long}
    return [part for piece in pieces for part in _cut(piece, min(parts.get(piece, 1), _size(piece)))]


def _size(piece: Range) -> int:
    return piece.end - piece.start


def _share(piece: Range, total: int, tasks: int) -> int:
    """Return the range's share of `tasks` tasks for `total` offsets, at least 1. Halves are rounded up, as in Java."""
    return max(math.floor(_size(piece) / total * tasks + 0.5), 1)


def _cut(piece: Range, parts: int) -> list[Range]:
    """Cut a range into parts of equal size. If there is a remainder, the last parts are longer by one offset."""
    shorter, longer = divmod(_size(piece), parts)
    sizes = [shorter] * (parts - longer) + [shorter + 1] * longer
    bounds = list(accumulate(sizes, initial=piece.start))
    return [piece._replace(start=low, end=high) for low, high in pairwise(bounds)]
