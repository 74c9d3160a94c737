"""The parts of a broker and their construction.

Each part receives its dependencies, and knows no other part.

Handlers work with these parts; `core.BrokerCore` adds connections, frames and effects.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final
from uuid import UUID

from fencepost.broker.client_instances import Instances
from fencepost.broker.coordinator.corruption_guard import CorruptionGuard
from fencepost.broker.coordinator.group.driver import Groups
from fencepost.broker.coordinator.runtime import CoordinatorRuntime
from fencepost.broker.coordinator.txn.driver import Transactions
from fencepost.broker.disk.changes import Change, Changes, Done
from fencepost.broker.disk.files import Files, RunAll, is_full, one_by_one
from fencepost.broker.disk.meta import INVENTED_FROM, Meta
from fencepost.broker.fetch_sessions import FetchSessions
from fencepost.broker.log.decompression_budget import DecompressionBudget
from fencepost.broker.metrics.counters import Metrics
from fencepost.broker.metrics.failed_writes import FailedWrites
from fencepost.broker.metrics.failure_guard import FailureGuard
from fencepost.broker.metrics.log_rate_limit import RateLimit, RateLimits
from fencepost.broker.metrics.pushed import PushedMetrics
from fencepost.broker.metrics.refusals import Refusals
from fencepost.broker.security.bearer import TokenRules
from fencepost.broker.security.credentials import Credentials
from fencepost.broker.security.listeners import listeners_of
from fencepost.broker.security.rights import Rights
from fencepost.broker.settings.dynamic import DynamicSettings
from fencepost.broker.settings.values import BrokerConfig
from fencepost.broker.share.share_partitions import SharePartitions
from fencepost.broker.throttling import Throttling
from fencepost.broker.timing.clock import ClockJumps, CoreTime
from fencepost.broker.timing.deadline_signal import DeadlineSignal
from fencepost.broker.timing.timers import Timer, Timers
from fencepost.broker.topics.catalogue import TopicCatalogue
from fencepost.broker.topics.cleaner import Cleaner
from fencepost.broker.topics.deleted_file_monitor import DeletedFileMonitor
from fencepost.broker.topics.durability import Durability
from fencepost.broker.topics.internal import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE
from fencepost.broker.topics.opening import note_recovery
from fencepost.broker.topics.topic import Partition

__all__ = ["BROKER_ID", "BrokerParts"]

_log = logging.getLogger("fencepost.broker")

BROKER_ID: Final = 1
_SETTLE_MS: Final = 1_000  # between attempts to write what the disk has refused
_SESSION_EVICTION_MS: Final = 120_000
_UNBOUNDED: Final = 2**63 - 1


class BrokerParts:
    """The parts of one broker over one data directory.

    `steady_ms`: a clock that never jumps or stops, unlike the broker's own. It measures the waiting times of clients.
    The default is the broker's clock.
    """

    broker_id = BROKER_ID

    def __init__(
        self,
        files: Files,
        config: BrokerConfig,
        *,
        new_uuid: Callable[[], UUID],
        data_directory: str = "",
        steady_ms: Callable[[], int] | None = None,
    ) -> None:
        self.files = files
        self.data_directory = data_directory
        self.config = config
        self.new_uuid = new_uuid
        self.now = CoreTime()
        self.clock_jumps = ClockJumps()
        self.metrics = Metrics()
        self.failure_guard = FailureGuard(self.metrics, lambda: self.now.ms)
        self.deadline_signal = DeadlineSignal()
        """Set when something is due earlier than before."""
        self._is_settling = False
        self.timers = Timers(self._timer_failed, self.deadline_signal)
        self._waits = Timers(self._timer_failed, self.deadline_signal)
        self._steady_ms = steady_ms
        self.steady_ms: Callable[[], int] = (lambda: self.now.ms) if steady_ms is None else steady_ms
        """The clock that never jumps, for what takes time and is not written down."""
        self.listeners = listeners_of(config, "localhost", 0)
        self.rights = Rights(files, config, self.metrics)
        self.credentials = Credentials(files, new_uuid, TokenRules.of(config), lambda: self.now.ms)
        self.changes = Changes(self._change_failed)
        self.meta = Meta(files, self._reserve_producer_ids)
        self.settings = DynamicSettings(files, config)
        self.throttling = Throttling()
        self.telemetry = Instances(lambda: self.settings.subscriptions)
        self.pushed_metrics = PushedMetrics()
        self.unread_telemetry = RateLimit()
        self.refused_sequences = RateLimits()
        self.failed_writes = FailedWrites(self.metrics, logging.getLogger("fencepost.broker.produce"))
        self.durability = Durability(config.waits_for_fsync, self.advanced, self.failure_guard)
        self.refused_topics = Refusals(self.metrics, "refused_topics", _log)
        self.topics = TopicCatalogue(
            files, config, new_uuid, self.now, self._log_opened, self._next_producer_id, self._in_background
        )
        self.doubts = CorruptionGuard(self.topics, self.metrics)
        self.transactions = self._make_transactions()
        self.groups = self._make_groups()
        self.shares = self._make_shares()
        self.cleaner = Cleaner(
            files,
            config,
            self.topics,
            self.durability,
            self.timers,
            self.now,
            self.metrics,
            self.failure_guard,
            begin=self._in_background,
            owned_producer_ids=self.transactions.coordinator.owned_producer_ids,
            compacted=self._compacted,
        )
        self.deleted_file_monitor = DeletedFileMonitor(files, self.topics, self.durability)
        slots = config.number("max.incremental.fetch.session.cache.slots")
        self.fetch_sessions = FetchSessions(slots, _SESSION_EVICTION_MS, lambda: new_uuid().int & 0x7FFF_FFFF)
        self.answer_room: Callable[[], int] = lambda: _UNBOUNDED
        """Bytes that the shell's limit for unread answers leaves."""
        self.unsent_bytes = 0
        """Bytes of the answers that the shell does not have yet. One record can wake the fetches of many clients."""
        self.large = DecompressionBudget(self.soon)
        self._advanced: dict[Partition, None] = {}

    def _make_groups(self) -> Groups:
        return Groups(
            self._runtime(CONSUMER_OFFSETS, "groups"),
            self.config,
            self.topics,
            self.settings,
            new_uuid=self.new_uuid,
            deadline_signal=self.deadline_signal,
        )

    def _make_shares(self) -> SharePartitions:
        return SharePartitions(
            self._runtime(SHARE_GROUP_STATE, "shares"),
            self.topics,
            self.settings,
            self.advanced,
            self.metrics,
            most_sessions=self.config.number("group.share.max.share.sessions"),
            deadline_signal=self.deadline_signal,
        )

    def _reserve_producer_ids(self, change: Change[None]) -> None:
        def done(result: Callable[[], None]) -> None:
            try:
                result()
            except OSError as error:
                logging.getLogger("fencepost.broker.files").error("cannot allocate producer ids yet: %s", error)

        self.changes.begin(change, done)

    def _next_producer_id(self) -> int:
        return self.meta.next_producer_id

    def _change_failed(self, change: object, error: Exception) -> None:
        name = getattr(change, "__qualname__", change)
        self.failure_guard.failed(f"a change of small files ({name})", error, "It is not answered")

    def _in_background(self, change: Change[Any], done: Done = lambda result: result()) -> None:
        self.changes.begin(change, done, in_background=True)

    def _make_transactions(self) -> Transactions:
        return Transactions(
            self._runtime(TRANSACTION_STATE, "transactions"),
            self.files,
            self.config,
            self.topics,
            self.durability,
            self.metrics,
            self.doubts,
            allocate_producer_id=self.meta.allocate_producer_id,
            clock_jumps=self.clock_jumps,
            offsets_decided=self._offsets_decided,
            begin=self._in_background,
            deadline_signal=self.deadline_signal,
        )

    def _offsets_decided(
        self, producer_id: int, producer_epoch: int, commit: bool, partition: int, marker_ms: int
    ) -> None:
        self.groups.complete_transaction(producer_id, producer_epoch, commit, partition, marker_ms)

    def _compacted(self, now_ms: int, partition: Partition) -> None:
        if partition.topic.name == TRANSACTION_STATE:
            self.transactions.snapshots.compacted(now_ms, partition)

    def _runtime(self, topic: str, name: str) -> CoordinatorRuntime:
        log = logging.getLogger(f"fencepost.broker.{name}")
        return CoordinatorRuntime(
            topic,
            log,
            self.files,
            self.topics,
            self.durability,
            self.timers,
            self.metrics,
            self.doubts,
            self.failure_guard,
        )

    def open(self, now_ms: int) -> None:
        """Read the data directory and finish what a crash interrupted. Raises OSError, UnusableDirectory."""
        self.now.ms = now_ms
        self.meta.load(self.config.text("cluster.id"), self.new_uuid)
        self.settings.load(expected=self.meta.complete)
        self.transactions.settings_changed()
        self.topics.stopped_cleanly = self.meta.stopped_cleanly
        self.topics.load(expected=self.meta.complete)
        if not self.meta.stopped_cleanly and not self.config.waits_for_fsync:
            self.topics.doubt_all()
        self.rights.store.load(expected=self.meta.complete)
        self.credentials.load(expected=self.meta.has_credentials)
        self.meta.mark_complete()
        self.files.reserve()
        self.transactions.load(now_ms)
        self.meta.start_above(self._highest_producer_id())
        try:
            self.meta.fill()
        except OSError as error:  # ids are written when one is requested, and refused until then
            if not is_full(error):
                raise
            _log.warning("the disk is full (%s): no new producer ids until space is freed (FP104)", error)
        self.groups.load(now_ms, self.transactions.settle)
        self.shares.load()
        self.transactions.finish(now_ms)
        self.timers.at(now_ms + self.config.number("log.retention.check.interval.ms"), self._apply_retention)
        self._expire_producers_later(now_ms)
        self.cleaner.start(now_ms)
        self.settle_files_later(now_ms)

    def close(self, run_all: RunAll = one_by_one) -> None:
        """Close the logs cleanly; the next start need not recover them. `run_all` closes them."""
        write_snapshots = self.transactions.snapshots.at_close()
        self.topics.close(run_all)
        write_snapshots()
        try:
            self.files.settle()
        except OSError as error:
            _log.critical("changes that failed may be in effect after the next start: %s", error)
        try:
            self.meta.mark_clean()
        except OSError as error:
            if not is_full(error):
                raise
            _log.warning("the disk is full (%s): the next start checks the logs as after a crash (FP104)", error)

    def settle_files_later(self, now_ms: int) -> None:
        """Write small files again that the disk refused, every second until it succeeds."""
        if self.files.has_pending_writes and not self._is_settling:
            self._is_settling = True
            self.timers.at(now_ms + _SETTLE_MS, self._settle_files)

    def _settle_files(self, now_ms: int) -> None:
        def settling() -> Change[None]:
            yield self.files.settle

        self._in_background(settling(), self._settled_files)

    def _settled_files(self, result: Callable[[], None]) -> None:
        self._is_settling = False
        try:
            result()
        except OSError:  # the failure of the first attempt was logged
            self.settle_files_later(self.now.ms)
        else:
            _log.info("small files that the disk had refused are written")

    def after(self, wait_ms: int, action: Callable[[], None]) -> Timer:
        """Call `action` after a client has waited that long."""
        return self._waits.at(self.steady_ms() + wait_ms, lambda _: action())

    def soon(self, action: Callable[[], None]) -> None:
        """Call `action` after other requests were served."""
        self.after(0, action)

    def room_for_answer(self) -> int:
        """Return the limit of bytes for another answer."""
        return max(0, self.answer_room() - self.unsent_bytes)

    def partition_room(self) -> int:
        """Return the number of partitions that may still be created."""
        return max(0, self.config.number("max.partitions") - self.topics.partition_count)

    def settings_changed(self, now_ms: int) -> None:
        """Apply changed settings of the broker or a topic to everything that exists."""
        self.topics.broker_settings_changed()
        self.transactions.settings_changed()
        self.timers.at(now_ms, self.cleaner.expire_producers)
        self.timers.at(now_ms, self._clean_logs)

    def advanced(self, partition: Partition) -> None:
        """Check the fetches that wait for a partition, because it has more records or was deleted."""
        if partition.waiting:
            self._advanced[partition] = None

    def topic_name(self, name: str | None, topic_id: UUID | None) -> str | None:
        """Return the name of a topic given by name or by id; None for an unknown id."""
        if name:
            return name
        topic = self.topics.by_id(topic_id)
        return None if topic is None else topic.name

    def _highest_producer_id(self) -> int:
        """Return the highest producer id in the transaction log.

        If the file with the allocated ids is missing, all logs count.
        """
        highest = self.transactions.coordinator.highest_producer_id
        if self.meta.producer_ids_lost:
            for topic in self.topics:
                for partition in topic.partitions:
                    if self.files.exists(partition.directory):
                        highest = max(highest, partition.log.producers.highest_id(INVENTED_FROM))
        return highest

    def _timer_failed(self, error: Exception, action: Callable[[int], None]) -> None:
        self.failure_guard.failed(f"due work ({action})", error, "It is not done")

    def _log_opened(self, partition: Partition) -> None:
        note_recovery(partition, self.metrics)
        if partition.opened is not None and not self.meta.producer_ids_lost:
            self.meta.start_above(partition.opened.producers.highest_id(INVENTED_FROM))
        try:
            self.transactions.log_opened(self.now.ms, partition)
        except Exception as error:  # noqa: BLE001 - the log itself is open
            follows = "Transactions that a loss of power left open in it stay open until the next start"
            self.failure_guard.failed(f"looking for open transactions in {partition.directory}", error, follows)

    def _apply_retention(self, now_ms: int) -> None:
        self.timers.at(now_ms + self.config.number("log.retention.check.interval.ms"), self._apply_retention)
        self._clean_logs(now_ms)
        self.settle_files_later(now_ms)
        self.topics.remove_deleted()
        self.files.reserve()
        self.durability.also(self.topics.points.files(), self._points_synced)

    def _expire_producers(self, now_ms: int) -> None:
        self._expire_producers_later(now_ms)
        self.cleaner.expire_producers(now_ms)

    def _expire_producers_later(self, now_ms: int) -> None:
        self.timers.at(now_ms + self.config.number("producer.id.expiration.check.interval.ms"), self._expire_producers)

    def _points_synced(self, _now_ms: int, error: OSError | None) -> None:
        if error is not None:
            self.topics.points.failed(error)

    def _clean_logs(self, now_ms: int) -> None:
        self.cleaner.apply_retention(now_ms)
        self.cleaner.compact(now_ms)
