"""The producer's sender: one task that turns chunks into batches and batches into Produce requests.

The sender keeps the order of batches within a partition. At most five batches of a partition are in flight. The first
batch under a producer id is sent alone. After a retriable failure the sender waits until no batch of that partition is
in flight. Then it resends the failed batches one at a time, with their original sequences.

A batch that expires while its outcome is unknown leaves a gap in the sequences. The sender waits for the responses to
all other batches that may have been appended. Then it takes the next epoch, under which sequences begin at 0 (KIP-360).
The producer id stays the same, so a broker refuses the expired batch if it arrives after a batch of the new epoch.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Final

from fencepost.client.calling import Caller, InlineCaller, SlowCalls
from fencepost.client.interceptors import ProducerInterceptors
from fencepost.client.metrics import ProducerMetrics
from fencepost.client.net import retry
from fencepost.client.net.cluster import Cluster
from fencepost.client.net.connection import BrokerConnection
from fencepost.client.net.runtime import TaskHandle
from fencepost.client.net.transaction_calls import init_producer_id
from fencepost.client.producer.accumulator import Accumulator
from fencepost.client.producer.batching import BatchLimits
from fencepost.client.producer.chunks import Batch
from fencepost.client.producer.delivery_reports import DeliveryReports, TransactionHooks
from fencepost.client.producer.partition_queue import PartitionQueue
from fencepost.client.producer.produce_answers import ProduceAnswers
from fencepost.client.producer.ready_batches import ReadyBatches
from fencepost.config import ProducerConfig
from fencepost.counted import counted_noun
from fencepost.errors import (
    AuthenticationError,
    ClosedError,
    ClusterChangedError,
    FatalError,
    KafkaError,
    KafkaTimeoutError,
    RecordRejectedError,
    UnsupportedVersionError,
    error_for,
)
from fencepost.protocol.errors import WireError
from fencepost.protocol.messages.init_producer_id import InitProducerIdRequest
from fencepost.protocol.produce_wire import (
    ProducePartition,
    ProduceRequest,
    ProduceResponse,
    decode_response,
    encode_request,
)
from fencepost.protocol.records.batch import set_producer
from fencepost.protocol.transactions import FIRST_ENLISTING_PRODUCE, LAST_EPOCH

log = logging.getLogger("fencepost.client.producer")

REQUEST_BYTES: Final = 4 * 1024 * 1024  # bytes of batches in one request, across partitions
_ANSWER_MS: Final = 1_000
"""A broker waits that much less for its replicas than this client waits for the broker, so that its answer arrives."""


class Sender:
    """The sending task of one producer, see the module's docstring.

    `producer_id` is -1 before InitProducerId has succeeded, and always without idempotence.
    """

    def __init__(
        self,
        cluster: Cluster,
        config: ProducerConfig,
        accumulator: Accumulator,
        limits: BatchLimits | None = None,
        caller: Caller | None = None,
    ) -> None:
        """Create a sender.

        Args:
            cluster: The cluster's metadata and connections.
            config: The settings.
            accumulator: The buffer that supplies closed chunks.
            limits: Batch sizes that brokers refused before; None: none is known.
            caller: Runs the application's functions; None: the runtime runs them.
        """
        self.producer_id = -1
        self.epoch = -1
        self.fatal: KafkaError | None = None
        self._cluster = cluster
        self._runtime = cluster.runtime
        self._config = config
        self._accumulator = accumulator
        self._wake = self._runtime.event()
        self._progress = self._runtime.event()
        self.metrics = ProducerMetrics.start()
        self.stopped: KafkaError | None = None  # the error that stopped sending
        caller = caller or InlineCaller()
        slow = SlowCalls(f"producer {config.client_id!r}", caller.waits, self._runtime.now_ms)
        self.slow_calls = slow
        self.interceptors = ProducerInterceptors(config.interceptors, slow)
        self._reports = DeliveryReports(accumulator, self._progress, self.metrics, self.interceptors, caller, slow)
        limits = limits or BatchLimits()
        self._ready = ReadyBatches(
            cluster, config, accumulator, self._reports, self.run_once, limits, self._wake.set, self.replace_epoch
        )
        self._answers = ProduceAnswers(cluster, config, self._reports, self._ready.router, self.metrics, self)
        self._queues = self._ready.queues
        self._active = self._ready.active
        self._in_flight: dict[int, int] = {}
        self._busy: set[str] = set()  # names of running helpers: "connect 1", "topic t", "producer id"
        self._replace_epoch = False
        self._replace_id = False
        self._quiet_until_ms: float = 0  # time at which the first throttled broker accepts requests again, in ms
        self._login_again_ms: float = 0  # time at which another login may succeed, in ms; 0: none was refused
        self.refreshes: dict[str, int] = {}  # by topic: metadata refreshes since the topic's last success
        self._task: TaskHandle | None = None
        self.admit: Callable[[BrokerConnection], None] | None = None  # see AdoptedProducer
        if cluster.login is not None:
            cluster.login.on_change = self._forget_refusal

    # --- called by the producer ---

    @property
    def transactions(self) -> TransactionHooks | None:
        """The transactional producer's state, None without a transactional id."""
        return self._reports.transactions

    @transactions.setter
    def transactions(self, hooks: TransactionHooks) -> None:
        self._reports.transactions = hooks

    def start(self) -> None:
        """Start the sender's task."""
        self._task = self._runtime.spawn(self._run())

    def wake(self) -> None:
        """Wake the sending task."""
        self._wake.set()

    @property
    def in_flight(self) -> int:
        """Number of Produce requests without a response."""
        return sum(self._in_flight.values())

    @property
    def undelivered(self) -> int:
        """Number of records without a result."""
        return self._accumulator.waiting_rows + sum(chunk.rows_left for chunk in self._reports.incomplete.values())

    async def flush(self, deadline_ms: int | None = None) -> bool:
        """Send all records and wait until each record sent before has a result. Return false if time ran out."""
        self._accumulator.close_all()
        self._ready.collect()
        if self._ready.any_waiting:
            self._wake.set()
        return await self._reports.until_done(deadline_ms)

    async def drain(self, deadline_ms: int | None = None) -> bool:
        """Wait until no request is in flight. Return false if time ran out."""
        return await self._reports.until(lambda: not self.in_flight, deadline_ms)

    async def end_callbacks(self, deadline_ms: int | None) -> None:
        """Wait until all callbacks of a closed producer have returned, including the interceptors' close()."""
        await self._reports.end(deadline_ms)

    async def wait_for_room(self, deadline_ms: int | None) -> bool:
        """Wait until the buffer is below buffer_memory. Return false if time ran out."""
        return await self._reports.until(lambda: not self._accumulator.full, deadline_ms)

    def drop(self, error: KafkaError) -> None:
        """Fail every record that is not in flight (abort, fatal error, close)."""
        self._ready.drop(error)
        self._progress.set()

    def purge(self, *, in_queue: bool, in_flight: bool) -> int:
        """Fail queued records, in-flight records, or both, as purged. Return their number."""
        failed_before = self.metrics.record_error_total
        if in_queue:
            self._ready.purge()
        if in_flight:
            self._answers.purge(self._active.values())
        self._wake.set()
        return self.metrics.record_error_total - failed_before

    async def discard(self, error: KafkaError, deadline_ms: int | None = None) -> None:
        """Fail all records, including those in flight, so that none is sent in the next transaction.

        Raises:
            KafkaTimeoutError: Requests are still in flight at the deadline.
        """
        self.drop(error)
        if not await self.drain(deadline_ms):
            raise KafkaTimeoutError("requests of the last transaction are still in flight")
        self.drop(error)
        callbacks_by_ms = deadline_ms or self._runtime.now_ms() + self._config.max_block_ms
        await self._reports.until(lambda: not self._reports.calling, callbacks_by_ms)

    @property
    def knows_sequences(self) -> bool:
        """True if every partition expects the sequence after the last acknowledged one."""
        return not any(queue.unknown for queue in self._queues.values())

    def take_identity(self, producer_id: int, epoch: int) -> None:
        """Continue with a new producer id or epoch. Sequences start at 0. No batch may be in flight."""
        same_id = producer_id == self.producer_id
        self.producer_id, self.epoch = producer_id, epoch
        for queue in self._queues.values():
            queue.restart(same_id=same_id)
        if self._ready.any_waiting:
            self._wake.set()

    def stop(self, reason: KafkaError) -> None:
        """End the task. A batch that returns later without a response fails with `reason`."""
        self.stopped = reason
        if self._task is not None:
            self._task.cancel()

    # --- the task ---

    async def _run(self) -> None:
        with self._fail_on_defect():
            try:
                while self.stopped is None:
                    self._wake.clear()
                    self._forget_old_refusal()
                    self._ready.collect()
                    self._fail_doomed_records()
                    self._ready.expire(self._runtime.now_ms())
                    self._maintain_identity()
                    self._send_ready()
                    self._accumulator.unhandled.log(self._runtime.now_ms())
                    await self._wake.wait(self._until_next_timer())
            except (Exception, GeneratorExit):
                raise
            except BaseException:  # asyncio.run cancels all remaining tasks
                ended = "the program or its event loop ended, or the task was cancelled, before close() was done"
                reason = self._cluster.lasting_errors.latest()
                self._give_up(ClosedError(ended if reason is None else f"{ended}; {reason}"))
                raise

    @contextmanager
    def _fail_on_defect(self) -> Iterator[None]:
        """End the producer and fail all its records on an unexpected exception.

        Otherwise callers would wait forever.
        """
        try:
            yield
        except Exception as error:
            log.exception("the sender failed")
            broken = FatalError(f"the sender failed: {error!r}")
            broken.__cause__ = error
            self._give_up(broken)

    def _give_up(self, error: KafkaError) -> None:
        """Fail all records permanently, including those in flight."""
        if self.stopped is not None:
            return
        self.stopped = error

        def report_in_flight() -> None:
            for queue in list(self._active.values()):
                for batch in list(queue.in_flight):
                    batch.maybe_appended = True
                    self._answers.again(queue, batch, error)

        self.fail_permanently(error, report_in_flight)

    def replace_epoch(self) -> None:
        """Take the next epoch as soon as every batch that may have been appended has a response."""
        self._replace_epoch = True

    def replace_id(self) -> None:
        """Take another producer id as soon as every batch that may have been appended has a response."""
        self._replace_epoch = self._replace_id = True

    def fail_permanently(self, error: KafkaError, report: Callable[[], None] = lambda: None) -> None:
        """Stop sending permanently. Later calls of the application raise `error`.

        A refused login is permanent for transactions only. Without them a later call tries again.

        Args:
            error: The reason.
            report: Reports the batches in flight that fail with it. It is called when the application's calls are
                refused, because these may follow a report at once, and before waiting batches fail.
        """
        self.fatal = error
        self._accumulator.refuse()
        if isinstance(error, AuthenticationError):
            self._login_again_ms = self._runtime.now_ms() + self._config.reconnect_backoff_max_ms
        if self.transactions is not None:
            self.transactions.batch_failed(error, False)
        report()
        self.drop(error)
        self._accumulator.unhandled.log(self._runtime.now_ms())

    def _forget_old_refusal(self) -> None:
        # The broker may accept the credentials by now: a user was created, or a certificate file renewed.
        if 0 < self._login_again_ms <= self._runtime.now_ms():
            self._forget_refusal()

    def _forget_refusal(self) -> None:
        """Let the next record try another login. Records that have failed stay failed."""
        self._login_again_ms = 0
        if isinstance(self.fatal, AuthenticationError) and self.transactions is None:
            self.fatal = None

    def _fail_doomed_records(self) -> None:
        """Fail the waiting records of a transaction that can no longer be committed."""
        if self.transactions is not None and (error := self.transactions.doomed) is not None:
            self.drop(error)

    def _until_next_timer(self) -> float | None:
        now_ms = self._runtime.now_ms()
        times = [at_ms for at_ms in (self._quiet_until_ms, self._login_again_ms) if at_ms]
        self._quiet_until_ms = 0
        dues = (self._accumulator.next_due_ms(self._config.linger_ms), self._accumulator.unhandled.next_log_ms())
        times += [due_ms for due_ms in dues if due_ms is not None]
        times += self._ready.deadlines()
        for queue in self._active.values():
            if queue.pending:
                times.append(queue.pending[0].deadline_ms)
                if queue.not_before_ms > now_ms:
                    times.append(queue.not_before_ms)
        return max(min(times) - now_ms, 1) if times else None

    # --- the producer id of an idempotent producer; init_transactions supplies that of a transactional producer ---

    @property
    def _idempotent(self) -> bool:
        return self._config.enable_idempotence

    def _maintain_identity(self) -> None:
        if self.transactions is not None or not self._idempotent or self.fatal is not None:
            return
        if self._replace_epoch and self.producer_id >= 0:
            if self.in_flight or any(batch.maybe_appended for q in self._active.values() for batch in q.pending):
                return
            if self._replace_id or self.epoch == LAST_EPOCH:
                self.take_identity(-1, -1)
            else:
                self.take_identity(self.producer_id, self.epoch + 1)
                self._replace_epoch = False
        if self.producer_id < 0 and self._active:
            self.run_once("producer id", self._get_identity)

    async def _get_identity(self) -> None:
        deadline_ms = self._runtime.now_ms() + self._config.max_block_ms
        try:
            reply = await init_producer_id(self._cluster, InitProducerIdRequest(), deadline_ms)
        except KafkaError as error:
            if not isinstance(error, KafkaTimeoutError):
                self.fail_permanently(error)
            return
        if reply.error_code != 0:
            self.fail_permanently(error_for(reply.error_code, "InitProducerId"))
            return
        self._replace_epoch = self._replace_id = False
        self.take_identity(reply.producer_id, reply.producer_epoch)

    # --- sending ---

    def run_once(self, name: str, helper: Callable[[], Awaitable[None]]) -> None:
        """Start a helper unless it is running. Wake the sender when it ends."""
        if name in self._busy:
            return
        self._busy.add(name)

        async def run() -> None:
            try:
                with self._fail_on_defect():
                    try:
                        await helper()
                    except KafkaError as error:
                        if self.stopped is None:
                            self._cluster.lasting_errors.record(name, error)
                            with suppress(ClosedError):
                                await self._cluster.links.pause(self._config.retry_backoff_max_ms)
            finally:
                self._busy.discard(name)
                self._wake.set()

        self._runtime.spawn(run())

    def _send_ready(self) -> None:
        """Send requests until no partition has a batch that may be sent now."""
        if self._idempotent and self.producer_id < 0:
            return
        while True:
            by_node: dict[int, list[PartitionQueue]] = {}
            now_ms = self._runtime.now_ms()
            for key, queue in list(self._active.items()):
                if not queue.pending:
                    if not queue.in_flight:
                        del self._active[key]
                    continue
                node = self._node_for(queue, now_ms)
                if node >= 0:
                    by_node.setdefault(node, []).append(queue)
            sent = False
            for node, queues in by_node.items():
                connection = self._cluster.live(node)
                if connection is None:
                    self.run_once(f"connect {node}", partial(self._connect, node))
                elif connection.throttled_until_ms > now_ms:
                    self._quiet_until_ms = min(self._quiet_until_ms or math.inf, connection.throttled_until_ms)
                else:
                    try:
                        self._send(node, connection, queues)
                    except UnsupportedVersionError as error:
                        self.fail_permanently(error)
                        return
                    sent = True
            if not sent:
                return

    def _node_for(self, queue: PartitionQueue, now_ms: int) -> int:
        """Return the leader to which the queue's next batch can be sent now, or -1."""
        known = self._cluster.topics[queue.topic]
        if queue.doubts(known.fetched_ms):
            self.run_once(f"topic {queue.topic}", partial(self.refresh, queue.topic))
        anew = queue.was_recreated(known.topic_id)
        if queue.doubts(known.fetched_ms) or (anew and queue.in_flight):
            return -1
        if anew and known.partitions and queue.partition not in known.partitions:
            count = len(known.partitions)
            words = (
                f"{queue.name} does not exist any more: the topic was deleted and created again with "
                f"{counted_noun(count, 'partition')}"
            )
            while queue.pending:  # the partition will not return: fail now instead of after the delivery timeout
                self._ready.give_up_next(queue, RecordRejectedError(words))
            return -1
        if anew and self._idempotent and self.transactions is None and queue.introduced:
            self._replace_epoch = True
            self._wake.set()
        queue.belongs_to(known.topic_id)
        batch = queue.sendable(now_ms, only_retries=self._replace_epoch)
        if batch is None:
            return -1
        transactions = self.transactions
        if transactions is not None and not transactions.may_send(queue.topic, queue.partition, known.topic_id):
            return -1
        leader = self._cluster.leader(queue.topic, queue.partition)
        if leader < 0:
            self.run_once(f"topic {queue.topic}", partial(self.refresh, queue.topic))
            return -1
        if self._in_flight.get(leader, 0) >= self._config.max_in_flight_requests_per_connection:
            return -1
        return leader

    async def _connect(self, node: int) -> None:
        """Open a connection to the node. On failure refresh metadata, which may name another leader."""
        deadline_ms = self._runtime.now_ms() + self._config.request_timeout_ms
        try:
            await self._cluster.connection(node, deadline_ms)
        except AuthenticationError as error:
            self.fail_permanently(error)  # a retry with the same credentials cannot succeed
        except KafkaError as error:
            log.debug("no connection to broker %d: %s", node, error)
            await self._refresh_metadata({queue.topic for queue in self._active.values()}, deadline_ms)

    async def refresh(self, topic: str) -> None:
        count = self.refreshes[topic] = self.refreshes.get(topic, 0) + 1
        await self._refresh_metadata([topic], self._runtime.now_ms() + self._config.request_timeout_ms)
        await self._cluster.links.pause(retry.backoff_ms(min(count, 5), self._runtime.random()))

    async def _refresh_metadata(self, topics: Iterable[str], deadline_ms: int) -> None:
        try:
            await self._cluster.refresh_quietly(topics, deadline_ms)
        except (AuthenticationError, ClusterChangedError) as error:
            self.fail_permanently(error)

    def _versions(self, connection: BrokerConnection, topics: set[str]) -> int:
        highest = 12 if any(self._cluster.topics[name].topic_id is None for name in topics) else 13
        if self.admit is not None:
            self.admit(connection)
        if self.transactions is not None and not self.transactions.implicit:
            highest = FIRST_ENLISTING_PRODUCE - 1
        return connection.version(retry.PRODUCE, 3, highest)

    def _send(self, node: int, connection: BrokerConnection, queues: Sequence[PartitionQueue]) -> None:
        """Send one request with at most one batch of each partition. Raises UnsupportedVersionError."""
        version = self._versions(connection, {queue.topic for queue in queues})
        partitions: list[ProducePartition] = []
        taken: list[tuple[PartitionQueue, Batch]] = []
        size, now_ms = 0, self._runtime.now_ms()
        for queue in sorted(queues, key=lambda queue: (queue.topic, queue.partition)):
            if size and size + len(queue.pending[0].data) > REQUEST_BYTES:
                continue
            batch = queue.take()
            if self._idempotent:
                queue.number(batch)
            set_producer(batch.data, self.producer_id, self.epoch, batch.sequence, self.transactions is not None)
            size += len(batch.data)
            self.metrics.queued(now_ms - batch.chunk.created_ms)
            self.metrics.topics.of(queue.topic).byte_total += len(batch.data)
            taken.append((queue, batch))
            topic_id = self._cluster.topics[queue.topic].topic_id
            partitions.append(ProducePartition(queue.topic, topic_id, queue.partition, batch.data))
        most_ms = self._config.request_timeout_ms
        held_ms = most_ms - min(_ANSWER_MS, most_ms // 2)
        request = ProduceRequest(self._config.transactional_id, self._config.required_acks, held_ms, partitions)
        self.metrics.request_sent(size, len(taken), sum(batch.count for _, batch in taken))
        self._in_flight[node] = self._in_flight.get(node, 0) + 1
        if self.transactions is not None:
            self.transactions.sent()

        async def run() -> None:
            with self._fail_on_defect():
                await self._exchange(node, connection, version, request, taken)

        self._runtime.spawn(run())

    async def _exchange(
        self,
        node: int,
        connection: BrokerConnection,
        version: int,
        request: ProduceRequest,
        taken: Sequence[tuple[PartitionQueue, Batch]],
    ) -> None:
        answered = request.acks != 0
        begun_ms = self._runtime.now_ms()
        try:
            body = encode_request(request, version)
            reply = await connection.exchange(retry.PRODUCE, version, body, timeout_ms=math.inf, answered=answered)
            self.metrics.request_done(self._runtime.now_ms() - begun_ms)
            response = decode_response(reply, version) if answered else ProduceResponse()
            connection.throttle(response.throttle_ms)
            self.metrics.throttled(response.throttle_ms)
        except (KafkaError, WireError) as error:
            self._answers.unanswered(connection, taken, error)
            log.debug("produce to broker %d failed: %s", node, error)
        else:
            self._answers.answered(connection, taken, response if answered else None)
        finally:
            self._in_flight[node] -= 1
            self._wake.set()
            self._progress.set()
