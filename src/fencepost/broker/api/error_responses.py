"""For any request: the topics that it names, and the response that refuses all of it with one error code.

The response repeats the lists of the request, each item with the error code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from importlib import import_module
from itertools import chain
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints
from uuid import UUID

from fencepost.broker.api.apis import SERVED, Api
from fencepost.broker.api.rules import Rule
from fencepost.protocol.fetch_wire import FetchPartitionResult, FetchRequest, FetchResponse, FetchTopicResult
from fencepost.protocol.messages import __name__ as _messages
from fencepost.protocol.produce_wire import ProducePartitionResult, ProduceRequest, ProduceResponse

__all__ = ["cut_messages", "refusal", "topics_named"]

_MESSAGE_CHARACTERS = 1_000

_CODES = ("error_code", "partition_error_code")
_shapes: dict[Any, tuple[tuple[str, type[Any] | None], ...]] = {}


def refusal(request: Any, code: int) -> Any:
    """Return the response to `request` with `code` in every error code field."""
    if isinstance(request, ProduceRequest):
        return ProduceResponse(
            [ProducePartitionResult(each.topic, each.topic_id, each.partition, code) for each in request.partitions]
        )
    if isinstance(request, FetchRequest):
        return FetchResponse(
            [
                FetchTopicResult(
                    topic.topic,
                    topic.topic_id,
                    [FetchPartitionResult(each.partition, error_code=code) for each in topic.partitions],
                )
                for topic in request.topics
            ],
            # An incremental fetch has no lists, so only the response's own code can report the error.
            error_code=0 if request.topics else code,
        )
    return _Refused(SERVED[request.API_KEY], code).alike(_response_class(type(request)), request)


def cut_messages(response: Any) -> None:
    """Shorten the messages of a response, because names in them can be as long as a string of the protocol."""
    if isinstance(response, list | tuple):
        for each in response:
            cut_messages(each)
    elif is_dataclass(response):
        for field in fields(response):
            value = getattr(response, field.name)
            if field.name != "error_message":
                cut_messages(value)
            elif value is not None and len(value) > _MESSAGE_CHARACTERS:
                setattr(response, field.name, f"{value[:_MESSAGE_CHARACTERS]}...")


def topics_named(request: Any, name_of: Callable[[UUID | None], str | None]) -> Iterator[str]:
    """Yield the names of the topics that a request lists. `name_of` finds the name of a topic id."""
    if isinstance(request, ProduceRequest):
        listed: Any = request.partitions
    else:
        listed = getattr(request, "topics", None) or getattr(request, "topic_names", None) or ()
        listed = [*listed, *(getattr(request, "v3_and_below_topics", None) or ())]
        for outer in ("groups", "transactions", "markers"):
            for each in getattr(request, outer, None) or ():
                listed.extend(getattr(each, "topics", None) or ())
    for topic in listed:
        name = topic if isinstance(topic, str) else getattr(topic, "topic", None) or getattr(topic, "name", None)
        name = name or name_of(getattr(topic, "topic_id", None))
        if name:
            yield name


class _Refused:
    """Builder of one API's refusal with `code`."""

    def __init__(self, api: Api, code: int) -> None:
        self._code = code
        self._item = api.refusal.item
        self._listed = api.refusal.listed
        each = api.rights.each if isinstance(api.rights, Rule) else None
        if each is not None and each.answered not in self._listed:
            self._listed = {**self._listed, each.answered: (each.requested,)}

    def alike(self, structure: type[Any], request: Any) -> Any:
        """Return a structure of the response that repeats the lists of the request."""
        values: dict[str, Any] = {}
        for name, inner in _shape(structure):
            sources = self._listed.get(name, (name,))
            if name in _CODES:
                values[name] = self._code
            elif inner is not None:
                listed = chain.from_iterable(getattr(request, source, None) or () for source in sources)
                values[name] = [self._element(inner, item) for item in listed]
            elif (source := next((each for each in sources if hasattr(request, each)), None)) is not None:
                values[name] = getattr(request, source)
        return structure(**values)

    def _element(self, structure: type[Any], request: Any) -> Any:
        if is_dataclass(request):
            return self.alike(structure, request)
        codes = {name: self._code for name, _ in _shape(structure) if name in _CODES}
        return structure(**{self._item: request}, **codes)


def _shape(structure: type[Any]) -> tuple[tuple[str, type[Any] | None], ...]:
    """Return (field, class of its list items or None). Single structures are left out, so they keep their defaults."""
    found = _shapes.get(structure)
    if found is None:
        hints = get_type_hints(structure)
        named = ((each.name, hints[each.name]) for each in fields(structure))
        found = tuple((name, _listed_class(hint)) for name, hint in named if not _is_single(hint))
        _shapes[structure] = found
    return found


def _is_message(hint: Any) -> bool:
    return isinstance(hint, type) and hint.__module__.startswith(_messages)


def _is_single(hint: Any) -> bool:
    return _is_message(hint) or any(_is_message(option) for option in get_args(hint) if get_origin(hint) is UnionType)


def _listed_class(hint: Any) -> type[Any] | None:
    options = get_args(hint) if get_origin(hint) is UnionType else (hint,)
    for option in options:
        if get_origin(option) is Sequence:
            (element,) = get_args(option)
            return element if _is_message(element) else None
    return None


def _response_class(request: type[Any]) -> type[Any]:
    found: type[Any] = getattr(import_module(request.__module__), request.__name__.removesuffix("Request") + "Response")
    return found
