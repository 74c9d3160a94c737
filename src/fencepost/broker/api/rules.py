"""Rules for the rights that an API needs, as used in the rows of `apis.py`."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from fencepost.broker.security.acls import Operation, ResourceType

__all__ = ["EachItem", "RequiredRight", "Rule", "Unruled", "VisibleItems", "needs"]


class RequiredRight(NamedTuple):
    """The request needs one of these operations on the resource named in its `field`. The cluster needs no field."""

    operations: tuple[Operation, ...]
    resource_type: ResourceType
    field: str = ""


class EachItem(NamedTuple):
    """Each item of the request's `requested` needs the operation on the resource given by its `name`.

    `answered`: the response's list of the same items. `name` "": the items are names. `resource_type` None: an item has
    a kind of resource, as in the configuration APIs. `unless`: this right on the cluster replaces all others.
    """

    operation: Operation
    resource_type: ResourceType | None
    requested: str
    answered: str
    name: str = "name"
    unless: Operation | None = None


class VisibleItems(NamedTuple):
    """Items of the response's `answered` are shown only to clients with this right on them."""

    operation: Operation
    resource_type: ResourceType
    answered: str
    name: str
    unless: Operation | None = None


class Rule(NamedTuple):
    """The rights of one API.

    `needs`: for the whole request. `each`: for single items of the request, which are refused one by one. `shown`: for
    items of the response, which are omitted without the right.
    """

    needs: tuple[RequiredRight, ...] = ()
    each: EachItem | None = None
    shown: VisibleItems | None = None


class Unruled(Enum):
    """Values that replace a rule."""

    FREE = "anybody may"
    IN_ITS_FILE = "what is needed depends on what is asked or found: `authorize` or the handler asks, by `Call.may`"


def needs(resource_type: ResourceType, *operations: Operation, field: str = "") -> RequiredRight:
    """Return a RequiredRight of one of the operations."""
    return RequiredRight(operations, resource_type, field)
