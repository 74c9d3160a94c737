"""Producers and consumers of the workload behind one interface: this project's and librdkafka's.

A failed call raises AbortableFailure (the client can continue after an abort) or FatalFailure (a new client is needed),
with the client's error message. The call may have taken effect unless the exception is `certain`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NoReturn, Protocol, TypeVar

import fencepost
from fencepost.errors import AbortableError, KafkaError, ProduceFailedError, TransactionCommitFailedError
from fencepost_lab.check.history.operations import Position, RecordRun
from fencepost_lab.check.transactional_id_recorder import reports_fencing
from fencepost_lab.torture.access import Access, librdkafka_settings

__all__ = ["CLIENTS", "ClientFailed", "ConsumerDriver", "FatalFailure", "OnResult", "ProducerDriver", "needs", "ours"]

PATIENCE_S = 20.0
REQUEST_TIMEOUT_MS = 4_000
RETRY_BACKOFF_MS = 100
TRANSACTION_TIMEOUT_MS = 8_000
SESSION_TIMEOUT_MS = 6_000
MOST_RECORDS = 40

T = TypeVar("T")
OnResult = Callable[[int, int, Exception | None, bool], None]
"""Delivery callback: partition, offset, error, and whether the record was certainly not written.

The offset is -1 if it is unknown: an earlier attempt wrote the record, too long ago for the broker to know its offset.
"""


class ClientFailed(Exception):
    """A call failed.

    `certain`: it certainly did not take effect. `committed`: the transaction to abort is committed. `fenced`: the error
    says that the producer's epoch is old, or that its transaction timed out.
    """

    def __init__(self, error: object, *, certain: bool = False, committed: bool = False, fenced: bool = False) -> None:
        super().__init__(f"{type(error).__name__}: {error}")
        self.fenced = fenced
        self.certain = certain
        self.committed = committed


class AbortableFailure(ClientFailed):
    """The client can continue after an abort."""


class FatalFailure(ClientFailed):
    """A new client is needed."""


class ConsumerDriver(Protocol):
    """A consumer. `poll` calls `rebalanced` after a change of the assignment."""

    def subscribe(self, topic: str, rebalanced: Callable[[], None]) -> None: ...
    def assign(self, partitions: Iterable[tuple[str, int]]) -> None: ...
    def poll(self) -> list[RecordRun]: ...
    def assigned(self) -> list[Position]: ...
    def generation(self) -> int: ...
    def seek_to_committed(self) -> None: ...
    def close(self) -> None: ...


class ProducerDriver(Protocol):
    """A producer. It is transactional if created with an id."""

    def init(self) -> None: ...
    def begin(self) -> None: ...
    def send(self, topic: str, partition: int, value: str, on_result: OnResult) -> None: ...
    def flush(self) -> None: ...
    def send_offsets(self, offsets: list[Position], consumer: Any) -> None: ...
    def commit(self) -> None: ...
    def abort(self) -> None: ...
    def close(self) -> None: ...


def needs(client: str) -> str | None:
    """Return a message that names a client's missing package, or None if nothing is missing."""
    if client != "confluent":
        return None
    try:
        import confluent_kafka  # noqa: F401 - only whether it is there
    except ImportError as error:
        return f"--client confluent needs librdkafka's client ({error}): pip install confluent-kafka"
    return None


# This project's ------------------------------------------------------------------------------------------------------


def ours(call: Callable[[], T]) -> T:
    try:
        return call()
    except (AbortableError, TransactionCommitFailedError) as error:
        raise AbortableFailure(error, fenced=reports_fencing(error)) from error
    except fencepost.errors.TransactionCommittedError as error:
        raise FatalFailure(error, committed=True) from error
    except fencepost.errors.PreparedTransactionLostError as error:
        raise FatalFailure(error, certain=True) from error
    except KafkaError as error:
        raise FatalFailure(error, fenced=reports_fencing(error)) from error


