"""What access control lists speak of; the numbers are those of Kafka's ACL APIs (KIP-11, KIP-290)."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

__all__ = ["CLUSTER_NAME", "AclOperation", "AclPermission", "PatternType", "ResourceType"]

CLUSTER_NAME: Final = "kafka-cluster"  # the one name that a CLUSTER resource has


class ResourceType(IntEnum):
    """What a binding is about."""

    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """How a binding's name is meant; ANY and MATCH are for filters only."""

    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(IntEnum):
    """What is done with a resource; ANY is for filters only."""

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
    """Whether a binding allows or denies; ANY is for filters only."""

    ANY = 1
    DENY = 2
    ALLOW = 3
