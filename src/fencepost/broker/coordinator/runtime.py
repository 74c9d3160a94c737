"""What every coordinator does with its internal topic, whatever its records say: load it, append to it, hold replies
until they are durable, do what is due, and try again what the disk refused.

A coordinator decides and changes nothing; what it decides are records. They are appended here, and replayed by the
coordinator at once, as the same records are at the next start. A reply waits until everything is durable that was
appended before it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, TypeVar

from fencepost.broker.coordinator.damage import Doubts
from fencepost.broker.disk.files import Files
from fencepost.broker.log.reading import Gap, batches_of
from fencepost.broker.log.results import Appended, Rejected
from fencepost.broker.metrics.counters import Metrics
from fencepost.broker.metrics.fence import Fence
from fencepost.broker.metrics.refusals import Refusals
from fencepost.broker.timing.timers import Timers
from fencepost.broker.topics.catalogue import Partition, TopicCatalogue
from fencepost.broker.topics.durability import Durability
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.logs.partitioning import coordinator_partition
from fencepost.protocol.records.batch import BatchHeader
from fencepost.protocol.records.plain import encode_pairs

__all__ = ["RETRY_MS", "CoordinatorRuntime"]

RETRY_MS: Final = 1000
"""After this time, what the disk refused is tried again."""

Decision = TypeVar("Decision")
Action = Callable[[int], None]
"""Called with the time."""


class CoordinatorRuntime:
    """Runs one coordinator over the internal topic `topic`. `log`: where it tells of failures."""

    def __init__(
        self,
        topic: str,
        log: logging.Logger,
        files: Files,
        topics: TopicCatalogue,
        durability: Durability,
        timers: Timers,
        metrics: Metrics,
        doubts: Doubts,
        fence: Fence,
    ) -> None:
        self._topic = topic
        self._log = log
        self._files = files
        self._topics = topics
        self._durability = durability
        self._timers = timers
        self._metrics = metrics
        self._doubts = doubts
        self.fence = fence
        self._rests_until_ms = 0

    def index_of(self, key: str) -> int:
        """The number of that partition; while there is no such topic, 0."""
        topic = self._topics.get(self._topic)
        return 0 if topic is None else coordinator_partition(key, len(topic.partitions))

    def partition_of(self, key: str) -> Partition:
        """The partition that a group or transactional id belongs to. The topic is made when it is missing."""
        partitions = self._topics.internal(self._topic).partitions
        return partitions[coordinator_partition(key, len(partitions))]

    def stored(self) -> list[Partition]:
        """The partitions that have been written to."""
        topic = self._topics.get(self._topic)
        partitions = () if topic is None else topic.partitions
        return [partition for partition in partitions if self._files.exists(partition.directory)]

    def load(self, partition: Partition, offset: int, replay: Callable[[BatchHeader, memoryview], None]) -> int:
        """Call `replay` with each whole batch from `offset` on; what cannot be read, or is not understood, is passed
        over and in doubt from then on. Returns the offset behind the last such place, -1 for none. Raises OSError."""
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
        key: str,
        records: Sequence[tuple[bytes, bytes | None]],
        *,
        producer_id: int = -1,
        producer_epoch: int = -1,
    ) -> Appended | Rejected:
        """Append the records (key, value) as one batch where `key` belongs; of a transaction, if there is a producer.
        Raises OSError when the disk refuses it."""
        batch = encode_pairs(
            records, now_ms, producer_id=producer_id, producer_epoch=producer_epoch, transactional=producer_id >= 0
        )
        partition = self.partition_of(key)
        appended = partition.log.append_internal(batch, now_ms)
        if isinstance(appended, Appended):
            self._durability.appended(partition)
        elif appended.error_code == ErrorCode.KAFKA_STORAGE_ERROR:
            raise OSError(appended.message)
        return appended

    def refusals(self, counter: str) -> Refusals:
        """For telling that there is no room for something new."""
        return Refusals(self._metrics, counter, self._log)

    def when_durable(self, now_ms: int, action: Action) -> None:
        """Call `action(now_ms)` when all that has been appended so far is durable or never will be."""
        self._durability.when_durable(now_ms, action)

    def again(self, now_ms: int, action: Action) -> None:
        """Call `action(now_ms)` in a second."""
        self._timers.at(now_ms + RETRY_MS, action)

    def until_done(self, action: Action, now_ms: int) -> None:
        """Write what nobody waits for and what must be written; again in a second while the disk refuses it."""
        try:
            action(now_ms)
        except OSError as error:
            self._failed(error)
            self.again(now_ms, partial(self.until_done, action))
        except Exception as error:  # noqa: BLE001 - it is told
            self.fence.failed(f"what is to be written to {self._topic} ({action})", error, "It is not written")

    def on_time(
        self, now_ms: int, due: Callable[[int], Iterable[Decision]], apply: Callable[[int, Decision], object]
    ) -> None:
        """Carry out what is due. A decision that the disk refuses keeps no other from it; what is due after that has
        to wait for a second. A decision that raises anything else keeps no other from it either."""
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
                self.fence.failed(f"what is due of {self._topic}", error, "It is tried again when it is due again")

    def next_deadline_ms(self, due_ms: int | None) -> int | None:
        """When `on_time` has something to do that is due at that time."""
        return None if due_ms is None else max(due_ms, self._rests_until_ms)

    def _failed(self, error: OSError) -> None:
        self._metrics.count("storage_errors")
        self._log.error("what is due cannot be written to %s; it will be tried again: %s", self._topic, error)
