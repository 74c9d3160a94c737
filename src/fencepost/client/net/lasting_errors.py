"""Logs lasting errors, and calls the client's callbacks `on_error` (for these errors) and `on_statistics`.

An error is logged at its first occurrence, every ten seconds while it lasts, and at its end. A client may have one
subject per partition, so the number of lines in ten seconds is limited.

A client runs its callbacks one after another, separately from its calls: blocking clients in a thread of their own,
asyncio clients in their event loop.
"""

from __future__ import annotations

import inspect
import logging
from collections import deque
from collections.abc import Callable, Mapping
from contextvars import ContextVar, copy_context
from typing import Any, Final

from fencepost.client.calling import Caller, InlineCaller, SlowCalls
from fencepost.client.net.runtime import Runtime
from fencepost.config import CommonConfig
from fencepost.counted import duration_words
from fencepost.errors import (
    AllBrokersDownError,
    AuthenticationError,
    DisconnectedError,
    KafkaError,
    KafkaTimeoutError,
    UsageError,
    without_traceback,
)
from fencepost.values import MutableValue

log = logging.getLogger("fencepost.client")

LOG_EVERY_MS: Final = 10_000
MOST_LINES: Final = 20  # in LOG_EVERY_MS, for all subjects together
MOST: Final = 10_000  # number of subjects; the oldest are dropped, and count as new if they fail again
GIVEN_UP_MS: Final = 60_000  # a subject without a retry for this long is dropped
AT_ONCE: Final = (DisconnectedError, KafkaTimeoutError, AuthenticationError)
USUAL_MS: Final = 1_000  # brief refusals are usual when topics are created, leaders move and transactions end
MOST_WAITING: Final = 100  # number of errors that wait for a slow callback; the oldest are dropped

_inside: ContextVar[object] = ContextVar("mark of the client whose callback runs", default=None)


class _LastingError(MutableValue, kw_only=False):
    error: KafkaError
    since_ms: int
    latest_ms: int
    times: int = 0
    logged_ms: int | None = None


