"""Effects that the broker's core requests from the code around it.

The core does no I/O except through the files that it was given.
"""

from __future__ import annotations

from collections.abc import Sequence

from fencepost.broker.disk.changes import Write
from fencepost.broker.disk.files import Sync
from fencepost.broker.metrics.failure_guard import WorkFailed
from fencepost.values import Value

__all__ = ["Close", "Effect", "Failed", "HandleNext", "Reply"]


class Reply(Value):
    """Send these buffers, in this order, on the connection.

    Together they are one complete frame with its length prefix.
    """

    connection_id: int
    buffers: Sequence[bytes | bytearray | memoryview]


class HandleNext(Value):
    """Handle the requests that wait for a request without a response, which is complete. A `Reply` implies this."""

    connection_id: int


class Close(Value):
    """Close the connection after sending pending data; with `reset` at once."""

    connection_id: int
    reset: bool = False


class Failed(Value):
    """Log an unexpected exception of a request and close its connection. Other requests continue."""

    connection_id: int
    error: Exception


Effect = Reply | HandleNext | Close | Failed | WorkFailed | Sync | Write
