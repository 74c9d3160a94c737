"""Search the messages of a topic: the query, the outcomes of transactions, filters, and texts. Pure."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, NamedTuple

from fencepost.arguments import brief_repr
from fencepost.cli.ui.web import HttpRefusal
from fencepost.client.records import Record
from fencepost.client.types import TopicPartition
from fencepost.errors import KafkaError
from fencepost.protocol.json_text import parse_json

__all__ = [
    "MOST_PARTITIONS",
    "ROWS",
    "EndState",
    "PartitionSearch",
    "Query",
    "SeenMessage",
    "WindowRecords",
    "matches",
    "outcomes",
    "page_of",
    "query_of",
    "shown",
]

Decode = Callable[[Record, str], Any]
"""Decodes the part ("key" or "value") of a record. Raises KafkaError."""

ROWS: Final = 50
MOST_PARTITIONS: Final = 50
MOST_OFFSETS: Final = 10_000  # offsets in one window of a partition
PREVIEW: Final = 1_000  # bytes of a part in a list
WHOLE: Final = 64 * 1024  # bytes of a part on its own page
MOST_HEADERS: Final = 50
UNDECODABLE: Final = (KafkaError, ValueError, RecursionError)
MOST_PARSED: Final = 1024 * 1024  # bytes of a value that a JSON path is looked up in

_PATH: Final = re.compile(r"\s*\$?\.?(?P<path>[^=!]+?)\s*(?P<rule>!=|=)\s*(?P<value>.*?)\s*", re.DOTALL)
_STEP: Final = re.compile(r"\.?([^.\[\]]+)|\[([0-9]{1,18})\]")
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


class EndState(StrEnum):
    """The end of the transaction that wrote a record."""

    NONE = "none"
    COMMITTED = "committed"
    ABORTED = "aborted"
    OPEN = "open"
    UNKNOWN = "unknown"


class SeenMessage(NamedTuple):
    """A record with the producer of its batch (-1: not idempotent) and the outcome of its transaction."""

    record: Record
    producer_id: int
    outcome: EndState
    row: Mapping[str, Any] = {}
    """The row of the message in the list."""

    @property
    def order(self) -> tuple[int, int, int]:
        """Timestamp, partition, offset."""
        return self.record.timestamp_ms, self.record.partition, self.record.offset


class WindowRecords(NamedTuple):
    """Records of one partition, read from `start` to before `reached`, and reasons why parts of it are missing."""

    messages: Sequence[SeenMessage]
    reached: int
    flaws: Sequence[str] = ()


class JsonTest(NamedTuple):
    """A path in a JSON value, and the text to which its scalar is or is not equal."""

    steps: tuple[str | int, ...]
    is_equal: bool
    text: str

    def holds(self, value: Any) -> bool:
        """Return true if the value has the path and fulfils the rule."""
        for step in self.steps:
            if isinstance(step, int) and isinstance(value, list) and step < len(value):
                value = value[step]
            elif isinstance(value, dict) and str(step) in value:
                value = value[str(step)]
            else:
                return False
        found = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
        return (found == self.text) is self.is_equal


@dataclass(frozen=True, slots=True)
class Query:
    """The messages that a person asks for."""

    topic: str
    partition: int | None = None
    newest: bool = True
    offset: int | None = None
    timestamp_ms: int | None = None
    key: str = ""
    value: str = ""
    header: str = ""
    test: JsonTest | None = None
    committed_only: bool = False
    form: str = "auto"
    at: Mapping[int, int] = field(default_factory=dict)
    """By partition, the offset at which the page before stopped."""

    @property
    def has_filter(self) -> bool:
        """Return true if not every record matches."""
        return bool(self.key or self.value or self.header or self.test)


STARTS: Final = ("newest", "oldest", "offset", "time")
FORMS: Final = ("auto", "text", "json", "hex", "registry")


def query_of(parameters: Mapping[str, str]) -> Query:
    """Parse the page's query.

    Raises:
        Refusal: A part cannot be used; the text names it and the reason.
    """
    begin, at = _choice(parameters.get("from") or "newest", STARTS, "from"), parameters.get("at", "")
    offset = _number(at, "offset") if begin == "offset" else None
    return Query(
        topic=parameters.get("name", ""),
        partition=_number(parameters["partition"], "partition") if parameters.get("partition") else None,
        newest=begin == "newest",
        offset=offset,
        timestamp_ms=_time(at) if begin == "time" else None,
        key=parameters.get("key", ""),
        value=parameters.get("value", ""),
        header=parameters.get("header", ""),
        test=_test(parameters["path"]) if parameters.get("path") else None,
        committed_only=parameters.get("committed") == "1",
        form=_choice(parameters.get("form") or "auto", FORMS, "form"),
        at=_marks(parameters.get("cursor", "")),
    )


def _number(text: str, name: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 19):
        raise HttpRefusal(400, f"{name} {brief_repr(text)} is not a number from 0 on")
    return int(text)


def _choice(text: str, options: Sequence[str], name: str) -> str:
    if text not in options:
        raise HttpRefusal(400, f"{name} {brief_repr(text)} is none of {', '.join(options)}")
    return text


def _time(text: str) -> int:
    if text.isascii() and text.isdecimal() and len(text) < 16:
        return int(text)
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError, OSError) as error:
        raise HttpRefusal(
            400, f"{brief_repr(text)} is no time such as 2026-01-31T12:00 or milliseconds since 1970"
        ) from error


def _test(text: str) -> JsonTest:
    parts = _PATH.fullmatch(text)
    if parts is None:
        raise HttpRefusal(
            400, f"JSON path {brief_repr(text)} is not of the form customer.id = 7 or items[0].name != pen"
        )
    steps: list[str | int] = []
    at = 0
    while at < len(parts["path"]):
        step = _STEP.match(parts["path"], at)
        if step is None:
            raise HttpRefusal(400, f"JSON path {parts['path']!r} cannot be read from character {at + 1} on")
        steps.append(step[1] if step[2] is None else int(step[2]))
        at = step.end()
    return JsonTest(tuple(steps), parts["rule"] == "=", parts["value"])


def _marks(text: str) -> dict[int, int]:
    marks: dict[int, int] = {}
    for part in filter(None, text.split(",")[: MOST_PARTITIONS + 1]):
        partition, _, offset = part.partition(":")
        marks[_number(partition, "partition of the cursor")] = _number(offset, "offset of the cursor")
    return marks


# --- transactions ---


class EndMarker(NamedTuple):
    """The end of a producer's transaction in a partition."""

    offset: int
    commit: bool


