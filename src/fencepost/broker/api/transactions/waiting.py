"""What the handlers of transactional requests share."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from fencepost.broker.api.apis import SERVED
from fencepost.broker.connection import Call
from fencepost.broker.coordinator.txn.notices import note_refusal
from fencepost.protocol.codes import ErrorCode

__all__ = ["decide_and_reply", "when_markers_are_written"]


def when_markers_are_written(
    call: Call, now_ms: int, request: object, transactional_id: str, again: Callable[[int], None]
) -> None:
    """Call `again(now_ms)` when no markers of the id are being written, unless the client has gone meanwhile.

    A client that is told CONCURRENT_TRANSACTIONS would ask again after a pause of its own, 20 to 100 ms; here it waits
    for a write or a sync. What the disk refuses then is the failure of this request, and not of the completion that it
    has waited for: that one is written, and must not be written again.
    """
    call.core.transactions.when_idle(now_ms, transactional_id, partial(call.go_on, request, again))


def decide_and_reply(
    call: Call,
    now_ms: int,
    request: object,
    transactional_id: str,
    decide: Callable[[int], tuple[int, Callable[[int], None]]],
) -> None:
    """Decide, wait once where markers are being written, and reply.

    `decide(now_ms)` makes the decision and carries it out up to the reply; it returns the error code and what replies.
    """

    def attempt(now_ms: int, *, may_wait: bool) -> None:
        code, reply = decide(now_ms)
        if code == ErrorCode.CONCURRENT_TRANSACTIONS and may_wait:
            when_markers_are_written(call, now_ms, request, transactional_id, partial(attempt, may_wait=False))
            return
        note_refusal(call.core.metrics, SERVED[call.api_key].name, code, transactional_id)
        call.core.durability.when_durable(now_ms, partial(call.go_on, request, reply))

    attempt(now_ms, may_wait=True)
