"""Client quotas (KIP-13, KIP-257, KIP-546): validation, matching, and the quota that applies to a client.

The code is pure. An entity is one or two of (type, name); the name None is the default of the type. Texts are Kafka's.
"""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

__all__ = [
    "CONSUMER_BYTE_RATE",
    "ENTITY_TYPES",
    "PRODUCER_BYTE_RATE",
    "UNENFORCED",
    "Bucket",
    "ClientQuota",
    "Entity",
    "Filter",
    "InvalidQuota",
    "MatchType",
    "UnknownEntityType",
    "bucket_of",
    "check_entity",
    "check_filters",
    "check_value",
    "matches",
]

USER, CLIENT_ID, IP = "user", "client-id", "ip"
ENTITY_TYPES: Final = (USER, CLIENT_ID, IP)
PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE = "producer_byte_rate", "consumer_byte_rate"
_CONNECTIONS = "connection_creation_rate"
_OF_CLIENTS: Final = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, "request_percentage", "controller_mutation_rate")
_WHOLE: Final = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, _CONNECTIONS)
UNENFORCED: Final = frozenset({"request_percentage", "controller_mutation_rate", _CONNECTIONS})
"""These are stored and reported, but not enforced."""

Entity = tuple[tuple[str, str | None], ...]
"""Sorted by type."""
Bucket = tuple[str | None, str | None]
"""(user, client id) whose bytes are counted together; None: not part of the bucket."""


class ClientQuota(NamedTuple):
    """The quota that applies to a client, and the bucket that shares it."""

    limit: float
    bucket: Bucket


class MatchType:
    """Match type of a filter; the numbers are on the wire."""

    EXACT, DEFAULT, ANY = 0, 1, 2


class Filter(NamedTuple):
    """A component of a filter."""

    entity_type: str
    match_type: int
    match: str | None


class InvalidQuota(ValueError):
    """The entity, quota or filter is invalid."""


class UnknownEntityType(InvalidQuota):
    """The entity type does not exist."""


def check_entity(parts: Sequence[tuple[str, str | None]]) -> Entity:
    """Return the entity of these parts. Raises InvalidQuota."""
    entity = dict(parts)
    if not entity:
        raise InvalidQuota("The entity of a quota has no parts")
    for kind, name in entity.items():
        if kind not in ENTITY_TYPES:
            raise InvalidQuota(f"Quotas know no entities of type {kind!r}")
        if name == "":
            raise InvalidQuota(f"The name of a {kind} is empty")
    if IP in entity and len(entity) > 1:
        raise InvalidQuota("An address cannot be combined with a user or client id in one entity")
    address = entity.get(IP)
    if address is not None and not _is_address(address):
        raise InvalidQuota(f"{address} is not an IP address")
    return tuple(sorted(entity.items()))


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def check_value(entity: Entity, key: str, value: float) -> None:
    """Raise InvalidQuota if the entity cannot have this quota."""
    known = (_CONNECTIONS,) if entity[0][0] == IP else _OF_CLIENTS
    if key not in known:
        raise InvalidQuota(f"Such an entity has no quota {key!r}")
    if not value > 0:
        raise InvalidQuota(f"Quota {key} has to be above 0, not {value}")
    if key in _WHOLE:
        if value >= 2**63 or math.isinf(value):
            raise InvalidQuota(f"Quota {key} has to be below 2^63, not {value}")
        if value != int(value):
            raise InvalidQuota(f"Quota {key} has to be a whole number, not {value}")


def check_filters(filters: Sequence[Filter]) -> None:
    """Raise InvalidQuota or UnknownEntityType if the filters are invalid together."""
    kinds: set[str] = set()
    for wanted in filters:
        if not wanted.entity_type:
            raise InvalidQuota("A filter names no entity type")
        if wanted.entity_type in kinds:
            raise InvalidQuota("Two filters name the same entity type")
        if wanted.entity_type not in ENTITY_TYPES:
            raise UnknownEntityType(f"Quotas know no entities of type {wanted.entity_type!r}")
        if wanted.match_type not in (MatchType.EXACT, MatchType.DEFAULT, MatchType.ANY):
            raise InvalidQuota("A filter has a match type that is none of exact, default and any")
        if (wanted.match is None) == (wanted.match_type == MatchType.EXACT):
            raise InvalidQuota("A filter for an exact name, and no other, has the name")
        kinds.add(wanted.entity_type)
    if IP in kinds and len(kinds) > 1:
        raise InvalidQuota("A filter for addresses cannot be combined with one for users or client ids")


def matches(entity: Entity, filters: Sequence[Filter], *, strict: bool) -> bool:
    """Return true if the entity matches the filters. With `strict` it must not have other types."""
    parts = dict(entity)
    if strict and len(parts) != len(filters):
        return False
    for wanted in filters:
        if wanted.entity_type not in parts:
            return False
        name = parts[wanted.entity_type]
        if wanted.match_type == MatchType.EXACT and name != wanted.match:
            return False
        if wanted.match_type == MatchType.DEFAULT and name is not None:
            return False
    return True


def _candidates(user: str, client_id: str) -> Iterator[tuple[Entity, Bucket]]:
    """Yield the entities whose quota may apply to the client, by precedence, each with its bucket."""
    for user_name in (user, None):
        for client_name in (client_id, None):
            yield ((CLIENT_ID, client_name), (USER, user_name)), (user, client_id)
        yield ((USER, user_name),), (user, None)
    for client_name in (client_id, None):
        yield ((CLIENT_ID, client_name),), (None, client_id)


def bucket_of(quotas: Mapping[Entity, Mapping[str, float]], key: str, user: str, client_id: str) -> ClientQuota | None:
    """Return the quota of this kind that applies to a client, or None."""
    found: Iterable[tuple[float | None, Bucket]] = (
        (quotas.get(entity, {}).get(key), bucket) for entity, bucket in _candidates(user, client_id)
    )
    return next((ClientQuota(limit, bucket) for limit, bucket in found if limit is not None), None)
