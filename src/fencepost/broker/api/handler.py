"""What the file of an API offers: its handler, and where its rights need more than a rule, the functions that know."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from fencepost.broker.connection import Call

__all__ = ["Handler"]


class Handler(NamedTuple):
    """The functions of one API; its requests and responses are those of its messages.

    handle(call, now_ms, request): the response, or None where it has been or will be given through `call`.
    authorize(call, request): the response that refuses all, or None. It may take items out of the request, and leave in
    `call.finish` what is to be done to the handler's response.
    refuse(call, code): the refusal of a whole request, where a refusal in its likeness would say too much.
    hide(call, response): the response without what the client may not see.

    All but `handle` are asked only where rights are enforced.
    """

    handle: Callable[[Call, int, Any], Any]
    authorize: Callable[[Call, Any], Any] | None = None
    refuse: Callable[[Call, int], Any] | None = None
    hide: Callable[[Call, Any], Any] | None = None
