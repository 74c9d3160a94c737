"""Common driver of the coordinators: load an internal topic, append to it, hold replies until it is durable, and retry.

A coordinator decides without changing its state: its decisions are records. The runtime appends them, and the
coordinator replays them at once, as it does at the next start. A reply waits until everything appended before it is
durable.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TypeVar

from fencepost.broker.coordinator.corruption_guard import CorruptionGuard
from fencepost.broker.disk.files import Files
from fencepost.broker.log.reading import Gap, batches_of
from fencepost.broker.log.results import Appended, Rejected
from fencepost.broker.metrics.counters import Metrics
from fencepost.broker.metrics.failure_guard import FailureGuard
from fencepost.broker.metrics.refusals import Refusals
from fencepost.broker.timing.deadlines import RETRY_MS
from fencepost.broker.timing.timers import Timers
from fencepost.broker.topics.catalogue import TopicCatalogue
from fencepost.broker.topics.durability import Durability
from fencepost.broker.topics.topic import Partition
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.logs.partitioning import coordinator_partition
from fencepost.protocol.records.batch import BatchHeader

__all__ = ["CoordinatorRuntime"]

Decision = TypeVar("Decision")
Action = Callable[[int], None]
"""Called with the time."""


class CoordinatorRuntime:
    """Runs one coordinator over the internal topic `topic`. It reports failures to `log`."""

    def __init__(
        self,
        topic: str,
        log: logging.Logger,
        files: Files,
        topics: TopicCatalogue,
        durability: Durability,
        timers: Timers,
        metrics: Metrics,
        doubts: CorruptionGuard,
        failure_guard: FailureGuard,
    ) -> None:
        self._topic = topic
        self._log = log
        self._files = files
        self._topics = topics
        self._durability = durability
        self._timers = timers
        self._metrics = metrics
        self._doubts = doubts
        self.failure_guard = failure_guard
        self._rests_until_ms = 0

    def index_of(self, key: str) -> int:
        """Return the number of the key's partition; 0 while the topic does not exist."""
        topic = self._topics.get(self._topic)
        return 0 if topic is None else coordinator_partition(key, len(topic.partitions))

    def partitions(self) -> Sequence[Partition]:
        """Return the topic's partitions. Creates the topic if it does not exist."""
        return self._topics.internal(self._topic).partitions

    def partition_of(self, key: str) -> Partition:
        """Return the partition of a group or transactional id. Creates the topic if it does not exist."""
        partitions = self.partitions()
        return partitions[coordinator_partition(key, len(partitions))]

    def stored(self) -> list[Partition]:
        """Return the partitions that have been written to."""
        topic = self._topics.get(self._topic)
        partitions = () if topic is None else topic.partitions
        return [partition for partition in partitions if self._files.exists(partition.directory)]

    def load(self, partition: Partition, offset: int, replay: Callable[[BatchHeader, memoryview], None]) -> int:
        """Call `replay` with each whole batch from `offset` on.

        A batch that cannot be read or understood is skipped, and its partition is in doubt from then on. Returns the
        offset after the last such batch, -1 if there is none. Raises OSError.
        """
        damaged_end = -1
        for item in batches_of(partition.log, offset):
            if isinstance(item, Gap):
                gap = item
            else:
                header, batch = item
                try:
                    replay(header, batch)
                    continue
                except OSError:
                    raise
                except Exception as error:  # noqa: BLE001 - whatever the record is, it costs itself only
                    gap = Gap(header.base_offset, header.last_offset + 1, f"a record of another kind: {error!r}")
            damaged_end = gap.next_offset
            self._doubts.found(partition, gap)
        return damaged_end

    def append(
        self,
        now_ms: int,
        partition: Partition,
        records: Sequence[tuple[bytes, bytes | None]],
        *,
        producer_id: int = -1,
        producer_epoch: int = -1,
    ) -> Appended | Rejected:
        """Append the records (key, value) as one batch to the partition, transactionally if a producer is given.

        Raises OSError when the disk refuses it.
        """
        appended = partition.log.append_internal(
            records, now_ms, producer_id=producer_id, producer_epoch=producer_epoch
        )
        if isinstance(appended, Appended):
            self._durability.appended(partition)
        elif appended.error_code == ErrorCode.KAFKA_STORAGE_ERROR:
            raise OSError(appended.message)
        return appended

    def refusals(self, counter: str) -> Refusals:
        """Return a reporter for new ids beyond a limit."""
        return Refusals(self._metrics, counter, self._log)

    def when_durable(self, now_ms: int, action: Action) -> None:
        """Call `action(now_ms)` when everything appended so far is durable, or can no longer become so."""
        self._durability.when_durable(now_ms, action)

    def again(self, now_ms: int, action: Action) -> None:
        """Call `action(now_ms)` in a second."""
        self._timers.at(now_ms + RETRY_MS, action)

    def until_done(self, action: Action, now_ms: int) -> None:
        """Do a write that must happen and that no request waits for.

        Repeat it in a second while the disk refuses it.
        """
        try:
            action(now_ms)
        except OSError as error:
            self._failed(error)
            self.again(now_ms, partial(self.until_done, action))
        except Exception as error:  # noqa: BLE001 - it is told
            self.failure_guard.failed(f"a write to {self._topic} ({action})", error, "It is not written")

    def on_time(
        self, now_ms: int, due: Callable[[int], Iterable[Decision]], apply: Callable[[int, Decision], object]
    ) -> None:
        """Carry out due decisions.

        A failed decision does not prevent the others.

        After a refusal of the disk, work that becomes due waits for a second.
        """
        if now_ms < self._rests_until_ms:
            return
        decisions = iter(due(now_ms))
        while True:
            try:
                decision = next(decisions, None)
                if decision is None:
                    return
                apply(now_ms, decision)
            except OSError as error:
                self._failed(error)
                self._rests_until_ms = now_ms + RETRY_MS
            except Exception as error:  # noqa: BLE001 - it is told
                self.failure_guard.failed(f"due work of {self._topic}", error, "It is tried again when it is due again")

    def next_deadline_ms(self, due_ms: int | None) -> int | None:
        """Return the time of the next work for `on_time`, given the earliest deadline."""
        return None if due_ms is None else max(due_ms, self._rests_until_ms)

    def _failed(self, error: OSError) -> None:
        self._metrics.count("storage_errors")
        self._log.error("cannot write to %s, it will be tried again: %s", self._topic, error)
