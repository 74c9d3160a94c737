"""A client's connection in the core: requests are handled on arrival, and answers leave in the order of requests."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from fencepost.broker.disk.changes import Change
from fencepost.broker.effects import Effect, Reply
from fencepost.broker.parts import BrokerParts
from fencepost.broker.security.rights import ANONYMOUS

if TYPE_CHECKING:
    from fencepost.broker.faults.table import RequestFault
    from fencepost.broker.security.acls import Operation, ResourceType
    from fencepost.broker.security.listeners import Listener
    from fencepost.broker.security.login import Login
    from fencepost.broker.timing.timers import Timer

__all__ = ["Buffers", "Call", "Connection", "Core"]

Buffers = Sequence[bytes | bytearray | memoryview]


class Connection:
    """One connection. `local` and `peer` are (host, port) of the socket.

    `login`: the state of its authentication; None if the listener requires none.
    """

    __slots__ = (
        "_holds",
        "answered_bytes",
        "calls",
        "client_id",
        "closed",
        "connection_id",
        "held",
        "host",
        "listener",
        "local",
        "login",
        "peer",
        "principal",
        "software_name",
        "software_version",
        "unanswered_bytes",
    )

    def __init__(
        self,
        connection_id: int,
        local: tuple[str, int],
        peer: tuple[str, int],
        listener: Listener,
        login: Login | None = None,
        principal: str = ANONYMOUS,
    ) -> None:
        self.connection_id = connection_id
        self.listener = listener
        self.login = login
        self.principal = principal
        host, _, _ = peer[0].partition("%")
        self.host = host.removeprefix("::ffff:") if "." in host else host
        """The client's address in the form of ACLs: without a zone, and IPv4 without the prefix ::ffff:."""
        self.local = local
        self.peer = peer
        self.software_name = ""
        self.software_version = ""
        self.client_id = ""
        self.held: deque[memoryview] | None = None
        """Frames that wait for a delayed request; None if there is none."""
        self._holds = 0
        self.closed = False
        self.calls: deque[Call] = deque()
        self.answered_bytes = 0
        """Bytes of all answers so far, including those that wait for earlier ones."""
        self.unanswered_bytes = 0
        """Bytes of the requests in `calls`."""

    def __repr__(self) -> str:
        return f"{self.connection_id} from {self.peer[0]}:{self.peer[1]}"

    def hold(self, *first: memoryview) -> None:
        """Hold back these frames and all later ones, until `release` was called as often as this method."""
        self._holds += 1
        if self.held is None:
            self.held = deque()
        self.held.extend(first)

    def release(self) -> deque[memoryview]:
        """End one hold. After the last one, return the held frames, and let later ones be handled at once.

        Returns no frame while another hold is active.
        """
        self._holds -= 1
        if self._holds:
            return deque()
        held, self.held = self.held or deque(), None
        return held

    def enter(self, call: Call) -> None:
        """Add a request that will be answered."""
        self.calls.append(call)
        self.unanswered_bytes += call.size

    def count_answer(self, answer: Buffers | None) -> int:
        """Count the bytes of an encoded answer, and return their number. None was encoded and counted before."""
        size = sum(map(len, answer or ()))
        self.answered_bytes += size
        return size

    def flush(self, effects: list[Effect]) -> None:
        """Turn the answers at the head of the queue into effects."""
        calls = self.calls
        while calls and calls[0].answer is not None:
            call = calls.popleft()
            self.unanswered_bytes -= call.size
            effects.append(Reply(self.connection_id, call.answer or ()))


class Core(BrokerParts, ABC):
    """The interface of the broker for its requests: its parts, and the ways to answer.

    `arrived_ms`: time on the steady clock at which the present request had arrived.
    """

    arrived_ms: int

    @abstractmethod
    def answer(self, call: Call, response: Any) -> None:
        """Encode the response of a call, and send it after the answers of earlier requests."""

    @abstractmethod
    def began(
        self, connection: Connection, api_key: int, version: int, client_id: str, size: int, times: int = 1
    ) -> None:
        """Count a request that is being handled, or several alike, of `size` bytes together."""

    @abstractmethod
    def deliver(self, call: Call, answer: Buffers) -> None:
        """Send the encoded response of a call, after the answers of earlier requests."""

    @abstractmethod
    def answer_at_once(self, connection: Connection, api_key: int, *frames: bytes) -> None:
        """Send the responses of the present requests, which have no `Call`.

        The connection has no unanswered `Call`.
        """

    @abstractmethod
    def flush(self, connection: Connection) -> None:
        """Send the answers for which no earlier request waits."""

    @abstractmethod
    def complete_unanswered(self, call: Call) -> None:
        """Complete a request that has no answer."""

    @abstractmethod
    def address(self, connection: Connection) -> tuple[str, int]:
        """Return the advertised address for the client of this connection."""

    @abstractmethod
    def release(self, connection: Connection, *, spared: bool = False) -> None:
        """Handle the frames that were held back. `spared`: no fault rule applies to the first one."""

    @abstractmethod
    def drop(self, now_ms: int, connection: Connection) -> None:
        """Close a connection, because no response can tell its client about an error."""

    @abstractmethod
    def reset(self, connection: Connection) -> None:
        """Close a connection at once, and drop its unsent answers."""

    @abstractmethod
    def storage_failed(self, now_ms: int, call: Call, request: Any, error: OSError) -> None:
        """Handle an error of the disk: answer with an error, or close the connection if no response can have one."""

    @abstractmethod
    def login_failed(self, connection: Connection, reason: str) -> None:
        """Log and count a failed login."""

    @abstractmethod
    def request_failed(self, connection: Connection, error: Exception) -> None:
        """Close the connection of a request that raised an unexpected exception, at once or after it had waited."""


