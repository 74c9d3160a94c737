"""Delivery reports that wait for poll() or flush(), so that callbacks run in the application's thread."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from fencepost.client.types import RecordMetadata
from fencepost.compat.confluent_kafka.base.error_codes import NUMBERS
from fencepost.compat.confluent_kafka.base.errors import KafkaError, code_of
from fencepost.compat.confluent_kafka.base.values import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_NOT_AVAILABLE,
    Message,
)
from fencepost.errors import FailureType, ProduceFailedError, RecordRejectedError
from fencepost.errors import KafkaError as OurError

__all__ = ["Reports", "Sent"]

log = logging.getLogger("fencepost.client.producer")

_LOOK_S: Final = 0.1  # a wait looks again at this interval, because another thread may serve the last reports

Callback = Callable[[KafkaError | None, Message], Any]

# Local codes of failed deliveries, by the code of their cause.
_OF_DELIVERIES: Final = {
    NUMBERS["_TIMED_OUT"]: NUMBERS["_MSG_TIMED_OUT"],
    NUMBERS["_DESTROY"]: NUMBERS["_PURGE_QUEUE"],
}


# Codes of records that the application dropped itself, by purge() or abort_transaction().
_DROPPED: Final = frozenset((NUMBERS["_PURGE_QUEUE"], NUMBERS["_PURGE_INFLIGHT"]))


class Sent:
    """A record in delivery."""

    __slots__ = ("begun_s", "callback", "key", "partition", "size", "topic", "value")

    def __init__(
        self, topic: str, partition: int, key: bytes | None, value: bytes | None, callback: Callback | None
    ) -> None:
        self.topic, self.partition, self.key, self.value = topic, partition, key, value
        self.callback = callback
        self.size = len(key or b"") + len(value or b"")
        self.begun_s = time.monotonic()

    def message(self, metadata: RecordMetadata | None, error: KafkaError | None, latency_s: float) -> Message:
        """Return the message for the callback."""
        if metadata is None:
            partition = None if self.partition < 0 else self.partition
            timestamp = (TIMESTAMP_NOT_AVAILABLE, -1)
            return Message(self.topic, partition, None, self.key, self.value, None, error, timestamp, latency_s)
        timestamp = (TIMESTAMP_CREATE_TIME, metadata.timestamp_ms)
        position = metadata.topic, metadata.partition, metadata.offset
        return Message(*position, self.key, self.value, None, None, timestamp, latency_s)


class Reports:
    """A queue of delivery reports. It counts records from produce() until their reports are served."""

    def __init__(self, most_records: int, most_bytes: int) -> None:
        """Create a queue with limits for records and bytes. `most_records` 0: no limit of the number."""
        self._most_records = most_records
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self.count = 0
        self._bytes = 0
        self._arrived: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()

    def statistics(self) -> dict[str, int]:
        """Return the number and size of the counted records, and the limits, under librdkafka's names."""
        limits = {"msg_max": self._most_records, "msg_size_max": self._most_bytes}
        return {"msg_cnt": self.count, "msg_size": self._bytes, **limits}

    def take_room(self, sent: Sent) -> bool:
        """Count a record. Return false if the queue is full."""
        with self._lock:
            if 0 < self._most_records <= self.count or self._bytes + sent.size > self._most_bytes:
                return False
            self.count += 1
            self._bytes += sent.size
            return True

    def give_room(self, sent: Sent) -> None:
        """Stop counting a record."""
        with self._lock:
            self.count -= 1
            self._bytes -= sent.size

    def arrived(self, sent: Sent, error: OurError | None, metadata: RecordMetadata | None) -> None:
        """Queue a report. The producer's own thread calls this."""
        self._arrived.put(partial(self._tell, sent, error, metadata, time.monotonic() - sent.begun_s))

    def serve(
        self, until_s: float | None, *, everything: bool = False, look: Callable[[], object] = lambda: None
    ) -> int:
        """Call callbacks in this thread. If one raises, the later ones wait for the next call.

        Args:
            until_s: The end of the wait, in seconds of the monotonic clock; None: no limit.
            everything: Wait until no record is left, not only for the first report.
            look: Called repeatedly during the wait.

        Returns:
            The number of reports served.
        """
        served = 0
        while self.count if everything else not served:
            look()
            left_s = _LOOK_S if until_s is None else until_s - time.monotonic()
            if self._next(min(left_s, _LOOK_S)):
                served += 1
            elif left_s <= 0:
                break
        while self._next(0):
            served += 1
        return served

    def _next(self, wait_s: float) -> bool:
        try:
            tell = self._arrived.get(timeout=max(wait_s, 0))
        except queue.Empty:
            return False
        tell()
        return True

    def _tell(self, sent: Sent, error: OurError | None, metadata: RecordMetadata | None, latency_s: float) -> None:
        self.give_room(sent)
        failure = None if error is None else _failure(error, sent)
        if sent.callback is not None:
            sent.callback(failure, sent.message(metadata, failure, latency_s))
        elif failure is not None and failure.code() not in _DROPPED:
            log.warning("a record of topic %r, which has no on_delivery, was not delivered: %s", sent.topic, error)


def _failure(error: OurError, sent: Sent) -> KafkaError:
    aborted = isinstance(error, ProduceFailedError) and error.failure_type is FailureType.TRANSACTION_FAILED
    code = NUMBERS["_PURGE_QUEUE"] if aborted else code_of(error)
    cause = error.__cause__
    if isinstance(cause, RecordRejectedError) and cause.code is None and sent.partition >= 0:
        code = NUMBERS["_UNKNOWN_PARTITION"]
    return KafkaError(_OF_DELIVERIES.get(code, code), str(error))
