"""Retention and compaction of all open logs, in short steps between requests."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from fencepost.broker.disk.changes import Change, Done
from fencepost.broker.disk.files import Files, changed_nothing, may_exist
from fencepost.broker.log.cleaning.compaction import Abandoned, Compaction, CompactionPlan, Step, plan
from fencepost.broker.log.removing import expirable, has_removable_segment, retaining
from fencepost.broker.log.results import CorruptSegment
from fencepost.broker.metrics.counters import Metrics
from fencepost.broker.metrics.failure_guard import FailureGuard
from fencepost.broker.settings.values import BrokerConfig
from fencepost.broker.timing.clock import CoreTime
from fencepost.broker.timing.deadlines import RETRY_MS
from fencepost.broker.timing.timers import Timers
from fencepost.broker.topics.catalogue import TopicCatalogue
from fencepost.broker.topics.durability import Durability
from fencepost.broker.topics.opening import open_log
from fencepost.broker.topics.topic import Partition

__all__ = ["Cleaner"]

_OPENED_AT_ONCE = 10
_PAUSE_MS = 1  # between two steps, so that requests come first

_log = logging.getLogger("fencepost.broker.cleaner")


class Cleaner:
    """Runs one round of compaction at a time, for the log with the largest share of dirty bytes."""

    def __init__(
        self,
        files: Files,
        config: BrokerConfig,
        topics: TopicCatalogue,
        durability: Durability,
        timers: Timers,
        now: CoreTime,
        metrics: Metrics,
        failure_guard: FailureGuard,
        *,
        begin: Callable[[Change[Any], Done], None],
        owned_producer_ids: Callable[[], Iterable[int]],
        compacted: Callable[[int, Partition], None],
    ) -> None:
        """Create it.

        Args:
            files: The disk.
            config: The broker's settings.
            topics: The catalogue.
            durability: Syncs the written files.
            timers: Schedules the steps.
            now: The broker's time.
            metrics: The broker's counters.
            failure_guard: Reports unexpected exceptions.
            begin: Carries out a change in the background.
            owned_producer_ids: Returns producer ids whose state in partitions must not expire.
            compacted: Called for each compacted log.
        """
        self._files = files
        self._config = config
        self._topics = topics
        self._durability = durability
        self._timers = timers
        self._now = now
        self._metrics = metrics
        self._failure_guard = failure_guard
        self._begin = begin
        self._owned_producer_ids = owned_producer_ids
        self._compacted = compacted
        self._round: tuple[Partition, Compaction, Iterator[Step]] | None = None
        self._is_waiting = False
        self._is_eager = False
        self._uncleanable: set[Partition] = set()
        self._tried: set[Partition] = set()

    def start(self, now_ms: int) -> None:
        """Start to look for work."""
        self._look_again(now_ms)

    def apply_retention(self, now_ms: int) -> None:
        """Begin to delete segments that exceed the limits of age and size. A failing log does not affect others."""
        for partition in self._open_partitions():
            log = partition.opened
            if log is not None:
                with self._retention_of(partition):
                    if log.start_pending or has_removable_segment(log) or expirable(log, now_ms):
                        self._begin(retaining(log, now_ms), partial(self._retained, partition))

    def _retained(self, partition: Partition, result: Callable[[], int]) -> None:
        with self._retention_of(partition):
            self._metrics.count("deleted_segments", result())

    @contextmanager
    def _retention_of(self, partition: Partition) -> Iterator[None]:
        """Let a failure cost this partition only."""
        try:
            yield
        except (OSError, CorruptSegment) as error:
            self._metrics.count("storage_errors")
            _log.error("%s: retention failed and will be tried again: %s", partition.directory, error)
        except Exception as error:  # noqa: BLE001 - it is told
            self._failure_guard.failed(f"retention of {partition.directory}", error, "The next round tries it again")

    def expire_producers(self, now_ms: int) -> None:
        """Remove the state of producers that are idle for too long."""
        live = set(self._owned_producer_ids())
        for partition in self._open_partitions():
            log = partition.opened
            if log is not None:
                idle_ms, most = log.config.producer_id_expiration_ms, log.config.shrunk_producers_max
                try:
                    log.producers.expire(now_ms, idle_ms, live.__contains__, most)
                except Exception as error:  # noqa: BLE001 - reported
                    subject = f"letting go of idle producers in {partition.directory}"
                    self._failure_guard.failed(subject, error, "The next round tries it again")

    def compact(self, now_ms: int, *, eager: bool = False) -> None:
        """Start a round if none is running and a log needs it.

        With `eager` a round continues without requests in between, except for syncs, as when a test moves the clock.
        """
        self._is_eager = eager or (self._is_eager and self._round is not None)
        if self._round is not None:
            if eager:
                self._step(now_ms)
            return
        if not self._config.flag("log.cleaner.enable"):
            return
        best: tuple[Partition, CompactionPlan] | None = None
        for partition in self._open_partitions():
            wanted = self._plan(partition, now_ms)
            if wanted is not None and (best is None or _urgency(wanted) > _urgency(best[1])):
                best = partition, wanted
        if best is not None and best[0].opened is not None:
            compaction = Compaction(best[0].opened, best[1], now_ms)
            self._round = best[0], compaction, compaction.steps()
            self._step(now_ms)

    def _open_partitions(self) -> list[Partition]:
        return [partition for topic in self._topics for partition in topic.partitions if partition.opened]

    def _plan(self, partition: Partition, now_ms: int) -> CompactionPlan | None:
        if partition.opened is None or partition in self._uncleanable or not partition.opened.config.compacted:
            return None
        try:
            return plan(partition.opened, now_ms)
        except Exception as error:  # noqa: BLE001 - reported, and affects this partition only
            self._failed(partition, error)
            return None

    @property
    def uncleanable(self) -> int:
        """Number of partitions whose compaction has stopped until the next start."""
        return sum(partition.opened is not None for partition in self._uncleanable)

    def _open_some(self) -> None:
        """Open a few logs that have not been used since the start, because retention applies to them too."""
        left = _OPENED_AT_ONCE
        for topic in list(self._topics):
            for partition in topic.partitions:
                if partition.opened is None and partition not in self._tried:
                    self._tried.add(partition)
                    if may_exist(self._files, partition.directory):
                        open_log(partition, self._metrics)
                        left -= 1
                        if not left:
                            return

    def _look_again(self, now_ms: int) -> None:
        self._timers.at(now_ms + self._config.number("log.cleaner.backoff.ms"), self._look_again)
        self._open_some()
        self.compact(now_ms)

    def _step(self, now_ms: int) -> None:
        """Run the next step of the current round."""
        if self._round is None or self._is_waiting:
            return
        partition, compaction, steps = self._round
        try:
            step = next(steps, None)
            while self._is_eager and step == ():
                step = next(steps, None)
        except Exception as error:  # noqa: BLE001 - it is told, and costs this partition only
            self._gave_up(partition, compaction, error)
        else:
            if step is None:
                self._finished(now_ms, partition, compaction)
            elif isinstance(step, Generator):
                self._is_waiting = True
                self._begin(step, self._changed)
            elif step:
                self._is_waiting = True
                self._durability.also(step, self._synced)
            else:
                self._timers.at(now_ms + _PAUSE_MS, self._step)

    def _synced(self, now_ms: int, error: OSError | None) -> None:
        self._is_waiting = False
        if error is None:
            self._step(now_ms)
        elif self._round is not None:
            partition, compaction, _ = self._round
            self._failed(partition, error)
            self._end(partition, compaction)

    def _changed(self, result: Callable[[], None]) -> None:
        self._is_waiting = False
        if self._round is None:
            return
        partition, compaction, _ = self._round
        try:
            result()
        except Exception as error:  # noqa: BLE001 - it is told, and costs this partition only
            if compaction.is_swapping and isinstance(error, OSError) and changed_nothing(error):
                _log.error(
                    "%s: the disk refused a change of the compaction, which tries again: %s", partition.directory, error
                )
                self._timers.at(self._now.ms + RETRY_MS, self._step)
            else:
                self._gave_up(partition, compaction, error)
        else:
            self._step(self._now.ms)

    def _gave_up(self, partition: Partition, compaction: Compaction, error: Exception) -> None:
        if isinstance(error, Abandoned):
            _log.info("%s: compaction gave up: %s", partition.directory, error)
        else:
            self._failed(partition, error)
        self._end(partition, compaction)

    def _finished(self, now_ms: int, partition: Partition, compaction: Compaction) -> None:
        self._round = None
        self._compacted(now_ms, partition)
        metrics = self._metrics
        metrics.count("compactions")
        metrics.count("compaction_read_bytes", compaction.bytes_read)
        metrics.count("compaction_written_bytes", compaction.bytes_written)
        _log.info(
            "%s: compacted below offset %s: %s of %s records stay",
            partition.directory,
            compaction.clean_offset,
            compaction.records_retained,
            compaction.records_read,
        )
        self.compact(now_ms, eager=self._is_eager)

    def _failed(self, partition: Partition, error: Exception) -> None:
        self._metrics.count("compaction_failures")
        is_read_only = partition.opened is not None and partition.opened.read_only
        self._durability.failures += is_read_only
        if isinstance(error, OSError):
            if is_read_only:
                follows = "is read-only until the next start, which completes or undoes it"
                _log.critical("%s: compaction failed: %s. The partition %s", partition.directory, error, follows)
            else:
                _log.error("%s: compaction failed and will be tried again: %s", partition.directory, error)
            return
        self._uncleanable.add(partition)  # another round would fail in the same way
        if isinstance(error, CorruptSegment):
            _log.error(
                "%s is not compacted until the damage in it is accepted (fencepost repair) and the broker started: %s",
                *(partition.directory, error),
            )
        else:
            follows = "It is not compacted until the next start"
            self._failure_guard.failed(f"compaction of {partition.directory}", error, follows)

    def _end(self, partition: Partition, compaction: Compaction) -> None:
        self._round = None
        try:
            compaction.discard()
        except Exception as error:  # noqa: BLE001 - reported
            _log.warning("%s: what compaction left is removed at the next start: %s", partition.directory, error)


def _urgency(wanted: CompactionPlan) -> tuple[bool, float]:
    return wanted.overdue, wanted.ratio
