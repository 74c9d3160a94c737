"""The enumerations of confluent-kafka's admin module."""

from __future__ import annotations

from enum import Enum
from functools import total_ordering
from typing import Any, TypeVar

__all__ = [
    "AclOperation",
    "AclPermissionType",
    "AlterConfigOpType",
    "ConfigSource",
    "ConsumerGroupState",
    "ConsumerGroupType",
    "ElectionType",
    "IsolationLevel",
    "ResourcePatternType",
    "ResourceType",
    "ScramMechanism",
    "member_of",
]


K = TypeVar("K", bound=Enum)


def member_of(kind: type[K], value: K | str | int) -> K:
    """Return a member by itself, its name in any case, or its number.

    Raises:
        ValueError: There is no such name or number.
        TypeError: It is something else.
    """
    if isinstance(value, str):
        if value.upper() not in kind.__members__:
            raise ValueError(f'Unknown value "{value}": should be a {kind.__name__}')
        return kind[value.upper()]
    if isinstance(value, int):
        return kind(value)
    if not isinstance(value, kind):
        raise TypeError(f'Unknown value "{value}": should be a {kind.__name__}')
    return value


@total_ordering
class _OrderedEnum(Enum):
    """Base of enumerations whose members are ordered by value."""

    def __lt__(self, other: Any) -> bool:
        if self.__class__ is not other.__class__:
            return NotImplemented
        less: bool = self.value < other.value
        return less


class ResourceType(_OrderedEnum):
    """Type of a resource."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    BROKER = 4
    TRANSACTIONAL_ID = 5


class AclOperation(_OrderedEnum):
    """Operation on a resource."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


class AclPermissionType(_OrderedEnum):
    """Effect of an ACL."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


class ResourcePatternType(_OrderedEnum):
    """Meaning of the name in an ACL."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class ScramMechanism(_OrderedEnum):
    """Mechanism of a SCRAM credential."""

    UNKNOWN = 0
    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2


class AlterConfigOpType(Enum):
    """Change of a setting."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigSource(Enum):
    """Source of a setting's value."""

    UNKNOWN_CONFIG = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    GROUP_CONFIG = 8


class ConsumerGroupState(_OrderedEnum):
    """State of a group."""

    UNKNOWN = 0
    PREPARING_REBALANCING = 1
    COMPLETING_REBALANCING = 2
    STABLE = 3
    DEAD = 4
    EMPTY = 5


class ConsumerGroupType(_OrderedEnum):
    """Protocol of a group."""

    UNKNOWN = 0
    CONSUMER = 1
    CLASSIC = 2


class ElectionType(Enum):
    """Election of a leader."""

    PREFERRED = 0
    UNCLEAN = 1


class IsolationLevel(_OrderedEnum):
    """Isolation level of a reader."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1
