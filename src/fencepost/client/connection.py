"""One connection to one broker: version negotiation, pipelined requests, correlation check, request timeouts.

Replies come in the order of the requests (Kafka's guarantee); a reply with another correlation id, or bytes that cannot
be decoded, close the connection. A request that is not answered in time closes it too: everything behind it is stuck.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from fencepost.client.runtime import Buffer, Event, Runtime, Stream, StreamClosed
from fencepost.client.tasks import within
from fencepost.errors import DisconnectedError, KafkaTimeoutError, ProtocolError, UnsupportedVersionError
from fencepost.protocol import codec, frame
from fencepost.protocol.errors import ProtocolError as WireError
from fencepost.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

API_VERSIONS: Final = 18
UNSUPPORTED_VERSION: Final = 35
SOFTWARE_NAME: Final = "fencepost"


@dataclass(frozen=True, slots=True)
class ConnectionConfig:
    """Settings of one connection; times in milliseconds."""

    client_id: str = "fencepost"
    software_version: str = "0"
    connect_timeout_ms: int = 10_000
    request_timeout_ms: int = 30_000
    max_response_bytes: int = 256 * 1024 * 1024


@dataclass(slots=True)
class _Pending:
    """A request that was written and waits for its reply."""

    correlation_id: int
    api_key: int
    version: int
    arrived: Event
    body: memoryview | None = None
    error: Exception | None = None


class Connection:
    """A negotiated connection. Make one with `Connection.connect`."""

    def __init__(self, runtime: Runtime, stream: Stream, config: ConnectionConfig, name: str) -> None:
        self.name = name
        self.features: dict[str, int] = {}
        self.features_epoch = -1
        self.versions: Mapping[int, tuple[int, int]] = {}
        self.in_flight = 0
        self._runtime = runtime
        self._stream = stream
        self._config = config
        self._pending: deque[_Pending] = deque()
        self._next_correlation_id = 0
        self._closed: Exception | None = None
        self._reader = runtime.spawn(self._read())

    @classmethod
    async def connect(cls, runtime: Runtime, host: str, port: int, config: ConnectionConfig) -> Connection:
        """Open and negotiate. Raises DisconnectedError, KafkaTimeoutError, UnsupportedVersionError, ProtocolError."""
        name = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            stream = await within(runtime, runtime.open(host, port), config.connect_timeout_ms, f"connect to {name}")
        except StreamClosed as error:
            raise DisconnectedError(f"cannot connect to {error}") from error
        connection = cls(runtime, stream, config, name)
        negotiated = False
        try:
            await connection._negotiate()
            negotiated = True
        finally:
            if not negotiated:
                connection.close()
        return connection

    @property
    def closed(self) -> bool:
        return self._closed is not None

    def close(self, reason: Exception | None = None) -> None:
        """Close; requests in flight fail with DisconnectedError (outcome unknown)."""
        if self._closed is not None:
            return
        self._closed = reason or DisconnectedError(f"the connection to {self.name} was closed")
        self._stream.close()
        self._reader.cancel()
        pending, self._pending = self._pending, deque()
        for request in pending:
            request.error = self._closed
            request.arrived.set()

    def version(self, api_key: int, lowest: int, highest: int) -> int:
        """The highest version of the API within [lowest, highest] that both sides speak.

        Raises UnsupportedVersionError when there is none.
        """
        offered = self.versions.get(api_key)
        if offered is None:
            raise UnsupportedVersionError(f"{self.name} does not offer API {api_key}", code=UNSUPPORTED_VERSION)
        version = min(offered[1], highest)
        if version < max(offered[0], lowest):
            raise UnsupportedVersionError(
                f"{self.name} offers API {api_key} in {offered[0]}-{offered[1]}, needed are {lowest}-{highest}",
                code=UNSUPPORTED_VERSION,
            )
        return version

    async def request(self, message: codec.Message, version: int, *, timeout_ms: float, server_ms: float = 0) -> Any:
        """Send a control-plane request and decode its reply. See `exchange` for times and errors."""
        body = codec.encode_request(message, version)
        reply = await self.exchange(message.API_KEY, version, [body], timeout_ms=timeout_ms, server_ms=server_ms)
        try:
            return codec.decode_response(message.API_KEY, version, reply)
        except WireError as error:
            raise self._broken(f"cannot decode the reply to API {message.API_KEY} v{version}", error) from error

    async def exchange(
        self,
        api_key: int,
        version: int,
        body: Sequence[Buffer],
        *,
        timeout_ms: float,
        server_ms: float = 0,
        answered: bool = True,
    ) -> memoryview:
        """Send a request body; return the body of the reply (empty when `answered` is False: acks=0).

        `timeout_ms` is the caller's patience: after it KafkaTimeoutError, the connection lives. `server_ms` is how
        long the broker may hold the request by design (long poll, join) beyond the connection's request timeout, after
        which the connection is closed. Raises DisconnectedError; `sent` says whether the request had been written.
        """
        if self._closed is not None:
            raise DisconnectedError(f"the connection to {self.name} is closed") from self._closed
        self._next_correlation_id = (self._next_correlation_id + 1) & 0x7FFFFFFF
        pending = _Pending(self._next_correlation_id, api_key, version, self._runtime.event())
        head = frame.encode_request_frame(api_key, version, pending.correlation_id, self._config.client_id, b"")
        size = len(head) - 4 + sum(map(len, body))
        if answered:
            self._pending.append(pending)
        self.in_flight += 1
        try:
            # Nothing may suspend between the choice of the correlation id and the send: replies come in this order.
            await self._stream.send([struct.pack(">i", size) + head[4:], *body])
            if not answered:
                return memoryview(b"")
            return await self._reply(pending, timeout_ms, self._config.request_timeout_ms + server_ms)
        except StreamClosed as error:
            self.close(DisconnectedError(f"{self.name}: {error}", sent=True))
            raise DisconnectedError(f"{self.name}: {error}", sent=True) from error
        finally:
            self.in_flight -= 1

    async def _reply(self, pending: _Pending, timeout_ms: float, request_timeout_ms: float) -> memoryview:
        patience = min(timeout_ms, request_timeout_ms)
        if not await pending.arrived.wait(patience):
            what = f"{self.name} did not answer API {pending.api_key} within {patience:.0f} ms"
            if request_timeout_ms <= timeout_ms:
                self.close(DisconnectedError(what, sent=True))
                raise DisconnectedError(what, sent=True)
            raise KafkaTimeoutError(what, outcome_unknown=True)
        if pending.error is not None:
            raise DisconnectedError(str(pending.error), sent=True) from pending.error
        if pending.body is None:
            raise ProtocolError(f"{self.name}: a reply without a body")
        return pending.body

    async def _read(self) -> None:
        frames = frame.FrameReader(self._config.max_response_bytes)
        try:
            while True:
                data = await self._stream.receive()
                if not data:
                    self.close(DisconnectedError(f"{self.name} closed the connection", sent=True))
                    return
                for one in frames.feed(data):
                    self._arrived(one)
        except StreamClosed as error:
            self.close(DisconnectedError(f"{self.name}: {error}", sent=True))
        except WireError as error:
            self._broken("cannot read a reply", error)

    def _arrived(self, reply: memoryview) -> None:
        if not self._pending:
            raise WireError("a reply came that nothing was asked for")
        pending = self._pending[0]
        correlation_id, body_at = frame.decode_response_header(pending.api_key, pending.version, reply)
        if correlation_id != pending.correlation_id:
            raise WireError(f"reply {correlation_id} came where {pending.correlation_id} was due")
        self._pending.popleft()
        pending.body = reply[body_at:]
        pending.arrived.set()

    def _broken(self, what: str, error: Exception) -> ProtocolError:
        broken = ProtocolError(f"{self.name}: {what}: {error}")
        self.close(broken)
        return broken

    async def _negotiate(self) -> None:
        """ApiVersions, newest first. An unknown version is answered in v0 with error 35 and the supported range."""
        version = codec.supported_versions(API_VERSIONS)[1]
        reply = await self._ask_versions(version)
        if reply.error_code == UNSUPPORTED_VERSION and version > 0:
            offered = {key.api_key: key.max_version for key in reply.api_keys}.get(API_VERSIONS, 0)
            version = min(offered, version - 1)
            reply = await self._ask_versions(version)
        if reply.error_code != 0:
            raise UnsupportedVersionError(f"{self.name} refused ApiVersions v{version}", code=reply.error_code)
        self.versions = {key.api_key: (key.min_version, key.max_version) for key in reply.api_keys}
        self.features = {one.name: one.max_version_level for one in reply.finalized_features}
        self.features_epoch = reply.finalized_features_epoch

    async def _ask_versions(self, version: int) -> ApiVersionsResponse:
        message = ApiVersionsRequest(
            client_software_name=SOFTWARE_NAME, client_software_version=self._config.software_version
        )
        timeout_ms = self._config.request_timeout_ms
        body = await self.exchange(
            API_VERSIONS, version, [codec.encode_request(message, version)], timeout_ms=timeout_ms
        )
        refused = len(body) >= 2 and struct.unpack_from(">h", body)[0] == UNSUPPORTED_VERSION
        try:
            reply = codec.decode_response(API_VERSIONS, 0 if refused else version, body)
        except WireError as error:
            raise self._broken(f"cannot decode the reply to ApiVersions v{version}", error) from error
        if not isinstance(reply, ApiVersionsResponse):
            raise self._broken("ApiVersions", TypeError(type(reply).__name__))
        return reply
