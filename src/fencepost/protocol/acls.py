"""Enumerations of Kafka's access control lists (KIP-11, KIP-290). The values are the numbers on the wire."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

__all__ = [
    "CLUSTER_NAME",
    "OPERATIONS_NOT_REPORTED",
    "AclOperation",
    "AclPermission",
    "PatternType",
    "ResourceType",
    "operations_in",
]

CLUSTER_NAME: Final = "kafka-cluster"  # the only name that a CLUSTER resource can have


class ResourceType(IntEnum):
    """Kind of resource that an ACL binding protects. ANY is for filters only."""

    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """Match type of a binding's resource name. ANY and MATCH are for filters only."""

    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(IntEnum):
    """Operation on a resource. ANY is for filters only."""

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
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class AclPermission(IntEnum):
    """Effect of a binding: deny or allow. ANY is for filters only."""

    ANY = 1
    DENY = 2
    ALLOW = 3


OPERATIONS_NOT_REPORTED: Final = -(2**31)  # also in answers to requests that do not ask for them


def operations_in(bits: int) -> frozenset[AclOperation] | None:
    """Return the operations of a bit set (KIP-430); None if the broker does not report them."""
    if bits == OPERATIONS_NOT_REPORTED:
        return None
    return frozenset(operation for operation in AclOperation if bits >> operation & 1)
