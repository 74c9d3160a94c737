"""The interface of the client cores to the world: clock, timers, tasks, events, byte streams and jitter.

Core modules of this package are `async def` over this protocol and import no asyncio; `asyncio_runtime.AsyncioRuntime`
is the real runtime, the simulator's has a virtual clock. All times are milliseconds; `now_ms` never goes back.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol

from fencepost.protocol.cursor import Buffer


class StreamClosed(Exception):
    """The stream cannot be opened, or broke while in use. Raised by `Runtime.open`, `Stream.send`, `Stream.receive`."""


class StreamRefused(StreamClosed):
    """Security settings, ours or the other side's, forbid the stream: asking again cannot help."""


class Event(Protocol):
    """A level-triggered flag. Any number of tasks may wait."""

    def set(self) -> None: ...

    def clear(self) -> None: ...

    def is_set(self) -> bool: ...

    async def wait(self, timeout_ms: float | None = None) -> bool:
        """True once set, False when `timeout_ms` passed first (None: no limit)."""
        ...


class TaskHandle(Protocol):
    """A task started by `Runtime.spawn`. Cores catch their own errors; what escapes is the runtime's to report."""

    def cancel(self) -> object:
        """Stop the task at its next suspension."""
        ...

    def done(self) -> bool: ...


class Stream(Protocol):
    """A connected byte stream that frames come out of."""

    async def send(self, buffers: Sequence[Buffer]) -> None:
        """Send the buffers in order.

        They are taken before the first suspension, so that callers that do not suspend between two calls keep their
        order; suspending is only for back pressure. Raises StreamClosed.
        """
        ...

    async def receive(self) -> list[memoryview]:
        """Return the next frames without their size prefix; none if the other side closed.

        Raises StreamClosed, and `protocol.errors.ProtocolError` for an invalid size.
        """
        ...

    def close(self) -> None:
        """Close at once; a waiting `receive` returns none or raises StreamClosed. May be called again."""
        ...


class Runtime(Protocol):
    """The world of one client."""

    def now_ms(self) -> int:
        """A monotonic clock."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since the epoch, for record timestamps only."""
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
        """Fresh, unpredictable, printable ASCII without commas, at least 128 bits."""
        ...

    async def run_callback(self, function: Callable[[], Any]) -> Any:
        """The result of the application's function, which may block, or be a coroutine function."""
        ...

    def random(self) -> float:
        """Uniform in [0, 1)."""
        ...
