"""The requests of one share consumer: a session with each broker that leads a partition, one request at a time."""

from __future__ import annotations

import logging
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from fencepost.client.metrics import ShareConsumerMetrics
from fencepost.client.net import retry
from fencepost.client.net.cluster import Cluster
from fencepost.client.net.connection import BrokerConnection
from fencepost.client.net.runtime import Event, TaskHandle
from fencepost.client.records import SharedRecord
from fencepost.client.share.fetched import take
from fencepost.client.share.session import GAP, Acknowledgements, ShareReadSession
from fencepost.client.types import AcknowledgeType, TopicPartition
from fencepost.config import ShareConsumerConfig
from fencepost.counted import counted_noun
from fencepost.errors import (
    ClosedError,
    DisconnectedError,
    InvalidRecordStateError,
    KafkaError,
    KafkaTimeoutError,
    ProtocolError,
    UnsupportedVersionError,
    error_for,
)
from fencepost.protocol.codes import ErrorCode as E
from fencepost.protocol.logs.consumer_group_log import TopicIdPartition
from fencepost.protocol.messages.share_acknowledge import ShareAcknowledgeResponse
from fencepost.protocol.messages.share_fetch import PartitionData, ShareFetchResponse

log = logging.getLogger("fencepost.client.share")

SHARE_FETCH: Final = 78
SHARE_ACKNOWLEDGE: Final = 79
RENEWAL_VERSION: Final = 2
RECORD_LIMIT: Final = 1  # share_acquire_mode
# The session has ended, and a new one may begin. The broker gives its records to other members.
SESSION_LOST: Final = (E.SHARE_SESSION_NOT_FOUND, E.INVALID_SHARE_SESSION_EPOCH, E.SHARE_SESSION_LIMIT_REACHED)
WORST_PAUSE_MS: Final = 60_000

Outcome = tuple[dict[TopicPartition, list[int]], KafkaError | None]


class Report:
    """Responses to the acknowledgements of one call, by partition: the reason of a rejection, or None."""

    def __init__(self) -> None:
        self.results: dict[TopicPartition, KafkaError | None] = {}
        self.unanswered = 0  # number of requests in flight

    def take(self, offsets: Iterable[TopicPartition], error: KafkaError | None) -> None:
        """Record an outcome for partitions. One rejection of a partition is enough for its result to be an error."""
        for partition in offsets:
            self.results[partition] = self.results.get(partition) or error


class _Ready(NamedTuple):
    """Received records that wait for a poll. Their locks may expire at `until_ms`."""

    partition: TopicIdPartition
    session: ShareReadSession
    until_ms: int
    records: deque[SharedRecord]


@dataclass(slots=True)
class _Broker:
    """The state of the exchange with one broker."""

    session: ShareReadSession
    task: TaskHandle | None = None
    failures: int = 0
    not_before_ms: int = 0


