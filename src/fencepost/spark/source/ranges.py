"""Offsets of a streaming source, pure: what a micro-batch takes, and how it is split into tasks.

An offset is {topic: {partition: next offset}}; as JSON, Spark's own form: {"topic": {"0": 5}}, in one fixed order,
because Spark compares the text to see whether there is anything new. The topics' ids follow as {"topic@id": {}}: names
that no topic can have, with nothing in them, so that whoever reads Spark's form finds the same offsets as without. In
the same way {"topic@high-watermark:0=9": {}} says, in what is only reported, where partitions really end.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from itertools import accumulate, pairwise
from typing import Any, Final, NamedTuple

from fencepost.client.types import TopicPartition
from fencepost.errors import ConfigurationError
from fencepost.protocol.json_text import parse_json

__all__ = [
    "EARLIEST",
    "FROM_GROUP",
    "LATEST",
    "MOST",
    "Bound",
    "JsonOffsets",
    "Offsets",
    "Range",
    "assigned",
    "bound",
    "ends_by_name",
    "forbid",
    "from_json",
    "high_watermarks",
    "limit",
    "made_again",
    "moments",
    "rows_between",
    "split",
    "starting",
    "to_json",
    "topic_ids",
    "with_high_watermarks",
]

EARLIEST: Final = -2
LATEST: Final = -1
MOST: Final = 2**63 - 1  # an offset, or milliseconds

Offsets = dict[TopicPartition, int]
JsonOffsets = dict[str, dict[str, int]]
_ID: Final = "@"
_HIGH: Final = "@high-watermark:"


class Range(NamedTuple):
    """[start, end) of one partition of the topic with this id ("": not known)."""

    topic: str
    partition: int
    start: int
    end: int
    topic_id: str = ""


def to_json(offsets: Mapping[TopicPartition, int], topic_ids: Mapping[str, str] | None = None) -> JsonOffsets:
    """Sorted by topic and partition number; then the ids of these topics, as far as they are known."""
    made: JsonOffsets = {}
    for (topic, partition), offset in sorted(offsets.items()):
        made.setdefault(topic, {})[str(partition)] = offset
    known = topic_ids or {}
    made.update({f"{topic}{_ID}{known[topic]}": {} for topic in list(made) if topic in known})
    return made


def topic_ids(offsets: Mapping[str, Mapping[str, int]]) -> dict[str, str]:
    """The ids that `to_json` added; nothing for offsets of an older version, or of Spark's own source."""
    ids = (name for name, parts in offsets.items() if _ID in name and _HIGH not in name and not parts)
    named = (name.partition(_ID) for name in ids)
    return {topic: topic_id for topic, _, topic_id in named}


def with_high_watermarks(offsets: JsonOffsets, high: Mapping[TopicPartition, int]) -> JsonOffsets:
    """The same, and the high watermarks of those partitions that end before them."""
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


def made_again(before: Mapping[str, str], after: Mapping[str, str]) -> set[str]:
    """The topics whose id is another than before."""
    return {topic for topic, topic_id in before.items() if after.get(topic, topic_id) != topic_id}


def from_json(offsets: Mapping[str, Mapping[str, int]]) -> Offsets:
    """The inverse of `to_json`, without the ids."""
    return {TopicPartition(topic, int(p)): at for topic, parts in offsets.items() for p, at in parts.items()}


WORDS: Final[Mapping[str, int]] = {"earliest": EARLIEST, "latest": LATEST}
"""Words of startingOffsets and endingOffsets that Spark's own source has, too."""

FROM_GROUP: Final[Mapping[str, int | None]] = {
    "committed": None,
    "committed-or-earliest": EARLIEST,
    "committed-or-latest": LATEST,
}
"""Words of startingOffsets for the offsets of a group, and where partitions begin for which it has none."""


FOR_ALL: Final = ("startingTimestamp", "endingTimestamp")
"""Options with one moment for all partitions; the other options of moments name each partition."""


class Bound(NamedTuple):
    """A start or an end of reading, as the option gives it: a word, JSON of offsets, or times in ms since 1970."""

    option: str
    text: str
    by_time: bool


def bound(options: Mapping[str, str], which: str, default: str) -> Bound:
    """`which`: "starting" or "ending". A timestamp comes before timestamps, and these before offsets, as in Spark."""
    for name, by_time in (
        (f"{which}Timestamp", True),
        (f"{which}OffsetsByTimestamp", True),
        (f"{which}Offsets", False),
    ):
        text = options.get(name.lower())
        if text is not None:
            made = Bound(name, text.strip(), by_time)
            _check_form(made)
            return made
    return Bound(f"{which}Offsets", default, by_time=False)


def forbid(wanted: Bound, word: int) -> None:
    """Refuse a word for all partitions or for one: EARLIEST as an end, LATEST as a batch's start.

    Raises:
        ConfigurationError: it names the option.
    """
    if wanted.by_time:
        return
    text = wanted.text.lower()
    if WORDS.get(text) == word:
        raise ConfigurationError(f"option {wanted.option} cannot be {text}")
    if text.startswith("{") and word in _parsed(wanted.text, wanted.option).values():
        raise ConfigurationError(f"option {wanted.option}: {word} is not an offset here")


