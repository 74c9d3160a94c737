"""A client's connection as the core sees it: requests are handled as they come, answers leave in the order of the
requests."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from fencepost.broker.effects import Effect, Reply

if TYPE_CHECKING:
    from fencepost.broker.core import BrokerCore
    from fencepost.broker.faults import RequestFault

__all__ = ["Call", "Connection"]

Buffers = Sequence[bytes | bytearray | memoryview]


class Connection:
    """One connection. `local` and `peer` are (host, port) as the socket tells them."""

    __slots__ = (
        "calls",
        "client_id",
        "closed",
        "connection_id",
        "held",
        "local",
        "peer",
        "software_name",
        "software_version",
    )

    def __init__(self, connection_id: int, local: tuple[str, int], peer: tuple[str, int]) -> None:
        self.connection_id = connection_id
        self.local = local
        self.peer = peer
        self.software_name = ""
        self.software_version = ""
        self.client_id = ""
        self.held: deque[memoryview] | None = None
        """Frames that wait behind one that is to be handled late; None where none is."""
        self.closed = False
        self.calls: deque[Call] = deque()

    def __repr__(self) -> str:
        return f"{self.connection_id} from {self.peer[0]}:{self.peer[1]}"

    def release(self) -> deque[memoryview]:
        """The frames that were held back; what comes now is handled at once."""
        held, self.held = self.held or deque(), None
        return held

    def flush(self, effects: list[Effect]) -> None:
        """Turn the answers at the head of the queue into effects."""
        calls = self.calls
        while calls and calls[0].answer is not None:
            effects.append(Reply(self.connection_id, calls.popleft().answer or ()))


class Call:
    """One request that is being handled. A handler returns its response, or returns None and calls `reply` later."""

    __slots__ = (
        "answer",
        "api_key",
        "client_id",
        "connection",
        "core",
        "correlation_id",
        "fault",
        "on_closed",
        "version",
    )

    def __init__(
        self,
        core: BrokerCore,
        connection: Connection,
        api_key: int,
        version: int,
        correlation_id: int,
        client_id: str | None,
    ) -> None:
        self.core = core
        self.connection = connection
        self.api_key = api_key
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id or ""
        self.answer: Buffers | None = None
        self.on_closed: Callable[[], None] | None = None
        self.fault: RequestFault | None = None

    def reply(self, response: Any) -> None:
        """Answer the request. An answer to a connection that is gone is dropped."""
        if not self.connection.closed:
            self.core.answer(self, response)

    def reply_when_durable(self, now_ms: int, response: Any) -> None:
        """Answer once all that has been appended so far is durable."""
        self.core.durability.when_durable(now_ms, lambda _: self.reply(response))

    def no_reply(self) -> None:
        """The request has no answer (Produce with acks=0)."""
        if not self.connection.closed:
            self.connection.calls.remove(self)
            self.core.flush(self.connection)
