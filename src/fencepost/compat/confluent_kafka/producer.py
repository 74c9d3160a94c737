"""Producer with the interface of confluent-kafka, over Fencepost's Producer."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from types import NoneType
from typing import Any, Final, TypeVar

from fencepost.client.blocking.producer import Producer as OurProducer
from fencepost.client.net.io_thread import IoCall
from fencepost.client.net.tasks import within
from fencepost.client.producer.transaction_states import ProducerTxnState
from fencepost.client.types import GroupMetadata
from fencepost.compat.confluent_kafka.base.delivery import Reports, Sent
from fencepost.compat.confluent_kafka.base.error_codes import NUMBERS
from fencepost.compat.confluent_kafka.base.errors import (
    KafkaError,
    KafkaException,
    calling,
    error_of,
    local_error,
    transactional_error,
)
from fencepost.compat.confluent_kafka.base.settings import given, given_milliseconds
from fencepost.compat.confluent_kafka.base.values import (
    HeaderList,
    TopicPartition,
    as_bytes,
    checked_partitions,
    header_pairs,
    integer,
    position_to_commit,
    topic_partition_of,
)
from fencepost.compat.confluent_kafka.clients import Events, MetadataClient
from fencepost.config import ProducerConfig
from fencepost.counted import counted_noun
from fencepost.errors import ApplicationRecoverableError, ClosedError, ConfigurationError, FatalError
from fencepost.errors import KafkaError as OurError

T = TypeVar("T")

_CLOSED: Final = "Producer has been closed"
_ANY: Final = -1  # the partitioner chooses the partition
_CLOSE_MS: Final = 30_000
_NOT_INITIALIZED: Final = (ProducerTxnState.UNINITIALIZED, ProducerTxnState.FATAL_ERROR)
_NOTHING_OPEN: Final = (ProducerTxnState.UNINITIALIZED, ProducerTxnState.READY)

OnDelivery = Callable[[KafkaError | None, Any], Any]


class Producer(MetadataClient):
    """A producer whose callbacks run in the threads that call poll() and flush()."""

    _closed_text = _CLOSED

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Create a producer from a dict of settings with librdkafka's names and defaults."""
        self._given = given(ProducerConfig, args, kwargs)
        self._reports = Reports(self._given.most_records, self._given.most_bytes)
        self._events = Events(self._given, "producer", self._reports.statistics)
        with calling(_CLOSED):
            self._client = OurProducer(**self._given.config)
        self._client._warns_unclosed = False
        self._events.begin(self._client)

    def __len__(self) -> int:
        return 0 if self._ended() else self._reports.count

    def __bool__(self) -> bool:
        return True

    # --- records ---

    def produce(
        self,
        topic: str,
        value: str | bytes | None = None,
        key: str | bytes | None = None,
        partition: int = _ANY,
        callback: OnDelivery | None = None,
        on_delivery: OnDelivery | None = None,
        timestamp: int = 0,
        headers: Mapping[str, Any] | HeaderList | None = None,
    ) -> None:
        """Send a record without waiting.

        Args:
            topic: The topic.
            value: The value; text is encoded as UTF-8.
            key: The key; text is encoded as UTF-8.
            partition: The partition; -1: the partitioner chooses.
            callback: Called as `callback(error, message)` in poll() or flush().
            on_delivery: Another name of `callback`.
            timestamp: Timestamp in ms since 1970; 0: now.
            headers: A dict, or a list of pairs.

        Raises:
            BufferError: The queue is full; call poll().
            KafkaException: The record is too large, or cannot be sent in this state.
            TypeError: A value has a wrong type.
            UnicodeEncodeError: The topic cannot be written in UTF-8.
        """
        if isinstance(topic, str):
            topic.encode()  # confluent-kafka raises the same error
        partition, timestamp = integer("partition", partition, 32), integer("timestamp", timestamp, 64)
        chosen = callback or on_delivery or self._given_on_delivery()
        pairs = header_pairs(headers)
        sent = Sent(topic, partition, as_bytes("key", key), as_bytes("value", value), chosen)
        if chosen is not None and not callable(chosen):
            raise TypeError(f"expected callable for on_delivery, not {type(chosen).__name__}")
        client = self._open()
        if partition != _ANY:
            _check_partition(client, topic, partition)
        if not self._reports.take_room(sent):
            raise BufferError(
                f"Local: Queue full: {counted_noun(self._reports.count, 'record', 'wait')} for delivery or for poll()"
            )
        try:
            client.send(
                topic,
                sent.value,
                sent.key,
                None if partition == _ANY else partition,
                pairs,
                timestamp or None,
                partial(self._reports.arrived, sent),
            )
            sent.is_accepted = True
        except (OurError, TypeError, ValueError) as error:  # others come from a signal handler, maybe after the record
            self._reports.give_room(sent)
            if isinstance(error, ClosedError):
                raise RuntimeError(_CLOSED) from error
            if isinstance(error, OurError):
                over = isinstance(error, (FatalError, ApplicationRecoverableError))
                code = NUMBERS["_FATAL"] if over and not isinstance(error, ConfigurationError) else None
                raise KafkaException(error_of(error, code=code)) from error
            raise

    def _given_on_delivery(self) -> OnDelivery | None:
        return None if self._ended() else self._given.on_delivery

    def produce_batch(
        self,
        topic: str,
        messages: list[dict[str, Any]],
        partition: int = _ANY,
        callback: OnDelivery | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> int:
        """Send records as produce() does. A record that is not accepted gets its KafkaError under the key "_error".

        Args:
            topic: The topic.
            messages: Dicts with value, key, partition, headers and callback, all optional.
            partition: The partition of records without their own; -1: the partitioner chooses.
            callback: Callback of records without their own.
            on_delivery: Another name of `callback`.

        Returns:
            The number of accepted records.

        Raises:
            TypeError: A value has a wrong type. No record was sent.
            NotImplementedError: A record has a timestamp. confluent-kafka raises the same error.
        """
        _check_batch(topic, messages, partition)
        if not messages:
            return 0
        self._open()
        accepted = 0
        for message in messages:
            try:
                self.produce(
                    topic,
                    message.get("value"),
                    message.get("key"),
                    message.get("partition", partition),
                    message.get("callback") or message.get("on_delivery") or callback or on_delivery,
                    headers=message.get("headers"),
                )
                accepted += 1
            except BufferError as error:
                message["_error"] = KafkaError(NUMBERS["_QUEUE_FULL"], str(error))
            except KafkaException as error:
                message["_error"] = error.args[0]
        return accepted

    def poll(self, timeout: float = -1) -> int:
        """Call callbacks. Waits at most `timeout` seconds for the first one (-1: no limit).

        Returns:
            The number of delivery reports served.

        Raises:
            BaseException: A callback raised it. Later callbacks run in the next call.
        """
        self._open()
        self._events.tell()
        return self._reports.serve(_end_s(timeout), look=self._events.tell)

    def flush(self, timeout: float = -1) -> int:
        """Wait until all records are delivered or failed and their callbacks have run.

        Args:
            timeout: Maximum wait in seconds; -1: no limit.

        Returns:
            The number of records left.
        """
        client, until_s = self._open(), _end_s(timeout)
        self._events.tell()
        sending = IoCall(client._io.loop, lambda: client._core.sender.flush(None))
        client._io.call_soon(sending.start)

        def look() -> None:
            self._events.tell()
            if sending.has_succeeded:
                self._reports.drop_doubtful()

        try:
            self._reports.serve(until_s, everything=True, look=look)
        finally:
            client._io.call_soon(sending.cancel)
        return self._reports.count

    def purge(self, in_queue: bool = True, in_flight: bool = True, blocking: bool = True) -> None:
        """Drop records that are not delivered. poll() or flush() then calls their callbacks with a KafkaError.

        Args:
            in_queue: Drop records that wait to be sent (`_PURGE_QUEUE`).
            in_flight: Drop records that were sent and may be in the log (`_PURGE_INFLIGHT`).
            blocking: Has no effect; the call does not wait for a broker.
        """
        client = self._open()
        with calling(_CLOSED):
            client.purge(in_queue, in_flight)

    def close(self) -> bool:
        """Abort an open transaction, deliver all records, call their callbacks, and release all resources."""
        if self._ended():
            return True
        client = self._client
        with calling(_CLOSED):
            try:
                if client._core.transactions is None:
                    self.flush(_CLOSE_MS / 1000)
                client.close(_CLOSE_MS)
            finally:
                self._events.close()
                self._reports.serve(0)
        return True

    def _end(self) -> None:
        self.close()

    # --- transactions ---

    def init_transactions(self, timeout: float = -1) -> None:
        """Initialize the transactional id, within `timeout` seconds (-1: no limit). Raises KafkaException."""
        transactions = self._open()._core.transactions
        if transactions is not None and transactions.state not in _NOT_INITIALIZED:
            raise local_error("_STATE", f"init_transactions() was called before; state {transactions.state.name}")
        self._in_transaction("init_transactions", lambda client: client._core.init_transactions(), timeout)

    def begin_transaction(self) -> None:
        """Begin a transaction. Raises KafkaException."""
        client = self._open()
        with _transactional():
            client.begin_transaction()

    def send_offsets_to_transaction(
        self, positions: list[TopicPartition], group_metadata: GroupMetadata, timeout: float = -1
    ) -> None:
        """Add consumer positions to the transaction.

        Args:
            positions: Partitions with the offsets of the next records. Partitions without an offset are left out.
            group_metadata: Result of Consumer.consumer_group_metadata().
            timeout: Maximum wait in seconds; -1: no limit.

        Raises:
            KafkaException: The call failed.
        """
        self._open()
        if not isinstance(group_metadata, GroupMetadata):
            raise TypeError("group_metadata must be the result of Consumer.consumer_group_metadata()")
        wanted = checked_partitions(positions)
        offsets = {topic_partition_of(each): position_to_commit(each) for each in wanted if each.offset >= 0}
        self._in_transaction(
            "send_offsets_to_transaction",
            lambda client: client._core.send_offsets_to_transaction(offsets, group_metadata),
            timeout,
        )

    def commit_transaction(self, timeout: float = -1) -> None:
        """Flush, call callbacks, and commit the transaction. Raises KafkaException."""
        until_s = _end_s(timeout)
        self._check_open_transaction("commit_transaction")
        self.flush(_left_s(until_s))
        self._in_transaction("commit_transaction", lambda client: client._core.commit_transaction(), _left_s(until_s))

    def abort_transaction(self, timeout: float = -1) -> None:
        """Abort the transaction, and call the callbacks of undelivered records. Raises KafkaException."""
        given_milliseconds(timeout)
        self._check_open_transaction("abort_transaction")
        self._in_transaction("abort_transaction", lambda client: client._core.abort_transaction(), timeout)
        self._reports.serve(time.monotonic() + 1, everything=True)

    def _check_open_transaction(self, call: str) -> None:
        transactions = self._open()._core.transactions
        if transactions is not None and transactions.state in _NOTHING_OPEN:
            raise local_error("_STATE", f"{call}(): no transaction is open; state {transactions.state.name}")

    def _in_transaction(
        self, what: str, make: Callable[[OurProducer], Coroutine[Any, Any, object]], timeout: float
    ) -> None:
        client = self._open()
        wait_ms = given_milliseconds(timeout)

        async def run() -> None:
            if wait_ms is None:
                await make(client)
            else:
                await within(client._core.cluster.runtime, make(client), wait_ms, f"{what}()")

        with _transactional():
            client._io.call(run)


@contextmanager
def _transactional() -> Iterator[None]:
    """Convert exceptions of Fencepost to KafkaException with the flags of transactional calls."""
    try:
        yield
    except ClosedError as error:
        raise RuntimeError(_CLOSED) from error
    except OurError as error:
        raise KafkaException(transactional_error(error)) from error


def _check_batch(topic: object, messages: object, partition: object) -> None:
    """Raise TypeError or NotImplementedError for wrong arguments of produce_batch()."""
    if not isinstance(topic, str):
        raise TypeError(f"topic must be str, not {type(topic).__name__}")
    if not isinstance(messages, list):
        raise TypeError(f"messages must be a list, not {type(messages).__name__}")
    if not isinstance(partition, int):
        raise TypeError(f"partition must be int, not {type(partition).__name__}")
    for index, message in enumerate(messages):
        if not isinstance(message, dict):
            raise TypeError(f"Message at index {index} must be a dict, not {type(message).__name__}")
        for name in ("value", "key"):
            if not isinstance(message.get(name), (bytes, str, NoneType)):
                raise TypeError(f"Message {name} at index {index} must be bytes or str")
        if not isinstance(message.get("partition", _ANY), int):
            raise TypeError(f"Message partition at index {index} must be int")
        if message.get("timestamp"):
            raise NotImplementedError("Message timestamps are not currently supported; call produce() for each")


def _check_partition(client: OurProducer, topic: str, partition: int) -> None:
    """Raise KafkaException if the partition is known not to exist."""
    known = client._core.cluster.topics.get(topic)
    if partition < 0 or (known is not None and known.partitions and partition not in known.partitions):
        raise local_error("_UNKNOWN_PARTITION", f"Unable to produce message: topic {topic!r} has no {partition}")


def _end_s(timeout: float) -> float | None:
    wait_ms = given_milliseconds(timeout)
    return None if wait_ms is None else time.monotonic() + wait_ms / 1000


def _left_s(until_s: float | None) -> float:
    return -1.0 if until_s is None else max(until_s - time.monotonic(), 0.0)
