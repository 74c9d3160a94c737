"""Interface of an API's file: its handler, and functions for rights that no rule can express."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from fencepost.broker.connection import Call

__all__ = ["Handler"]


class Handler(NamedTuple):
    """The functions of one API.

    Requests and responses are its messages.

    handle(call, now_ms, request): return the response, or None if it is given through `call`, now or later.
    authorize(call, request): return the response that refuses all, or None. It may remove items from the request, and
    set `call.finish` to a function that completes the handler's response. refuse(call, code): return the refusal of a
    whole request, if one that repeats its lists would reveal too much. hide(call, response): return the response
    without items that the client may not see.

    All but `handle` are used only if rights are enforced.
    """

    handle: Callable[[Call, int, Any], Any]
    authorize: Callable[[Call, Any], Any] | None = None
    refuse: Callable[[Call, int], Any] | None = None
    hide: Callable[[Call, Any], Any] | None = None
