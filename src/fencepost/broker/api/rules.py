"""Which rights an API may need, in words that its row of `apis.py` is written in."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from fencepost.broker.security.acls import Operation, ResourceType

__all__ = ["Each", "Need", "Rule", "Shown", "Unruled", "needs"]


class Need(NamedTuple):
    """The request needs one of these operations on the resource named in its `field` (the cluster has no field)."""

    operations: tuple[Operation, ...]
    resource_type: ResourceType
    field: str = ""


class Each(NamedTuple):
    """Each item of the request's `asked` needs the operation on the resource that its `name` says.

    `answered`: where the response lists the same. `name` "": the items are names. `resource_type` None: items name a
    kind of resource as the configuration APIs do. `unless`: who may do this with the cluster needs nothing else.
    """

    operation: Operation
    resource_type: ResourceType | None
    asked: str
    answered: str
    name: str = "name"
    unless: Operation | None = None


class Shown(NamedTuple):
    """Items of the response's `answered` are only shown to those who may do this with them."""

    operation: Operation
    resource_type: ResourceType
    answered: str
    name: str
    unless: Operation | None = None


class Rule(NamedTuple):
    """`needs`: what the whole request depends on. `each`: items of the request that are allowed or refused one by one.
    `shown`: items of the response that are left out where they may not be seen."""

    needs: tuple[Need, ...] = ()
    each: Each | None = None
    shown: Shown | None = None


class Unruled(Enum):
    """Instead of a rule."""

    FREE = "anybody may"
    IN_ITS_FILE = "what is needed depends on what is asked or found: `authorize` or the handler asks, by `Call.may`"


def needs(resource_type: ResourceType, *operations: Operation, field: str = "") -> Need:
    """One of the operations."""
    return Need(operations, resource_type, field)
