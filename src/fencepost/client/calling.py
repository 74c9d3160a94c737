"""How a core calls the application's functions: where they belong is the face's business."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

CallUser = Callable[[Callable[[], Any]], Awaitable[None]]


async def call_here(function: Callable[[], Any]) -> None:
    """In the core's own task; what is awaitable is awaited."""
    outcome = function()
    if inspect.isawaitable(outcome):
        await outcome
