"""A connection to a broker: version negotiation, pipelined requests, correlation check, request timeouts.

A broker sends its responses in the order of the requests. A response with another correlation id, or bytes that cannot
be decoded, close the connection. A request without a response in time also closes it, because all later requests wait
behind it. Requests are held back, in their order, while the broker throttles the client (KIP-219) and during
re-authentication (KIP-368).
"""

from __future__ import annotations

import logging
import struct
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from fencepost import __version__
from fencepost.arguments import address_text
from fencepost.client.metrics import NodeTraffic
from fencepost.client.net import releases
from fencepost.client.net.runtime import Event, Runtime, Stream, StreamClosed, StreamRefused, TaskHandle
from fencepost.client.net.tasks import within
from fencepost.client.net.topology import Address, through
from fencepost.config import CommonConfig
from fencepost.errors import (
    AuthenticationError,
    DisconnectedError,
    FatalError,
    KafkaError,
    KafkaTimeoutError,
    ProtocolError,
    UnsupportedVersionError,
    without_traceback,
)
from fencepost.protocol import codec, frame
from fencepost.protocol.codes import ErrorCode as E
from fencepost.protocol.cursor import Buffer
from fencepost.protocol.errors import WireError
from fencepost.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from fencepost.protocol.messages.index import APIS
from fencepost.values import MutableValue

if TYPE_CHECKING:
    from fencepost.client.net.sasl_login import ClientLogin

log = logging.getLogger("fencepost.client")

API_VERSIONS: Final = 18
_NEWEST_API_VERSIONS: Final = 4
"""v5 can name the expected cluster and node (KIP-1242). This client does not use it."""
SILENCE_MS: Final = 10_000
"""Time without a response after which to find out if the node is still there.

A cluster of Apache Kafka removes a node that hangs after `broker.session.timeout.ms`, 9 s by default.
"""
SOFTWARE_NAME: Final = "fencepost"
# Part of a session's lifetime after which to authenticate again, as in Kafka's own clients.
SESSION_PART: Final = (0.85, 0.95)


class _Pending(MutableValue, kw_only=False):
    """A request that waits for its response or, if not `sent`, for being written."""

    correlation_id: int
    api_key: int
    version: int
    arrived: Event
    begun_ms: int
    sent: bool = True
    body: memoryview | None = None
    error: Exception | None = None


def login_of(config: CommonConfig) -> ClientLogin | None:
    """Return the client's identity; None without SASL."""
    if not config.security_protocol.startswith("SASL_"):
        return None
    from fencepost.client.net.sasl_login import ClientLogin  # only clients that log in load it

    return ClientLogin.of(config)


