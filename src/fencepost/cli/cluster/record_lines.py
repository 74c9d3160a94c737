"""Convert records to and from lines of text: JSON, or the unchanged value, optionally after the key."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from fencepost.client.records import Record
from fencepost.protocol.json_text import parse_json

__all__ = ["NewRecord", "Parser", "UnusableLine", "json_line", "json_parser", "said", "text_line", "text_parser"]

NO_VALUE: Final = b"null"  # a null value in a line of text, as Kafka's console consumer prints it
_FIELDS: Final = frozenset("topic partition offset timestamp key key_base64 value value_base64 headers".split())


class UnusableLine(ValueError):
    """The line is not a record; the text gives the reason."""


class NewRecord(NamedTuple):
    """A record to write, parsed from a line."""

    value: bytes | None
    key: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    timestamp_ms: int | None = None
    partition: int | None = None


Parser = Callable[[bytes], NewRecord]


def json_line(record: Record) -> bytes:
    """Return a line of JSON. Bytes that are not UTF-8 are in base64, as `key_base64` and `value_base64`."""
    facts: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        **said("key", record.key),
        **said("value", record.value),
    }
    if record.headers:
        facts["headers"] = [{"name": name, **said("value", value)} for name, value in record.headers]
    return json.dumps(facts, ensure_ascii=False).encode() + b"\n"


def text_line(record: Record, key_separator: str | None) -> bytes:
    """Return the value's bytes as a line, after key and separator if there is a separator."""
    value = NO_VALUE if record.value is None else record.value
    if key_separator is None:
        return value + b"\n"
    key = NO_VALUE if record.key is None else record.key
    return b"%b%b%b\n" % (key, key_separator.encode(), value)


def text_parser(key_separator: str | None) -> Parser:
    """Return a parser for lines with a value, or with key, separator and value."""
    separator = None if key_separator is None else key_separator.encode()

    def parse(line: bytes) -> NewRecord:
        """Parse a line. Raises UnusableLine."""
        if separator is None:
            return NewRecord(line)
        key, found, value = line.partition(separator)
        if not found:
            raise UnusableLine(f"there is no {key_separator!r} between a key and a value")
        return NewRecord(value, key)

    return parse


def json_parser(*, keep_partitions: bool) -> Parser:
    """Return a parser for lines of `json_line`. Only a value is required; topic and offset are ignored."""

    def parse(line: bytes) -> NewRecord:
        """Parse a line. Raises UnusableLine."""
        try:
            facts = parse_json(line)
        except ValueError as error:
            raise UnusableLine(f"not JSON: {error}") from error
        if not isinstance(facts, dict):
            raise UnusableLine("not a JSON object")
        unknown = facts.keys() - _FIELDS
        if unknown:
            raise UnusableLine(f"{min(unknown)!r} is not a field of a record: {', '.join(sorted(_FIELDS))}")
        if "value" not in facts and "value_base64" not in facts:
            raise UnusableLine("it has no value (a tombstone's is null)")
        return NewRecord(
            _meant("value", facts),
            _meant("key", facts),
            [*map(_header, _list_of("headers", facts))],
            _number("timestamp", facts),
            _number("partition", facts) if keep_partitions else None,
        )

    return parse


def said(name: str, content: bytes | None) -> dict[str, str | None]:
    """Return content under `name` as text, or under `name`_base64 if it is not UTF-8."""
    try:
        return {name: None if content is None else content.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(content or b"").decode()}


def _meant(name: str, facts: dict[str, Any]) -> bytes | None:
    """Return a field's bytes. Raises UnusableLine."""
    encoded = f"{name}_base64"
    if encoded in facts:
        if name in facts:
            raise UnusableLine(f"it has both {name} and {encoded}")
        try:
            return base64.b64decode(facts[encoded], validate=True)
        except (TypeError, ValueError, binascii.Error) as error:
            raise UnusableLine(f"{encoded} is not base64: {error}") from error
    found = facts.get(name)
    if found is not None and not isinstance(found, str):
        raise UnusableLine(f"{name} is neither a string nor null (JSON inside a record must be a string)")
    try:
        return None if found is None else found.encode()
    except UnicodeEncodeError as error:
        raise UnusableLine(f"{name} cannot be encoded in UTF-8") from error


def _header(found: Any) -> tuple[str, bytes | None]:
    """Parse a header. Raises UnusableLine."""
    if not isinstance(found, dict) or not isinstance(found.get("name"), str):
        raise UnusableLine('a header is {"name": ..., "value": ...}')
    return found["name"], _meant("value", found)


def _list_of(name: str, facts: dict[str, Any]) -> list[Any]:
    found = facts.get(name)
    if found is None:
        return []
    if not isinstance(found, list):
        raise UnusableLine(f"{name} is not a list")
    return found


def _number(name: str, facts: dict[str, Any]) -> int | None:
    found = facts.get(name)
    if found is None or (isinstance(found, int) and not isinstance(found, bool)):
        return found
    raise UnusableLine(f"{name} is not a number")