class FencepostProducer:
    def __init__(self, access: Access, transactional_id: str | None, *, two_phase_commit: bool = False) -> None:
        fixed = {
            "transactional_id": transactional_id,
            "two_phase_commit": two_phase_commit,
            "delivery_timeout_ms": round(PATIENCE_S * 1000),
            "request_timeout_ms": REQUEST_TIMEOUT_MS,
            "max_block_ms": round(PATIENCE_S * 1000),
            "linger_ms": 2,
            "retry_backoff_ms": RETRY_BACKOFF_MS,
        }
        if not two_phase_commit:
            fixed["transaction_timeout_ms"] = TRANSACTION_TIMEOUT_MS
        self.producer = fencepost.Producer(**(access.options() | fixed))

    def init(self) -> None:
        ours(self.producer.init_transactions)

    def begin(self) -> None:
        ours(self.producer.begin_transaction)

    def send(self, topic: str, partition: int, value: str, on_result: OnResult) -> None:
        def delivered(error: KafkaError | None, metadata: Any) -> None:
            if error is None:
                on_result(partition, metadata.offset, None, False)
            else:
                on_result(partition, -1, error, not error.may_have_taken_effect)

        ours(lambda: self.producer.send(topic, value.encode(), None, partition, on_delivery=delivered))

    def flush(self) -> None:
        try:
            ours(self.producer.flush)
        except ClientFailed as failed:
            if not isinstance(failed.__cause__, ProduceFailedError):  # each record reports its own failure
                raise

    def send_offsets(self, offsets: list[Position], consumer: FencepostConsumer) -> None:
        positions = {fencepost.TopicPartition(topic, partition): offset for topic, partition, offset in offsets}
        ours(lambda: self.producer.send_offsets_to_transaction(positions, consumer.consumer.group_metadata()))

    def commit(self) -> None:
        ours(self.producer.commit_transaction)

    def abort(self) -> None:
        ours(self.producer.abort_transaction)

    def close(self) -> None:
        ours(lambda: self.producer.close(5_000))


class FencepostConsumer:
    def __init__(self, access: Access, group: str | None, isolation: str) -> None:
        fixed = {
            "group_id": group,
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            "isolation_level": isolation,
            "session_timeout_ms": SESSION_TIMEOUT_MS,
            "request_timeout_ms": REQUEST_TIMEOUT_MS,
            "max_poll_records": MOST_RECORDS,
        }
        self.consumer = fencepost.Consumer(**(access.options() | fixed))

    def subscribe(self, topic: str, rebalanced: Callable[[], None]) -> None:
        class RebalanceReport(fencepost.RebalanceListener):
            def on_partitions_revoked(self, partitions: list[fencepost.TopicPartition]) -> None:
                rebalanced()

            def on_partitions_assigned(self, partitions: list[fencepost.TopicPartition]) -> None:
                rebalanced()

            def on_partitions_lost(self, partitions: list[fencepost.TopicPartition]) -> None:
                rebalanced()

        ours(lambda: self.consumer.subscribe([topic], RebalanceReport()))

    def assign(self, partitions: Iterable[tuple[str, int]]) -> None:
        ours(lambda: self.consumer.assign(partitions))

    def poll(self) -> list[RecordRun]:
        found: dict[tuple[str, int], RecordRun] = {}
        for record in ours(lambda: self.consumer.poll(500)):
            batch = found.setdefault(
                (record.topic, record.partition), RecordRun(record.topic, record.partition, [], [])
            )
            batch.offsets.append(record.offset)
            batch.values.append((record.value or b"").decode())
        return list(found.values())

    def assigned(self) -> list[Position]:
        return [Position(topic, partition, -1) for topic, partition in self.consumer.assignment()]

    def generation(self) -> int:
        return self.consumer.group_metadata().generation_id

    def seek_to_committed(self) -> None:
        self.consumer.forget_positions()

    def close(self) -> None:
        ours(self.consumer.close)


# librdkafka's --------------------------------------------------------------------------------------------------------


def _theirs(call: Callable[[], T]) -> T:
    """Make a call of librdkafka. Its errors tell if the call can be repeated and if an abort helps."""
    from confluent_kafka import KafkaException

    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return call()
        except KafkaException as error:
            what = error.args[0]
            if what.retriable() and time.monotonic() < deadline:
                continue
            _raise_theirs(error, abortable=bool(what.txn_requires_abort()))
        except SystemError as error:  # confluent-kafka's report of a fatal error among delivery reports
            raise FatalFailure(error) from error


def _raise_theirs(error: Exception, *, abortable: bool) -> NoReturn:
    from confluent_kafka import KafkaError as Theirs

    fenced = error.args[0].code() in (Theirs._FENCED, Theirs.PRODUCER_FENCED, Theirs.INVALID_PRODUCER_EPOCH)
    if abortable:
        raise AbortableFailure(error, fenced=fenced) from error
    raise FatalFailure(error, fenced=fenced) from error