def outcomes(
    written: Iterable[tuple[int, int]],
    markers: Mapping[int, Sequence[EndMarker]],
    open_from: Mapping[int, int] | None,
) -> list[EndState]:
    """Decide the outcomes of transactional records.

    Args:
        written: (producer id, offset) of the records.
        markers: By producer id, its markers that were read behind the records, by offset.
        open_from: By producer id, the first offset of its open transaction in this partition. None: not known.
    """
    found: list[EndState] = []
    for producer_id, offset in written:
        end = next((each for each in markers.get(producer_id, ()) if each.offset > offset), None)
        if end is not None:
            found.append(EndState.COMMITTED if end.commit else EndState.ABORTED)
        elif open_from is not None and 0 <= open_from.get(producer_id, -1) <= offset:
            found.append(EndState.OPEN)
        else:
            found.append(EndState.UNKNOWN)
    return found


# --- the way through a partition ---


@dataclass(slots=True)
class PartitionSearch:
    """The part of one partition that is still to be searched, and the matches of this page."""

    partition: TopicPartition
    begin: int
    end: int
    newest: bool
    width: int = ROWS
    found: list[SeenMessage] = field(default_factory=list)

    def window(self) -> tuple[int, int] | None:
        """Return the next offsets to read, [start, stop); None if nothing is left or the page is full."""
        if self.begin >= self.end or len(self.found) >= ROWS:
            return None
        if self.newest:
            return max(self.begin, self.end - self.width), self.end
        return self.begin, min(self.end, self.begin + self.width)

    def take(self, matching: Sequence[SeenMessage], reached: int) -> bool:
        """Take the matches of the window, which was read up to `reached`. Returns false if it must be read again."""
        start, stop = self.window() or (self.begin, self.end)
        if not self.newest:
            self.found += matching
            self.begin = max(min(reached, stop), start + 1)
        elif reached >= stop or self.width == 1:
            self.found += reversed(matching)
            self.end = start
        else:  # too large for one read: a smaller window, so that the newest records come first
            self.width = max(self.width // 8, 1)
            return False
        self.width = min(self.width * 2, MOST_OFFSETS)
        return True

    def rest(self, taken: Sequence[SeenMessage]) -> int | None:
        """Return the offset at which the next page begins (newest first: ends); None if nothing is left."""
        if len(taken) < len(self.found):
            offset = self.found[len(taken)].record.offset
            return offset + 1 if self.newest else offset
        if self.begin >= self.end:
            return None
        return self.end if self.newest else self.begin


def page_of(searches: Sequence[PartitionSearch]) -> tuple[list[SeenMessage], dict[int, int]]:
    """Merge the matches of all partitions by time.

    Returns:
        The messages of the page, and by partition the mark for the next page. No marks: nothing is left.
    """
    newest = any(search.newest for search in searches)
    # A partition's own order is that of its offsets, whatever the timestamps say.
    heads = {search.partition.partition: 0 for search in searches}
    chosen: list[SeenMessage] = []
    while len(chosen) < ROWS:
        waiting = [search for search in searches if heads[search.partition.partition] < len(search.found)]
        if not waiting:
            break
        best = (max if newest else min)(
            waiting, key=lambda search: search.found[heads[search.partition.partition]].order
        )
        chosen.append(best.found[heads[best.partition.partition]])
        heads[best.partition.partition] += 1
    marks = {}
    for search in searches:
        mark = search.rest(search.found[: heads[search.partition.partition]])
        if mark is not None:
            marks[search.partition.partition] = mark
    return chosen, marks


# --- filters and texts ---


def matches(message: SeenMessage, query: Query, decode: Decode | None) -> bool:
    """Return true if a message fulfils all filters. A value that cannot be decoded has no JSON path."""
    if query.committed_only and message.outcome not in (EndState.NONE, EndState.COMMITTED):
        return False
    if not query.has_filter:
        return True
    record = message.record
    if query.key and not _contains(record, "key", query, query.key, decode):
        return False
    if query.value and not _contains(record, "value", query, query.value, decode):
        return False
    if query.header:
        name, separator, value = query.header.partition("=")
        if not any(
            (each == name and value.encode() in (content or b""))
            if separator
            else name in each or name.encode() in (content or b"")
            for each, content in record.headers
        ):
            return False
    return query.test is None or query.test.holds(_parsed(record, query, decode))


def _contains(record: Record, part: str, query: Query, text: str, decode: Decode | None) -> bool:
    content: bytes | None = getattr(record, part)
    if content is None:
        return False
    if query.form == "hex":
        needle = text.replace(" ", "")
        return needle.lower() in content.hex()
    if query.form == "registry" and decode is not None:
        try:
            return text in _as_json(decode(record, part))
        except UNDECODABLE:  # the list shows the reason beside the record; here it only does not match
            return False
    return text.encode() in content


def _parsed(record: Record, query: Query, decode: Decode | None) -> Any:
    if record.value is None or len(record.value) > MOST_PARSED:
        return None
    try:
        if query.form == "registry" and decode is not None:
            return decode(record, "value")
        return parse_json(record.value)
    except UNDECODABLE:
        return None


def _as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2, default=str)


