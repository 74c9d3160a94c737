"""The blocking clients: `Producer`, `Consumer`, `Admin`. All of a process share one I/O thread."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from fencepost.client.accumulator import Chunk, Header, OnDelivery
from fencepost.client.admin import AdminCore
from fencepost.client.assembly import cluster_for
from fencepost.client.asyncio_runtime import runtime_for
from fencepost.client.blocking_base import BlockingClient, blocking
from fencepost.client.consumer_blocking import Consumer
from fencepost.client.delivery import Appended, bulk_result
from fencepost.client.io_thread import io_thread
from fencepost.client.producer import ProducerCore
from fencepost.client.rebalance import refuse_after_revocation
from fencepost.client.types import RecordMetadata
from fencepost.config import (
    AdminConfig,
    CommonSettings,
    ProducerConfig,
    ProducerSettings,
)
from fencepost.errors import AbortableError, BufferFullError, KafkaError, KafkaTimeoutError

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")


class Delivery(tuple[Chunk, int]):
    """A record on its way (blocking producer). Safe to drop; `result()` waits."""

    __slots__ = ()

    def done(self) -> bool:
        """Whether the record's fate is known."""
        return self[0].fate(self[1]) is not None

    def result(self, timeout_s: float | None = None) -> RecordMetadata:
        """Where the record is. Raises ProduceFailedError, or KafkaTimeoutError after `timeout_s` (it goes on)."""
        fate = self._wait(timeout_s)
        if isinstance(fate, KafkaError):
            raise fate
        return fate

    def exception(self, timeout_s: float | None = None) -> KafkaError | None:
        """Why it was not delivered, None when it was. Raises KafkaTimeoutError after `timeout_s`."""
        fate = self._wait(timeout_s)
        return fate if isinstance(fate, KafkaError) else None

    def _wait(self, timeout_s: float | None) -> RecordMetadata | KafkaError:
        chunk, index = self
        fate = chunk.fate(index)
        if fate is not None:
            return fate
        something = threading.Event()
        chunk.watch(something.set)
        while True:
            fate = chunk.fate(index)
            if fate is not None:
                return fate
            if not something.wait(timeout_s):
                raise KafkaTimeoutError(f"the record was not delivered within {timeout_s} s", outcome_unknown=True)
            something.clear()


class BulkDelivery:
    """Arrow data on its way (blocking producer)."""

    def __init__(self, chunks: list[Chunk]) -> None:
        self._chunks = chunks

    def done(self) -> bool:
        """Whether the fate of every row is known."""
        return all(chunk.done for chunk in self._chunks)

    def result(self, timeout_s: float | None = None) -> list[Appended]:
        """Where the rows are. Raises ProduceFailedError (the first), KafkaTimeoutError."""
        something = threading.Event()
        watcher: Callable[[], object] = something.set
        for chunk in self._chunks:
            chunk.watch(watcher)
        while not self.done():
            if not something.wait(timeout_s):
                raise KafkaTimeoutError(f"not every row was delivered within {timeout_s} s", outcome_unknown=True)
            something.clear()
        return bulk_result(self._chunks)


class Producer(BlockingClient[ProducerCore]):
    """A blocking producer, idempotent by default; may be shared between threads (one transaction at a time).

    Settings are Kafka's, in snake_case (`fencepost.config.ProducerConfig`).
    """

    def __init__(self, bootstrap_servers: str | Sequence[str], **settings: Unpack[ProducerSettings]) -> None:
        self._make(ProducerConfig.make({"bootstrap_servers": bootstrap_servers, **settings}))

    @classmethod
    def from_config(cls, settings: Mapping[str, Any]) -> Self:
        """From Kafka's dotted names."""
        self = cls.__new__(cls)
        self._make(ProducerConfig.from_dotted(settings))
        return self

    def _make(self, config: ProducerConfig) -> None:
        io = io_thread()

        def make() -> ProducerCore:
            return ProducerCore(
                cluster_for(runtime_for(config), config), config, lock=threading.Lock(), wake=io.call_soon
            )

        BlockingClient.__init__(self, make)
        self._accumulator = self._core.accumulator
        self._append = self._core.append if config.interceptors else self._accumulator.append

    def forked(self) -> None:
        """In a forked child: nothing may be taken without looking."""
        self._accumulator.refuse()

    def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        partition: int | None = None,
        headers: Sequence[Header] | None = None,
        timestamp_ms: int | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> Delivery:
        """Send one record; `value=None` is a tombstone. Waits only when buffer_memory is full.

        Without a partition, the key decides as in Java's client, else a sticky one. `on_delivery(error, metadata)` runs
        in the I/O thread. In a transaction nobody has to look at either: the next transactional call tells. Raises
        BufferFullError, RecordRejectedError (too large), TransactionAbortableError (abort), UsageError, fatal errors.
        """
        if self._accumulator.slow:
            self._before_send()
        return Delivery(self._append(topic, value, key, partition, headers, timestamp_ms, on_delivery))

    def metrics(self) -> dict[str, float]:
        """Counters and gauges by Kafka's names in snake_case (see client.metrics)."""
        return self._core.metrics()

    def send_arrow(
        self, topic: str | None, data: pa.RecordBatch | pa.Table, partition: int | None = None
    ) -> BulkDelivery:
        """Send every row of Arrow data: columns value, [key], [partition], [headers], [timestamp], [topic].

        Without a partition, keys decide as in `send`; rows without a key go to sticky partitions. Raises as `send`.
        """
        if self._accumulator.slow:
            self._before_send()
        return BulkDelivery(self._core.append_table(topic, data, partition))

    def _before_send(self) -> None:
        self._check()
        self._core.check_sending()
        if not self._accumulator.full:
            return
        if self._io.is_current():
            raise BufferFullError("the buffer is full, and a delivery callback cannot wait for room")
        self._io.run(self._core.wait_for_room())

    flush = blocking(ProducerCore.flush)
    partitions_for = blocking(ProducerCore.partitions_for)
    init_transactions = blocking(ProducerCore.init_transactions)
    commit_transaction = blocking(ProducerCore.commit_transaction)
    abort_transaction = blocking(ProducerCore.abort_transaction)
    send_offsets_to_transaction = blocking(ProducerCore.send_offsets_to_transaction)
    prepare_transaction = blocking(ProducerCore.prepare_transaction)
    complete_transaction = blocking(ProducerCore.complete_transaction)

    def begin_transaction(self) -> None:
        """Open a transaction. Raises UsageError, or what broke the producer for good."""
        self._check()
        self._core.begin_transaction()

    @contextlib.contextmanager
    def transaction(self, consumer: Consumer | None = None) -> Iterator[Self]:
        """Begin; commit at the end of the block, abort when it raises (the two-phase template of KIP-691).

        With a `consumer`, its positions are committed in the transaction, and after a failure it reads on from its last
        committed ones. What went wrong is raised afterwards: an AbortableError (CommitFailedError) leaves the producer
        ready for the next transaction; after a fatal error nothing is left to abort. A rebalance that took partitions
        away since the beginning raises GroupFencedError instead of committing.
        """
        self.begin_transaction()
        revocations = 0 if consumer is None else consumer.revocations
        try:
            yield self
            if consumer is not None:
                refuse_after_revocation(revocations, consumer.revocations)
                self.send_offsets_to_transaction(consumer.positions(), consumer.group_metadata())
            self.commit_transaction()
        except BaseException as raised:
            error = raised
            transactions = self._core.transactions
            over = transactions is not None and transactions.error is error and not isinstance(error, AbortableError)
            if not over:
                self._run(lambda core: core.abort_after(error))
                if consumer is not None and isinstance(error, Exception):
                    consumer.reset_to_committed()
            raise

    @property
    def producer_id(self) -> int:
        """The current producer id, -1 before there is one."""
        return self._core.producer_id

    @property
    def producer_epoch(self) -> int:
        """The current producer epoch, -1 before there is one."""
        return self._core.producer_epoch

    def close(self, timeout_ms: float | None = 30_000) -> None:
        """Deliver what was sent, abort an open (not prepared) transaction, release everything. May be called again."""
        self._io.check_process()
        if not self._closed:
            self._closed = True
            self._io.run(self._core.close(timeout_ms))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close(30_000 if error is None or isinstance(error, Exception) else 0)