class LibrdkafkaProducer:
    def __init__(self, access: Access, transactional_id: str | None) -> None:
        from confluent_kafka import Producer

        settings: dict[str, Any] = {
            "bootstrap.servers": access.bootstrap_servers,
            **librdkafka_settings(access.config()),
            "enable.idempotence": True,
            "linger.ms": 2,
            "log_level": 0,
            "reconnect.backoff.max.ms": 500,
            "retry.backoff.ms": RETRY_BACKOFF_MS,
            "socket.timeout.ms": 4_000,
        }
        if transactional_id is not None:
            settings |= {"transactional.id": transactional_id, "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS}
        self._producer = Producer(settings)
        self._has_purged = False

    def init(self) -> None:
        _theirs(lambda: self._producer.init_transactions(PATIENCE_S))

    def begin(self) -> None:
        """Begin. Raises FatalFailure after an abort that purged records.

        librdkafka uses their sequence numbers again in the same epoch. If a purged record is in the log, brokers take
        the next one for its repetition: it is lost, and reported as committed. Apache Kafka behaves so, too.
        """
        if self._has_purged:
            raise FatalFailure("librdkafka has purged records, whose sequence numbers it would use again")
        _theirs(self._producer.begin_transaction)

    def send(self, topic: str, partition: int, value: str, on_result: OnResult) -> None:
        from confluent_kafka import KafkaError as Theirs

        purged = (Theirs._PURGE_QUEUE, Theirs._PURGE_INFLIGHT)

        def delivered(error: Any, message: Any) -> None:
            self._has_purged |= error is not None and error.code() in purged
            if error is None:
                offset = message.offset()
                on_result(partition, -1 if offset is None else offset, None, False)
            else:
                on_result(partition, -1, RuntimeError(str(error)), False)

        def produce() -> None:
            self._producer.produce(topic, value.encode(), None, partition, delivered)
            self._producer.poll(0)

        _theirs(produce)

    def flush(self) -> None:
        _theirs(lambda: self._producer.flush(PATIENCE_S))

    def send_offsets(self, offsets: list[Position], consumer: LibrdkafkaConsumer) -> None:
        from confluent_kafka import TopicPartition

        positions = [TopicPartition(*position) for position in offsets]
        metadata = consumer.consumer.consumer_group_metadata()
        _theirs(lambda: self._producer.send_offsets_to_transaction(positions, metadata, PATIENCE_S))

    def commit(self) -> None:
        _theirs(lambda: self._producer.commit_transaction(PATIENCE_S))

    def abort(self) -> None:
        _theirs(lambda: self._producer.abort_transaction(PATIENCE_S))

    def close(self) -> None:
        _theirs(lambda: self._producer.flush(5))  # raises after fencing or another fatal error


class LibrdkafkaConsumer:
    def __init__(self, access: Access, group: str | None, isolation: str) -> None:
        from confluent_kafka import Consumer

        self.consumer = Consumer(
            {
                "bootstrap.servers": access.bootstrap_servers,
                **librdkafka_settings(access.config()),
                "group.id": group or "nobody",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": isolation,
                "session.timeout.ms": SESSION_TIMEOUT_MS,
                "log_level": 0,
                "reconnect.backoff.max.ms": 500,
                "socket.timeout.ms": 4_000,
            }
        )

    def subscribe(self, topic: str, rebalanced: Callable[[], None]) -> None:
        def on_result(_consumer: Any, _partitions: Any) -> None:
            rebalanced()

        self.consumer.subscribe([topic], on_assign=on_result, on_revoke=on_result, on_lost=on_result)

    def assign(self, partitions: Iterable[tuple[str, int]]) -> None:
        from confluent_kafka import OFFSET_BEGINNING, TopicPartition

        self.consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for topic, partition in partitions])

    def poll(self) -> list[RecordRun]:
        found: dict[tuple[str, int], RecordRun] = {}
        messages: list[Any] = _theirs(lambda: self.consumer.consume(MOST_RECORDS, 0.5))
        for message in messages:
            if message.error() is not None:
                continue  # librdkafka continues by itself
            partition = message.topic(), message.partition()
            batch = found.setdefault(partition, RecordRun(*partition, [], []))
            batch.offsets.append(message.offset())
            batch.values.append(message.value().decode())
        return list(found.values())

    def assigned(self) -> list[Position]:
        return [Position(partition.topic, partition.partition, -1) for partition in _theirs(self.consumer.assignment)]

    def generation(self) -> int:
        return -1  # unknown to librdkafka

    def seek_to_committed(self) -> None:
        """Return to the group's committed positions. Raises FatalFailure if they cannot be read."""
        from confluent_kafka import OFFSET_BEGINNING, TopicPartition

        assigned = _theirs(self.consumer.assignment)
        committed = _theirs(lambda: self.consumer.committed(assigned, PATIENCE_S))
        for partition in [
            TopicPartition(record.topic, record.partition, record.offset if record.offset >= 0 else OFFSET_BEGINNING)
            for record in committed
        ]:
            _theirs(partial(self.consumer.seek, partition))

    def close(self) -> None:
        _theirs(self.consumer.close)


ProducerMaker = Callable[[Access, str | None], ProducerDriver]
ConsumerMaker = Callable[[Access, str | None, str], ConsumerDriver]
CLIENTS: dict[str, tuple[ProducerMaker, ConsumerMaker]] = {
    "fencepost": (FencepostProducer, FencepostConsumer),
    "confluent": (LibrdkafkaProducer, LibrdkafkaConsumer),
}