def _check_form(wanted: Bound) -> None:
    """Raises ConfigurationError for a text that is wrong whatever the partitions are."""
    if wanted.by_time:
        moments(wanted, set())
    elif wanted.text.lower() not in (*WORDS, *FROM_GROUP):
        _parsed(wanted.text, wanted.option)


def moments(wanted: Bound, partitions: set[TopicPartition]) -> Offsets:
    """Return milliseconds for each partition: one number for all, or JSON that names each. Raises ConfigurationError.

    Without `partitions` only the option's form is checked.
    """
    if wanted.option in FOR_ALL:
        try:
            moment = _whole(int(wanted.text))
        except ValueError as error:
            raise ConfigurationError(f"option {wanted.option}={wanted.text!r}: milliseconds since 1970") from error
        given, named = dict.fromkeys(partitions, moment), [moment]
    else:
        given = _parsed(wanted.text, wanted.option)
        named = list(given.values())
    if any(moment < 0 for moment in named):
        raise ConfigurationError(f"option {wanted.option}: a moment before 1970")
    if partitions:
        _check_named(given, partitions, wanted.option)
    return given


def ends_by_name(wanted: Bound, partitions: Iterable[TopicPartition]) -> Offsets:
    """Return the end of a stream: offsets, or times in ms, by partition.

    Unlike those of a batch read they stay valid if partitions are added that they do not name. Raises
    ConfigurationError.
    """
    if wanted.by_time:
        return moments(wanted, set(partitions) if wanted.option in FOR_ALL else set())
    if not wanted.text.startswith("{"):
        raise ConfigurationError(
            f"option {wanted.option}={wanted.text!r}: the end of a stream has to be the same after a restart, so give "
            'offsets, {"topic":{"0":5}}, or a moment; trigger(availableNow=True) ends where the topics end now'
        )
    given = _parsed(wanted.text, wanted.option)
    if any(at < 0 for at in given.values()):
        raise ConfigurationError(f"option {wanted.option}: -1 and -2 are no ends of a stream; give offsets or a moment")
    return given


def assigned(text: str) -> set[TopicPartition]:
    """The option assign. Raises ConfigurationError."""
    try:
        value: Any = parse_json(text)
        found = {TopicPartition(str(topic), _whole(number)) for topic, numbers in value.items() for number in numbers}
    except (ValueError, AttributeError, TypeError) as error:
        raise ConfigurationError(f'option assign={text!r}: {{"topic":[0,1]}}') from error
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
            TopicPartition(str(topic), int(partition)): _whole(at)
            for topic, parts in value.items()
            for partition, at in parts.items()
        }
    except (ValueError, AttributeError, TypeError) as error:
        raise ConfigurationError(f'option {option}={text!r}: earliest, latest or {{"topic":{{"0":5}}}}') from error


def _whole(number: Any) -> int:
    """Return a number of JSON without its fraction. Raises ValueError, for text, true and null as well."""
    if isinstance(number, bool) or not isinstance(number, int | float) or not abs(number) <= MOST:
        raise ValueError(f"{number!r} is not a whole number of 64 bits")
    return int(number)


def limit(start: Offsets, end: Offsets, max_rows: int | None) -> Offsets:
    """Return how far a batch goes: each partition its share of `max_rows` by its backlog, and at least one offset.

    Every partition with a backlog advances in every batch, so a batch may exceed `max_rows` by as many offsets as
    there are partitions. A partition that waited behind others would hold no watermark back, and a query would drop its
    rows as late when it reads them at last. The arithmetic is that of Spark's own connector, in floating point: the
    same offsets make the same batches there and here. The result never goes beyond `end` nor behind `start`. A
    partition that is not in `start` stays at its `end`.
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
    """Offsets from `start` to `end`; a partition that `start` does not know counts nothing."""
    return sum(max(at - start.get(partition, at), 0) for partition, at in end.items())


def split(ranges: list[Range], min_partitions: int | None, max_records: int | None = None) -> list[Range]:
    """Return one task per range, cut to at most `max_records` offsets each, and to about `min_partitions` altogether.

    Long ranges are cut; those that are no longer than a task's share are not, and do not count in the shares of the
    others. The arithmetic is that of Spark's own connector, so the same offsets make the same tasks there and here. A
    batch that is read again after a restart is cut in the same way.
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
    """Of so many tasks for `total` offsets; halves are rounded up, as Java does."""
    return max(math.floor(_size(piece) / total * tasks + 0.5), 1)


def _cut(piece: Range, parts: int) -> list[Range]:
    """Parts of equal size, and then those that are longer by one offset."""
    shorter, longer = divmod(_size(piece), parts)
    sizes = [shorter] * (parts - longer) + [shorter + 1] * longer
    bounds = list(accumulate(sizes, initial=piece.start))
    return [piece._replace(start=low, end=high) for low, high in pairwise(bounds)]
