"""Group commit: requests that wait for appended bytes, and the files of the next sync.

One sync runs at a time; everything appended meanwhile shares the next one. If a sync fails the log becomes read-only,
and bytes that were not durable before are not acknowledged: waiting requests check `PartitionLog.is_durable`. A failed
sync of an internal topic stops the broker, because the coordinators' state is ahead of the disk.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from fencepost.broker.disk.files import File, Sync
from fencepost.broker.log.partition import PartitionLog
from fencepost.broker.metrics.failure_guard import FailureGuard
from fencepost.broker.topics.topic import Partition

__all__ = ["Durability"]

_log = logging.getLogger("fencepost.broker.durability")

_Covered = list[tuple[Partition, int, list[File]]]
_Extra = list[tuple[Sequence[File], Callable[[int, OSError | None], None]]]


class Durability:
    """Syncs logs and runs what waits for it. With `waits` responses wait for a sync (fsync=commit).

    Otherwise appended bytes count as durable at once.
    """

    def __init__(self, waits: bool, advanced: Callable[[Partition], None], failure_guard: FailureGuard) -> None:
        self._failure_guard = failure_guard
        self.waits = waits
        """Responses wait for a sync."""
        self._advanced = advanced
        self._appended = 0
        self._synced = 0
        self._token = 0
        self._dirty: dict[Partition, None] = {}
        self._extra: _Extra = []
        self._under_way: tuple[int, _Covered, _Extra] | None = None
        self._waiting: deque[tuple[int, Callable[[int], None]]] = deque()
        self.failures = 0
        """Number of logs that became read-only. While it is 0, nobody needs to call `is_durable`."""

    def appended(self, partition: Partition) -> None:
        """Record an append to the partition."""
        self._appended += 1
        self._dirty[partition] = None
        if partition.waiting and not self.waits:
            self._advanced(partition)

    def when_durable(self, now_ms: int, action: Callable[[int], None]) -> None:
        """Call `action(now_ms)` when all bytes appended so far are durable or have failed; maybe at once.

        Earlier waiting actions run first. Otherwise an action that waits for another one's effect could run before it
        forever.
        """
        if not self.waits or (self._synced == self._appended and not self._waiting):
            action(now_ms)
        else:
            self._waiting.append((self._appended, action))

    def also(self, files: Sequence[File], action: Callable[[int, OSError | None], None]) -> None:
        """Include these files in the next sync, then call `action(now_ms, error)`."""
        self._extra.append((files, action))

    def next_sync(self, *, forced: bool = False) -> Sync | None:
        """Return the sync to begin now, or None. `forced` begins one that nothing waits for (fsync=interval)."""
        if self._under_way is not None or not (
            self._extra or (self._dirty and (forced or (self.waits and self._is_wanted())))
        ):
            return None
        covered: _Covered = []
        for partition in self._dirty:
            log = partition.opened
            if log is not None:
                covered.append((partition, log.log_end_offset, log.unsynced()))
        self._dirty = {}
        self._token += 1
        extra, self._extra = self._extra, []
        self._under_way = (self._appended, covered, extra)
        files = [file for _, _, own in covered for file in own]
        return Sync(self._token, files + [file for own, _ in extra for file in own])

    def _is_wanted(self) -> bool:
        """Return true if a request, or a reader of a topic, waits for a sync of the dirty partitions.

        Records of internal topics for which nothing waits, such as completed transactions, go with the next sync. If
        they are lost, the next start repeats them.
        """
        return bool(self._waiting) or not all(partition.topic.internal for partition in self._dirty)

    def synced(self, now_ms: int, token: int, failed: Sequence[tuple[File, OSError]] = ()) -> None:
        """Finish the sync with this token: advance the high watermarks and run what waited.

        `failed` are the files that could not be synced. Raises OSError if one belongs to an internal topic.
        """
        if self._under_way is None or token != self._token:
            raise ValueError(f"sync {token} was not under way")
        self._synced, covered, extra = self._under_way
        self._under_way = None
        errors = dict(failed)
        for partition, end_offset, files in covered:
            log = partition.opened
            if log is not None:
                error = _first_error(files, errors)
                if error is None:
                    log.mark_synced(end_offset)
                else:
                    self.failed(log, error)
                    _log.critical("%s is read-only until the next start: fsync: %s", partition.directory, error)
                    if partition.topic.internal:
                        raise OSError(f"{partition.directory} could not be synced: {error}") from error
                self._advanced(partition)
        while self._waiting and self._waiting[0][0] <= self._synced:
            self._do(self._waiting.popleft()[1], now_ms)
        for own, then in extra:
            self._do(then, now_ms, _first_error(own, errors))

    def _do(self, action: Callable[..., None], *args: object) -> None:
        """Run an action; its exception must not affect others."""
        try:
            action(*args)
        except Exception as error:  # noqa: BLE001 - reported
            self._failure_guard.failed(f"work after a sync ({action})", error, "It is not done")

    def failed(self, log: PartitionLog, error: OSError) -> None:
        """Make the log read-only: bytes that are not durable yet are not acknowledged."""
        self.failures += 1
        log.sync_failed(error)


def _first_error(files: Sequence[File], errors: Mapping[File, OSError]) -> OSError | None:
    return next((errors[file] for file in files if file in errors), None) if errors else None
