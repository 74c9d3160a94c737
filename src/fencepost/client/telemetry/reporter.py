"""The times of a client's telemetry requests, and the effect of their responses (KIP-714). No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final
from uuid import UUID

from fencepost.client.telemetry.states import TABLE, TelemetryEvent, TelemetryState
from fencepost.protocol.codes import ErrorCode as E
from fencepost.protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from fencepost.protocol.messages.push_telemetry import PushTelemetryRequest
from fencepost.protocol.records.batch import CODECS
from fencepost.protocol.records.compression import compress
from fencepost.protocol.telemetry import DEFAULT_INTERVAL_MS, LEAST_INTERVAL_MS
from fencepost.values import Value

__all__ = ["Reporter", "TelemetrySubscription"]

_ALL: Final = "*"
# Factor of the first interval, so that clients that start together push at different times.
_JITTER_FROM, _JITTER_WIDTH = 0.5, 1.0

_AT_ONCE, _AFTER_INTERVAL = 0, 1
_AFTER: Final[Mapping[int, int]] = {
    E.UNKNOWN_SUBSCRIPTION_ID: _AT_ONCE,
    E.UNSUPPORTED_COMPRESSION_TYPE: _AT_ONCE,  # another codec is chosen
    E.TELEMETRY_TOO_LARGE: _AFTER_INTERVAL,
    E.THROTTLING_QUOTA_EXCEEDED: _AFTER_INTERVAL,
}
"""The time of the next subscription request after a refused push. Other errors end telemetry, as in Java's clients."""


class TelemetrySubscription(Value):
    """The metrics that the brokers want from this client.

    Attributes:
        number: Its id.
        interval_ms: Time between two pushes, in ms.
        codecs: Numbers of the codecs that the brokers accept, the preferred one first.
        most_bytes: Maximum size of compressed metrics, in bytes; 0: unknown.
        is_delta: Sums are pushed as their growth since the last push.
        prefixes: Prefixes of the wanted metrics' names.
    """

    number: int
    interval_ms: int
    codecs: Sequence[int]
    most_bytes: int
    is_delta: bool
    prefixes: tuple[str, ...]

    def wants(self, name: str) -> bool:
        """Return true if the metric has to be pushed."""
        return name.startswith(self.prefixes)


class Reporter:
    """The state of one client's telemetry. Callers pass the time. No I/O.

    Attributes:
        state: The state.
        instance_id: The client's id, which a broker chose; None before.
        subscription: The latest subscription with metrics; None before.
        due_ms: Time at which the next request is due.
        error: The error code that ended telemetry; 0 if none did.
    """

    def __init__(self) -> None:
        self.state = TelemetryState.SUBSCRIPTION_NEEDED
        self.instance_id: UUID | None = None
        self.subscription: TelemetrySubscription | None = None
        self.due_ms = 0
        self.error = 0
        self._interval_ms = DEFAULT_INTERVAL_MS
        self._codec = 0
        self._refused_codecs: set[int] = set()

    @property
    def is_over(self) -> bool:
        """True if nothing more is sent."""
        return self.state is TelemetryState.TERMINATED

    @property
    def needs_subscription(self) -> bool:
        """True if the next request is for the subscription."""
        return self.state is TelemetryState.SUBSCRIPTION_NEEDED

    def ask(self) -> GetTelemetrySubscriptionsRequest:
        """Return the request for the subscription."""
        self._step(TelemetryEvent.ASK)
        return GetTelemetrySubscriptionsRequest(client_instance_id=self.instance_id)

    def subscribed(self, reply: GetTelemetrySubscriptionsResponse, now_ms: int, jitter: float) -> None:
        """Process the response to `ask`. `jitter` is uniform in [0, 1)."""
        if reply.error_code:
            self.failed(reply.error_code, now_ms)
            return
        self.instance_id = reply.client_instance_id
        given_ms = reply.push_interval_ms
        self._interval_ms = max(given_ms, LEAST_INTERVAL_MS) if given_ms > 0 else DEFAULT_INTERVAL_MS
        if not reply.requested_metrics:
            self._step(TelemetryEvent.NOTHING_WANTED)
            self.due_ms = now_ms + self._interval_ms
            return
        self._step(TelemetryEvent.SUBSCRIBED)
        self.due_ms = now_ms + round(self._interval_ms * (_JITTER_FROM + _JITTER_WIDTH * jitter))
        self.subscription = TelemetrySubscription(
            reply.subscription_id,
            self._interval_ms,
            tuple(reply.accepted_compression_types),
            reply.telemetry_max_bytes,
            reply.delta_temporality,
            tuple("" if prefix == _ALL else prefix for prefix in reply.requested_metrics),
        )

    def push(self, metrics: bytes) -> PushTelemetryRequest | None:
        """Return the request with these metrics; None if they are larger than the brokers accept."""
        subscription = self.subscription or TelemetrySubscription(0, 0, (), 0, False, ())
        terminating = self.state is TelemetryState.TERMINATING_PUSH_NEEDED
        self._step(TelemetryEvent.PUSH)
        known = [codec for codec in subscription.codecs if 0 < codec < len(CODECS)]
        usable = [codec for codec in known if codec not in self._refused_codecs]
        self._codec = usable[0] if usable and metrics else 0
        data = bytes(compress(CODECS[self._codec], metrics))
        if 0 < subscription.most_bytes < len(data):
            return None
        return PushTelemetryRequest(
            client_instance_id=self.instance_id,
            subscription_id=subscription.number,
            terminating=terminating,
            compression_type=self._codec,
            metrics=data,
        )

    def pushed(self, error_code: int, now_ms: int) -> None:
        """Process the response to a push."""
        if error_code:
            self.failed(error_code, now_ms)
            return
        self._step(TelemetryEvent.PUSHED)
        self.due_ms = now_ms + self._interval_ms

    def failed(self, error_code: int, now_ms: int) -> None:
        """Process an error code in the response to the request in flight."""
        if error_code == E.UNSUPPORTED_COMPRESSION_TYPE:
            self._refused_codecs.add(self._codec)
        after = _AFTER.get(error_code)
        if after is None:
            self.error = error_code
            self._step(TelemetryEvent.REFUSED)
            return
        waits = after == _AFTER_INTERVAL or self.state is TelemetryState.SUBSCRIPTION_IN_PROGRESS
        self._step(TelemetryEvent.FAILED)
        self.due_ms = now_ms + (self._interval_ms if waits else 0)

    def unanswered(self, now_ms: int) -> None:
        """Record that the request in flight gets no response.

        The next one requests the subscription after the interval.
        """
        self._step(TelemetryEvent.FAILED)
        self.due_ms = now_ms + self._interval_ms

    def close(self) -> None:
        """Close. If a last push is due, the state is TERMINATING_PUSH_NEEDED. A second call ends without it."""
        self._step(TelemetryEvent.CLOSE)

    def _step(self, event: TelemetryEvent) -> None:
        self.state = TABLE.step(self.state, event)
