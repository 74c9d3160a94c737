"""Authorization of requests: the rule of an API is applied before its handler.

Items that the client has no rights for are removed from the request, and refused in the response beside the handler's
results. So handlers need not check rights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from fencepost.broker.api.apis import Api, handler
from fencepost.broker.api.error_responses import refusal
from fencepost.broker.api.rules import EachItem, RequiredRight, Rule, Unruled, VisibleItems
from fencepost.broker.security.acls import CLUSTER_NAME, ResourceType
from fencepost.broker.security.rights import DENIED
from fencepost.protocol.codes import ErrorCode

if TYPE_CHECKING:
    from fencepost.broker.connection import Call

__all__ = ["enter"]

# Kinds of resources in the configuration APIs. All others belong to the cluster.
_CONFIGURED: Mapping[int, ResourceType] = {2: ResourceType.TOPIC, 32: ResourceType.GROUP}


def enter(call: Call, api: Api, request: Any) -> Any:
    """Return the response that refuses the whole request, or None to continue with the handler.

    Items may be removed from the request; `call.finish` then adds their refusals to the response.
    """
    rule = api.rights
    if rule is Unruled.FREE:
        return None
    functions = handler(api.key)
    if isinstance(rule, Rule):
        for need in rule.needs:
            if not _is_met(call, need, request):
                code = DENIED[need.resource_type]
                return refusal(request, code) if functions.refuse is None else functions.refuse(call, code)
    if functions.authorize is not None:
        return functions.authorize(call, request)
    if functions.hide is not None:
        call.finish = partial(functions.hide, call)
    if isinstance(rule, Rule):
        if rule.each is not None:
            return _each(call, rule.each, request)
        if rule.shown is not None:
            _show(call, rule.shown)
    return None


def _is_met(call: Call, need: RequiredRight, request: Any) -> bool:
    name = getattr(request, need.field) if need.field else CLUSTER_NAME
    *alternatives, last = need.operations
    return any(call.may(operation, need.resource_type, name, quiet=True) for operation in alternatives) or call.may(
        last, need.resource_type, name
    )


def _each(call: Call, each: EachItem, request: Any) -> Any:
    if each.unless is not None and call.may(each.unless, ResourceType.CLUSTER, CLUSTER_NAME, quiet=True):
        return None
    allowed, refused = [], []
    for item in getattr(request, each.requested):
        kind, name = _resource(call, each, item)
        if name is None or call.may(each.operation, kind, name):
            allowed.append(item)
        else:
            refused += getattr(refusal(replace(request, **{each.requested: [item]}), DENIED[kind]), each.answered)
    if not refused:
        return None
    if not allowed:
        return replace(refusal(replace(request, **{each.requested: []}), ErrorCode.NONE), **{each.answered: refused})
    setattr(request, each.requested, allowed)
    before = call.finish
    call.finish = lambda response: _join(response if before is None else before(response), each.answered, refused)
    return None


def _resource(call: Call, each: EachItem, item: Any) -> tuple[ResourceType, str | None]:
    """Return (kind, name) of an item's resource. The name is None for an unknown topic id."""
    if each.resource_type is None:
        kind = _CONFIGURED.get(item.resource_type, ResourceType.CLUSTER)
        return kind, CLUSTER_NAME if kind is ResourceType.CLUSTER else item.resource_name
    if not each.name:
        return each.resource_type, item
    return each.resource_type, call.core.topic_name(getattr(item, each.name), getattr(item, "topic_id", None))


def _show(call: Call, shown: VisibleItems) -> None:
    if shown.unless is not None and call.may(shown.unless, ResourceType.CLUSTER, CLUSTER_NAME, quiet=True):
        return

    def finish(response: Any) -> Any:
        visible = [
            item
            for item in getattr(response, shown.answered)
            if call.may(shown.operation, shown.resource_type, getattr(item, shown.name), quiet=True)
        ]
        setattr(response, shown.answered, visible)
        return response

    call.finish = finish


def _join(response: Any, answered: str, refused: Sequence[Any]) -> Any:
    """Add the refused items to a response, unless it is an error of the whole request."""
    if not getattr(response, "error_code", ErrorCode.NONE):
        setattr(response, answered, [*getattr(response, answered), *refused])
    return response
