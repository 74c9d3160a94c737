"""Waiting for markers, for the handlers of transactional requests."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from fencepost.broker.api.apis import SERVED
from fencepost.broker.connection import Call
from fencepost.broker.coordinator.txn.transaction_log_messages import note_refusal
from fencepost.protocol.codes import ErrorCode

__all__ = ["decide_and_reply", "when_markers_are_written"]


def when_markers_are_written(
    call: Call, now_ms: int, request: object, transactional_id: str, again: Callable[[int], None]
) -> None:
    """Call `again(now_ms)` when no markers of the id are being written, unless the client has disconnected.

    If the disk refuses them, `again` is called at once, and the client gets CONCURRENT_TRANSACTIONS as from Kafka.

    A client that gets CONCURRENT_TRANSACTIONS retries after 20 to 100 ms; waiting here takes a write or a sync. If the
    disk refuses a write of `again`, this request fails, but not the completion that it waited for: that one is already
    written, and must not be repeated.
    """
    call.core.transactions.when_tried(now_ms, transactional_id, partial(call.resume, request, again))


def decide_and_reply(
    call: Call,
    now_ms: int,
    request: object,
    transactional_id: str,
    decide: Callable[[int], tuple[int, Callable[[int], None]]],
) -> None:
    """Decide, wait once for markers being written, and reply.

    `decide(now_ms)` decides and carries the decision out up to the reply. It returns the error code and the function
    that replies.
    """

    def attempt(now_ms: int, *, may_wait: bool) -> None:
        code, reply = decide(now_ms)
        if code == ErrorCode.CONCURRENT_TRANSACTIONS and may_wait:
            when_markers_are_written(call, now_ms, request, transactional_id, partial(attempt, may_wait=False))
            return
        note_refusal(call.core.metrics, SERVED[call.api_key].name, code, transactional_id)
        call.core.durability.when_durable(now_ms, partial(call.resume, request, reply))

    attempt(now_ms, may_wait=True)
