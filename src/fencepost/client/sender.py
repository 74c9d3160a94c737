"""The producer's sender: one task that turns chunks into batches and batches into Produce requests.

Per partition, batches go out in order, at most five at a time, the first of a producer id alone. After a retriable
failure everything in flight of that partition comes back first; then the failed ones are sent again, one at a time,
with their sequences. A batch whose fate is unknown when its time is up makes the producer id unusable (a gap would
follow): it is replaced once everything else that may have been appended has its answer.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Coroutine, Iterable, Sequence
from typing import Any, Final

from fencepost.client import admin_transactions as wire
from fencepost.client import retry
from fencepost.client.accumulator import Accumulator, Batch
from fencepost.client.backlog import Backlog
from fencepost.client.cluster import Cluster
from fencepost.client.connection import Connection
from fencepost.client.fates import Fates, TransactionHooks
from fencepost.client.metrics import ProducerMetrics
from fencepost.client.partition_queue import PartitionQueue
from fencepost.client.retry import Action
from fencepost.client.runtime import TaskHandle
from fencepost.config import ProducerConfig
from fencepost.errors import (
    AuthenticationError,
    ClosedError,
    DataLossError,
    DisconnectedError,
    FatalError,
    InvalidProducerEpochError,
    KafkaError,
    KafkaTimeoutError,
    TransactionAbortableError,
    error_for,
)
from fencepost.protocol.batch import set_producer
from fencepost.protocol.codes import ErrorCode as E
from fencepost.protocol.errors import ProtocolError as WireError
from fencepost.protocol.messages.init_producer_id import InitProducerIdRequest
from fencepost.protocol.produce_wire import (
    ProducePartition,
    ProducePartitionResult,
    ProduceRequest,
    decode_response,
    encode_request,
)

log = logging.getLogger("fencepost.client.producer")

REQUEST_BYTES: Final = 4 * 1024 * 1024  # of batches in one request, across partitions
IMPLICIT_ENLIST_VERSION: Final = 12  # from here on Produce adds its partition to the transaction (KIP-890)


class Sender:
    """See the module's text. `producer_id` is -1 until there is one, and always without idempotence."""

    def __init__(self, cluster: Cluster, config: ProducerConfig, accumulator: Accumulator) -> None:
        self.producer_id = -1
        self.epoch = -1
        self.fatal: KafkaError | None = None
        self._cluster = cluster
        self._runtime = cluster.runtime
        self._config = config
        self._accumulator = accumulator
        self._wake = self._runtime.event()
        self._progress = self._runtime.event()
        self.metrics = ProducerMetrics()
        self._fates = Fates(accumulator, self._progress, self.metrics)
        self._backlog = Backlog(cluster, config, accumulator, self._fates, self._start)
        self._queues = self._backlog.queues
        self._active = self._backlog.active
        self._in_flight: dict[int, int] = {}
        self._busy: set[str] = set()  # helpers that run: "connect 1", "metadata t", "producer id"
        self._replace_id = False
        self._quiet_until_ms: float = 0  # a throttled broker may be sent more then
        self._attempt = 0
        self._stopped = False
        self._task: TaskHandle | None = None

    # --- what the producer calls ---

    @property
    def transactions(self) -> TransactionHooks | None:
        """The transactional producer's state, None without a transactional id."""
        return self._fates.transactions

    @transactions.setter
    def transactions(self, hooks: TransactionHooks) -> None:
        self._fates.transactions = hooks

    def start(self) -> None:
        """Start the sender's task."""
        self._task = self._runtime.spawn(self._run())

    def wake(self) -> None:
        """There is something to do."""
        self._wake.set()

    @property
    def in_flight(self) -> int:
        """Produce requests without an answer."""
        return sum(self._in_flight.values())

    async def flush(self, deadline_ms: int | None = None) -> bool:
        """Send everything and wait until every record sent before has its fate. False when time ran out."""
        self._accumulator.close_all()
        self._backlog.collect()
        waiting = list(self._fates.incomplete.values())
        self._wake.set()
        for chunk in waiting:
            while not chunk.done:
                if not await self._wait_for_progress(deadline_ms):
                    return False
        return True

    async def drain(self, deadline_ms: int | None = None) -> bool:
        """Wait until no request is in flight. False when time ran out."""
        while self.in_flight:
            if not await self._wait_for_progress(deadline_ms):
                return False
        return True

    async def wait_for_room(self, deadline_ms: int) -> bool:
        """Wait until the buffer is below buffer_memory. False when time ran out."""
        while self._accumulator.full:
            if not await self._wait_for_progress(deadline_ms):
                return False
        return True

    async def _wait_for_progress(self, deadline_ms: int | None) -> bool:
        left = None if deadline_ms is None else deadline_ms - self._runtime.now_ms()
        if left is not None and left <= 0:
            return False
        self._progress.clear()
        await self._progress.wait(left)
        return True

    def drop(self, error: KafkaError) -> None:
        """Fail every record that is not in flight (abort, fatal error, close)."""
        self._accumulator.close_all()
        while self._accumulator.closed:
            chunk = self._accumulator.closed.popleft()
            self._fates.incomplete[id(chunk)] = chunk
            self._fates.fail_chunk(chunk, error)
        self._backlog.drop(error)
        for queue in list(self._active.values()):
            while queue.pending:
                self._fates.fail(queue.pending.popleft(), error)
        self._progress.set()

    async def discard(self, error: KafkaError, deadline_ms: int | None = None) -> None:
        """Fail everything, also what comes back from the wire: nothing may turn up in the next transaction.

        Raises KafkaTimeoutError when requests are still in flight at the deadline.
        """
        self.drop(error)
        if not await self.drain(deadline_ms):
            raise KafkaTimeoutError("requests of the last transaction are still in flight")
        self.drop(error)

    def take_identity(self, producer_id: int, epoch: int) -> None:
        """Go on with a new producer id or epoch: sequences start at 0. Nothing may be in flight."""
        same_id = producer_id == self.producer_id
        self.producer_id, self.epoch = producer_id, epoch
        for queue in self._queues.values():
            queue.restart(same_id=same_id)
        self._wake.set()

    def stop(self) -> None:
        """End the task; what is left fails."""
        self._stopped = True
        if self._task is not None:
            self._task.cancel()

    # --- the task ---

    async def _run(self) -> None:
        try:
            while not self._stopped:
                self._wake.clear()
                self._backlog.collect()
                self._expire()
                self._look_after_identity()
                self._send_ready()
                await self._wake.wait(self._until_next_timer())
        except Exception as error:
            log.exception("the sender failed")
            broken = FatalError(f"the sender failed: {error!r}")
            broken.__cause__ = error
            self._fail_for_good(broken)

    def _fail_for_good(self, error: KafkaError) -> None:
        self.fatal = error
        self._accumulator.refuse()
        if self.transactions is not None:
            self.transactions.batch_failed(error, False)
        self.drop(error)

    def _expire(self) -> None:
        """Give up what is not delivered in time."""
        now_ms = self._runtime.now_ms()
        self._backlog.expire(now_ms)
        for queue in list(self._active.values()):
            while queue.pending and queue.pending[0].deadline_ms <= now_ms and not queue.in_flight:
                batch = queue.pending.popleft()
                unknown = batch.maybe_appended
                if unknown and self._idempotent and self.transactions is None:
                    self._replace_id = True  # its sequence may or may not be in the log
                self._fates.fail(
                    batch,
                    KafkaTimeoutError(
                        f"{queue.topic}-{queue.partition}: not delivered within delivery_timeout_ms, nor with `retries`"
                        f" further attempts ({batch.attempts} attempts were made)",
                        outcome_unknown=unknown,
                    ),
                )

    def _until_next_timer(self) -> float | None:
        now_ms = self._runtime.now_ms()
        times: list[float] = [self._quiet_until_ms] if self._quiet_until_ms else []
        self._quiet_until_ms = 0
        due_ms = self._accumulator.next_due_ms(self._config.linger_ms)
        if due_ms is not None:
            times.append(due_ms)
        times += self._backlog.deadlines()
        for queue in self._active.values():
            if queue.pending:
                times.append(queue.pending[0].deadline_ms)
                if queue.not_before_ms > now_ms:
                    times.append(queue.not_before_ms)
        return max(min(times) - now_ms, 1) if times else None

    # --- the producer id of an idempotent producer (a transactional one gets it from init_transactions) ---

    @property
    def _idempotent(self) -> bool:
        return self._config.enable_idempotence

    def _look_after_identity(self) -> None:
        if self.transactions is not None or not self._idempotent or self.fatal is not None:
            return
        if self._replace_id and self.producer_id >= 0:
            if self.in_flight or any(one.maybe_appended for q in self._active.values() for one in q.pending):
                return
            self.take_identity(-1, -1)
        if self.producer_id < 0 and self._active:
            self._start("producer id", self._get_identity())

    async def _get_identity(self) -> None:
        deadline_ms = self._runtime.now_ms() + self._config.max_block_ms
        try:
            reply = await wire.init_producer_id(self._cluster, InitProducerIdRequest(), deadline_ms)
        except KafkaError as error:
            if not isinstance(error, KafkaTimeoutError):
                self._fail_for_good(error)
            return
        if reply.error_code != 0:
            self._fail_for_good(error_for(reply.error_code, "InitProducerId"))
            return
        self._replace_id = False
        self.take_identity(reply.producer_id, reply.producer_epoch)

    # --- sending ---

    def _start(self, name: str, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run a helper unless it runs already; wake the sender when it ends."""
        if name in self._busy:
            coroutine.close()
            return
        self._busy.add(name)

        async def run() -> None:
            try:
                await coroutine
            finally:
                self._busy.discard(name)
                self._wake.set()
                self._progress.set()

        self._runtime.spawn(run())

    def _send_ready(self) -> None:
        """Fill requests until no partition has anything that may go out now."""
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
                    self._start(f"connect {node}", self._connect(node))
                elif connection.throttled_until_ms > now_ms:
                    self._quiet_until_ms = min(self._quiet_until_ms or math.inf, connection.throttled_until_ms)
                else:
                    sent = self._send(node, connection, queues) or sent
            if not sent:
                return

    def _node_for(self, queue: PartitionQueue, now_ms: int) -> int:
        """The leader to send the queue's next batch to, -1 when it has to wait."""
        batch = queue.sendable(now_ms, only_retries=self._replace_id)
        if batch is None:
            return -1
        if self.transactions is not None and not self.transactions.may_send(queue.topic, queue.partition):
            return -1
        leader = self._cluster.leader(queue.topic, queue.partition)
        if leader < 0:
            self._start(f"topic {queue.topic}", self._refresh(queue.topic))
            return -1
        if self._in_flight.get(leader, 0) >= self._config.max_in_flight_requests_per_connection:
            return -1
        return leader

    async def _connect(self, node: int) -> None:
        """Have a connection to the node, or newer metadata that may name another leader."""
        deadline_ms = self._runtime.now_ms() + self._config.request_timeout_ms
        try:
            await self._cluster.connection(node, deadline_ms)
        except AuthenticationError as error:
            self._fail_for_good(error)  # asking again with the same credentials cannot help
        except KafkaError as error:
            log.debug("no connection to broker %d: %s", node, error)
            await self._refresh_metadata({queue.topic for queue in self._active.values()}, deadline_ms)

    async def _refresh(self, topic: str) -> None:
        self._attempt += 1
        await self._refresh_metadata([topic], self._runtime.now_ms() + self._config.request_timeout_ms)
        await self._runtime.sleep_ms(retry.backoff_ms(min(self._attempt, 5), self._runtime.random()))

    async def _refresh_metadata(self, topics: Iterable[str], deadline_ms: int) -> None:
        try:
            await self._cluster.refresh_quietly(topics, deadline_ms)
        except AuthenticationError as error:
            self._fail_for_good(error)

    def _versions(self, connection: Connection, topics: set[str]) -> int:
        highest = 13
        if any(self._cluster.topics[one].topic_id is None for one in topics):
            highest = 12
        if self.transactions is not None and not self.transactions.implicit:
            highest = IMPLICIT_ENLIST_VERSION - 1
        return connection.version(retry.PRODUCE, 3, highest)

    def _send(self, node: int, connection: Connection, queues: Sequence[PartitionQueue]) -> bool:
        """One request with at most one batch of each partition."""
        version = self._versions(connection, {queue.topic for queue in queues})
        partitions: list[ProducePartition] = []
        taken: list[tuple[PartitionQueue, Batch]] = []
        size = 0
        for queue in sorted(queues, key=lambda one: (one.topic, one.partition)):
            if size and size + len(queue.pending[0].data) > REQUEST_BYTES:
                continue
            batch = queue.take()
            if self._idempotent:
                queue.number(batch)
                transactional = self.transactions is not None
                set_producer(batch.data, self.producer_id, self.epoch, batch.sequence, transactional)
            size += len(batch.data)
            taken.append((queue, batch))
            topic_id = self._cluster.topics[queue.topic].topic_id
            partitions.append(ProducePartition(queue.topic, topic_id, queue.partition, batch.data))
        request = ProduceRequest(
            self._config.transactional_id, self._config.acks, self._config.request_timeout_ms, partitions
        )
        self.metrics.request_sent(size, len(taken), sum(batch.count for _, batch in taken))
        self._in_flight[node] = self._in_flight.get(node, 0) + 1
        if self.transactions is not None:
            self.transactions.sent()
        self._runtime.spawn(self._exchange(node, connection, version, request, taken))
        return True

    async def _exchange(
        self,
        node: int,
        connection: Connection,
        version: int,
        request: ProduceRequest,
        taken: Sequence[tuple[PartitionQueue, Batch]],
    ) -> None:
        answered = request.acks != 0
        timeout_ms = self._config.request_timeout_ms
        begun_ms = self._runtime.now_ms()
        try:
            body = encode_request(request, version)
            reply = await connection.exchange(
                retry.PRODUCE, version, body, timeout_ms=2 * timeout_ms, server_ms=timeout_ms / 2, answered=answered
            )
            self.metrics.request_done(self._runtime.now_ms() - begun_ms)
            results = self._results(connection, reply, version) if answered else {}
        except (KafkaError, WireError) as error:
            sent = not isinstance(error, DisconnectedError) or error.sent
            for queue, batch in taken:
                batch.maybe_appended = batch.maybe_appended or sent
                self._again(queue, batch)
            self.metrics.request_failed_total += 1
            log.debug("produce to broker %d failed: %s", node, error)
        else:
            for queue, batch in taken:
                if not answered:
                    self._acknowledge(queue, batch, -1, -1)
                    continue
                result = results.get((queue.topic, queue.partition))
                if result is None:
                    batch.maybe_appended = True
                    self._again(queue, batch)
                else:
                    self._settle(queue, batch, result)
        finally:
            self._in_flight[node] -= 1
            self._wake.set()
            self._progress.set()

    def _results(
        self, connection: Connection, reply: memoryview, version: int
    ) -> dict[tuple[str, int], ProducePartitionResult]:
        names = {one.topic_id: one.name for one in self._cluster.topics.values()} if version >= 13 else {}
        results = {}
        response = decode_response(reply, version)
        connection.throttle(response.throttle_ms)
        self.metrics.throttled(response.throttle_ms)
        for one in response.partitions:
            topic = one.topic if one.topic is not None else names.get(one.topic_id, "")
            results[topic, one.partition] = one
        return results

    # --- answers ---

    def _settle(self, queue: PartitionQueue, batch: Batch, result: ProducePartitionResult) -> None:
        code = result.error_code
        step = retry.action(retry.PRODUCE, code)
        if step is Action.OK:
            offset = -1 if code == E.DUPLICATE_SEQUENCE_NUMBER else result.base_offset
            self._acknowledge(queue, batch, offset, result.log_append_time_ms)
            return
        what = f"{queue.topic}-{queue.partition}"
        error = error_for(code, what, result.error_message)
        if step in (Action.RETRY, Action.REFRESH_LEADER, Action.REFRESH_COORDINATOR):
            # These say "not appended" or "appended, too few replicas": the latter is why it may be in the log.
            batch.maybe_appended = batch.maybe_appended or code in (E.NOT_ENOUGH_REPLICAS_AFTER_APPEND, 7)
            self._again(queue, batch)
        elif step is Action.SPLIT and batch.count > 1:
            self._split(queue, batch)
        elif step is Action.SEQUENCE:
            self._sequence_refused(queue, batch, result, error)
        elif self.transactions is not None:
            queue.in_flight.remove(batch)
            suspicious = step is Action.PROBE
            if suspicious and code != E.TRANSACTION_ABORTABLE:
                error = InvalidProducerEpochError(str(error), code=code)
            self._fates.fail(batch, error)
            self.transactions.batch_failed(error, suspicious)
        else:
            self._refused(queue, batch, step, error)

    def _refused(self, queue: PartitionQueue, batch: Batch, step: Action, error: KafkaError) -> None:
        """A final refusal outside transactions: this batch was not appended, those behind it are renumbered."""
        queue.in_flight.remove(batch)
        queue.gap = batch.sequence >= 0
        self._fates.fail(batch, error)
        if step is Action.FATAL:
            self._fail_for_good(error)
        elif step is Action.PROBE:
            self._replace_id = True

    def _acknowledge(self, queue: PartitionQueue, batch: Batch, base_offset: int, append_time_ms: int) -> None:
        queue.acknowledged(batch, base_offset)
        batch.base_offset = base_offset
        batch.append_time_ms = append_time_ms
        self._fates.finish(batch)

    def _again(self, queue: PartitionQueue, batch: Batch) -> None:
        """Put a batch back, to be sent after a back-off, with metadata renewed meanwhile."""
        if self._stopped:
            queue.in_flight.remove(batch)
            self._fates.fail(batch, ClosedError("the producer was closed before an answer came"))
            return
        queue.put_back(batch)
        self.metrics.record_retry_total += batch.count
        if batch.attempts > self._config.retries:
            batch.deadline_ms = (
                self._runtime.now_ms()
            )  # it is given up as soon as nothing of its partition is in flight
        wait_ms = retry.backoff_ms(
            batch.attempts - 1,
            self._runtime.random(),
            first_ms=self._config.retry_backoff_ms,
            most_ms=self._config.retry_backoff_max_ms,
        )
        queue.not_before_ms = self._runtime.now_ms() + round(wait_ms)
        self._start(f"topic {queue.topic}", self._refresh(queue.topic))

    def _split(self, queue: PartitionQueue, batch: Batch) -> None:
        queue.in_flight.remove(batch)
        queue.gap = True
        halves = self._backlog.router.split(batch)
        self.metrics.batch_split_total += 1
        chunk = batch.chunk
        position = chunk.batches.index(batch)
        chunk.batches[position : position + 1] = halves
        chunk.index_batches()
        queue.pending.extendleft(reversed(halves))

    def _sequence_refused(
        self, queue: PartitionQueue, batch: Batch, result: ProducePartitionResult, error: KafkaError
    ) -> None:
        """45 or 59 (design: out of order always means loss, unless retention or an earlier batch explains it)."""
        if queue.waits_for_an_earlier(batch):
            batch.maybe_appended = False
            self._again(queue, batch)
            return
        queue.in_flight.remove(batch)
        retained = result.log_start_offset > queue.last_acked_offset
        if self.transactions is None and error.code == E.UNKNOWN_PRODUCER_ID and retained:
            # Retention removed what the broker knew of us; nothing that was acknowledged is missing.
            batch.maybe_appended = False
            batch.attempts += 1
            queue.pending.appendleft(batch)
            self._replace_id = True
            return
        loss = DataLossError(
            f"{error}: acknowledged records may be lost (last acknowledged offset {queue.last_acked_offset}, "
            f"log start offset {result.log_start_offset})",
            code=error.code,
            topic=queue.topic,
            partition=queue.partition,
            last_acked_offset=queue.last_acked_offset,
            log_start_offset=result.log_start_offset,
        )
        if self.transactions is not None and (self.transactions.implicit or error.code == E.UNKNOWN_PRODUCER_ID):
            # In a transaction with an epoch of its own only its own records are concerned, and it is aborted.
            abort = TransactionAbortableError(str(loss), code=loss.code)
            abort.__cause__ = loss
            self._fates.fail(batch, abort)
            self.transactions.batch_failed(abort, True)
            return
        self._fates.fail(batch, loss)
        self._fail_for_good(loss)
