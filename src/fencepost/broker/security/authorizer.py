"""Authorization as a pure function of the bindings, with the rules of Kafka's StandardAuthorizer.

Super users may do everything. A binding applies if it matches the resource (by name, prefix, or "*"), the principal (or
"User:*") and the host (or "*"). DENY overrides ALLOW. ALLOW of READ, WRITE, DELETE or ALTER also allows DESCRIBE, and
ALLOW of ALTER_CONFIGS also allows DESCRIBE_CONFIGS. DENY applies only to its own operation. If no binding matches the
resource, `allow_without_acl` decides. If some match and none allows the operation, it is denied.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from ipaddress import ip_address
from typing import NamedTuple

from fencepost.broker.security.acls import WILDCARD, Binding, Operation, Pattern, Permission

__all__ = ["Acls", "Policy", "Requester", "authorize", "authorize_any"]

_ANYBODY = "User:*"
_PERMITTED_BY: Mapping[int, frozenset[int]] = {
    Operation.DESCRIBE: frozenset(
        {Operation.DESCRIBE, Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}
    ),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS}),
}
# Kafka authorizes this name before it examines a type's bindings; a binding may name it.
_NAME_ASKED = "hardcode"


class Requester(NamedTuple):
    """A principal ("User:name") and the address that its request came from."""

    principal: str
    host: str


class Policy(NamedTuple):
    """Settings of authorization apart from bindings."""

    super_users: frozenset[str]
    allow_without_acl: bool


class Acls:
    """An immutable set of bindings, indexed by resource."""

    __slots__ = ("_by_type", "_literal", "_prefixed", "bindings")

    def __init__(self, bindings: Iterable[Binding] = ()) -> None:
        self.bindings = tuple(dict.fromkeys(bindings))
        self._by_type: dict[int, list[Binding]] = {}
        self._literal: dict[tuple[int, str], list[Binding]] = {}
        self._prefixed: dict[tuple[int, str], list[Binding]] = {}
        for binding in self.bindings:
            named = self._prefixed if binding.pattern == Pattern.PREFIXED else self._literal
            named.setdefault((binding.resource_type, binding.name), []).append(binding)
            self._by_type.setdefault(binding.resource_type, []).append(binding)

    def of(self, resource_type: int) -> Iterable[Binding]:
        """Return the bindings for resources of a type."""
        return self._by_type.get(resource_type, ())

    def on(self, resource_type: int, name: str) -> Iterator[Binding]:
        """Yield the bindings that match the resource, for any principal."""
        yield from self._literal.get((resource_type, name), ())
        if name != WILDCARD:
            yield from self._literal.get((resource_type, WILDCARD), ())
        if self._prefixed:
            for end in range(1, len(name) + 1):
                yield from self._prefixed.get((resource_type, name[:end]), ())


def authorize(acls: Acls, policy: Policy, requester: Requester, operation: int, resource_type: int, name: str) -> bool:
    """Return true if `requester` may perform `operation` on the resource."""
    if requester.principal in policy.super_users:
        return True
    permitting = _PERMITTED_BY.get(operation, (operation,))
    named = permitted = False
    for binding in acls.on(resource_type, name):
        named = True
        if not _concerns(binding, requester):
            continue
        if binding.permission == Permission.DENY:
            if binding.operation in (Operation.ALL, operation):
                return False
        elif binding.operation == Operation.ALL or binding.operation in permitting:
            permitted = True
    return permitted if named else policy.allow_without_acl


def authorize_any(acls: Acls, policy: Policy, requester: Requester, operation: int, resource_type: int) -> bool:
    """Return true if a resource of this type can exist on which `requester` may perform `operation` (KIP-679).

    This is the case if some ALLOW is not covered completely by a DENY.
    """
    if authorize(acls, policy, requester, operation, resource_type, _NAME_ASKED):
        return True
    concerned = [
        binding
        for binding in acls.of(resource_type)
        if _concerns(binding, requester) and binding.operation in (Operation.ALL, operation)
    ]
    denials = [binding for binding in concerned if binding.permission == Permission.DENY]
    return any(
        not any(_covers(denial, binding) for denial in denials)
        for binding in concerned
        if binding.permission == Permission.ALLOW
    )


def _concerns(binding: Binding, requester: Requester) -> bool:
    return binding.principal in (requester.principal, _ANYBODY) and (
        binding.host in (requester.host, WILDCARD) or _is_same_address(binding.host, requester.host)
    )


def _is_same_address(address: str, other: str) -> bool:
    """Return true for equal IPv6 addresses in different notation: Kafka's tools show 0:0:0:0:0:0:0:1, sockets ::1."""
    if ":" not in address or ":" not in other:
        return False
    try:
        return ip_address(address) == ip_address(other)
    except ValueError:
        return False  # not an address, so it cannot match a host


def _covers(denial: Binding, permission: Binding) -> bool:
    if denial.pattern == Pattern.PREFIXED:
        return permission.name != WILDCARD and permission.name.startswith(denial.name)
    if denial.name == WILDCARD:
        return True
    return permission.pattern == Pattern.LITERAL and permission.name == denial.name