class Exchange:
    """The requests to all brokers.

    Stores received records; the sessions store acknowledgements that are not sent yet.
    """

    def __init__(
        self, cluster: Cluster, config: ShareConsumerConfig, metrics: ShareConsumerMetrics, arrived: Event
    ) -> None:
        """Create an exchange without sessions. `arrived` is set whenever there are records, results or errors."""
        self.lock_ms: int | None = None
        self._cluster = cluster
        self._runtime = cluster.runtime
        self._config = config
        self._group_id = config.group_id or ""
        self._metrics = metrics
        self._arrived = arrived
        self._brokers: dict[int, _Broker] = {}
        self._names: dict[TopicIdPartition, TopicPartition] = {}
        self._ready: deque[_Ready] = deque()
        self.finished: deque[Outcome] = deque()
        """Outcomes of acknowledgements for the callback, each once."""
        # Outcomes of acknowledgements that cannot be sent; the next `start` reports them.
        self._unsent: list[Outcome] = []
        self._failures: list[Exception] = []
        self._refreshing: TaskHandle | None = None
        self._next_refresh_ms = 0
        self._unanswered = 0  # number of requests in flight with acknowledgements

    @property
    def has_pending(self) -> bool:
        """Return true if acknowledgements are not sent, or have no response."""
        return self._unanswered > 0 or self.has_unsent

    @property
    def has_unsent(self) -> bool:
        """Return true if acknowledgements wait to be sent."""
        return any(broker.session.unsent for broker in self._brokers.values())

    def raise_failure(self) -> None:
        """Raise the first error that the application must know. The others are logged."""
        if not self._failures:
            return
        failure, *others = self._failures
        self._failures.clear()
        for other in others:
            log.warning("share group %r: %s", self._group_id, other)
        raise failure

    def wait_ms(self) -> float:
        """Return the maximum wait in ms before the next `start`."""
        now_ms = self._runtime.now_ms()
        waits = [broker.not_before_ms - now_ms for broker in self._brokers.values() if broker.not_before_ms > now_ms]
        return min(waits, default=WORST_PAUSE_MS)

    def describe(self) -> str:
        """Return the state in one line, for logs and tests."""
        waiting = sum(len(ready.records) for ready in self._ready)
        return f"{counted_noun(len(self._brokers), 'broker')}, {counted_noun(waiting, 'record', 'wait')}"

    def take(self, most: int) -> Iterator[tuple[SharedRecord, TopicIdPartition, ShareReadSession]]:
        """Yield up to `most` received records.

        Drops records whose locks may have expired; the broker delivers them again.
        """
        while self._ready and most > 0:
            ready = self._ready[0]
            gone = ready.session.ended is not None or self._runtime.now_ms() >= ready.until_ms
            if gone or not ready.records:
                if ready.records:
                    self._metrics.records_expired_total += len(ready.records)
                    log.info("share group %r: %d records were locked too long", self._group_id, len(ready.records))
                self._ready.popleft()
                continue
            most -= 1
            yield ready.records.popleft(), ready.partition, ready.session

    # --- starting requests ---

    def start(
        self,
        member_id: str,
        partitions: Mapping[TopicIdPartition, TopicPartition],
        *,
        fetching: bool,
        report: Report | None = None,
    ) -> None:
        """Send pending acknowledgements, and fetch records of `partitions`, to each broker without a request in flight.

        Args:
            member_id: The member's id.
            partitions: The assigned partitions and their names.
            fetching: Also fetch records.
            report: Receives the outcomes of acknowledgements that this call sends, and of no others.
        """
        self._names.update(partitions)
        self.report_unsent(report)
        wanted: dict[int, list[TopicIdPartition]] = defaultdict(list)
        if fetching and not any(ready.records for ready in self._ready):
            for partition, name in partitions.items():
                leader = self._cluster.leader(*name)
                if leader < 0 or self._cluster.is_stale(name.topic):
                    self._refresh_if_due([name.topic])
                if leader >= 0:
                    wanted[leader].append(partition)
            for node in wanted:
                if node not in self._brokers:
                    self._brokers[node] = _Broker(ShareReadSession(node))
        now_ms = self._runtime.now_ms()
        for node, broker in self._brokers.items():
            session = broker.session
            if broker.task is not None and not broker.task.done():
                continue
            leaves = fetching and not wanted.get(node) and not session.is_empty
            if session.unsent and (session.renews or node not in wanted):
                acknowledgements = self._send(session, report)
                broker.task = self._runtime.spawn(self._acknowledge(broker, member_id, acknowledgements, report))
            elif (wanted.get(node) or leaves) and now_ms >= broker.not_before_ms:
                acknowledgements = self._send(session, report)
                broker.task = self._runtime.spawn(
                    self._fetch(broker, member_id, wanted.get(node, []), acknowledgements, report)
                )

    def _send(self, session: ShareReadSession, report: Report | None) -> dict[TopicIdPartition, Acknowledgements]:
        acknowledgements = session.take()
        self._unanswered += bool(acknowledgements)
        if report is not None:
            report.unanswered += bool(acknowledgements)
        return acknowledgements

    def fail_acknowledgements(self, session: ShareReadSession) -> None:
        """Record the acknowledgements of an ended session as failed."""
        if session.ended is not None and session.unsent:
            outcome = self._outcome(session.take(), _session_ended(session.ended))
            self._unsent += [outcome] if outcome is not None else []

    def report_unsent(self, report: Report | None = None) -> None:
        """Report acknowledgements that could not be sent as outcomes of this call."""
        unsent, self._unsent = self._unsent, []
        for outcome in unsent:
            self._finish(outcome, report)

    def _report(
        self,
        acknowledgements: Mapping[TopicIdPartition, Acknowledgements],
        error: KafkaError | None,
        report: Report | None,
    ) -> None:
        outcome = self._outcome(acknowledgements, error)
        if outcome is not None:
            self._finish(outcome, report)

    def _finish(self, outcome: Outcome, report: Report | None) -> None:
        self.finished.append(outcome)
        if report is not None:
            report.take(*outcome)

    def _outcome(
        self, acknowledgements: Mapping[TopicIdPartition, Acknowledgements], error: KafkaError | None
    ) -> Outcome | None:
        offsets: dict[TopicPartition, list[int]] = {}
        for partition, kinds in acknowledgements.items():
            acknowledged = sorted(offset for offset, kind in kinds.items() if kind != GAP)
            if acknowledged:
                offsets[self._names[partition]] = acknowledged
        if not offsets:
            return None
        count = sum(map(len, offsets.values()))
        self._metrics.acknowledgements_send_total += count
        self._metrics.acknowledgements_error_total += count if error is not None else 0
        return offsets, error

    def _refresh_if_due(self, topics: Sequence[str]) -> None:
        """Refresh metadata in a task, and not too often."""
        now_ms = self._runtime.now_ms()
        if now_ms < self._next_refresh_ms or (self._refreshing is not None and not self._refreshing.done()):
            return
        self._next_refresh_ms = now_ms + self._config.retry_backoff_ms
        self._refreshing = self._runtime.spawn(self._refresh(list(topics)))

    async def _refresh(self, topics: list[str]) -> None:
        try:
            await self._cluster.refresh_quietly(topics, self._runtime.now_ms() + self._config.request_timeout_ms)
        except KafkaError as error:
            self._failures.append(error)
        self._arrived.set()

    # --- one request ---

    async def _fetch(
        self,
        broker: _Broker,
        member_id: str,
        wanted: list[TopicIdPartition],
        acknowledgements: dict[TopicIdPartition, Acknowledgements],
        report: Report | None,
    ) -> None:
        config, session = self._config, broker.session
        unreported = dict(acknowledgements)
        try:
            connection = await self._connect(broker)
            version = self._version(connection)
            request = session.fetch(self._group_id, member_id, wanted, acknowledgements)
            request.max_wait_ms = config.fetch_max_wait_ms if wanted else 0
            request.min_bytes, request.max_bytes = config.fetch_min_bytes, config.fetch_max_bytes
            request.max_records = request.batch_size = config.max_poll_records if wanted else 0
            request.share_acquire_mode = RECORD_LIMIT if config.share_acquire_mode == "record_limit" else 0
            self._metrics.share_sessions_total += not session.begun
            sent_ms = self._runtime.now_ms()
            reply: ShareFetchResponse = await connection.request(
                request,
                version,
                timeout_ms=request.max_wait_ms + config.request_timeout_ms,
                server_ms=request.max_wait_ms,
            )
            self._metrics.fetched(self._runtime.now_ms() - sent_ms, reply.throttle_time_ms)
            if reply.error_code != 0:
                self._refused(broker, reply.error_code, reply.error_message)
                return
            session.answered()
            self._cluster.lasting_errors.succeeded(_session_with(session))
            self.lock_ms = reply.acquisition_lock_timeout_ms or self.lock_ms
            refused = False
            for topic in reply.responses:
                for data in topic.partitions:
                    if topic.topic_id is None:
                        continue
                    partition = TopicIdPartition(topic.topic_id, data.partition_index)
                    if partition in unreported:
                        code, words = data.acknowledge_error_code, data.acknowledge_error_message
                        self._answered(partition, unreported.pop(partition), code, words, report)
                    refused |= data.error_code != 0
                    self._take(partition, session, data, sent_ms)
            self._missing(connection, unreported)
            if refused:
                self._pause(broker)
            else:
                broker.failures = 0
        except Exception as error:  # noqa: BLE001 (the next poll raises it)
            self._failed(broker, error)
        finally:
            self._end_request(session, unreported, acknowledgements, report)

    async def _acknowledge(
        self,
        broker: _Broker,
        member_id: str,
        acknowledgements: dict[TopicIdPartition, Acknowledgements],
        report: Report | None,
        *,
        last: bool = False,
    ) -> None:
        session = broker.session
        unreported = dict(acknowledgements)
        try:
            connection = await self._connect(broker)
            lowest = (
                RENEWAL_VERSION
                if any(AcknowledgeType.RENEW in each.values() for each in acknowledgements.values())
                else 1
            )
            try:
                version = connection.version(SHARE_ACKNOWLEDGE, lowest, RENEWAL_VERSION)
            except UnsupportedVersionError as error:
                self._report(acknowledgements, error, report)  # the session continues, and only the renewal fails
                unreported.clear()
                return
            request = session.acknowledge(self._group_id, member_id, acknowledgements, last=last)
            reply: ShareAcknowledgeResponse = await connection.request(
                request, version, timeout_ms=self._config.request_timeout_ms
            )
            if reply.error_code != 0:
                self._refused(broker, reply.error_code, reply.error_message)
                return
            session.answered()
            broker.failures = 0
            self.lock_ms = reply.acquisition_lock_timeout_ms or self.lock_ms
            for topic in reply.responses:
                for data in topic.partitions:
                    partition = (
                        None if topic.topic_id is None else TopicIdPartition(topic.topic_id, data.partition_index)
                    )
                    if partition is not None and partition in unreported:
                        self._answered(
                            partition, unreported.pop(partition), data.error_code, data.error_message, report
                        )
            self._missing(connection, unreported)
        except Exception as error:  # noqa: BLE001 (the next poll raises it)
            self._failed(broker, error)
        finally:
            self._end_request(session, unreported, acknowledgements, report)

    async def _connect(self, broker: _Broker) -> BrokerConnection:
        deadline_ms = self._runtime.now_ms() + self._config.request_timeout_ms
        return await self._cluster.connection(broker.session.node, deadline_ms)

    def _version(self, connection: BrokerConnection) -> int:
        version = connection.version(SHARE_FETCH, 1, 2)
        if version < RENEWAL_VERSION and self._config.share_acquire_mode == "record_limit":
            words = "share_acquire_mode=record_limit needs ShareFetch v2 (Apache Kafka 4.2); more may be locked at once"
            self._cluster.lasting_errors.log_missing_feature("record_limit", f"{connection.name}: {words}")
        return version

    def _missing(self, connection: BrokerConnection, unreported: Mapping[TopicIdPartition, Acknowledgements]) -> None:
        """Raise ProtocolError if the response lacks partitions of the request's acknowledgements."""
        if unreported:
            names = ", ".join(f"{name.topic}-{name.partition}" for name in map(self._names.__getitem__, unreported))
            raise ProtocolError(f"{connection.name} did not answer the acknowledgements of {names}")

    def _answered(
        self,
        partition: TopicIdPartition,
        acknowledgements: Acknowledgements,
        code: int,
        words: str | None,
        report: Report | None,
    ) -> None:
        name = self._names[partition]
        error = error_for(code, f"acknowledging {name.topic}-{name.partition}", words) if code else None
        self._report({partition: acknowledgements}, error, report)

    def _end_request(
        self,
        session: ShareReadSession,
        unreported: Mapping[TopicIdPartition, Acknowledgements],
        acknowledgements: Mapping[TopicIdPartition, Acknowledgements],
        report: Report | None,
    ) -> None:
        """End a request, and report the acknowledgements without an outcome."""
        self._unanswered -= bool(acknowledgements)
        if report is not None:
            report.unanswered -= bool(acknowledgements)
        if unreported:
            cause = session.ended or DisconnectedError("the request was cancelled", sent=True)
            if cause.may_have_taken_effect or isinstance(cause, ProtocolError):
                self._report(unreported, cause, report)
            else:
                self._report(unreported, _session_ended(cause), report)
        self._arrived.set()

    # --- answers ---

    def _take(self, partition: TopicIdPartition, session: ShareReadSession, data: PartitionData, sent_ms: int) -> None:
        """Store the received records of one partition. Their locks began after the request was sent."""
        name = self._names[partition]
        if data.error_code != 0:
            self._partition_refused(name, data)
            return
        self._cluster.lasting_errors.succeeded(f"share fetch of {name.topic}-{name.partition}")
        if not data.acquired_records:
            return
        self._metrics.bytes_consumed_total += len(data.records)
        taken = take(
            name,
            data.records,
            data.acquired_records,
            check_crcs=self._config.check_crcs,
            max_batch_bytes=self._config.max_decompressed_bytes,
        )
        for offset in taken.gaps:
            session.add_acknowledgement(partition, offset, GAP)
        for offset in taken.unreadable:
            session.add_acknowledgement(partition, offset, AcknowledgeType.RELEASE)
        if taken.error is not None:
            self._failures.append(taken.error)
        until_ms = sent_ms + (self.lock_ms or WORST_PAUSE_MS)
        if taken.records:
            self._ready.append(_Ready(partition, session, until_ms, deque(taken.records)))

    def _partition_refused(self, name: TopicPartition, data: PartitionData) -> None:
        error = error_for(data.error_code, f"share fetch of {name.topic}-{name.partition}", data.error_message)
        if retry.action(retry.FETCH, data.error_code) in retry.RETRIABLE:
            self._cluster.lasting_errors.record(f"share fetch of {name.topic}-{name.partition}", error)
            self._refresh_if_due([name.topic])
        else:
            self._failures.append(error)

    def _refused(self, broker: _Broker, code: int, words: str | None) -> None:
        """Handle an error code of a whole response."""
        error = error_for(code, f"share group {self._group_id!r} at broker {broker.session.node}", words)
        if code not in SESSION_LOST and retry.action(SHARE_FETCH, code) not in retry.RETRIABLE:
            self._failures.append(error)
        self._lose(broker, error)

    def _failed(self, broker: _Broker, error: Exception) -> None:
        if isinstance(error, ClosedError):
            self._lose(broker, error)
        elif isinstance(error, (DisconnectedError, KafkaTimeoutError)):
            self._lose(broker, error)
            self._refresh_if_due(sorted({name.topic for name in self._names.values()}))
        else:
            self._failures.append(error)
            self._lose(broker, error if isinstance(error, KafkaError) else ProtocolError(str(error)))

    def _lose(self, broker: _Broker, error: KafkaError) -> None:
        """End the session because of `error`. The next request begins another one, after a back-off."""
        session = broker.session
        session.ended = error
        if session.begun:
            self._metrics.share_sessions_lost_total += 1
            log.warning("share group %r: session with broker %d lost: %s", self._group_id, session.node, error)
        else:
            self._cluster.lasting_errors.failed(_session_with(session), error)
        self.fail_acknowledgements(session)
        broker.session = ShareReadSession(session.node)
        self._pause(broker)

    def _pause(self, broker: _Broker) -> None:
        """Delay the next fetch from the broker after an error."""
        pause_ms = retry.backoff_ms(broker.failures, self._runtime.random())
        broker.failures += 1
        broker.not_before_ms = self._runtime.now_ms() + round(pause_ms)

    # --- the end ---

    async def end(self, member_id: str, deadline_ms: int) -> None:
        """Send all acknowledgements and end all sessions. The broker releases records that are not acknowledged."""
        self._ready.clear()
        for broker in self._brokers.values():
            while broker.task is not None and not broker.task.done() and self._runtime.now_ms() < deadline_ms:
                self._arrived.clear()
                await self._arrived.wait(deadline_ms - self._runtime.now_ms())
        for broker in self._brokers.values():
            if broker.session.begun:
                await self._acknowledge(broker, member_id, self._send(broker.session, None), None, last=True)
        self._brokers.clear()
        self._failures.clear()
        self.report_unsent()


def _session_with(session: ShareReadSession) -> str:
    return f"share session with broker {session.node}"


def _session_ended(cause: KafkaError) -> InvalidRecordStateError:
    error = InvalidRecordStateError(f"the share session is over, and its locks with it: {cause}")
    error.__cause__ = cause
    return error
