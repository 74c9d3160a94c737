"""The interface between the client cores and the outside: clock, timers, tasks, events, byte streams, random numbers.

Core modules of this package are `async def` over this protocol and do not import asyncio.
`asyncio_runtime.AsyncioRuntime` is the real runtime. The simulator's runtime has a virtual clock. All times are in
milliseconds, and `now_ms` never decreases.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol

from fencepost.protocol.cursor import Buffer


class StreamClosed(Exception):
    """The stream cannot be opened, or broke while in use. Raised by `Runtime.open`, `Stream.send`, `Stream.receive`."""


class StreamRefused(StreamClosed):
    """Security settings of either side forbid the stream. A retry cannot succeed."""


class Event(Protocol):
    """A level-triggered flag. Any number of tasks may wait."""

    def set(self) -> None: ...

    def clear(self) -> None: ...

    def is_set(self) -> bool: ...

    async def wait(self, timeout_ms: float | None = None) -> bool:
        """Wait until the event is set. Return false if `timeout_ms` passed first (None: no limit)."""
        ...


class TaskHandle(Protocol):
    """A task started by `Runtime.spawn`. Cores catch their own errors. The runtime reports errors that escape."""

    def cancel(self) -> object:
        """Stop the task at its next suspension."""
        ...

    def done(self) -> bool: ...


class Stream(Protocol):
    """A connected byte stream, received as frames."""

    async def send(self, buffers: Sequence[Buffer]) -> None:
        """Send the buffers in order.

        They are queued before the first suspension, so the order of calls without a suspension in between is kept. The
        method suspends only for back-pressure. Raises StreamClosed.
        """
        ...

    async def receive(self) -> list[memoryview]:
        """Return the next frames without their size prefix; none if the other side closed.

        Raises StreamClosed, and `protocol.errors.ProtocolError` for an invalid size.
        """
        ...

    def close(self) -> None:
        """Close at once. A waiting `receive` returns no frames or raises StreamClosed. May be called again."""
        ...


class Runtime(Protocol):
    """The environment of one client."""

    def now_ms(self) -> int:
        """Return the time of a monotonic clock, in ms."""
        ...

    def wall_ms(self) -> int:
        """Return the wall-clock time in ms since the epoch. It may go back."""
        ...

    async def sleep_ms(self, ms: float) -> None: ...

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> TaskHandle: ...

    def event(self) -> Event: ...

    async def open(self, host: str, port: int, max_frame_bytes: int) -> Stream:
        """Connect. Frames above the limit are refused.

        Raises StreamClosed if that fails, and StreamRefused if a retry cannot succeed.
        """
        ...

    def nonce(self) -> str:
        """Return a new unpredictable text of at least 128 bits: printable ASCII without commas."""
        ...

    async def run_callback(self, function: Callable[[], Any]) -> Any:
        """Return the result of the application's function, which may block, or be a coroutine function."""
        ...

    def random(self) -> float:
        """Return a random number, uniform in [0, 1)."""
        ...
