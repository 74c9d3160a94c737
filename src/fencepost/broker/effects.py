"""What the broker's core asks its shell to do.

The core itself does no I/O but through the files that were handed to it.
"""

from __future__ import annotations

from collections.abc import Sequence

from fencepost.broker.disk.changes import Write
from fencepost.broker.disk.files import Sync
from fencepost.broker.metrics.fence import WorkFailed
from fencepost.values import Value

__all__ = ["Close", "Effect", "Failed", "GoOn", "Reply"]


class Reply(Value):
    """Send these buffers, in this order, on the connection.

    Together they are one whole frame, length prefix included.
    """

    connection_id: int
    buffers: Sequence[bytes | bytearray | memoryview]


class GoOn(Value):
    """A request that has no answer is done: what waits behind it may be handled. (A `Reply` says the same.)"""

    connection_id: int


class Close(Value):
    """Send what is still to be sent on the connection, then close it; with `reset`, close it at once."""

    connection_id: int
    reset: bool = False


class Failed(Value):
    """A request raised what it must not. Tell of it and close its connection; the others' requests are served on."""

    connection_id: int
    error: Exception


Effect = Reply | GoOn | Close | Failed | WorkFailed | Sync | Write
