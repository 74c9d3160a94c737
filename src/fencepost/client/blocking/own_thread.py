"""The thread of a blocking client for the application's functions, which it runs one after another.

The I/O thread serves all clients of the process, so a slow function there would stall all of them.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable

from fencepost.errors import UsageError

log = logging.getLogger("fencepost.client")

_Work = tuple[Callable[[], None], Callable[[], None]]
_serving = threading.local()


class OwnThread:
    """A `calling.Caller` for blocking clients. The thread starts at the first call and ends with `end`."""

    awaits = False

    def __init__(self, wake: Callable[[Callable[[], object]], object], name: str, waits: str) -> None:
        """Create the thread's queue. The thread starts at the first call.

        Args:
            wake: Runs a function in the I/O thread, from any thread.
            name: The name of the thread.
            waits: The effect of a running function, for the log.
        """
        self.waits = waits
        self._wake = wake
        self._name = name
        self._work: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        self._started = self._ended = False

    def call(self, job: Callable[[], None], then: Callable[[], None]) -> None:
        """Run a job; see Caller. Only the I/O thread may call it."""
        if self._ended:
            late = OwnThread(self._wake, self._name, self.waits)
            late.call(job, then)
            late.end()
            return
        if not self._started:
            serve = threading.Thread(target=self._serve, name=self._name, daemon=True)
            try:
                serve.start()
            except RuntimeError:  # the interpreter is shutting down and starts no more threads
                job()
                then()
                return
            self._started = True
        self._work.put((job, then))

    def end(self) -> None:
        """End the thread after its pending work."""
        self._ended = True
        self._work.put(None)

    def is_current(self) -> bool:
        """Return true in this thread, which means in a callback of the client."""
        return getattr(_serving, "owner", None) is self

    def refuse_to_wait(self) -> None:
        """Raise UsageError in this thread, where a blocking call would wait for its own callback to return."""
        if self.is_current():
            raise UsageError(
                "a blocking call of a producer from its own delivery callback would wait for itself; send() is "
                "possible there, and calls of other clients"
            )

    def _serve(self) -> None:
        _serving.owner = self
        while (work := self._work.get()) is not None:
            job, then = work
            try:
                job()
            except BaseException:
                # Unexpected, because jobs catch the functions' exceptions.
                log.exception("unexpected exception in the callback thread")
            self._wake(then)
            del work, job, then  # otherwise these objects would stay alive while the thread waits