class BrokerConnection:
    """A negotiated connection, created by `BrokerConnection.connect`."""

    def __init__(
        self, runtime: Runtime, stream: Stream, config: CommonConfig, login: ClientLogin | None, host: str, port: int
    ) -> None:
        self.host = host
        self.address: Address = (host, port)
        self.name = address_text(host, port)
        self.features: dict[str, int] = {}
        self.features_epoch = -1
        self.versions: Mapping[int, tuple[int, int]] = {}
        self.in_flight = 0
        self.traffic = NodeTraffic()
        self.used_ms = runtime.now_ms()  # time at which the last exchange ended
        self.throttled_until_ms = 0  # the broker's quota allows no request before this time
        self.throttle_ms = 0  # the last throttle time
        self._runtime = runtime
        self._stream = stream
        self._config = config
        self._login = login
        self._pending: deque[_Pending] = deque()
        self._next_correlation_id = 0
        self._closed: Exception | None = None
        self._held: list[tuple[_Pending | None, list[Buffer]]] | None = None
        self._logging_in = False
        self.on_silence: Callable[[BrokerConnection], object] | None = None
        """Called again and again while a request has no response for SILENCE_MS."""
        self._answers = 0  # number of responses; if few arrived before the end, the listener is probably a wrong one
        self._timers: dict[str, TaskHandle] = {}
        self._reader = runtime.spawn(self._read())

    @classmethod
    async def connect(
        cls, runtime: Runtime, host: str, port: int, config: CommonConfig, login: ClientLogin | None = None
    ) -> BrokerConnection:
        """Connect, negotiate versions and authenticate. With `login` None there is no authentication.

        Raises DisconnectedError, KafkaTimeoutError, UnsupportedVersionError, ProtocolError, AuthenticationError.
        """
        name = address_text(host, port)
        try:
            stream = await within(
                runtime,
                runtime.open(host, port, config.max_response_bytes),
                config.socket_connection_setup_timeout_ms,
                f"connect to {name}{through(config.proxy_url)}",
                limit="socket_connection_setup_timeout_ms",
            )
        except StreamClosed as error:
            if isinstance(error, StreamRefused):
                raise AuthenticationError(str(error)) from error
            raise DisconnectedError(f"cannot connect to {error}") from error
        connection = cls(runtime, stream, config, login, host, port)
        negotiated = False
        try:
            await connection._negotiate()
            await connection._log_in()
            negotiated = True
        except (DisconnectedError, KafkaTimeoutError) as error:
            if not isinstance(connection._closed, FatalError):
                error.outcome_unknown = False  # the request of the caller is not sent
                if isinstance(error, DisconnectedError):
                    error.sent = False
                raise
        finally:
            if not negotiated:
                connection.close()
        if not negotiated and connection._closed is not None:
            raise without_traceback(connection._closed)  # the reason itself, which is the cause of the other error
        return connection

    @property
    def unanswered(self) -> int:
        """Number of requests without a response, also of callers that no longer wait.

        A broker answers the requests of a connection in order, so each of them delays the next one.
        """
        return len(self._pending) + len(self._held or ())

    @property
    def is_silent(self) -> bool:
        """True if a request has had no response for SILENCE_MS."""
        return bool(self._pending) and self._runtime.now_ms() - self._pending[0].begun_ms >= SILENCE_MS

    @property
    def closed(self) -> bool:
        return self._closed is not None

    @property
    def ended(self) -> Exception | None:
        """The reason why the connection was closed, or None while it is open."""
        return self._closed

    def close(self, reason: Exception | None = None) -> None:
        """Close the connection. Requests in flight fail with DisconnectedError, and their outcome is unknown."""
        if self._closed is not None:
            return
        self._closed = reason or DisconnectedError(f"the connection to {self.name} was closed")
        self._stream.close()
        self._reader.cancel()
        for timer in self._timers.values():
            timer.cancel()
        held, self._held = self._held, None
        pending, self._pending = self._pending, deque()
        for request in [*pending, *(waiting for waiting, _ in held or () if waiting is not None)]:
            request.error = self._closed
            request.arrived.set()

    def version(self, api_key: int, lowest: int, highest: int) -> int:
        """Return the highest version of the API within [lowest, highest] that both sides support.

        Raises UnsupportedVersionError if there is none.
        """
        offered = self.versions.get(api_key)
        if offered is None:
            raise self._lacks(f"does not offer {api_name(api_key)}", api_key, lowest)
        version = min(offered[1], highest)
        if version < max(offered[0], lowest):
            words = f"offers {api_name(api_key)} in {offered[0]}-{offered[1]}, needed are {lowest}-{highest}"
            raise self._lacks(words, api_key, lowest)
        return version

    def offers(self, api_key: int, version: int) -> bool:
        """Return true if the broker supports this version of the API."""
        lowest, highest = self.versions.get(api_key, (0, -1))
        return lowest <= version <= highest

    def _lacks(self, words: str, api_key: int, lowest: int) -> UnsupportedVersionError:
        is_older = self.versions.get(api_key, (0, -1))[1] < lowest
        seems, needed = releases.like(self.versions), releases.needed(api_key, lowest) if is_older else ""
        who = f"{self.name} (like Apache Kafka {seems})" if seems else self.name
        since = f"; Apache Kafka has it since {needed}" if needed else ""
        return UnsupportedVersionError(f"{who} {words}{since}", code=E.UNSUPPORTED_VERSION)

    async def request(
        self, message: codec.Message, version: int, *, timeout_ms: float, server_ms: float = 0, ahead: bool = False
    ) -> Any:
        """Send a control-plane request and decode its response. See `exchange` for times and errors."""
        body = codec.encode_request(message, version)
        reply = await self.exchange(
            message.API_KEY, version, [body], timeout_ms=timeout_ms, server_ms=server_ms, ahead=ahead
        )
        try:
            answer = codec.decode_response(message.API_KEY, version, reply)
        except WireError as error:
            raise self._broken(f"cannot decode the reply to {api_name(message.API_KEY)} v{version}", error) from error
        self.throttle(getattr(answer, "throttle_time_ms", 0))
        return answer

    async def exchange(
        self,
        api_key: int,
        version: int,
        body: Sequence[Buffer],
        *,
        timeout_ms: float,
        server_ms: float = 0,
        answered: bool = True,
        awaited: bool = True,
        ahead: bool = False,
        limit: str = "that the call had left",
    ) -> memoryview:
        """Send a request body and return the body of the response.

        Args:
            api_key: The API.
            version: The version of the request.
            body: The encoded request without header.
            timeout_ms: Maximum wait in ms; 0 or less: only send, as `close(timeout_ms=0)` does to leave the group.
            server_ms: Time in ms for which the broker may hold the request (long poll, join). It extends the request
                timeout, after which the connection is closed.
            answered: False if the broker sends no response (acks=0). The result is then empty.
            awaited: False to return without the response, which is dropped when it comes. The result is then empty.
            ahead: Do not hold the request back. Used for authentication.
            limit: The origin of `timeout_ms`, for the message of the error.

        Raises:
            KafkaTimeoutError: No response within `timeout_ms`.
            DisconnectedError: The connection is closed. `sent` is true if the request may have been written.
            AuthenticationError: The other side refused TLS.
        """
        if self._closed is not None:
            raise DisconnectedError(f"the connection to {self.name} is closed") from self._closed
        self._next_correlation_id = (self._next_correlation_id + 1) & 0x7FFFFFFF
        begun_ms = self._runtime.now_ms()
        pending = _Pending(self._next_correlation_id, api_key, version, self._runtime.event(), begun_ms)
        head = frame.encode_request_frame(api_key, version, pending.correlation_id, self._config.client_id, b"")
        size = len(head) - 4 + sum(map(len, body))
        buffers = [struct.pack(">i", size) + head[4:], *body]
        self.in_flight += 1
        self.traffic.requested(size + 4)
        if log.isEnabledFor(logging.DEBUG):
            log.debug("%s: %s v%d, request %d", self.name, api_name(api_key), version, pending.correlation_id)
        try:
            # No suspension may occur between the choice of the correlation id and the send: responses come in this
            # order.
            if self._held is not None and not ahead:
                pending.sent = False
                self._held.append((pending if answered else None, buffers))
                server_ms += max(0, self.throttled_until_ms - self._runtime.now_ms())
            else:
                if answered:
                    self._pending.append(pending)
                await self._stream.send(buffers)
            if not (answered and awaited):
                return memoryview(b"")
            reply = await self._reply(pending, timeout_ms, server_ms, limit)
        except StreamRefused as error:
            refused = AuthenticationError(f"{self.name}: {error}")
            self.close(refused)
            raise refused from error
        except StreamClosed as error:
            self.close(DisconnectedError(f"{self.name}: {error}", sent=True))
            raise DisconnectedError(f"{self.name}: {error}", sent=True) from error
        finally:
            self.in_flight -= 1
            self.used_ms = self._runtime.now_ms()
        self.traffic.answered(self.used_ms - begun_ms, len(reply))
        return reply

    async def _reply(self, pending: _Pending, timeout_ms: float, server_ms: float, limit: str) -> memoryview:
        of_requests_ms = self._config.request_timeout_ms
        if not await self._arrives(pending, min(timeout_ms, of_requests_ms + server_ms)):
            name = api_name(pending.api_key)
            words = f"{self.name} did not answer {name}"
            if timeout_ms <= 0:
                sent = f"{name} was sent to {self.name}, and no time was left to wait for the response"
                raise KafkaTimeoutError(sent, outcome_unknown=True)
            if of_requests_ms + server_ms > timeout_ms:
                raise KafkaTimeoutError(f"{words} in the {timeout_ms:.0f} ms {limit}", outcome_unknown=True)
            held = f" and the {server_ms:.0f} ms for which it may hold the request" if server_ms else ""
            silent = f"{words} within request_timeout_ms={of_requests_ms}{held}"
            self.close(DisconnectedError(silent, sent=True))
            raise DisconnectedError(silent, sent=True)
        if pending.error is not None:
            raise DisconnectedError(str(pending.error), sent=pending.sent) from pending.error
        if pending.body is None:
            raise ProtocolError(f"{self.name}: a reply without a body")
        return pending.body

    async def _arrives(self, pending: _Pending, within_ms: float) -> bool:
        """Wait until the request has a response or an error. Return false if that takes too long."""
        end_ms = self._runtime.now_ms() + within_ms
        while not await pending.arrived.wait(min(SILENCE_MS, end_ms - self._runtime.now_ms())):
            if self._runtime.now_ms() >= end_ms:
                return False
            if self.on_silence is not None:
                self.on_silence(self)
        return True

    async def _read(self) -> None:
        try:
            while replies := await self._stream.receive():
                for reply in replies:
                    self._arrived(reply)
            self.close(DisconnectedError(f"{self.name} closed the connection{self._hint()}", sent=True))
        except StreamRefused as error:
            self.close(AuthenticationError(f"{self.name}: {error}"))
        except StreamClosed as error:
            self.close(DisconnectedError(f"{self.name}: {error}{self._hint()}", sent=True))
        except Exception as error:  # noqa: BLE001 (after any end of the reader, waiting requests must fail)
            self._broken("cannot read a reply", error)

    def _arrived(self, reply: memoryview) -> None:
        if not self._pending:
            raise WireError("a reply came that nothing was asked for")
        pending = self._pending[0]
        correlation_id, body_at = frame.decode_response_header(pending.api_key, pending.version, reply)
        if correlation_id != pending.correlation_id:
            raise WireError(f"reply {correlation_id} came where {pending.correlation_id} was due")
        self._pending.popleft()
        self._answers += 1
        pending.body = reply[body_at:].toreadonly()
        pending.arrived.set()

    def _broken(self, operation: str, error: Exception) -> ProtocolError:
        if not isinstance(error, WireError):
            log.error("%s: %s", self.name, operation, exc_info=error)  # a defect of this client
        broken = ProtocolError(f"{self.name}: {operation}: {error}")
        self.close(broken)
        return broken

    def _hint(self) -> str:
        """Return a hint at the likely cause of a connection that ended at once."""
        is_encrypted = self._config.security_protocol.endswith("SSL")
        if self._answers == 0:
            if is_encrypted:
                return " before it answered anything; is it Kafka?"
            return " before it answered anything; is it a TLS listener, or no Kafka (security_protocol)?"
        if self._answers <= 2 and self._login is None:
            needed = "SASL_SSL" if is_encrypted else "SASL_SSL or SASL_PLAINTEXT"
            cause = "if this happens each time, the listener requires SASL"
            return f" after ApiVersions; {cause} (security_protocol={needed})"
        return ""

    # --- holding back ---

    def throttle(self, ms: int) -> None:
        """Hold requests back for `ms`, because of the broker's quota (KIP-219)."""
        if ms > 0 and self._closed is None:
            self.throttle_ms = ms
            self.throttled_until_ms = max(self.throttled_until_ms, self._runtime.now_ms() + ms)
            self._hold("throttled", self._wait_for_quota())

    def _hold(self, reason: str, until: Coroutine[Any, Any, None]) -> None:
        """Hold requests back while `until` runs."""
        if self._held is None:
            self._held = []
        running = self._timers.get(reason)
        if running is not None and not running.done():
            until.close()  # the running one reads the new time itself
            return
        self._timers[reason] = self._runtime.spawn(until)

    async def _wait_for_quota(self) -> None:
        while (left := self.throttled_until_ms - self._runtime.now_ms()) > 0:
            await self._runtime.sleep_ms(left)
        await self._release()

    async def _release(self) -> None:
        if self._logging_in or self.throttled_until_ms > self._runtime.now_ms() or self._held is None:
            return
        held, self._held = self._held, None
        together: list[Buffer] = []
        for pending, buffers in held:
            if pending is not None:
                pending.sent = True
                self._pending.append(pending)
            together += buffers
        try:
            if together:
                await self._stream.send(together)
        except StreamClosed as error:
            self.close(DisconnectedError(f"{self.name}: {error}", sent=True))

    # --- SASL ---

    async def _log_in(self) -> None:
        login = self._login
        if login is None:
            return
        from fencepost.client.net.sasl_login import log_in  # loaded with `login`

        lifetime_ms = await log_in(self, login, self._runtime, self._config.request_timeout_ms)
        if lifetime_ms > 0:
            first, last = SESSION_PART
            after_ms = lifetime_ms * (first + (last - first) * self._runtime.random())
            self._timers["session"] = self._runtime.spawn(self._log_in_again(after_ms))

    async def _log_in_again(self, after_ms: float) -> None:
        await self._runtime.sleep_ms(after_ms)
        self._logging_in = True
        if self._held is None:
            self._held = []
        try:
            await self._log_in()
        except KafkaError as error:
            self.close(error)
            return
        self._logging_in = False
        await self._release()

    async def _negotiate(self) -> None:
        """Request the broker's versions.

        To an unknown version it responds in v0, with error 35 and its supported range.
        """
        version = _NEWEST_API_VERSIONS
        reply = await self._ask_versions(version)
        if reply.error_code == E.UNSUPPORTED_VERSION and version > 0:
            offered = {key.api_key: key.max_version for key in reply.api_keys}.get(API_VERSIONS, 0)
            version = min(offered, version - 1)
            reply = await self._ask_versions(version)
        if reply.error_code != 0:
            raise UnsupportedVersionError(f"{self.name} refused ApiVersions v{version}", code=reply.error_code)
        self.versions = {key.api_key: (key.min_version, key.max_version) for key in reply.api_keys}
        self.features = {feature.name: feature.max_version_level for feature in reply.finalized_features}
        self.features_epoch = reply.finalized_features_epoch

    async def _ask_versions(self, version: int) -> ApiVersionsResponse:
        message = ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version=__version__)
        # A stopped broker process still accepts connections, but does not respond. A short timeout leaves time for
        # others.
        timeout_ms = min(self._config.request_timeout_ms, self._config.socket_connection_setup_timeout_ms)
        body = await self.exchange(
            API_VERSIONS,
            version,
            [codec.encode_request(message, version)],
            timeout_ms=timeout_ms,
            limit="of socket_connection_setup_timeout_ms",
        )
        refused = len(body) >= 2 and struct.unpack_from(">h", body)[0] == E.UNSUPPORTED_VERSION
        try:
            reply = codec.decode_response(API_VERSIONS, 0 if refused else version, body)
        except WireError as error:
            raise self._broken(f"cannot decode the reply to ApiVersions v{version}", error) from error
        if not isinstance(reply, ApiVersionsResponse):
            raise self._broken("ApiVersions", TypeError(type(reply).__name__))
        return reply


def api_name(api_key: int) -> str:
    """Return Kafka's name of an API."""
    schema = APIS.get(api_key)
    return f"API {api_key}" if schema is None else schema.name.title().replace("_", "")
