"""May somebody do something? One pure function over bindings, with the rules of Kafka's StandardAuthorizer.

Super users may do everything. A binding counts when it names the resource (literally, by prefix, or "*"), the principal
(or "User:*") and the host (or "*"). A denial beats every permission. A permission of READ, WRITE, DELETE or ALTER
permits DESCRIBE too, and ALTER_CONFIGS permits DESCRIBE_CONFIGS; a denial only denies what it names. Where no binding
names the resource, `allow_without_acl` decides; where some do and none permits, the answer is no.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from ipaddress import ip_address
from typing import NamedTuple

from fencepost.broker.security.acls import WILDCARD, Binding, Operation, Pattern, Permission

__all__ = ["Acls", "Policy", "Who", "authorize", "authorize_any"]

_ANYBODY = "User:*"
_PERMITTED_BY: Mapping[int, frozenset[int]] = {
    Operation.DESCRIBE: frozenset(
        {Operation.DESCRIBE, Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}
    ),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS}),
}
# The one name that Kafka asks about before it looks at the bindings of a type: a binding may be about it, too.
_NAME_ASKED = "hardcode"


class Who(NamedTuple):
    """Somebody: "User:name", and the address that the request came from."""

    principal: str
    host: str


class Policy(NamedTuple):
    """What is decided outside of the bindings."""

    super_users: frozenset[str]
    allow_without_acl: bool


class Acls:
    """Bindings, found by the resource that they are about. Never changed: a changed list is a new one."""

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
        """The bindings about resources of a type."""
        return self._by_type.get(resource_type, ())

    def on(self, resource_type: int, name: str) -> Iterator[Binding]:
        """The bindings that name the resource, whomever they concern."""
        yield from self._literal.get((resource_type, name), ())
        if name != WILDCARD:
            yield from self._literal.get((resource_type, WILDCARD), ())
        if self._prefixed:
            for end in range(1, len(name) + 1):
                yield from self._prefixed.get((resource_type, name[:end]), ())


def authorize(acls: Acls, policy: Policy, who: Who, operation: int, resource_type: int, name: str) -> bool:
    """Whether `who` may do `operation` on that resource."""
    if who.principal in policy.super_users:
        return True
    permitting = _PERMITTED_BY.get(operation, (operation,))
    named = permitted = False
    for binding in acls.on(resource_type, name):
        named = True
        if not _concerns(binding, who):
            continue
        if binding.permission == Permission.DENY:
            if binding.operation in (Operation.ALL, operation):
                return False
        elif binding.operation == Operation.ALL or binding.operation in permitting:
            permitted = True
    return permitted if named else policy.allow_without_acl


def authorize_any(acls: Acls, policy: Policy, who: Who, operation: int, resource_type: int) -> bool:
    """Whether there can be a resource of the type on which `who` may do `operation` (KIP-679).

    That is so if a permission is not covered by a denial as a whole.
    """
    if authorize(acls, policy, who, operation, resource_type, _NAME_ASKED):
        return True
    concerned = [
        binding
        for binding in acls.of(resource_type)
        if _concerns(binding, who) and binding.operation in (Operation.ALL, operation)
    ]
    denials = [binding for binding in concerned if binding.permission == Permission.DENY]
    return any(
        not any(_covers(denial, binding) for denial in denials)
        for binding in concerned
        if binding.permission == Permission.ALLOW
    )


def _concerns(binding: Binding, who: Who) -> bool:
    return binding.principal in (who.principal, _ANYBODY) and (
        binding.host in (who.host, WILDCARD) or _is_same_address(binding.host, who.host)
    )


def _is_same_address(address: str, other: str) -> bool:
    """IPv6 addresses have several spellings: Kafka's tools show 0:0:0:0:0:0:0:1 where sockets say ::1."""
    if ":" not in address or ":" not in other:
        return False
    try:
        return ip_address(address) == ip_address(other)
    except ValueError:
        return False  # a name that is no address names no host


def _covers(denial: Binding, permission: Binding) -> bool:
    if denial.pattern == Pattern.PREFIXED:
        return permission.name != WILDCARD and permission.name.startswith(denial.name)
    if denial.name == WILDCARD:
        return True
    return permission.pattern == Pattern.LITERAL and permission.name == denial.name
