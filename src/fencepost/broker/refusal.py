"""For any request: the topics it speaks of, and the answer that refuses all of it with one error code.

A response is made in the likeness of its request: what the request lists comes back with the error code set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from importlib import import_module
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints
from uuid import UUID

from fencepost.protocol.fetch_wire import FetchPartitionResult, FetchRequest, FetchResponse, FetchTopicResult
from fencepost.protocol.messages import __name__ as _messages
from fencepost.protocol.produce_wire import ProducePartitionResult, ProduceRequest, ProduceResponse

__all__ = ["refusal", "topics_named"]

_CODES = ("error_code", "partition_error_code")
# Where a response lists something, the fields of the request that may list the same.
_LISTED_BY = {
    "coordinators": ("coordinator_keys",),
    "filter_results": ("filters",),
    "groups": ("groups", "group_ids"),
    "members": ("members",),
    "partition_result": ("partitions",),
    "partitions": ("partitions", "partition_indexes"),
    "replica_election_results": ("topic_partitions",),
    "responses": ("topics", "topic_names", "resources", "transactions"),
    "results": ("topics", "groups_names", "resources", "creations"),
    "results_by_partition": ("partitions",),
    "results_by_topic_v3_and_below": ("v3_and_below_topics",),
    "results_by_transaction": ("transactions",),
    "topic_results": ("topics",),
    "topics": ("topics",),
    "transaction_states": ("transactional_ids",),
    "markers": ("markers",),
}
# What a plain value in a request's list is called in the response.
_IDENTITIES = ("partition_index", "partition_id", "group_id", "key", "transactional_id", "name")
# These say something else than what was asked for.
_UNLIKE = {
    ("DescribeLogDirsResponse", "results"),
    ("EpochEndOffset", "leader_epoch"),
    ("JoinGroupResponse", "members"),
}

_shapes: dict[Any, tuple[tuple[str, type[Any] | None], ...]] = {}


def refusal(request: Any, code: int) -> Any:
    """The response to `request` with `code` in every place for an error code."""
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
            # An incremental fetch lists nothing, so only the answer as a whole can tell.
            error_code=0 if request.topics else code,
        )
    return _alike(_response_class(type(request)), request, code)


def topics_named(request: Any, name_of: Callable[[UUID | None], str | None]) -> Iterator[str]:
    """Names of the topics that a request lists; `name_of` finds the name of a topic id."""
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


def _alike(made: type[Any], asked: Any, code: int) -> Any:
    values: dict[str, Any] = {}
    for name, inner in _shape(made):
        if name in _CODES:
            values[name] = code
        elif (made.__name__, name) in _UNLIKE:
            continue
        elif inner is not None:
            values[name] = [_element(inner, each, code) for each in _listed(asked, name)]
        elif hasattr(asked, name):
            values[name] = getattr(asked, name)
    return made(**values)


def _listed(asked: Any, name: str) -> Any:
    for candidate in _LISTED_BY.get(name, ()):
        found = getattr(asked, candidate, None)
        if found:
            return found
    return ()


def _element(made: type[Any], asked: Any, code: int) -> Any:
    if is_dataclass(asked):
        return _alike(made, asked, code)
    names = {name for name, _ in _shape(made)}
    identity = next(name for name in _IDENTITIES if name in names)
    values = dict.fromkeys(names.intersection(_CODES), code)
    return made(**{identity: asked}, **values)


def _shape(made: type[Any]) -> tuple[tuple[str, type[Any] | None], ...]:
    """(field, class of what it lists, None for a plain one). A single structure keeps its default: it is no list."""
    found = _shapes.get(made)
    if found is None:
        hints = get_type_hints(made)
        named = ((each.name, hints[each.name]) for each in fields(made))
        found = tuple((name, _listed_class(hint)) for name, hint in named if not _is_single(hint))
        _shapes[made] = found
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
