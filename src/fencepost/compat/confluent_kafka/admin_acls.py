"""Access control lists, with the attributes of confluent-kafka."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from functools import total_ordering
from typing import Any, ClassVar, Final, TypeVar

from fencepost.client.admin.acls import Acl, AclFilter, AclPermission, PatternType
from fencepost.client.admin.acls import AclOperation as OurOperation
from fencepost.client.admin.acls import ResourceType as OurType
from fencepost.compat.confluent_kafka.admin_kinds import (
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
    member_of,
)

__all__ = ["AclBinding", "AclBindingFilter", "acl_of", "binding_of", "filter_of"]

K = TypeVar("K", bound=Enum)

_KINDS: Final[Mapping[str, type[Enum]]] = {
    "restype": ResourceType,
    "resource_pattern_type": ResourcePatternType,
    "operation": AclOperation,
    "permission_type": AclPermissionType,
}
_TEXTS: Final = ("name", "principal", "host")


@total_ordering
class AclBinding:
    """A rule that allows or denies an operation on a resource. Equality and order compare all attributes."""

    _texts_needed: ClassVar[bool] = True
    _forbidden: ClassVar[tuple[Enum, ...]] = (
        ResourceType.ANY,
        ResourcePatternType.ANY,
        ResourcePatternType.MATCH,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )

    def __init__(
        self,
        restype: ResourceType | str | int,
        name: str,
        resource_pattern_type: ResourcePatternType | str | int,
        principal: str,
        host: str,
        operation: AclOperation | str | int,
        permission_type: AclPermissionType | str | int,
    ) -> None:
        """Create a rule. Enumerations are given by member, name or number.

        Args:
            restype: Type of the resource; BROKER is the cluster.
            name: Name of the resource, or its prefix.
            resource_pattern_type: Meaning of the name.
            principal: "User:alice", or "User:*" for all users.
            host: Address of the client; "*": any.
            operation: The operation.
            permission_type: Allow or deny.

        Raises:
            ValueError: A value is None, or a member that is impossible here.
            TypeError: A value has a wrong type.
        """
        texts: dict[str, object] = dict(zip(_TEXTS, (name, principal, host), strict=True))
        kinds: dict[str, object] = dict(
            zip(_KINDS, (restype, resource_pattern_type, operation, permission_type), strict=True)
        )
        needed = texts | kinds if self._texts_needed else kinds
        for label, value in needed.items():
            if value is None:
                raise ValueError(f"Expected {label} to be not None")
        for label, value in texts.items():
            if not isinstance(value, (str, type(None))):
                raise TypeError(f"Expected {label} to be a string")
        self.name, self.principal, self.host = name, principal, host
        self.restype = member_of(ResourceType, restype)
        self.resource_pattern_type = member_of(ResourcePatternType, resource_pattern_type)
        self.operation = member_of(AclOperation, operation)
        self.permission_type = member_of(AclPermissionType, permission_type)
        for label in _KINDS:
            member = getattr(self, label)
            if member in self._forbidden:
                raise ValueError(f"Cannot use enum {label}, value {member.name} in this class")
            setattr(self, f"{label}_int", member.value)

    def _fields(self) -> tuple[Any, ...]:
        what = self.restype, self.name, self.resource_pattern_type
        return *what, self.principal, self.host, self.operation, self.permission_type

    def __repr__(self) -> str:
        return f"{type(self).__name__}({','.join(map(str, self._fields()))})"

    def __hash__(self) -> int:
        return hash(self._fields())

    def __lt__(self, other: object) -> bool:
        return self._fields() < other._fields() if isinstance(other, AclBinding) else NotImplemented

    def __eq__(self, other: object) -> bool:
        return self._fields() == other._fields() if isinstance(other, AclBinding) else NotImplemented


class AclBindingFilter(AclBinding):
    """A filter for rules. None and ANY match everything."""

    _texts_needed = False
    _forbidden = (
        ResourceType.UNKNOWN,
        ResourcePatternType.UNKNOWN,
        AclOperation.UNKNOWN,
        AclPermissionType.UNKNOWN,
    )


def acl_of(binding: AclBinding) -> Acl:
    """Return the rule as Fencepost's own type."""
    return Acl(*_own_fields(binding))


def filter_of(wanted: AclBinding) -> AclFilter:
    """Return the filter as Fencepost's own type."""
    return AclFilter(*_own_fields(wanted))


def _own_fields(
    binding: AclBinding,
) -> tuple[OurType, str, str, OurOperation, AclPermission, PatternType, str]:
    """Return the fields of a rule or a filter, in the order that both have."""
    return (
        OurType(binding.restype.value),
        binding.name,
        binding.principal,
        OurOperation(binding.operation.value),
        AclPermission(binding.permission_type.value),
        PatternType(binding.resource_pattern_type.value),
        binding.host,
    )


def binding_of(acl: Acl) -> AclBinding:
    """Convert a rule. Resource types and operations that confluent-kafka does not know become UNKNOWN."""
    return AclBinding(
        _known(ResourceType, acl.resource_type, ResourceType.UNKNOWN),
        acl.resource_name,
        _known(ResourcePatternType, acl.pattern, ResourcePatternType.UNKNOWN),
        acl.principal,
        acl.host,
        _known(AclOperation, acl.operation, AclOperation.UNKNOWN),
        _known(AclPermissionType, acl.permission, AclPermissionType.UNKNOWN),
    )


def _known(kind: type[K], number: int, unknown: K) -> K:
    return next((member for member in kind if member.value == number), unknown)
