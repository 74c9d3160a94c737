"""Delivery reports that wait for poll() or flush(), so that callbacks run in the application's thread."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Any, Final, NamedTuple

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
from fencepost.process.signal_waits import Latch

__all__ = ["Reports", "Sent"]

log = logging.getLogger("fencepost.client.producer")

_numbers = count(1)

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
    """A record in delivery.

    Attributes:
        is_accepted: The producer has accepted it. False after a produce() that a signal handler interrupted, also if
            the record is in delivery nevertheless.
    """

    __slots__ = ("begun_s", "callback", "is_accepted", "key", "number", "partition", "size", "topic", "value")

    def __init__(
        self, topic: str, partition: int, key: bytes | None, value: bytes | None, callback: Callback | None
    ) -> None:
        self.topic, self.partition, self.key, self.value = topic, partition, key, value
        self.callback = callback
        self.size = len(key or b"") + len(value or b"")
        self.begun_s = time.monotonic()
        self.number = next(_numbers)
        self.is_accepted = False

    def message(self, metadata: RecordMetadata | None, error: KafkaError | None, latency_s: float) -> Message:
        """Return the message for the callback."""
        if metadata is None:
            partition = None if self.partition < 0 else self.partition
            timestamp = (TIMESTAMP_NOT_AVAILABLE, -1)
            return Message(self.topic, partition, None, self.key, self.value, None, error, timestamp, latency_s)
        timestamp = (TIMESTAMP_CREATE_TIME, metadata.timestamp_ms)
        position = metadata.topic, metadata.partition, metadata.offset
        return Message(*position, self.key, self.value, None, None, timestamp, latency_s)


class _Report(NamedTuple):
    """The outcome of a record."""

    sent: Sent
    error: OurError | None
    metadata: RecordMetadata | None
    latency_s: float


class Reports:
    """A queue of delivery reports. It counts records from produce() until their reports are served.

    A signal handler may raise at any call. Several threads may serve. Both happen only where a Python function begins
    and behind a call, so a report is in the queue until the step before its callback, and a record is counted from the
    step in which its size is added.
    """

    def __init__(self, most_records: int, most_bytes: int) -> None:
        """Create a queue with limits for records and bytes. `most_records` 0: no limit of the number."""
        self._most_records = most_records
        self._most_bytes = most_bytes
        self._counted: dict[int, Sent] = {}
        self._bytes = 0
        self._arrived: deque[_Report] = deque()
        self._news = Latch()  # set when a report arrives; a thread that waits afterwards replaces it

    @property
    def count(self) -> int:
        """Number of records whose reports were not served."""
        return len(self._counted)

    def statistics(self) -> dict[str, int]:
        """Return the number and size of the counted records, and the limits, under librdkafka's names."""
        limits = {"msg_max": self._most_records, "msg_size_max": self._most_bytes}
        return {"msg_cnt": self.count, "msg_size": self._bytes, **limits}

    def take_room(self, sent: Sent) -> bool:
        """Count a record. Return false if the queue is full."""
        if 0 < self._most_records <= self.count or self._bytes + sent.size > self._most_bytes:
            return False
        self._counted[sent.number] = sent
        self._bytes += sent.size
        return True

    def give_room(self, sent: Sent) -> None:
        """Stop counting a record. May be called again."""
        try:
            del self._counted[sent.number]
            self._bytes -= sent.size
        except KeyError:
            return

    def arrived(self, sent: Sent, error: OurError | None, metadata: RecordMetadata | None) -> None:
        """Queue a report. The producer's own thread calls this."""
        sent.is_accepted = True
        self._arrived.append(_Report(sent, error, metadata, time.monotonic() - sent.begun_s))
        self._news.set()

    def drop_doubtful(self) -> None:
        """Stop counting records that the producer has not accepted.

        All records that were accepted before must have their reports.
        """
        for sent in list(self._counted.values()):
            if not sent.is_accepted:
                self.give_room(sent)

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
        while self._counted if everything else not served:
            look()
            left_s = _LOOK_S if until_s is None else until_s - time.monotonic()
            if self._arrived:
                served += self._serve_first()
            elif left_s <= 0:
                break
            else:
                self._wait(min(left_s, _LOOK_S))
        while self._arrived:
            served += self._serve_first()
        return served

    def _wait(self, wait_s: float) -> None:
        """Wait until a report arrives, or the time is over. Several threads may wait."""
        if self._news.is_set:
            self._news = Latch()
        news = self._news
        if not self._arrived:
            news.wait(wait_s)

    def _serve_first(self) -> bool:
        """Serve the oldest report. Return false if another thread does."""
        try:
            report = self._arrived[0]
        except IndexError:
            return False
        sent, error, metadata, latency_s = report
        failure = None if error is None else _failure(error, sent)
        callback, message = sent.callback, sent.message(metadata, failure, latency_s)
        self.give_room(sent)
        if not self._arrived or self._arrived[0] is not report:
            return False
        del self._arrived[0]  # no call between the comparison, this and the callback
        if callback is not None:
            callback(failure, message)
        elif failure is not None and failure.code() not in _DROPPED:
            log.warning("a record of topic %r, which has no on_delivery, was not delivered: %s", sent.topic, error)
        return True


def _failure(error: OurError, sent: Sent) -> KafkaError:
    aborted = isinstance(error, ProduceFailedError) and error.failure_type is FailureType.TRANSACTION_FAILED
    code = NUMBERS["_PURGE_QUEUE"] if aborted else code_of(error)
    cause = error.__cause__
    if isinstance(cause, RecordRejectedError) and cause.code is None and sent.partition >= 0:
        code = NUMBERS["_UNKNOWN_PARTITION"]
    return KafkaError(_OF_DELIVERIES.get(code, code), str(error))
