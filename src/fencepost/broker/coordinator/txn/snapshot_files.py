"""Snapshots of the transactional ids: when they are written, and which are used at a start.

A start reads the snapshot of each partition of `__transaction_state` and the records after it. Its time depends on
recent records and open transactions, not on the whole history. If all partitions together have too many records after
their snapshots, the one with the most gets a new snapshot, once the log below it is durable. A snapshot is not needed:
without it a start reads the log from its beginning.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from functools import partial

from fencepost.broker.coordinator.txn import snapshot
from fencepost.broker.coordinator.txn.coordinator import TransactionCoordinator
from fencepost.broker.disk.changes import Begin, Change, carry_out
from fencepost.broker.disk.files import Files
from fencepost.broker.log.partition import PartitionLog
from fencepost.broker.metrics.counters import Metrics
from fencepost.broker.topics.durability import Durability
from fencepost.broker.topics.opening import log_damage
from fencepost.broker.topics.topic import Partition

__all__ = ["FILE", "TransactionSnapshots"]

FILE = "transactions.fencepost"
_RECORDS = 4_096  # number of records after the snapshots of all partitions that is always allowed
# one more record is allowed for this many ids, because a snapshot of many ids takes longer to write
_IDS_PER_RECORD = 16

_log = logging.getLogger("fencepost.broker.transactions")


class TransactionSnapshots:
    """Snapshots of one broker's transactional ids."""

    def __init__(
        self,
        files: Files,
        durability: Durability,
        metrics: Metrics,
        coordinator: TransactionCoordinator,
        begin: Begin,
    ) -> None:
        """Create the owner of the files; `begin` carries out a change that no request waits for."""
        self._begin = begin
        self._files = files
        self._durability = durability
        self._metrics = metrics
        self._coordinator = coordinator
        self._by_partition: Counter[Partition] = Counter()  # records since its last snapshot
        self.behind = 0
        """Number of records after all snapshots."""

    def load(self, partition: Partition) -> int:
        """Load a partition's snapshot. Return the offset from which to replay records. Raises OSError."""
        log, path = partition.log, f"{partition.directory}/{FILE}"
        try:
            if not self._files.exists(path):
                return log.log_start_offset
            data = self._files.read_bytes(path)
        except OSError as error:
            _log.warning("%s cannot be read, the log is read from its start: %s", path, error)
            return log.log_start_offset
        try:
            offset, found = snapshot.decode(data, partition.index)
            if offset > log.log_end_offset:
                # The log lost records that the snapshot covers, and other records will get these offsets.
                _log.warning("%s is of offset %s, the log ends at %s: not used", path, offset, log.log_end_offset)
                self._files.remove(path)
                self._files.sync_directory(partition.directory)
                return log.log_start_offset
            if offset < log.clean_point.gaps_below:
                _log.warning("%s is older than the last compaction of the log: not used", path)
                return log.log_start_offset
            self._coordinator.load(partition.index, found)
        except ValueError as error:
            _log.warning("%s is not used, the log is read from its start: %s", path, error)
            return log.log_start_offset
        for damage in log.report.damaged:
            # the damage lies before the snapshot, so nothing is in doubt, but it must be reported
            if damage.next_offset <= offset:
                log_damage(partition, self._metrics, *damage)
        return max(offset, log.log_start_offset)

    def replayed(self, partition: Partition, records: int = 1) -> None:
        """Count records of the partition's log since its last snapshot."""
        self._by_partition[partition] += records
        self.behind += records

    def write_if_due(self, now_ms: int) -> None:
        """Write a snapshot if a start would have to read many records."""
        while self.behind > _RECORDS and self.behind > _RECORDS + len(self._coordinator) // _IDS_PER_RECORD:
            self._snapshot(now_ms, self._by_partition.most_common(1)[0][0])

    def _snapshot(self, now_ms: int, partition: Partition) -> None:
        log = partition.log
        data, offset = self._take(partition)
        log.prepare_snapshot()  # recovery has to scan no more than is read here

        def write(_now_ms: int) -> None:
            if log.is_durable(offset - 1):
                self._begin(self._writing(log, partition, data))

        self._durability.when_durable(now_ms, write)

    def at_close(self) -> Callable[[], None]:
        """Take snapshots of records that a start would have to read. Call the result once the logs are closed."""
        taken = [(partition, partition.log, *self._take(partition)) for partition in list(self._by_partition)]

        def write() -> None:
            for partition, log, data, offset in taken:
                if log.synced_offset >= offset:
                    carry_out(self._writing(None, partition, data))

        return write

    def compacted(self, now_ms: int, partition: Partition) -> None:
        """React to a compaction of the partition's log: an older snapshot may contain removed ids."""
        self._snapshot(now_ms, partition)

    def _take(self, partition: Partition) -> tuple[bytes, int]:
        self.behind -= self._by_partition.pop(partition, 0)
        offset = partition.log.log_end_offset
        return snapshot.encode(partition.index, offset, self._coordinator.snapshot(partition.index)), offset

    def _writing(self, log: PartitionLog | None, partition: Partition, data: bytes) -> Change[None]:
        """Return the change that writes the snapshot, unless the log was closed before its turn."""
        if log is not None and log.closed:
            return
        try:
            yield partial(self._files.write_atomic, f"{partition.directory}/{FILE}", data)
        except OSError as error:
            _log.warning("%s has no snapshot of its transactional ids: %s", partition.directory, error)
