"""Versions of messages that are newer than kio's, told as what changed since the newest one that kio has.

kio 0.6.5 ends with Apache Kafka 4.3; the versions here are those of 4.4. `newer` makes classes like kio's, which
kio's own readers and writers take. `tests/unit/protocol/test_schemas_of_kafka.py` compares all of them with the schemas
in Kafka's jar.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, Final, NamedTuple
from uuid import UUID

from kio.index import load_payload_module
from kio.schema.index import api_key_map, schema_name_map
from kio.static.constants import EntityType
from kio.static.primitive import i8, i16, i32, i64

__all__ = ["highest", "newer"]


class Field(NamedTuple):
    """One field that a version adds: its name, kio's type hint and wire type; `default` only where Kafka names one."""

    name: str
    hint: Any
    kind: str
    default: Any = dataclasses.MISSING


class Change(NamedTuple):
    """Difference of one class to the version before: `added` maps a field to the new ones behind it ("": in front)."""

    added: Mapping[str, tuple[Field, ...]] = types.MappingProxyType({})
    dropped: frozenset[str] = frozenset()


def _struct(name: str, *fields: Field) -> Any:
    """Make a structure that only version 1 of StreamsGroupDescribe has."""
    structure = _dataclass(name, [_dataclass_field(field) for field in fields], {"__flexible__": True})
    structure.__module__ = "kio.schema.streams_group_describe.v1.response"
    return structure


def _dataclass_field(field: Field) -> tuple[str, Any, Any]:
    options = {} if field.default is dataclasses.MISSING else {"default": field.default}
    metadata = {"kafka_type": field.kind} if field.kind else {}
    return field.name, field.hint, dataclasses.field(metadata=metadata, **options)


def _dataclass(name: str, fields: Iterable[Any], namespace: dict[str, Any]) -> Any:
    return dataclasses.make_dataclass(name, fields, namespace=namespace, frozen=True, slots=True, kw_only=True)


def _many(element: Any) -> Any:
    return types.GenericAlias(tuple, (element, ...))


_NODE = _struct(
    "TopologyDescriptionNode",
    Field("name", str, "string"),
    Field("node_type", i8, "int8"),
    Field("source_topics", _many(str), "string"),
    Field("sink_topic", str | None, "string", None),
    Field("stores", _many(str), "string"),
    Field("successors", _many(str), "string"),
)
_GLOBAL_STORE = _struct("TopologyDescriptionGlobalStore", Field("source", _NODE, ""), Field("processor", _NODE, ""))
_SUBTOPOLOGY = _struct(
    "TopologyDescriptionSubtopology", Field("subtopology_id", str, "string"), Field("nodes", _many(_NODE), "")
)
_TOPOLOGY = _struct(
    "TopologyDescription",
    Field("subtopologies", _many(_SUBTOPOLOGY), ""),
    Field("global_stores", _many(_GLOBAL_STORE), ""),
)
_BY_ID = Change({"": (Field("topic_id", UUID | None, "uuid"),)}, frozenset({"name"}))

# (API key, side) -> class -> what the version behind kio's newest changes; empty where it changes no field.
_CHANGES: Final[Mapping[tuple[int, EntityType], Mapping[str, Change]]] = {
    # ApiVersions v5 (KIP-1242)
    (18, EntityType.request): {
        "ApiVersionsRequest": Change(
            {
                "client_software_version": (
                    Field("cluster_id", str | None, "string", None),
                    Field("node_id", i32, "int32", i32(-1)),
                )
            }
        )
    },
    (18, EntityType.response): {},
    # TxnOffsetCommit v6 (KIP-1319)
    (28, EntityType.request): {"TxnOffsetCommitRequestTopic": _BY_ID},
    (28, EntityType.response): {"TxnOffsetCommitResponseTopic": _BY_ID},
    # DeleteGroups v3
    (42, EntityType.request): {},
    (42, EntityType.response): {
        "DeletableGroupResult": Change({"error_code": (Field("error_message", str | None, "string", None),)})
    },
    # StreamsGroupHeartbeat v1 and StreamsGroupDescribe v1 (KIP-1331, KIP-1357)
    (88, EntityType.request): {},
    (88, EntityType.response): {
        "StreamsGroupHeartbeatResponse": Change(
            {
                "task_offset_interval": (Field("acceptable_recovery_lag", i64, "int64", i64(-1)),),
                "warmup_tasks": (Field("topology_description_required", bool, "bool", False),),
            },
            frozenset({"acceptable_recovery_lag"}),
        )
    },
    (89, EntityType.request): {
        "StreamsGroupDescribeRequest": Change(
            {"include_authorized_operations": (Field("include_topology_description", bool, "bool", False),)}
        )
    },
    (89, EntityType.response): {
        "DescribedGroup": Change(
            {
                "authorized_operations": (
                    Field("topology_description", _TOPOLOGY | None, "", None),
                    Field("topology_description_status", i8, "int8", i8(0)),
                    Field("assignor_name", str | None, "string", None),
                )
            }
        )
    },
}
_DUNDERS = ("__type__", "__version__", "__flexible__", "__api_key__", "__header_schema__")


def highest(api_key: int) -> int:
    """Return the newest version of an API that has a schema."""
    return max(schema_name_map[api_key_map[api_key]]) + ((api_key, EntityType.request) in _CHANGES)


@cache
def newer(api_key: int, kind: EntityType) -> tuple[int, Any] | None:
    """Return the version behind kio's newest, and its class; None where Kafka 4.4 has no newer one."""
    changes = _CHANGES.get((api_key, kind))
    if changes is None:
        return None
    before = max(schema_name_map[api_key_map[api_key]])
    members = vars(load_payload_module(api_key, before, kind))  # type: ignore[arg-type]
    suffix = kind.name.capitalize()
    root = next(
        each for name, each in members.items() if name.endswith(suffix) and getattr(each, "__type__", None) is kind
    )
    used: set[str] = set()
    changed = _changed(root, changes, used, before + 1)
    if used != changes.keys():
        raise ValueError(f"{root.__name__} has no {', '.join(sorted(changes.keys() - used))}")
    return before + 1, changed


def _changed(cls: Any, changes: Mapping[str, Change], used: set[str], version: int) -> Any:
    """Make the class of the next version, with those that it contains."""
    change = changes.get(cls.__name__, Change())
    if cls.__name__ in changes:
        used.add(cls.__name__)
    hints = typing.get_type_hints(cls)
    fields = [_dataclass_field(field) for field in change.added.get("", ())]
    for field in dataclasses.fields(cls):
        if field.name not in change.dropped:
            options = {} if field.default is dataclasses.MISSING else {"default": field.default}
            hint = _with_changed_element(hints[field.name], changes, used, version)
            fields.append((field.name, hint, dataclasses.field(metadata=field.metadata, **options)))
        fields += [_dataclass_field(added) for added in change.added.get(field.name, ())]
    namespace = {name: getattr(cls, name) for name in _DUNDERS if hasattr(cls, name)}
    changed = _dataclass(cls.__name__, fields, namespace | {"__version__": i16(version)})
    changed.__module__ = cls.__module__
    return changed


def _with_changed_element(hint: Any, changes: Mapping[str, Change], used: set[str], version: int) -> Any:
    arms = typing.get_args(hint)
    if dataclasses.is_dataclass(hint):
        return _changed(hint, changes, used, version)
    if typing.get_origin(hint) is tuple:
        return _many(_with_changed_element(arms[0], changes, used, version))
    if type(None) in arms:
        (inner,) = (arm for arm in arms if arm is not type(None))
        return _with_changed_element(inner, changes, used, version) | None
    return hint
