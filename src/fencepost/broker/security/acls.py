"""Bindings of access control lists, and filters for them."""

from __future__ import annotations

from typing import NamedTuple

from fencepost.protocol.acls import CLUSTER_NAME, ResourceType
from fencepost.protocol.acls import AclOperation as Operation
from fencepost.protocol.acls import AclPermission as Permission
from fencepost.protocol.acls import PatternType as Pattern

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


class Binding(NamedTuple):
    """A rule of an access control list. `principal` is "User:name" or "User:*", `host` is an address or "*"."""

    resource_type: int
    pattern: int
    name: str
    principal: str
    host: str
    operation: int
    permission: int


class BindingFilter(NamedTuple):
    """A filter for bindings. None and ANY match all; pattern MATCH matches the bindings that would apply to `name`."""

    resource_type: int
    pattern: int
    name: str | None
    principal: str | None
    host: str | None
    operation: int
    permission: int

    @property
    def unknown(self) -> tuple[str, ...]:
        """Errors for values of this filter that are not defined, in Kafka's words."""
        kinds = (
            ("ResourceType", self.resource_type, ResourceType),
            ("PatternType", self.pattern, Pattern),
            ("Operation", self.operation, Operation),
            ("PermissionType", self.permission, Permission),
        )
        return tuple(f"Unknown {name}." for name, value, kind in kinds if value not in set(kind))

    def matches(self, binding: Binding) -> bool:
        """Return true if the filter matches the binding."""
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
    """Return the reason why the binding is invalid by Kafka's rules, or None."""
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
    if ":" not in binding.principal:
        return f"Invalid principal {binding.principal!r}: expected is principalType:principalName"
    if not binding.host:
        return "Invalid empty host: use * for every host"
    return None
