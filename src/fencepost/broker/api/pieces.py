"""Requests that take long are worked off a piece at a time, so that others are answered in between."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from fencepost.broker.connection import Call

__all__ = ["TURN_MS", "Resume", "in_pieces", "in_turns"]

TURN_MS: Final = 20
"""Work that took so long gives way to that of others."""

_PIECE = 1000

Item = TypeVar("Item")


Resume = Callable[[Callable[[], None]], object]
"""Calls something back when it is to go on."""


def in_turns(call: Call, now_ms: int, request: object, turn: Callable[[int], Resume | None]) -> None:
    """Call `turn(now_ms)`, and again whenever what it returned calls back, until it returns None: then all is done.

    Others are served in between: each turn is a decision of its own, on the state of its moment. The connection's next
    request waits until the last is done; when the connection is gone, or a turn raises, the rest is left out. What is
    done in a single turn is done at once.
    """
    resume = turn(now_ms)
    if resume is None:
        return
    connection, core = call.connection, call.core
    connection.hold()

    def go_on() -> None:
        after: Resume | None = None

        def next_turn(now_ms: int) -> None:
            nonlocal after
            after = turn(now_ms)

        call.go_on(request, next_turn, core.now.ms)
        if after is not None:
            after(go_on)
        elif not connection.closed:
            core.release(connection)

    resume(go_on)


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
    """Call `do(now_ms, piece)` for one piece of `items` after the other, each in a turn, and then `finish(now_ms)`."""
    pieces = deque(items[start : start + size] for start in range(0, max(len(items), 1), size))

    def turn(now_ms: int) -> Resume | None:
        do(now_ms, pieces.popleft())
        if pieces:
            return call.core.soon
        finish(now_ms)
        return None

    in_turns(call, now_ms, request, turn)
