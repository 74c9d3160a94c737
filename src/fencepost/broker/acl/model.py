"""Bindings of access control lists and filters over them; the numbers are those of Kafka's ACL APIs."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

__all__ = [
    "CLUSTER_NAME",
    "WILDCARD",
    "Binding",
    "BindingFilter",
    "Operation",
    "Pattern",
    "Permission",
    "ResourceType",
    "invalid_binding",
]

WILDCARD = "*"
CLUSTER_NAME = "kafka-cluster"


class ResourceType(IntEnum):
    """What a binding is about."""

    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class Pattern(IntEnum):
    """How a binding's name is meant; ANY and MATCH are for filters only."""

    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation(IntEnum):
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


class Permission(IntEnum):
    """Whether a binding allows or denies; ANY is for filters only."""

    ANY = 1
    DENY = 2
    ALLOW = 3


class Binding(NamedTuple):
    """One line of an access control list. `principal` is "User:name" or "User:*", `host` an address or "*"."""

    resource_type: int
    pattern: int
    name: str
    principal: str
    host: str
    operation: int
    permission: int


class BindingFilter(NamedTuple):
    """Which bindings are meant: None and ANY mean all; pattern MATCH means those that would apply to `name`."""

    resource_type: int
    pattern: int
    name: str | None
    principal: str | None
    host: str | None
    operation: int
    permission: int

    def matches(self, binding: Binding) -> bool:
        """Whether the binding is one of these."""
        return (
            self.resource_type in (ResourceType.ANY, binding.resource_type)
            and self._matches_name(binding)
            and self.principal in (None, binding.principal)
            and self.host in (None, binding.host)
            and self.operation in (Operation.ANY, binding.operation)
            and self.permission in (Permission.ANY, binding.permission)
        )

    def _matches_name(self, binding: Binding) -> bool:
        if self.pattern not in (Pattern.ANY, Pattern.MATCH, binding.pattern):
            return False
        if self.name is None or self.name == binding.name:
            return True
        if self.pattern != Pattern.MATCH:
            return False
        if binding.pattern == Pattern.PREFIXED:
            return self.name.startswith(binding.name)
        return binding.name == WILDCARD


def invalid_binding(binding: Binding) -> str | None:
    """Why the binding cannot be created, None when it is fine. The rules are Kafka's."""
    if binding.resource_type == ResourceType.CLUSTER and binding.name != CLUSTER_NAME:
        return f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    if not binding.name:
        return "Invalid empty resource name"
    if binding.resource_type not in set(ResourceType) - {ResourceType.ANY}:
        return f"Invalid resourceType {binding.resource_type}"
    if binding.pattern not in (Pattern.LITERAL, Pattern.PREFIXED):
        return f"Invalid patternType {binding.pattern}"
    if binding.operation not in set(Operation) - {Operation.ANY}:
        return f"Invalid operation {binding.operation}"
    if binding.permission not in (Permission.ALLOW, Permission.DENY):
        return f"Invalid permissionType {binding.permission}"
    kind, separator, _ = binding.principal.partition(":")
    if not kind or not separator:
        return f"Invalid principal {binding.principal!r}: expected is principalType:principalName"
    return None
