"""Client instances of telemetry, and the checks of their requests for subscriptions and of their pushes (KIP-714).

The rules are Kafka's. The id of a subscription follows from its metrics, interval and client, so that a client
continues with it after a restart of the broker, and after its instance was dropped to make room.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID
from zlib import crc32

from fencepost.broker.settings.client_metrics import ALL_METRICS, MetricsSubscription
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.telemetry import DEFAULT_INTERVAL_MS
from fencepost.protocol.wire import uuid_text

__all__ = ["COMPRESSIONS", "Instance", "Instances"]

COMPRESSIONS: Final = (4, 3, 1, 2)
"""Codecs that the broker accepts, in the order of preference: zstd, lz4, gzip, snappy. 0 is none."""
_MOST: Final = 16_384
_NEVER: Final = -(2**62)
_ASK_AGAIN: Final = frozenset((ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE))


@dataclass(slots=True)
class Instance:
    """A client instance.

    Attributes:
        instance_id: Its id, which the broker chose unless the client did.
        subscriptions: The broker's subscriptions from which the next attributes follow.
        metrics: Prefixes of the metrics' names that it is to push.
        interval_ms: Time between two pushes.
        subscription_id: Id of these metrics and this interval for this client.
        terminating: Its last push was announced as the last one.
    """

    instance_id: UUID
    subscriptions: Sequence[MetricsSubscription]
    metrics: tuple[str, ...]
    interval_ms: int
    subscription_id: int
    terminating: bool = False
    _asked_ms: int = _NEVER
    _pushed_ms: int = _NEVER
    _last_error: int = ErrorCode.NONE

    def ask(self, now_ms: int) -> ErrorCode:
        """Check a request for the subscription: one per interval, unless an error sent the client here."""
        is_due = now_ms - max(self._asked_ms, self._pushed_ms) >= self.interval_ms
        if is_due:
            self._asked_ms = now_ms
        elif self._last_error not in _ASK_AGAIN:
            return ErrorCode.THROTTLING_QUOTA_EXCEEDED
        self._last_error = ErrorCode.NONE
        return ErrorCode.NONE

    def push(
        self, now_ms: int, subscription_id: int, compression: int, size: int, most_bytes: int, terminating: bool
    ) -> ErrorCode:
        """Check a push of `size` bytes: one per interval, and one after each request for the subscription."""
        self._last_error = self._check(now_ms, subscription_id, compression, size, most_bytes, terminating)
        self.terminating = terminating
        return ErrorCode(self._last_error)

    def _check(
        self, now_ms: int, subscription_id: int, compression: int, size: int, most_bytes: int, terminating: bool
    ) -> ErrorCode:
        if self.terminating:
            return ErrorCode.INVALID_REQUEST
        if self._asked_ms > self._pushed_ms or now_ms - self._pushed_ms >= self.interval_ms:
            self._pushed_ms = now_ms
        elif not terminating:
            return ErrorCode.THROTTLING_QUOTA_EXCEEDED
        if subscription_id != self.subscription_id:
            return ErrorCode.UNKNOWN_SUBSCRIPTION_ID
        if compression != 0 and compression not in COMPRESSIONS:
            return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        if size > most_bytes:
            return ErrorCode.TELEMETRY_TOO_LARGE
        return ErrorCode.NONE


class Instances:
    """Instances by id: the `_MOST` that made the latest requests."""

    def __init__(self, subscriptions: Callable[[], Sequence[MetricsSubscription]]) -> None:
        self._subscriptions = subscriptions
        self._instances: dict[UUID, Instance] = {}

    def get(self, instance_id: UUID, client: Mapping[str, str]) -> Instance:
        """Return the instance. It is made anew if the subscriptions have changed.

        `client` has the client's attributes, by the names in `match`; `client_instance_id` is added.
        """
        current = self._subscriptions()
        known = self._instances.pop(instance_id, None)
        if known is None or known.subscriptions is not current:
            known = _instance(instance_id, current, {**client, "client_instance_id": uuid_text(instance_id)})
        self._instances[instance_id] = known
        if len(self._instances) > _MOST:
            del self._instances[next(iter(self._instances))]
        return known


def _instance(instance_id: UUID, subscriptions: Sequence[MetricsSubscription], client: Mapping[str, str]) -> Instance:
    """Combine the subscriptions that are for this client: all their metrics, at the shortest interval."""
    matching = [each for each in subscriptions if each.is_for(client)]
    metrics = tuple(dict.fromkeys(name for each in matching for name in each.metrics))
    if ALL_METRICS in metrics:
        metrics = (ALL_METRICS,)
    interval_ms = min((each.interval_ms for each in matching), default=DEFAULT_INTERVAL_MS)
    return Instance(
        instance_id, subscriptions, metrics, interval_ms, _subscription_id(instance_id, metrics, interval_ms)
    )


def _subscription_id(instance_id: UUID, metrics: Sequence[str], interval_ms: int) -> int:
    """Return a number of 32 bits with a sign."""
    text = "\0".join((*sorted(metrics), str(interval_ms), str(instance_id)))
    number = crc32(text.encode())
    return number - (1 << 32) if number >> 31 else number
