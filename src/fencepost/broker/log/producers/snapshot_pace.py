"""The distance between two producer snapshots of a log."""

from __future__ import annotations

from fencepost.broker.log.config import LogConfig
from fencepost.broker.log.producers.table import ProducerTable

__all__ = ["SnapshotPace"]


class SnapshotPace:
    """Bytes and batches since the last snapshot. A start after a crash scans them."""

    __slots__ = ("_batches", "_bytes", "_producers")

    def __init__(self, producers: ProducerTable) -> None:
        self._producers = producers
        self._bytes = self._batches = 0

    def restart(self) -> None:
        """Note a snapshot, or an attempt."""
        self._bytes = self._batches = 0

    def add(self, size: int, batches: int, config: LogConfig) -> bool:
        """Note appended batches of `size` bytes. Return true if the next snapshot is due."""
        self._bytes += size
        self._batches += batches
        if self._bytes <= config.snapshot_interval_bytes and self._batches <= config.snapshot_interval_batches:
            return False
        return min(self.room(config)) < 0

    def room(self, config: LogConfig) -> tuple[int, int]:
        """Return how many batches and bytes may be appended before a snapshot is due."""
        # a snapshot writes all producers, so more of them need a longer interval
        most = max(config.snapshot_interval_batches, len(self._producers))
        return most - self._batches, config.snapshot_interval_bytes - self._bytes
