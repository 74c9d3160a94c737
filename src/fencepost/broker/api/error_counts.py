"""Count the error codes of responses, by API, and for Produce and Fetch by topic."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any, Final, NamedTuple, get_args, get_type_hints
from uuid import UUID

from fencepost.broker.parts import BrokerParts

__all__ = ["count_errors"]

_PRODUCE, _FETCH = 0, 1
_CODES: Final = ("error_code", "partition_error_code", "acknowledge_error_code")


class _Shape(NamedTuple):
    """Names of a message's fields that are error codes, and of its lists whose items have such fields."""

    codes: tuple[str, ...]
    lists: tuple[str, ...]


_shapes: dict[type, _Shape] = {}


def count_errors(core: BrokerParts, api_key: int, response: Any) -> None:
    """Count each error code of a response that is not 0."""
    if api_key == _PRODUCE:
        for result in response.partitions:
            if result.error_code:
                _refused(core, api_key, result.topic, result.topic_id, result.error_code)
    elif api_key == _FETCH:
        if response.error_code:
            core.metrics.errors[api_key, response.error_code] += 1
        for topic in response.topics:
            for result in topic.partitions:
                if result.error_code:
                    _refused(core, api_key, topic.topic, topic.topic_id, result.error_code)
    else:
        _walk(core.metrics.errors, api_key, response)


def _refused(core: BrokerParts, api_key: int, name: str | None, topic_id: UUID | None, code: int) -> None:
    """Count a partition. Names that no topic has are not counted by topic: clients may invent any number of them."""
    core.metrics.errors[api_key, code] += 1
    topic = core.topics.get(name) if name else core.topics.by_id(topic_id)
    if topic is None:
        return
    if api_key == _PRODUCE:
        topic.traffic.produce_errors += 1
    else:
        topic.traffic.fetch_errors += 1


def _walk(errors: Counter[tuple[int, int]], api_key: int, item: Any) -> None:
    shape = _shapes.get(type(item)) or _shape(type(item))
    for name in shape.codes:
        if code := getattr(item, name):
            errors[api_key, code] += 1
    for name in shape.lists:
        for each in getattr(item, name) or ():
            _walk(errors, api_key, each)


def _shape(message: type) -> _Shape:
    """Return the shape of a message, from the hints of its class."""
    hints = get_type_hints(message)
    names = [field.name for field in fields(message)] if is_dataclass(message) else []
    with_errors = [name for name in names for each in _messages(hints[name]) if any(_shape(each))]
    shape = _Shape(tuple(name for name in names if name in _CODES), tuple(with_errors))
    _shapes[message] = shape
    return shape


def _messages(hint: Any) -> Iterator[type]:
    """Yield the classes of messages in a hint such as `Sequence[X] | None`."""
    for part in get_args(hint):
        if isinstance(part, type) and is_dataclass(part):
            yield part
        else:
            yield from _messages(part)
