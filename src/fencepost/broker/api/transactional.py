"""What the handlers of transactional requests share."""

from __future__ import annotations

from collections.abc import Callable

from fencepost.broker.connection import Call
from fencepost.protocol.codes import ErrorCode

__all__ = ["decide_and_reply", "once_more"]


def once_more(
    call: Call, now_ms: int, transactional_id: str, error_code: int, attempt: Callable[[int, bool], None], first: bool
) -> bool:
    """Whether the request waits: its first answer was "markers are being written", so it is tried again when they are.

    A client would ask again after a pause of its own, 20 to 100 ms; here it waits for a write or a sync.
    """
    if error_code != ErrorCode.CONCURRENT_TRANSACTIONS or not first:
        return False

    def again(now_ms: int) -> None:
        if not call.connection.closed:
            attempt(now_ms, False)

    call.core.transactions.when_idle(now_ms, transactional_id, again)
    return True


def decide_and_reply(
    call: Call, now_ms: int, transactional_id: str, decide: Callable[[int], tuple[int, Callable[[int], None]]]
) -> None:
    """Decide, wait once where markers are being written, and reply.

    `decide(now_ms)` makes the decision and carries it out up to the reply; it returns the error code and what replies.
    """

    def attempt(now_ms: int, first: bool) -> None:
        code, reply = decide(now_ms)
        if not once_more(call, now_ms, transactional_id, code, attempt, first):
            call.core.durability.when_durable(now_ms, reply)

    attempt(now_ms, True)
