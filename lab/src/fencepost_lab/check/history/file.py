"""Read and write histories as JSON lines, one event per line in the order of time. docs/check.md defines the form.

The first line is the version. An invocation line has the kind `f`, the process and a number `op`; the line with the
result has the same process and number. Without a result the outcome is unknown. A line with a kind that is not an
invocation stands for an operation that began and ended at once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import MISSING, fields
from typing import Any, NamedTuple, get_type_hints

from fencepost.protocol.json_text import parse_json
from fencepost_lab.check.history.model import InvalidHistory
from fencepost_lab.check.history.operations import (
    KINDS,
    NEVER,
    Operation,
    OperationResult,
    Position,
    RecordRun,
    events_of,
)

__all__ = ["VERSION_LINE", "decoded", "ended_line", "instant_line", "invoked_line", "lines_of", "operations_of"]

VERSION = 1
VERSION_LINE = json.dumps({"fencepost_history": VERSION})
COMMON = frozenset({"process", "invoked", "completed", "invoked_ms", "completed_ms", "result"})
WORDS = {
    "isolation": ("read_committed", "read_uncommitted"),
    "decision": ("commit", "abort"),
}


class _Field(NamedTuple):
    """A field of a kind: its parser, and the events that must or may carry it."""

    read: Callable[[Any], Any]
    required: bool
    carried_by: tuple[str, ...]


# Reading -------------------------------------------------------------------------------------------------------------


def decoded(lines: Iterable[bytes]) -> Iterator[str]:
    """Decode the lines of a file. Raises InvalidHistory."""
    for number, line in enumerate(lines, 1):
        try:
            yield line.decode()
        except UnicodeDecodeError as error:
            what = f"not UTF-8 text: byte {line[error.start]:#04x} at column {error.start + 1}"
            raise InvalidHistory(number, what) from error


def operations_of(lines: Iterable[str]) -> Iterator[Operation]:
    """Yield each operation at its invocation and fill in its result later. Raises InvalidHistory."""
    pending: dict[tuple[str, int], Operation] = {}
    time_ms = float("-inf")
    count = 0
    for count, line in enumerate(lines, 1):
        event = _object(count, line)
        if count == 1:
            if event.get("fencepost_history") != VERSION:
                raise InvalidHistory(1, f"the first line has to be {VERSION_LINE}")
            continue
        try:
            before, time_ms = time_ms, _number(event.pop("time_ms", None))
            if time_ms < before:
                raise ValueError(f"time_ms {time_ms} is before that of the line above ({before})")
            begun = _take(count, time_ms, event, pending)
        except ValueError as error:
            raise InvalidHistory(count, str(error)) from error
        if begun is not None:
            yield begun
    if count == 0:
        raise InvalidHistory(1, f"the history is empty; its first line has to be {VERSION_LINE}")


def _object(number: int, line: str) -> dict[str, Any]:
    try:
        event = parse_json(line)
    except json.JSONDecodeError as error:
        cut = "" if line.endswith("\n") else "; the line is cut off"
        raise InvalidHistory(number, f"not JSON: {error.msg} at column {error.colno}{cut}") from error
    except ValueError as error:
        raise InvalidHistory(number, f"not JSON: {error}") from error
    if not isinstance(event, dict):
        raise InvalidHistory(number, f"not a JSON object, but {line.strip()[:60]}")
    return event


def _take(
    number: int, time_ms: float, event: dict[str, Any], pending: dict[tuple[str, int], Operation]
) -> Operation | None:
    """Return the operation that begins with this line, if any."""
    process, kind, name = _text(event.pop("process", None), "process"), event.pop("type", None), event.pop("f", None)
    if kind not in ("invoke", "ok", "fail", "unknown"):
        raise ValueError(f"type has to be invoke, ok, fail or unknown, not {kind!r}")
    if name is not None and kind != "invoke":
        event.pop("op", None)
        return _begin(number, time_ms, process, name, event, OperationResult(kind))
    key = process, _integer(event.pop("op", None), "op")
    if kind == "invoke":
        if key in pending:
            raise ValueError(f"op {key[1]} of {process} was invoked in line {pending[key].invoked} and has not ended")
        pending[key] = begun = _begin(number, time_ms, process, name, event, None)
        return begun
    operation = pending.pop(key, None)
    if operation is None:
        raise ValueError(f"op {key[1]} of {process} was not invoked, or has ended already")
    _fill(operation, event)
    operation.completed, operation.completed_ms, operation.result = number, time_ms, OperationResult(kind)
    return None


def _begin(
    number: int, time_ms: float, process: str, name: Any, event: dict[str, Any], result: OperationResult | None
) -> Operation:
    kind = KINDS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise ValueError(f"f has to be one of {', '.join(KINDS)}, not {name!r}")
    given = {}
    for key, field in _FIELDS[kind].items():
        if key in event:
            given[key] = _value(key, field, event.pop(key))
        elif field.required:
            raise ValueError(f"{name} needs the field {key}")
    if event:
        raise ValueError(f"{name} has no field {', '.join(event)}")
    begun = kind(process=process, **given)
    begun.invoked, begun.invoked_ms = number, time_ms
    if result is not None:
        begun.completed, begun.completed_ms, begun.result = number, time_ms, result
    return begun


def _fill(operation: Operation, event: dict[str, Any]) -> None:
    known = _FIELDS[type(operation)]
    for key, raw in event.items():
        field = known.get(key)
        if field is None or "end" not in field.carried_by:
            raise ValueError(f"the end of {operation.F} has no field {key}")
        setattr(operation, key, _value(key, field, raw))


def _value(key: str, field: _Field, raw: Any) -> Any:
    try:
        value = field.read(raw)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{key}: {error}") from error
    if key in WORDS and value not in WORDS[key]:
        raise ValueError(f"{key} has to be {' or '.join(WORDS[key])}, not {value!r}")
    return value


def _text(raw: Any, name: str = "it") -> str:
    if not isinstance(raw, str):
        raise ValueError(f"{name} has to be a string, not {raw!r}")
    return raw


def _integer(raw: Any, name: str = "it") -> int:
    if not isinstance(raw, int) or isinstance(raw, bool):
        raise ValueError(f"{name} has to be an integer, not {raw!r}")
    return raw


def _boolean(raw: Any) -> bool:
    if not isinstance(raw, bool):
        raise ValueError(f"it has to be true or false, not {raw!r}")
    return raw


def _number(raw: Any) -> float:
    if not isinstance(raw, int | float) or isinstance(raw, bool):
        raise ValueError(f"time_ms has to be a number, not {raw!r}")
    return raw


def _position(raw: Any) -> Position:
    if not isinstance(raw, list) or len(raw) != 3:
        raise ValueError(f"it has to be [topic, partition, offset], not {raw!r}")
    return Position(_text(raw[0], "topic"), _integer(raw[1], "partition"), _integer(raw[2], "offset"))


def _positions(raw: Any) -> list[Position]:
    if not isinstance(raw, list):
        raise ValueError(f"it has to be a list of [topic, partition, offset], not {raw!r}")
    return [_position(entry) for entry in raw]


def _batches(raw: Any) -> list[RecordRun]:
    if not isinstance(raw, list):
        raise ValueError(f"it has to be a list of objects, not {raw!r}")
    return [_batch(entry) for entry in raw]


def _batch(raw: Any) -> RecordRun:
    if not isinstance(raw, dict) or raw.keys() != {"topic", "partition", "offsets", "values"}:
        raise ValueError(f"it has to be an object with topic, partition, offsets, values, not {raw!r}"[:200])
    offsets, values = raw["offsets"], raw["values"]
    if not isinstance(offsets, list) or not isinstance(values, list) or len(offsets) != len(values):
        raise ValueError("offsets and values have to be lists of the same length")
    return RecordRun(
        _text(raw["topic"], "topic"),
        _integer(raw["partition"], "partition"),
        [_integer(offset, "an offset") for offset in offsets],
        [_text(value, "a value") for value in values],
    )


def _fields_of(kind: type[Operation]) -> dict[str, _Field]:
    hints = get_type_hints(kind)
    readers: dict[Any, Callable[[Any], Any]] = {
        str: _text,
        int: _integer,
        bool: _boolean,
        list[Position]: _positions,
        list[RecordRun]: _batches,
        Position | None: _position,
    }
    return {
        declared.name: _Field(
            readers[hints[declared.name]],
            declared.default is MISSING and declared.default_factory is MISSING,
            events_of(declared),
        )
        for declared in fields(kind)
        if declared.name not in COMMON
    }


_FIELDS: dict[type[Operation], dict[str, _Field]] = {kind: _fields_of(kind) for kind in KINDS.values()}


# Writing -------------------------------------------------------------------------------------------------------------


def invoked_line(operation: Operation) -> str:
    """Return the invocation line of an operation."""
    head = _head(operation, operation.invoked_ms, "invoke") | {"op": operation.invoked, "f": operation.F}
    return json.dumps(head | _given(operation, "beginning"))


def ended_line(operation: Operation) -> str:
    """Return the result line of an operation."""
    head = _head(operation, operation.completed_ms, operation.result.value) | {"op": operation.invoked}
    return json.dumps(head | _given(operation, "end"))


def instant_line(operation: Operation) -> str:
    """Return the line of an operation that began and ended at once."""
    head = _head(operation, operation.completed_ms, operation.result.value) | {"f": operation.F}
    return json.dumps(head | _given(operation, "beginning") | _given(operation, "end"))


def lines_of(operations: Iterable[Operation]) -> Iterator[str]:
    """Yield all lines of a history without line ends."""
    events = []
    for operation in operations:
        if operation.completed == operation.invoked:
            events.append((operation.invoked, operation, instant_line))
            continue
        events.append((operation.invoked, operation, invoked_line))
        if operation.completed != NEVER:
            events.append((operation.completed, operation, ended_line))
    yield VERSION_LINE
    for _, operation, line in sorted(events, key=lambda event: event[0]):
        yield line(operation)


def _head(operation: Operation, time_ms: float, kind: str) -> dict[str, Any]:
    return {"time_ms": round(time_ms, 4), "process": operation.process, "type": kind}


def _given(operation: Operation, when: str) -> dict[str, Any]:
    """Return the fields that differ from their default."""
    found = {}
    for declared in fields(operation):
        if declared.name in COMMON or when not in events_of(declared):
            continue
        value = getattr(operation, declared.name)
        if declared.default is not MISSING and value == declared.default:
            continue
        if declared.default_factory is not MISSING and not value:
            continue
        found[declared.name] = [batch._asdict() for batch in value] if declared.name == "records" else value
    return found
