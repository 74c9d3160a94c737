"""Requests that name very many things are worked off a piece at a time, so that others are answered in between."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeVar

from fencepost.broker.connection import Call

__all__ = ["in_pieces"]

_PIECE = 1000

_log = logging.getLogger("fencepost.broker.api")

Item = TypeVar("Item")


def in_pieces(
    call: Call,
    now_ms: int,
    request: object,
    items: Sequence[Item],
    do: Callable[[int, Sequence[Item]], None],
    finish: Callable[[int], None],
    *,
    size: int = _PIECE,
) -> None:
    """Call `do(now_ms, piece)` for one piece of `items` after the other, and then `finish(now_ms)`.

    Each piece is a decision of its own, on the state of its moment. The connection's next request waits until the last
    one is done; when the connection is gone, or `do` raises, the rest is left out. Few items are one piece, done at
    once.
    """
    if len(items) <= size:
        do(now_ms, items)
        finish(now_ms)
        return
    connection, core = call.connection, call.core
    connection.held = deque()
    pieces = deque(items[start : start + size] for start in range(0, len(items), size))

    def go_on() -> None:
        if connection.closed:
            return
        now_ms = core.now.ms
        try:
            do(now_ms, pieces.popleft())
            if pieces:
                core.after(0, go_on)
                return
            finish(now_ms)
        except OSError as error:
            core.storage_failed(now_ms, call, request, error)
        except Exception:  # noqa: BLE001 - nobody else would learn of it, and it is not to end the others' connections
            _log.exception("closing connection %s: a request failed", connection)
            core.drop(now_ms, connection)
        core.release(connection)

    go_on()