class Call:
    """One request in progress. Its handler returns the response, or returns None and calls `reply` later."""

    __slots__ = (
        "answer",
        "api_key",
        "began_ms",
        "client_id",
        "connection",
        "core",
        "correlation_id",
        "fault",
        "finish",
        "on_closed",
        "size",
        "version",
    )

    def __init__(
        self,
        core: Core,
        connection: Connection,
        api_key: int,
        version: int,
        correlation_id: int,
        client_id: str | None,
        size: int,
    ) -> None:
        """Begin a request of `size` bytes."""
        self.size = size
        self.core = core
        self.began_ms = core.arrived_ms
        self.connection = connection
        self.api_key = api_key
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id or ""
        self.answer: Buffers | None = None
        self.on_closed: Callable[[], None] | None = None
        self.fault: RequestFault | None = None
        self.finish: Callable[[Any], Any] | None = None
        """A function that changes the handler's response before it is sent."""

    def reply(self, response: Any) -> None:
        """Answer the request. If its connection is closed, the answer is dropped."""
        self._do(None, self.core.answer, self, response)

    def resume(self, request: object, action: Callable[[int], object], now_ms: int) -> None:
        """Call `action(now_ms)`, for which the request has waited, unless its client has disconnected.

        An exception of the action fails only this request, and never reaches the caller, which has other work to do.
        """
        self._do(request, action, now_ms)

    def _do(self, request: object, action: Callable[..., object], *about: object) -> None:
        if self.connection.closed:
            return
        try:
            try:
                action(*about)
            except OSError as error:
                self.core.storage_failed(self.core.now.ms, self, request, error)
        except Exception as error:  # noqa: BLE001 - any failure is reported
            self.core.request_failed(self.connection, error)

    def change(self, request: object, change: Change[Any]) -> None:
        """Carry out a change of small files, and answer with its result. No answer is sent for the result None.

        Later requests of this connection wait for the change. Requests of other connections do not.
        """
        core, connection = self.core, self.connection
        is_waiting = False
        early: list[Callable[[], Any]] = []

        def answer(response: Any) -> None:
            if response is not None:
                core.answer(self, response)

        def done(result: Callable[[], Any]) -> None:
            if not is_waiting:
                early.append(result)
            elif connection.closed:
                _log_failure(self, request, result)
            else:
                self.resume(request, lambda _: answer(result()), core.now.ms)
                if not connection.closed:
                    core.release(connection)

        core.changes.begin(change, done)
        if early:
            answer(early[0]())
        else:
            is_waiting = True
            connection.hold()

    def reply_when_durable(self, now_ms: int, response: Any) -> None:
        """Answer when all records that were appended before this call are durable."""
        self.core.durability.when_durable(now_ms, lambda _: self.reply(response))

    def after(self, wait_ms: int, action: Callable[[int], object]) -> Timer:
        """Call `action(now_ms)` after the client has waited for `wait_ms`."""
        return self.core.after(wait_ms, lambda: self.resume(None, action, self.core.now.ms))

    def reply_and_close(self, response: Any) -> None:
        """Answer a failed login after a delay that slows down password guessing, then close the connection."""

        def send(now_ms: int) -> None:
            self.reply(response)
            self.core.drop(now_ms, self.connection)

        self.after(self.core.config.number("connection.failed.authentication.delay.ms"), send)

    def may(self, operation: Operation, resource_type: ResourceType, name: str, *, quiet: bool = False) -> bool:
        """Return true if the client has the right. A refusal is logged unless `quiet`."""
        return self.core.rights.may(self.connection, operation, resource_type, name, quiet=quiet)

    def operations(self, resource_type: ResourceType, name: str) -> int:
        """Return the client's permitted operations on the resource as bits."""
        return self.core.rights.operations(self.connection, resource_type, name)

    def no_reply(self) -> None:
        """Complete a request without an answer (Produce with acks=0)."""
        if not self.connection.closed:
            self.connection.calls.remove(self)
            self.connection.unanswered_bytes -= self.size
            self.core.complete_unanswered(self)


def _log_failure(call: Call, request: object, result: Callable[[], Any]) -> None:
    """Log the failure of a change whose client has disconnected."""
    try:
        result()
    except OSError as error:
        call.core.storage_failed(call.core.now.ms, call, request, error)