class LastingErrors:
    """The lasting errors of one client, by subject (the attempted operation).

    Connection, login and timeout errors are logged at once, other errors only if they last.
    """

    def __init__(self, now_ms: Callable[[], int], tell: Callable[[KafkaError], object] = lambda _: None) -> None:
        """Create an empty log. `tell` receives each error that is logged as a warning."""
        self._now_ms = now_ms
        self._tell = tell
        self._lasting: dict[str, _LastingError] = {}
        self._missing_features: set[str] = set()
        self._ended = False
        self._lines_since_ms: int | None = None
        self._lines = self._left_out = 0  # in the current period

    def record(self, operation: str, error: KafkaError) -> None:
        """Record a failure of `operation`. Log it if it is due."""
        now_ms = self._now_ms()
        self._forget(now_ms)
        lasting = self._lasting.pop(operation, None) or _LastingError(error, now_ms, now_ms)
        self._lasting[operation] = lasting  # the dict's order is that of the latest failures
        if len(self._lasting) > MOST:
            del self._lasting[next(iter(self._lasting))]
        lasting.error, lasting.latest_ms = without_traceback(error), now_ms
        lasting.times += 1
        lasted_ms = now_ms - lasting.since_ms
        message = str(error) if str(error).startswith(operation) else f"{operation}: {error}"
        if not isinstance(error, AT_ONCE) and lasted_ms < USUAL_MS:
            log.debug("%s", message)
        elif (lasting.logged_ms is None or now_ms - lasting.logged_ms >= LOG_EVERY_MS) and self._has_room(now_ms):
            lasting.logged_ms = now_ms
            again = f" ({lasting.times} times in {duration_words(lasted_ms)})" if lasting.times > 1 else ""
            log.warning("%s%s", message, again)
            self._tell(error)

    def _has_room(self, now_ms: int) -> bool:
        """Return true if one more line may be logged now. The next period logs the number of suppressed lines."""
        if self._lines_since_ms is None or now_ms - self._lines_since_ms >= LOG_EVERY_MS:
            if self._left_out:
                words = "%d further failures were not logged; %d subjects are in trouble now"
                log.warning(words, self._left_out, len(self._lasting))
            self._lines_since_ms, self._lines, self._left_out = now_ms, 0, 0
        self._lines += 1
        if self._lines == MOST_LINES + 1:
            log.warning("further failures of this client are counted, and not logged for %d s", LOG_EVERY_MS // 1000)
        self._left_out += self._lines > MOST_LINES
        return self._lines <= MOST_LINES

    def failed(self, operation: str, error: KafkaError) -> None:
        """Record a failure of `operation`, except a missing connection, which the connecting code records itself."""
        if not self._ended and (not isinstance(error, DisconnectedError) or error.sent):
            self.record(operation, error)

    def end(self) -> None:
        """Ignore further failures, because the client closes and thereby interrupts its requests."""
        self._ended = True

    def log_missing_feature(self, operation: str, words: str) -> None:
        """Log that a broker lacks the useful feature `operation`. Only the first broker is logged."""
        if operation not in self._missing_features:
            self._missing_features.add(operation)
            log.warning("%s", words)

    def succeeded(self, operation: str) -> None:
        """Record that `operation` has succeeded."""
        lasting = self._lasting.pop(operation, None) if self._lasting else None
        if lasting is not None and lasting.logged_ms is not None:
            log.info("%s: works again after %s", operation, duration_words(self._now_ms() - lasting.since_ms))

    def latest(self) -> KafkaError | None:
        """Return the latest error that still lasts, or None. It names a broker rather than all."""
        self._forget(self._now_ms())
        errors = (lasting.error for lasting in reversed(self._lasting.values()))
        return next((error for error in errors if not isinstance(error, AllBrokersDownError)), None)

    def _forget(self, now_ms: int) -> None:
        """Drop subjects that have not been retried for GIVEN_UP_MS."""
        while self._lasting:
            longest_ago = next(iter(self._lasting))
            if now_ms - self._lasting[longest_ago].latest_ms < GIVEN_UP_MS:
                return
            del self._lasting[longest_ago]


class ClientCallbacks:
    """Calls `on_error` and `on_statistics` of one client, if they are set."""

    def __init__(self, runtime: Runtime, config: CommonConfig, caller: Caller | None = None) -> None:
        """Create the callbacks of a client. `caller` runs the application's functions; None: the runtime runs them."""
        self._runtime = runtime
        self._on_error = config.on_error
        self._on_statistics = config.on_statistics if config.statistics_interval_ms else None
        self._interval_ms = config.statistics_interval_ms
        self._client = config.client_id
        self._caller = caller or InlineCaller()
        self._slow = SlowCalls(f"client {config.client_id!r}", self._caller.waits, runtime.now_ms)
        self._mark = object()  # not the client itself, which the contexts of tasks would keep alive
        self._metrics: Callable[[], Mapping[str, float]] = dict
        self._errors: deque[KafkaError] = deque(maxlen=MOST_WAITING)
        self._running = ""
        self._news = runtime.event()
        self._over = runtime.event()
        self._started = self._ended = False
        if config.on_statistics is not None and not self._interval_ms:
            log.warning("client %r: on_statistics is not called, because statistics_interval_ms is 0", self._client)

    def start(self, metrics: Callable[[], Mapping[str, float]]) -> None:
        """Start the callbacks. `metrics` returns a snapshot for `on_statistics`."""
        if self._on_error is None and self._on_statistics is None:
            return
        self._metrics = metrics
        self._started = True
        self._runtime.spawn(self._serve())

    def failed(self, error: KafkaError) -> None:
        """Queue an error for `on_error`. Only the runtime may call it."""
        if self._started and self._on_error is not None:
            self._errors.append(error)
            self._news.set()

    async def end(self, deadline_ms: int | None) -> None:
        """Run the callbacks for all queued errors, then stop. The wait ends at the deadline (None: no deadline).

        Inside a callback it returns at once, because it would wait for itself.
        """
        if not self._started:
            return
        self._ended = True
        self._news.set()
        if _inside.get() is self._mark:
            return
        left_ms = None if deadline_ms is None else max(deadline_ms - self._runtime.now_ms(), 0)
        if not await self._over.wait(left_ms):
            self._errors.clear()
            log.warning("client %r: closed while its %s runs", self._client, self._running or "callback")

    async def _serve(self) -> None:
        _inside.set(self._mark)
        try:
            await self._until_ended()
        finally:
            self._caller.end()
            self._over.set()

    async def _until_ended(self) -> None:
        due_ms = self._runtime.now_ms() + self._interval_ms
        while True:
            while self._errors and self._on_error is not None:
                await self._call("on_error", self._on_error, self._errors.popleft())
            if self._ended:
                return
            left_ms = None if self._on_statistics is None else due_ms - self._runtime.now_ms()
            if self._on_statistics is not None and left_ms is not None and left_ms <= 0:
                await self._call("on_statistics", self._on_statistics, self._metrics())
                due_ms = max(due_ms + self._interval_ms, self._runtime.now_ms())  # missed snapshots are skipped
                continue
            self._news.clear()
            await self._news.wait(left_ms)

    def _checked(self, kind: str, result: object) -> object:
        """Return a function's result.

        Raises UsageError for a coroutine of a blocking client, whose loop all clients share.
        """
        if inspect.isawaitable(result) and not self._caller.awaits:
            if inspect.iscoroutine(result):
                result.close()
            raise UsageError(f"{kind} returned a coroutine, which only the clients for asyncio await")
        return result

    async def _call(self, kind: str, function: Callable[[Any], Any], argument: object) -> None:
        called = self._runtime.event()
        outcome: list[Any] = []
        context = copy_context()  # of this task, so that calls inside the function see `_inside`
        begun_ms = self._runtime.now_ms()
        self._running = kind

        def job() -> None:
            try:
                outcome.append(self._checked(kind, context.run(function, argument)))
            except BaseException:  # SystemExit would end the thread, and no further callback would run
                log.exception("%s of client %r failed", kind, self._client)

        self._caller.call(job, called.set)
        await called.wait()
        self._slow.record_call(kind, function, self._runtime.now_ms() - begun_ms)
        for awaited in filter(inspect.isawaitable, outcome):
            try:
                await awaited
            except Exception:
                log.exception("%s of client %r failed", kind, self._client)
        self._running = ""
