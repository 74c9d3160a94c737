"""Closed chunks that wait for their topic's metadata, and the batches made from them that wait to be sent."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

from fencepost.client.net.cluster import Cluster
from fencepost.client.net.topology import KnownTopic
from fencepost.client.producer.accumulator import Accumulator
from fencepost.client.producer.batching import BatchLimits, Router
from fencepost.client.producer.chunks import Chunk
from fencepost.client.producer.delivery_reports import DeliveryReports
from fencepost.client.producer.partition_queue import PartitionQueue
from fencepost.client.producer.partitioner import Sticky
from fencepost.config import ProducerConfig
from fencepost.counted import counted_noun
from fencepost.errors import KafkaError, KafkaTimeoutError, RecordPurgedError

# Batches are encoded shortly before they are sent, while they are still in the processor's caches.
ENCODED_AHEAD_BYTES: Final = 4 * 1024 * 1024

StartHelper = Callable[[str, Callable[[], Awaitable[None]]], None]


class ReadyBatches:
    """Owns the queues of all partitions (`queues`). `active` has those that have batches."""

    def __init__(
        self,
        cluster: Cluster,
        config: ProducerConfig,
        accumulator: Accumulator,
        reports: DeliveryReports,
        start: StartHelper,
        limits: BatchLimits,
        wake: Callable[[], object],
        replace_epoch: Callable[[], object],
    ) -> None:
        """Create an empty set of queues.

        Args:
            cluster: The cluster's metadata and connections.
            config: The settings.
            accumulator: The buffer that supplies closed chunks.
            reports: Reports the result of each batch.
            start: Starts a named helper unless it is running.
            limits: Batch sizes that brokers have refused.
            wake: Wakes the sender, which calls `collect` again.
            replace_epoch: Restarts the sequences under the next epoch.
        """
        self.queues: dict[tuple[str, int], PartitionQueue] = {}
        self.active: dict[tuple[str, int], PartitionQueue] = {}
        sticky = Sticky(
            config.batch_size,
            cluster.runtime.random,
            self._waiting if config.partitioner_adaptive_partitioning_enable else None,
        )
        self.router = Router(config, sticky, limits, reports.slow)
        self._cluster = cluster
        self._config = config
        self._accumulator = accumulator
        self._reports = reports
        self._start = start
        self._wake = wake
        self._replace_epoch = replace_epoch
        self._unrouted: dict[str, deque[Chunk]] = {}
        self._absent: dict[str, int] = {}  # by topic: with this many partitions, higher ones count as absent
        self._asking: set[int] = set()  # ids of chunks that the application's partitioner is processing

    def _waiting(self, topic: str, partition: int) -> int:
        """Return the number of batches that wait to be sent to the partition."""
        queue = self.active.get((topic, partition))
        return len(queue.pending) if queue is not None else 0

    @property
    def any_waiting(self) -> bool:
        """True if collected records have not been sent."""
        return bool(self._unrouted) or any(queue.pending for queue in self.active.values())

    def collect(self) -> None:
        """Take the chunks that are full or have lingered. Make batches of those whose topics are known."""
        now_ms = self._cluster.runtime.now_ms()
        self._accumulator.close_due(now_ms - self._config.linger_ms)
        while (chunk := self._accumulator.take()) is not None:
            self._reports.incomplete[id(chunk)] = chunk
            self._unrouted.setdefault(chunk.topic, deque()).append(chunk)
        for topic, chunks in list(self._unrouted.items()):
            known = self._cluster.topics.get(topic)
            if known is None or not known.partitions or self._cluster.is_stale(topic):
                self._start(f"topic {topic}", partial(self._find_topic, topic))
            if known is None or not known.partitions:
                continue
            numbers = list(known.partitions)
            available = [number for number in numbers if self._cluster.leader(topic, number) >= 0] or numbers
            for chunk in chunks:
                self._ask(chunk, len(numbers))
            while chunks and self._sendable_bytes(now_ms) < ENCODED_AHEAD_BYTES:
                if self.router.needs_partitioner(chunks[0], len(numbers)) or self._lacks_partition(
                    chunks[0], known, now_ms
                ):
                    break  # later chunks have to wait, to keep the order
                self._route(chunks[0], known, available)
                chunks.popleft()  # last: after an unexpected error the chunk is still there to be failed
            if not chunks:
                del self._unrouted[topic]

    def _ask(self, chunk: Chunk, partitions: int) -> None:
        """Run the application's partitioner on the chunk if necessary.

        Then wake the sender, which calls `collect` again.
        """
        if id(chunk) in self._asking or not self.router.needs_partitioner(chunk, partitions):
            return

        def chosen() -> None:
            self._asking.discard(id(chunk))
            self._wake()

        self._asking.add(id(chunk))
        self._reports.caller.call(partial(self.router.ask, chunk, partitions), chosen)

    def _lacks_partition(self, chunk: Chunk, topic: KnownTopic, now_ms: int) -> bool:
        """Return true if the chunk waits for newer metadata, because a partition of its records is unknown.

        The wait has the same limit as for an unknown topic. Then the router refuses these records.
        """
        count = len(topic.partitions)
        if self.router.highest_partition(chunk) < count:
            return False
        patience_ms = min(self._config.topic_metadata_propagation_max_ms, self._config.max_block_ms)
        is_believed = self._absent.get(chunk.topic) == count
        if topic.fetched_ms > chunk.created_ms and (is_believed or now_ms >= chunk.created_ms + patience_ms):
            self._absent[chunk.topic] = count
            return False
        self._start(f"topic {chunk.topic}", partial(self._refresh_topic, chunk.topic))
        return True

    async def _refresh_topic(self, topic: str) -> None:
        runtime = self._cluster.runtime
        await self._cluster.refresh_quietly([topic], runtime.now_ms() + self._config.request_timeout_ms)
        known = self._cluster.topics.get(topic)
        chunks = self._unrouted.get(topic)
        if known is not None and chunks and self.router.highest_partition(chunks[0]) >= len(known.partitions):
            await self._cluster.links.pause(self._config.retry_backoff_ms)

    def _sendable_bytes(self, now_ms: int) -> int:
        """Return the bytes of batches that can be sent now.

        Partitions in back-off or without a leader are excluded, so that they do not hold up others.
        """
        return sum(
            queue.pending_bytes
            for queue in self.active.values()
            if queue.pending
            and queue.not_before_ms <= now_ms
            and self._cluster.leader(queue.topic, queue.partition) >= 0
        )

    def _route(self, chunk: Chunk, topic: KnownTopic, available: Sequence[int]) -> None:
        deadline_ms = chunk.created_ms + self._config.delivery_timeout_ms
        self.router.route(chunk, len(topic.partitions), available, deadline_ms)
        if chunk.error is not None:
            self._reports.fail_chunk(chunk, chunk.error)
            return
        if chunk.table is None:
            self._accumulator.spread_over(chunk.topic, len(chunk.batches))
        for batch in list(chunk.batches):
            if batch.error is not None:
                self._reports.fail(batch, batch.error)
                continue
            key = (batch.topic, batch.partition)
            queue = self.queues.get(key)
            if queue is None:
                queue = self.queues[key] = PartitionQueue(
                    batch.topic, batch.partition, idempotent=self._config.enable_idempotence
                )
                queue.belongs_to(topic.topic_id)
            queue.append(batch)
            self.active[key] = queue

    async def _find_topic(self, topic: str) -> None:
        deadline_ms = self._cluster.runtime.now_ms() + self._config.max_block_ms
        try:
            await self._cluster.topic(topic, deadline_ms)
        except KafkaError as error:
            for chunk in self._unrouted.pop(topic, ()):
                self._reports.fail_chunk(chunk, error)

    def expire(self, now_ms: int) -> None:
        """Fail chunks and batches whose delivery timeout has expired."""
        for chunks in self._unrouted.values():
            while chunks and chunks[0].created_ms + self._config.delivery_timeout_ms <= now_ms:
                chunk = chunks.popleft()
                self._reports.fail_chunk(chunk, self.late(f"topic {chunk.topic!r}", None, 0, False))
        for queue in list(self.active.values()):
            while queue.pending and queue.pending[0].deadline_ms <= now_ms and not queue.in_flight:
                batch = queue.pending[0]
                late = self.late(queue.name, batch.refusal, batch.attempts, batch.maybe_appended)
                self.give_up_next(queue, late)

    def give_up_next(self, queue: PartitionQueue, error: KafkaError) -> None:
        """Fail the next batch of a partition."""
        batch = queue.remove_first()
        if batch.maybe_appended and self._config.enable_idempotence and self._reports.transactions is None:
            self._replace_epoch()  # its sequence may be in the log
        queue.given_up(batch)
        self._reports.fail(batch, error)

    def late(self, operation: str, refusal: KafkaError | None, attempts: int, unknown: bool) -> KafkaTimeoutError:
        """Make the error of records whose delivery timeout expired.

        The cause is the last refusal of the batch, else the client's latest lasting error.
        """
        reason = refusal or self._cluster.lasting_errors.latest()
        limit = f"delivery_timeout_ms={self._config.delivery_timeout_ms}"
        if attempts > self._config.retries:
            limit = f"{limit}, nor with retries={self._config.retries} further attempts"
        tries = counted_noun(attempts, "attempt")
        suffix = f"; {reason}" if reason is not None else ""
        late = KafkaTimeoutError(
            f"{operation}: not delivered within {limit} ({tries}){suffix}", outcome_unknown=unknown
        )
        late.__cause__ = reason
        return late

    def deadlines(self) -> list[float]:
        """Return the time at which the oldest chunk of each topic expires."""
        return [chunks[0].created_ms + self._config.delivery_timeout_ms for chunks in self._unrouted.values() if chunks]

    def drop(self, error: KafkaError) -> None:
        """Fail every record that is not in flight."""
        self._drop(error, error)

    def purge(self) -> None:
        """Fail every record that is not in flight as purged. A batch that waits for a retry may be in the log."""
        retried = RecordPurgedError("purged in the queue, where it waited to be sent again", outcome_unknown=True)
        self._drop(RecordPurgedError("purged in the queue: not delivered"), retried)

    def _drop(self, error: KafkaError, in_doubt: KafkaError) -> None:
        """Fail all records that are not in flight. Those that may have been appended fail with `in_doubt`."""
        self._accumulator.close_all()
        while (chunk := self._accumulator.take()) is not None:
            self._reports.incomplete[id(chunk)] = chunk
            self._reports.fail_chunk(chunk, error)
        for chunks in self._unrouted.values():
            for chunk in chunks:
                self._reports.fail_chunk(chunk, error)
        self._unrouted.clear()
        for queue in list(self.active.values()):
            while queue.pending:
                self.give_up_next(queue, in_doubt if queue.pending[0].maybe_appended else error)
