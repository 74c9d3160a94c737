"""Threads that wait for the disk: concurrent syncs, and changes of small files one after the other."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from fencepost.broker.disk.changes import Step
from fencepost.broker.disk.files import File, one_by_one

__all__ = ["SyncThreads"]

_SYNC_THREADS = 8
_REFUSED = "cannot schedule new futures"  # start of Python's message while the interpreter shuts down
Result = TypeVar("Result")
Item = TypeVar("Item")

_log = logging.getLogger("fencepost.broker")


class SyncThreads:
    """The threads of one broker. Call `stop` at the end.

    During interpreter shutdown no thread can be started. An embedded broker then does all work in its own thread.
    """

    def __init__(self) -> None:
        self._syncer = ThreadPoolExecutor(_SYNC_THREADS, "fencepost-sync")
        self._writer = ThreadPoolExecutor(1, "fencepost-write")

    async def sync(self, files: Sequence[File]) -> list[tuple[File, OSError]]:
        """Sync the files concurrently, because the system writes its journal once for concurrent syncs.

        Return the failures.
        """
        begun = [_begin(self._syncer, partial(_sync_each, share)) for share in _shares(files)]
        jobs = [asyncio.wrap_future(job) for job in begun]
        return [failure for failures in await asyncio.gather(*jobs) for failure in failures]

    async def write(self, step: Step) -> Exception | None:
        """Run a step of a change; return its exception, or None."""
        try:
            await asyncio.wrap_future(_begin(self._writer, step))
        except Exception as error:  # noqa: BLE001 - it is raised in the change
            return error
        return None

    def do_all(self, actions: Sequence[Callable[[], None]]) -> list[OSError | None]:
        """Run actions concurrently, because each waits for the disk. Return the OSError of each, or None."""
        errors: list[OSError | None] = [None] * len(actions)
        with ThreadPoolExecutor(_SYNC_THREADS, "fencepost-close") as threads:
            jobs = [_begin(threads, partial(one_by_one, share)) for share in _shares(actions)]
            for first, job in enumerate(jobs):
                errors[first::_SYNC_THREADS] = job.result()
        return errors

    def stop(self) -> None:
        """End the threads after their pending work."""
        self._syncer.shutdown()
        self._writer.shutdown()


def _begin(threads: ThreadPoolExecutor, work: Callable[[], Result]) -> Future[Result]:
    """Run the work in one of the threads; during interpreter shutdown run it here."""
    try:
        return threads.submit(work)
    except RuntimeError as error:
        if not str(error).startswith(_REFUSED):  # no memory for a thread: the executor may still run the work later
            raise
    done: Future[Result] = Future()
    try:
        done.set_result(work())
    except Exception as error:  # noqa: BLE001 - raised when the result is read
        done.set_exception(error)
    return done


def _shares(items: Sequence[Item]) -> list[Sequence[Item]]:
    return [items[first::_SYNC_THREADS] for first in range(min(_SYNC_THREADS, len(items)))]


def _sync_each(files: Sequence[File]) -> list[tuple[File, OSError]]:
    failed = []
    for file in files:
        try:
            file.sync()
        except FileNotFoundError:
            # Only the broker removes files: its topic was deleted, or retention removed the segment meanwhile.
            _log.debug("nothing to sync any more: %r", file)
        except OSError as error:
            failed.append((file, error))
    return failed