def shown(record: Record, part: str, form: str, decode: Decode | None, *, whole: bool = False) -> dict[str, Any]:
    """Return a key or value as text for the page, with its kind, its size in bytes, and whether it was cut."""
    content: bytes | None = getattr(record, part)
    if content is None:
        return {"kind": "null", "text": "", "bytes": 0, "cut": False}
    most = WHOLE if whole else PREVIEW
    facts: dict[str, Any] = {"bytes": len(content), "cut": False}
    if form == "registry":
        try:
            if decode is None:
                raise ValueError("no schema registry: start `fencepost ui` with --schema-registry")
            text = _as_json(decode(record, part))
            return {**facts, "kind": "decoded", "text": text[:most], "cut": len(text) > most}
        except UNDECODABLE as error:
            facts["error"] = str(error)
    return {**facts, **_text(content, form, most)}


def _laid_out(content: bytes) -> str | None:
    try:
        return _as_json(json.loads(content))
    except (ValueError, RecursionError):
        return None


def _text(content: bytes, form: str, most: int) -> dict[str, Any]:
    if form in ("auto", "registry", "json") and len(content) <= WHOLE and content[:1] in (b"{", b"["):
        laid_out = _laid_out(content)
        if laid_out is not None:
            return {"kind": "json", "text": laid_out[:most], "cut": len(laid_out) > most}
    if form != "hex":
        try:  # a cut in the middle of a character is no error
            text = codecs.getincrementaldecoder("utf-8")().decode(content[:most], final=len(content) <= most)
            if form in ("text", "json") or not _CONTROL.search(text):
                return {"kind": "text", "text": text, "cut": len(content) > most}
        except UnicodeDecodeError:
            if form == "text":
                text = content[:most].decode(errors="replace")
                return {"kind": "text, not all of it UTF-8", "text": text, "cut": len(content) > most}
    return {"kind": "hex", "text": content[: most // 3].hex(" "), "cut": len(content) > most // 3}


def document(message: SeenMessage, query: Query, decode: Decode | None, *, whole: bool = False) -> dict[str, Any]:
    """Return a message as values for JSON."""
    record = message.record
    headers = [
        {"name": name, **(_text(content, "auto", PREVIEW) if content is not None else {"kind": "null", "text": ""})}
        for name, content in record.headers[:MOST_HEADERS]
    ]
    return {
        "partition": record.partition,
        "offset": record.offset,
        "at_ms": record.timestamp_ms,
        "at_kind": record.timestamp_type.name.lower().replace("_", " "),
        "key": shown(record, "key", query.form, decode, whole=whole),
        "value": shown(record, "value", query.form, decode, whole=whole),
        "headers": headers,
        "more_headers": max(len(record.headers) - MOST_HEADERS, 0),
        "producer": message.producer_id if message.producer_id >= 0 else None,
        "outcome": message.outcome.value,
    }
