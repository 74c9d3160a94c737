"""Group commit: who waits for which appended bytes, and which files are to be synced next.

One sync is under way at a time; everything that is appended meanwhile shares the next one. A log whose file could not
be synced is read-only from then on, and nothing of it that was not durable before is promised: whoever waited looks at
`PartitionLog.is_durable`. An internal topic that fails so ends the broker, because what the coordinators know is ahead
of what is on disk.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from fencepost.broker.disk.files import File, Sync
from fencepost.broker.log.partition import PartitionLog
from fencepost.broker.metrics.fence import Fence
from fencepost.broker.topics.catalogue import Partition

__all__ = ["Durability"]

_log = logging.getLogger("fencepost.broker.durability")

_Covered = list[tuple[Partition, int, list[File]]]
_Extra = list[tuple[Sequence[File], Callable[[int, OSError | None], None]]]


class Durability:
    """`waits`: whether promises wait for a sync (fsync=commit).

    Otherwise everything counts as durable once it is appended.
    """

    def __init__(self, waits: bool, advanced: Callable[[Partition], None], fence: Fence) -> None:
        self._fence = fence
        self._waits = waits
        self._advanced = advanced
        self._appended = 0
        self._synced = 0
        self._token = 0
        self._dirty: dict[Partition, None] = {}
        self._extra: _Extra = []
        self._under_way: tuple[int, _Covered, _Extra] | None = None
        self._waiting: deque[tuple[int, Callable[[int], None]]] = deque()
        self.failures = 0
        """How many logs have become read-only. While it is 0 nobody has to ask `is_durable`."""

    def appended(self, partition: Partition) -> None:
        """Something was appended to the partition."""
        self._appended += 1
        self._dirty[partition] = None
        if not self._waits:
            self._advanced(partition)

    def when_durable(self, now_ms: int, action: Callable[[int], None]) -> None:
        """Call `action(now_ms)` when all that has been appended so far is durable or never will be, at once where
        nothing is to be waited for. Who waits already comes first: an action that waits again for what another one is
        about to do would else come before it, again and again."""
        if not self._waits or (self._synced == self._appended and not self._waiting):
            action(now_ms)
        else:
            self._waiting.append((self._appended, action))

    def also(self, files: Sequence[File], action: Callable[[int, OSError | None], None]) -> None:
        """Sync these files with the next sync, soon, and call `action(now_ms, error)` then."""
        self._extra.append((files, action))

    def next_sync(self, *, forced: bool = False) -> Sync | None:
        """The sync to begin now; `forced` begins one although nobody waits (fsync=interval)."""
        if self._under_way is not None or not (self._extra or (self._dirty and (forced or self._is_wanted()))):
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
        """Whether somebody waits, or readers of a topic do. A record of the broker's own that nobody waits for (that a
        transaction is complete) goes with the next sync: what is lost of it, the next start does again."""
        return self._waits and (bool(self._waiting) or not all(partition.topic.internal for partition in self._dirty))

    def synced(self, now_ms: int, token: int, failed: Sequence[tuple[File, OSError]] = ()) -> None:
        """The sync with that token is done: move the high watermarks and let those go who waited for it.

        `failed`: the files that could not be synced. Raises OSError when one is an internal topic's."""
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
        """One action must not keep the others from what they wait for."""
        try:
            action(*args)
        except Exception as error:  # noqa: BLE001 - it is told
            self._fence.failed(f"what waited for a sync ({action})", error, "It is not done")

    def failed(self, log: PartitionLog, error: OSError) -> None:
        """The log is read-only from now on: nothing of it that is not durable yet is promised."""
        self.failures += 1
        log.sync_failed(error)


def _first_error(files: Sequence[File], errors: Mapping[File, OSError]) -> OSError | None:
    return next((errors[file] for file in files if file in errors), None) if errors else None
