"""A producer with a producer id and epoch from elsewhere. It neither begins nor ends the transaction it writes to.

Each task of the Spark sink has one. A step of the sink's protocol has begun the transaction, and a later step ends it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING
from uuid import UUID

from fencepost.client.net.cluster import Cluster
from fencepost.client.net.connection import BrokerConnection
from fencepost.client.net.runtime import TaskHandle
from fencepost.client.net.transaction_calls import ADD_VERSIONS, add_code, must_enlist, once, to_enlist
from fencepost.client.producer.accumulator import Accumulator
from fencepost.client.producer.batching import BatchLimits
from fencepost.client.producer.delivery_reports import recreation_error
from fencepost.client.producer.sender import Sender
from fencepost.config import ProducerConfig
from fencepost.errors import ClosedError, DataLossError, KafkaError, KafkaTimeoutError, error_for

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["AdoptedProducer"]


class _OpenTransaction:
    """The transaction as the sender sees it. Batches may be sent until one has failed.

    If a batch does not enlist its partition itself (before KIP-890), the coordinator is asked once to enlist it. A
    repeated request could arrive after the transaction has ended, and would open it again.
    """

    def __init__(self, wake: Callable[[], object], cluster: Cluster, sender: Sender, config: ProducerConfig) -> None:
        self._wake = wake  # wakes the sender, which drops the records of a failed transaction
        self.failure: KafkaError | None = None
        self._topics: dict[str, UUID] = {}  # topics that have rows of the transaction
        self._cluster, self._sender, self._config = cluster, sender, config
        self._enlisted: set[tuple[str, int]] = set()
        self._wanted: set[tuple[str, int]] = set()
        self._enlisting: TaskHandle | None = None

    @property
    def implicit(self) -> bool:
        """See TransactionHooks. Known after the first broker was reached."""
        return not must_enlist(self._cluster)

    @property
    def doomed(self) -> KafkaError | None:
        """See TransactionHooks."""
        return self.failure

    def may_send(self, topic: str, partition: int, topic_id: UUID | None) -> bool:
        """See TransactionHooks."""
        if self.failure is None:
            self.failure = recreation_error(self._topics, topic, topic_id)
        if self.failure is not None:
            self._wake()
            return False
        if self.implicit or (topic, partition) in self._enlisted:
            return True
        self._wanted.add((topic, partition))
        if self._enlisting is None:
            self._enlisting = self._cluster.runtime.spawn(self._enlist())
        return False

    async def _enlist(self) -> None:
        name = self._config.transactional_id or ""
        try:
            while wanted := self._wanted - self._enlisted:
                request = to_enlist(name, self._sender.producer_id, self._sender.epoch, wanted)
                deadline_ms = self._cluster.runtime.now_ms() + self._config.delivery_timeout_ms
                reply = await once(self._cluster, request, name, ADD_VERSIONS, add_code, deadline_ms)
                operation = f"add partitions to the transaction of {name!r}"
                if reply is None:
                    raise KafkaTimeoutError(f"{operation}: not answered, so it may happen late", outcome_unknown=True)
                if code := add_code(reply):
                    raise error_for(code, operation)
                self._enlisted |= wanted
        except KafkaError as error:
            self.failure = self.failure or error
        finally:
            self._enlisting = None
            self._wake()

    def stop(self) -> None:
        """Stop enlisting partitions."""
        if self._enlisting is not None:
            self._enlisting.cancel()

    def acknowledged(self, topic: str, topic_id: UUID | None) -> None:
        """See TransactionHooks."""
        if topic_id is not None:
            self._topics.setdefault(topic, topic_id)

    def sent(self) -> None:
        """See TransactionHooks."""

    def batch_failed(self, error: KafkaError, suspicious: bool, loss: DataLossError | None = None) -> None:
        """See TransactionHooks."""
        self.failure = self.failure or loss or error


class AdoptedProducer:
    """Sends Arrow rows. Used within the runtime. The caller owns the cluster view and closes it.

    The next call raises the first failure. After a failure in a transaction nothing more is sent.
    """

    def __init__(
        self,
        cluster: Cluster,
        config: ProducerConfig,
        producer_id: int,
        epoch: int,
        limits: BatchLimits | None = None,
        *,
        admit: Callable[[BrokerConnection], None] | None = None,
    ) -> None:
        """Create a producer.

        Args:
            cluster: The cluster's metadata and connections, owned by the caller.
            config: The settings. `transactional_id` is that of the open transaction; None: idempotent only.
            producer_id: The producer id to write with.
            epoch: The producer epoch to write with.
            limits: Batch sizes that brokers have refused, shared by the producers of a cluster.
            admit: Raises UnsupportedVersionError for a broker to which nothing may be sent. Then all records fail.
        """
        self._accumulator = Accumulator.of(config, cluster.runtime, wake=self._wake)
        self._accumulator.unhandled.enabled = config.transactional_id is None
        self._sender = Sender(cluster, config, self._accumulator, limits)
        self._sender.admit = admit
        self._transaction: _OpenTransaction | None = None
        if config.transactional_id is not None:
            self._transaction = self._sender.transactions = _OpenTransaction(self._wake, cluster, self._sender, config)
        self._sender.take_identity(producer_id, epoch)
        self._sender.start()

    async def send(self, topic: str | None, rows: pa.RecordBatch | pa.Table) -> None:
        """Accept rows for `topic`, or for the topics named in their `topic` column. Waits while the buffer is full.

        Raises:
            ConfigurationError: The columns do not fit.
            KafkaError: As `flush` raises.
        """
        from fencepost.client.producer.arrow_input import pieces_of

        for name, piece in pieces_of(topic, rows, None):
            await self._sender.wait_for_room(None)  # no time limit: buffered records have their delivery timeout
            self._check()
            self._accumulator.append_table(name, piece, piece.nbytes)

    async def flush(self) -> None:
        """Wait until all rows are acknowledged.

        Raises:
            KafkaError: The reason why a record is not acknowledged.
        """
        self._check()
        await self._sender.flush()
        self._check()

    def stop(self) -> None:
        """Stop sending and fail all rows that are not delivered."""
        if self._transaction is not None:
            self._transaction.stop()
        reason = ClosedError("the task ended before its rows were sent")
        self._sender.drop(reason)
        self._sender.stop(reason)

    def _wake(self) -> None:
        self._sender.wake()

    def _check(self) -> None:
        failure = self._transaction.failure if self._transaction is not None else self._sender.fatal
        if failure is None:
            failed = self._accumulator.unhandled.take()
            if failed is None:
                return
            failure = failed.__cause__ if isinstance(failed.__cause__, KafkaError) else failed
        self._sender.drop(failure)
        raise failure