def _admin_core(config: AdminConfig) -> AdminCore:
    return AdminCore(cluster_for(runtime_for(config), config), config.default_api_timeout_ms)


class Admin(BlockingClient[AdminCore]):
    """Blocking admin calls; may be shared between threads."""

    def __init__(self, bootstrap_servers: str | Sequence[str], **settings: Unpack[CommonSettings]) -> None:
        config = AdminConfig.make({"bootstrap_servers": bootstrap_servers, **settings})
        super().__init__(lambda: _admin_core(config))

    @classmethod
    def from_config(cls, settings: Mapping[str, Any]) -> Self:
        """From Kafka's dotted names."""
        config = AdminConfig.from_dotted(settings)
        self = cls.__new__(cls)
        BlockingClient.__init__(self, lambda: _admin_core(config))
        return self

    create_topic = blocking(AdminCore.create_topic)
    delete_topic = blocking(AdminCore.delete_topic)
    create_partitions = blocking(AdminCore.create_partitions)
    list_topics = blocking(AdminCore.list_topics)
    describe_topics = blocking(AdminCore.describe_topics)
    describe_cluster = blocking(AdminCore.describe_cluster)
    partitions_of = blocking(AdminCore.partitions_of)
    list_offsets = blocking(AdminCore.list_offsets)
    delete_records = blocking(AdminCore.delete_records)
    describe_configs = blocking(AdminCore.describe_configs)
    alter_configs = blocking(AdminCore.alter_configs)
    config_entries = blocking(AdminCore.config_entries)
    describe_log_dirs = blocking(AdminCore.describe_log_dirs)
    list_groups = blocking(AdminCore.list_groups)
    describe_group = blocking(AdminCore.describe_group)
    group_offsets = blocking(AdminCore.group_offsets)
    alter_group_offsets = blocking(AdminCore.alter_group_offsets)
    reset_group_offsets = blocking(AdminCore.reset_group_offsets)
    delete_group_offsets = blocking(AdminCore.delete_group_offsets)
    remove_group_members = blocking(AdminCore.remove_group_members)
    delete_group = blocking(AdminCore.delete_group)
    create_acls = blocking(AdminCore.create_acls)
    describe_acls = blocking(AdminCore.describe_acls)
    delete_acls = blocking(AdminCore.delete_acls)
    init_producer_id = blocking(AdminCore.init_producer_id)
    end_transaction = blocking(AdminCore.end_transaction)
    complete = blocking(AdminCore.complete)
    list_transactions = blocking(AdminCore.list_transactions)
    describe_transactions = blocking(AdminCore.describe_transactions)
    describe_producers = blocking(AdminCore.describe_producers)
    fence_producers = blocking(AdminCore.fence_producers)
    force_terminate_transaction = blocking(AdminCore.force_terminate_transaction)
    write_abort_marker = blocking(AdminCore.write_abort_marker)
    features = blocking(AdminCore.features)
    fences_by_group = blocking(AdminCore.fences_by_group)
    api_versions = blocking(AdminCore.api_versions)

    def close(self) -> None:
        """Close the connections. May be called again."""
        self._io.check_process()
        if not self._closed:
            self._closed = True
            self._io.call_soon(self._core.cluster.close)
