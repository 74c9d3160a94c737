"""Time slices for long requests, so that other requests are served in between."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from fencepost.broker.connection import Call

__all__ = ["TURN_MS", "Resume", "in_pieces", "in_turns"]

TURN_MS: Final = 20
"""Length of a time slice in ms."""

_PIECE = 1000

Item = TypeVar("Item")


Resume = Callable[[Callable[[], None]], object]
"""Arranges a later call of a function."""


def in_turns(call: Call, now_ms: int, request: object, turn: Callable[[int], Resume | None]) -> None:
    """Call `turn(now_ms)` again and again until it returns None.

    A turn that needs another one returns a Resume, which arranges the next call. Other requests are served in between,
    so each turn must decide on the present state. The connection's next request waits until the last turn has ended.
    After the connection is closed, or a turn raises, no further turn follows. Work that fits in a single turn is done
    at once.
    """
    resume = turn(now_ms)
    if resume is None:
        return
    connection, core = call.connection, call.core
    connection.hold()

    def run_next() -> None:
        after: Resume | None = None

        def next_turn(now_ms: int) -> None:
            nonlocal after
            after = turn(now_ms)

        call.resume(request, next_turn, core.now.ms)
        if after is not None:
            after(run_next)
        elif not connection.closed:
            core.release(connection)

    resume(run_next)


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
    """Call `do(now_ms, piece)` for one piece of `items` per turn, and then `finish(now_ms)`."""
    done = 0

    def turn(now_ms: int) -> Resume | None:
        nonlocal done
        begin, done = done, done + size
        do(now_ms, items[begin:done])
        if done < len(items):
            return call.core.soon
        finish(now_ms)
        return None

    in_turns(call, now_ms, request, turn)
