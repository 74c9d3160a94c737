"""Threads that wait for the disk: syncs side by side, and changes of small files one after the other."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from fencepost.broker.disk.changes import Step
from fencepost.broker.disk.files import File, one_by_one

__all__ = ["SyncThreads"]

_SYNC_THREADS = 8
Item = TypeVar("Item")

_log = logging.getLogger("fencepost.broker")


class SyncThreads:
    """The threads of one broker. `stop` at the end."""

    def __init__(self) -> None:
        self._syncer = ThreadPoolExecutor(_SYNC_THREADS, "fencepost-sync")
        self._writer = ThreadPoolExecutor(1, "fencepost-write")

    async def sync(self, files: Sequence[File]) -> list[tuple[File, OSError]]:
        """Sync the files, several at a time: the system writes its journal once for those that come together. Returns
        those that could not be synced."""
        loop = asyncio.get_running_loop()
        jobs = [loop.run_in_executor(self._syncer, _sync_each, share) for share in _shares(files)]
        return [failure for failures in await asyncio.gather(*jobs) for failure in failures]

    async def write(self, step: Step) -> OSError | None:
        """Carry out a step of a change; returns what it raised."""
        try:
            await asyncio.get_running_loop().run_in_executor(self._writer, step)
        except OSError as error:
            return error
        return None

    def do_all(self, actions: Sequence[Callable[[], None]]) -> list[OSError | None]:
        """Do all of it, several at a time: each waits for the disk. Returns what each raised."""
        errors: list[OSError | None] = [None] * len(actions)
        with ThreadPoolExecutor(_SYNC_THREADS, "fencepost-close") as threads:
            for first, failures in enumerate(threads.map(one_by_one, _shares(actions))):
                errors[first::_SYNC_THREADS] = failures
        return errors

    def stop(self) -> None:
        """End the threads when they have done what they were given."""
        self._syncer.shutdown()
        self._writer.shutdown()


def _shares(items: Sequence[Item]) -> list[Sequence[Item]]:
    return [items[first::_SYNC_THREADS] for first in range(min(_SYNC_THREADS, len(items)))]


def _sync_each(files: Sequence[File]) -> list[tuple[File, OSError]]:
    failed = []
    for file in files:
        try:
            file.sync()
        except FileNotFoundError:
            # Only the broker removes files: its topic was deleted, or retention took the segment, while this waited.
            _log.debug("nothing to sync any more: %r", file)
        except OSError as error:
            failed.append((file, error))
    return failed
