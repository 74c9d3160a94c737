"""The effect of a Produce response, or of a missing one, on a batch.

The batch is delivered, sent again, split, refused or lost.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Final, Protocol

from fencepost.client.metrics import ProducerMetrics
from fencepost.client.net import retry
from fencepost.client.net.cluster import Cluster
from fencepost.client.net.connection import BrokerConnection
from fencepost.client.net.list_offsets import LATEST, list_offsets
from fencepost.client.net.retry import Action
from fencepost.client.producer.batching import Router
from fencepost.client.producer.chunks import Batch
from fencepost.client.producer.delivery_reports import DeliveryReports
from fencepost.client.producer.partition_queue import PartitionQueue
from fencepost.client.types import Isolation, TopicPartition
from fencepost.config import ProducerConfig
from fencepost.errors import (
    DisconnectedError,
    InvalidProducerEpochError,
    KafkaError,
    ProtocolError,
    RecordPurgedError,
    TransactionAbortableError,
    error_for,
)
from fencepost.protocol.codes import ErrorCode as E
from fencepost.protocol.errors import WireError
from fencepost.protocol.produce_wire import ProducePartitionResult, ProduceResponse

MAY_BE_APPENDED: Final = (
    E.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    E.REQUEST_TIMED_OUT,
    E.KAFKA_STORAGE_ERROR,  # the disk may have failed after the batch was written
    E.NOT_LEADER_OR_FOLLOWER,  # also returned by a leader that lost its leadership before the followers had the batch
)
"""Errors after which the batch may still be in the log. No other batch may take its sequence."""


class SenderActions(Protocol):
    """The interface of response handling to the sender."""

    refreshes: dict[str, int]  # by topic: metadata refreshes since the topic's last success

    @property
    def stopped(self) -> KafkaError | None:
        """Return the error that stopped sending, or None."""
        ...

    def run_once(self, name: str, helper: Callable[[], Awaitable[None]]) -> None:
        """Run a helper unless it runs already."""
        ...

    async def refresh(self, topic: str) -> None:
        """Refresh the metadata of a topic."""
        ...

    def replace_epoch(self) -> None:
        """Restart the sequences under the next epoch. Not called for a transactional producer."""
        ...

    def replace_id(self) -> None:
        """Replace a producer id that can no longer be used. Not called for a transactional producer."""
        ...

    def fail_permanently(self, error: KafkaError, report: Callable[[], None] = lambda: None) -> None:
        """Stop the producer permanently with `error`. `report` reports the batch that failed with it."""
        ...


class ProduceAnswers:
    """Processes Produce responses, batch by batch."""

    def __init__(
        self,
        cluster: Cluster,
        config: ProducerConfig,
        reports: DeliveryReports,
        router: Router,
        metrics: ProducerMetrics,
        sending: SenderActions,
    ) -> None:
        self._cluster = cluster
        self._runtime = cluster.runtime
        self._config = config
        self._reports = reports
        self._router = router
        self._metrics = metrics
        self._sending = sending

    def unanswered(
        self, connection: BrokerConnection, taken: Sequence[tuple[PartitionQueue, Batch]], error: KafkaError | WireError
    ) -> None:
        """Send the batches of a request again that has no usable response."""
        sent = not isinstance(error, DisconnectedError) or error.sent
        failure = error if isinstance(error, KafkaError) else ProtocolError(f"{connection.name}: {error}")
        for queue, batch in taken:
            if batch in queue.in_flight:  # otherwise it was given up meanwhile
                batch.maybe_appended = batch.maybe_appended or sent
                self.again(queue, batch, failure)
        self._metrics.request_failed_total += 1

    def answered(
        self,
        connection: BrokerConnection,
        taken: Sequence[tuple[PartitionQueue, Batch]],
        response: ProduceResponse | None,
    ) -> None:
        """Process the results of one request. `response` is None with acks=0: the batches count as delivered."""
        names = {topic.topic_id: topic.name for topic in self._cluster.topics.values()}
        results = {} if response is None else response.by_partition(names)
        for queue, batch in taken:
            if batch not in queue.in_flight:  # it was given up meanwhile
                continue
            result = results.get((queue.topic, queue.partition))
            if result is not None:
                if result.error_code == 0:
                    self._sending.refreshes.pop(queue.topic, None)
                self.settle(queue, batch, result)
            elif response is None:
                self.acknowledge(queue, batch, -1, -1)
            else:
                batch.maybe_appended = True
                left_out = ProtocolError(f"{connection.name} left the partition out of its answer")
                self.again(queue, batch, left_out)

    def settle(self, queue: PartitionQueue, batch: Batch, result: ProducePartitionResult) -> None:
        """Apply the partition's result from a response to its batch."""
        code = result.error_code
        step = retry.action(retry.PRODUCE, code)
        if step is Action.OK:
            offset = -1 if code == E.DUPLICATE_SEQUENCE_NUMBER else result.base_offset
            self.acknowledge(queue, batch, offset, result.log_append_time_ms)
            return
        error = error_for(code, queue.name, result.error_message)
        if step in retry.RETRIABLE:
            batch.maybe_appended = batch.maybe_appended or code in MAY_BE_APPENDED
            self.again(queue, batch, error)
        elif step is Action.SPLIT and self._may_split(batch):
            self._split(queue, batch)
        elif step is Action.SEQUENCE:
            self._sequence_refused(queue, batch, result, error)
        elif self._reports.transactions is not None:
            queue.in_flight.remove(batch)
            queue.given_up(batch)
            suspicious = step is Action.PROBE
            if suspicious and code != E.TRANSACTION_ABORTABLE:
                error = InvalidProducerEpochError(str(error), code=code)
            self._reports.fail(batch, error)
            self._reports.transactions.batch_failed(error, suspicious)
        else:
            self._refused(queue, batch, step, error)

    def _refused(self, queue: PartitionQueue, batch: Batch, step: Action, error: KafkaError) -> None:
        """Fail a batch that was refused permanently, outside a transaction.

        Later batches are renumbered, or sent under another epoch or producer id. An earlier attempt without a response
        may have been appended.
        """
        queue.in_flight.remove(batch)
        queue.given_up(batch)
        if step is Action.FATAL:
            self._sending.fail_permanently(error, partial(self._reports.fail, batch, error))
            return
        self._reports.fail(batch, error)
        if step is Action.PROBE:
            self._sending.replace_id()
        elif batch.maybe_appended and batch.sequence >= 0:
            self._sending.replace_epoch()

    def acknowledge(self, queue: PartitionQueue, batch: Batch, base_offset: int, append_time_ms: int) -> None:
        """Record that the broker accepted the batch. An offset or time of -1 is unknown."""
        queue.acknowledged(batch, base_offset)
        if base_offset < 0 <= batch.sequence:
            self._sending.run_once(f"end of {queue.name}", partial(self._find_end, queue))
        if self._reports.transactions is not None:
            self._reports.transactions.acknowledged(queue.topic, queue.topic_id)
        self._cluster.lasting_errors.succeeded(queue.operation)
        batch.base_offset, batch.append_time_ms = base_offset, append_time_ms
        self._reports.finish(batch)

    async def _find_end(self, queue: PartitionQueue) -> None:
        """Look up the end of the log, an upper bound of a duplicate's offset, which the response did not contain.

        `PartitionQueue.loss` needs it to distinguish retention from loss.
        """
        partition = TopicPartition(queue.topic, queue.partition)
        while queue.acked_at_unknown_offset:
            acknowledged = queue.last_acked_sequence
            deadline_ms = self._runtime.now_ms() + self._config.request_timeout_ms
            found = await list_offsets(self._cluster, {partition: LATEST}, Isolation.READ_UNCOMMITTED, deadline_ms)
            queue.log_ended_at(found[partition].offset, acknowledged)

    def again(self, queue: PartitionQueue, batch: Batch, error: KafkaError) -> None:
        """Put a batch back to be sent again after a back-off. Metadata is refreshed meanwhile."""
        if self._sending.stopped is not None:
            queue.in_flight.remove(batch)
            self._reports.fail(batch, self._sending.stopped)
            return
        if batch.done:
            self._forget(queue, batch)
            return
        queue.put_back(batch)
        batch.refusal = error
        self._cluster.lasting_errors.record(queue.operation, error)
        self._metrics.retried(batch.topic, batch.count)
        if batch.attempts > self._config.retries:
            # The sender gives the batch up as soon as no batch of its partition is in flight.
            batch.deadline_ms = self._runtime.now_ms()
        wait_ms = retry.backoff_ms(
            batch.attempts - 1,
            self._runtime.random(),
            first_ms=self._config.retry_backoff_ms,
            most_ms=self._config.retry_backoff_max_ms,
        )
        queue.not_before_ms = self._runtime.now_ms() + round(wait_ms)
        self._sending.run_once(f"topic {queue.topic}", partial(self._sending.refresh, queue.topic))

    def purge(self, queues: Iterable[PartitionQueue]) -> None:
        """Fail all in-flight records as purged.

        Each batch stays in flight until its response arrives, which shows if its sequence is in the log. librdkafka
        ignores the response instead, and takes a new epoch after each purge in flight.
        """
        error = RecordPurgedError("purged in flight", outcome_unknown=True)
        for queue in queues:
            for batch in queue.in_flight:
                if not batch.done:
                    self._reports.fail(batch, error)

    def _forget(self, queue: PartitionQueue, batch: Batch) -> None:
        """Do not send a purged batch again. If it may have been appended, the next sequence is unknown."""
        queue.in_flight.remove(batch)
        queue.given_up(batch)
        if batch.maybe_appended and batch.sequence >= 0 and self._reports.transactions is None:
            self._sending.replace_epoch()

    @staticmethod
    def _may_split(batch: Batch) -> bool:
        """Return true if the batch may be split.

        A purged batch may not. Neither may a batch that may be in the log, because its halves would duplicate records.
        """
        return batch.count > 1 and not batch.done and not (batch.maybe_appended and batch.sequence >= 0)

    def _split(self, queue: PartitionQueue, batch: Batch) -> None:
        halves = self._router.split(batch)
        self._metrics.batch_split_total += 1
        chunk = batch.chunk
        position = chunk.batches.index(batch)
        chunk.batches[position : position + 1] = halves
        chunk.index_batches()
        queue.cut(batch, halves)

    def _sequence_refused(
        self, queue: PartitionQueue, batch: Batch, result: ProducePartitionResult, error: KafkaError
    ) -> None:
        """Handle a refused sequence (45, 59).

        It is a loss, unless an earlier batch, retention or a re-created topic explains it.
        """
        if queue.waits_for_an_earlier(batch):
            batch.maybe_appended = False
            self.again(queue, batch, error)
            return
        loss = queue.loss(error, result.log_start_offset)
        if loss is not None and queue.doubted_ms is None:
            queue.doubted_ms = self._runtime.now_ms()  # until newer metadata shows if the topic is the same
            batch.attempts -= 1
            self.again(queue, batch, error)
            return
        self._metrics.sequence_refused(loss is not None)
        if self._reports.transactions is not None:
            queue.in_flight.remove(batch)
            abort = TransactionAbortableError(f"{error}: the sequence does not fit", code=error.code)
            self._reports.transactions.batch_failed(abort, True, loss)
            self._reports.fail(batch, abort)
            return
        if loss is None:
            batch.maybe_appended = False
            self.again(queue, batch, error)  # after a back-off: the broker may refuse repeatedly
            self._sending.replace_epoch()
            return
        queue.in_flight.remove(batch)
        self._sending.fail_permanently(loss, partial(self._reports.fail, batch, loss))
