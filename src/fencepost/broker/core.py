"""The broker without sockets and clock: frames in, effects out, one caller at a time.

The shell reports events (`connected`, `handle_frame`, `disconnected`, `on_time`, `synced`), carries out the effects
after each call, and calls `on_time` again at `next_deadline_ms`. Files, the time and random ids are passed in, so that
the same code runs under a simulator. Durable state is written through `files` before the reply that depends on it
becomes an effect.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from uuid import UUID

from fencepost.broker.api.apis import SERVED, Api, handler
from fencepost.broker.api.authorization import enter
from fencepost.broker.api.common import failure_code
from fencepost.broker.api.error_counts import count_errors
from fencepost.broker.api.error_responses import cut_messages, refusal
from fencepost.broker.api.in_doubt_requests import InDoubtRequests
from fencepost.broker.api.internal_topics import missing_topic
from fencepost.broker.api.request_faults import RequestFaults
from fencepost.broker.api.straight import StraightRequests
from fencepost.broker.connection import Buffers, Call, Connection, Core
from fencepost.broker.disk.changes import Change
from fencepost.broker.disk.files import File, Files
from fencepost.broker.effects import Close, Effect, Failed, HandleNext, Reply
from fencepost.broker.faults.table import FaultTable
from fencepost.broker.metrics.log_rate_limit import SubjectRateLimits
from fencepost.broker.security.login import Login, LoginState
from fencepost.broker.security.mechanisms import LoginFailed
from fencepost.broker.security.rights import ANONYMOUS
from fencepost.broker.settings.client_quotas import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE
from fencepost.broker.settings.values import BrokerConfig
from fencepost.protocol import fetch_wire, produce_wire
from fencepost.protocol.codec import decode_request, write_response
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.cursor import Buffer
from fencepost.protocol.errors import MalformedMessage
from fencepost.protocol.fetch_wire import FetchResponse
from fencepost.protocol.frame import begin_response, decode_request_header, encode_response_head, end_response
from fencepost.protocol.produce_wire import ProduceResponse

__all__ = ["BrokerCore"]

_PRODUCE, _FETCH, _API_VERSIONS = 0, 1, 18
_LOGIN_PATIENCE_MS = 60_000
_HOT = (_PRODUCE, _FETCH)
_PREFIX_BYTES = 4  # a frame's size before the frame
_MOST_SHOWN = 60  # characters of a name

_log = logging.getLogger("fencepost.broker")
_rights_log = logging.getLogger("fencepost.broker.rights")


class BrokerCore(Core):
    """One broker over one data directory. Call `open` first; every other method may then be called in any order."""

    def __init__(
        self,
        files: Files,
        config: BrokerConfig,
        *,
        new_uuid: Callable[[], UUID],
        data_directory: str = "",
        steady_ms: Callable[[], int] | None = None,
        faults: FaultTable | None = None,
    ) -> None:
        super().__init__(files, config, new_uuid=new_uuid, data_directory=data_directory, steady_ms=steady_ms)
        self._faults = RequestFaults(FaultTable() if faults is None else faults)
        self._straight = StraightRequests(self, self._faults.table)
        self._doubtful = InDoubtRequests(self.doubts)
        self._connections: dict[int, Connection] = {}
        self._malformed = SubjectRateLimits("malformed requests")
        self._failed_logins = SubjectRateLimits("failed logins")
        self._effects: list[Effect] = []
        self.arrived_ms = 0
        self._answered: dict[tuple[int, int], int] = {}
        """Number of requests answered at once since `take_effects`, by API key and time of arrival."""

    def open(self, now_ms: int) -> None:
        """Read the data directory and finish what a crash interrupted. Raises OSError, UnusableDirectory."""
        super().open(now_ms)
        if self.config.text("fsync") == "interval":
            self.timers.at(now_ms + self.config.number("fsync.interval.ms"), self._sync_interval)

    def connected(
        self,
        now_ms: int,
        connection_id: int,
        local: tuple[str, int],
        peer: tuple[str, int],
        listener: int = 0,
        principal: str = ANONYMOUS,
    ) -> None:
        """Register a client's connection to `listeners[listener]`. `principal` applies until it logs in."""
        where = self.listeners[listener]
        login = Login(where, self.credentials) if where.sasl else None
        connection = Connection(connection_id, local, peer, where, login, principal)
        self._connections[connection_id] = connection
        if login is not None:
            self.now.ms = now_ms
            self.after(_LOGIN_PATIENCE_MS, partial(self._expect_login, connection, login))

    def connection(self, connection_id: int) -> Connection | None:
        """Return the connection; None if it is closed."""
        return self._connections.get(connection_id)

    def is_known(self, connection_id: int) -> bool:
        """Return true if the client has authenticated, or its listener asks for no authentication."""
        connection = self._connections.get(connection_id)
        return connection is not None and (connection.login is None or connection.login.done)

    def disconnected(self, now_ms: int, connection_id: int) -> None:
        """Remove a closed connection and drop its waiting requests."""
        connection = self._connections.pop(connection_id, None)
        if connection is not None:
            connection.closed = True
            for call in connection.calls:
                if call.on_closed is not None:
                    call.on_closed()
            connection.calls.clear()
            self.shares.disconnected(now_ms, connection_id)
            self._settle()

    def handle_frame(
        self,
        now_ms: int,
        connection_id: int,
        frame: memoryview,
        arrived_ms: int | None = None,
        others: Sequence[Buffer] = (),
    ) -> int:
        """Handle one request, and maybe some of the others together with it. Invalid bytes close the connection.

        Args:
            now_ms: The broker's time.
            connection_id: The connection.
            frame: The request, without its size prefix.
            arrived_ms: Its time of arrival on the steady clock. The default is now.
            others: The next requests of the connection, which have arrived with it.

        Returns:
            Number of requests that were handled.
        """
        connection = self._connections.get(connection_id)
        if connection is None:
            return 1
        self.now.ms = now_ms
        self.arrived_ms = self.steady_ms() if arrived_ms is None else arrived_ms
        if connection.held is not None:
            connection.held.append(frame)
            return 1
        count = self.take(connection, frame, others=others)
        if self._advanced:
            self._settle()
        return count

    def handle_singles(
        self, now_ms: int, requests: Sequence[tuple[int, Buffer]], arrived_ms: int | None = None
    ) -> list[int]:
        """Handle Produce requests that arrived together, with one append to each of their partitions.

        Args:
            now_ms: The broker's time.
            requests: (Connection, frame) of different connections, each the next one. `may_be_joint` is true for it.
            arrived_ms: Their time of arrival on the steady clock. The default is now.

        Returns:
            Numbers of the requests that were handled, in that order. `handle_frame` must handle the others.
        """
        if not self._straight.possible:
            return []
        self.now.ms = now_ms
        self.arrived_ms = self.steady_ms() if arrived_ms is None else arrived_ms
        if self.transactions.unfinished_ids:
            self.follow_up()
        handled = self._straight.take_singles(now_ms, self._connections, requests)
        if self._advanced:
            self._settle()
        return handled

    def take(
        self, connection: Connection, frame: memoryview, *, spared: bool = False, others: Sequence[Buffer] = ()
    ) -> int:
        """Handle one frame now, and maybe some of the others. Return the number of frames that were handled.

        `spared`: no fault rule applies to it.
        """
        now_ms = self.now.ms
        if self.transactions.unfinished_ids:
            self.follow_up()
        try:
            if not spared and (count := self._straight.take(now_ms, connection, frame, others)):
                return count
            self._handle(now_ms, connection, frame, spared)
        except MalformedMessage as error:
            self.log_malformed(now_ms, connection, error)
            self.drop(now_ms, connection)
        except Exception as error:  # noqa: BLE001 - a failed request must not end other connections
            self.request_failed(connection, error)
        return 1

    def release(self, connection: Connection, *, spared: bool = False) -> None:
        """Handle the held frames. `spared`: no fault rule applies to the first one."""
        held = connection.release()
        self.arrived_ms = self.steady_ms()
        while held and not connection.closed:
            self.take(connection, held.popleft(), spared=spared)
            spared = False
            if connection.held is not None:  # a later frame holds back those after it as well
                connection.held.extend(held)
                return

    def on_time(self, now_ms: int) -> None:
        """Do the due work."""
        self.now.ms = now_ms
        self.timers.run(now_ms)
        self._waits.run(now_ms if self._steady_ms is None else self._steady_ms())
        self.transactions.on_time(now_ms)
        self.groups.on_time(now_ms)
        self.shares.on_time(now_ms)
        self._settle()

    def synced(self, now_ms: int, token: int, failed: Sequence[tuple[File, OSError]] = ()) -> None:
        """Note that the files of a `Sync` are synced, except for the failed ones.

        Raises OSError if the broker must stop.
        """
        self.now.ms = now_ms
        before = self.durability.failures
        self.durability.synced(now_ms, token, failed)
        self.metrics.count("failed_syncs", self.durability.failures - before)
        self._settle()

    def written(self, now_ms: int, token: int, error: Exception | None) -> None:
        """Note that the step of a `Write` was carried out. `error`: its exception."""
        self.now.ms = now_ms
        self.changes.written(token, error)
        self.settle_files_later(now_ms)
        self._settle()

    def time_jumped(self, now_ms: int, by_ms: int) -> None:
        """Shift all deadlines after a forward jump of the clock, so that they keep their remaining time."""
        self.metrics.count("time_jumps")
        self.clock_jumps.add(now_ms, by_ms)
        self.groups.coordinator.time_jumped(now_ms, by_ms)
        self.shares.time_jumped(by_ms)
        for login in [each.login for each in self._connections.values() if each.login is not None]:
            login.time_jumped(by_ms)

    def take_effects(self) -> list[Effect]:
        """Return the effects to carry out now, in order."""
        sync = self.durability.next_sync()
        if sync is not None:
            self._effects.append(sync)
        write = self.changes.next_write()
        if write is not None:
            self._effects.append(write)
        if self.failure_guard.failures:
            self._effects += self.failure_guard.take_failures()
        if self._answered:
            steady_ms, answered, self._answered = self.steady_ms(), self._answered, {}
            for (api_key, arrived_ms), times in answered.items():
                self.metrics.latencies[api_key].add(steady_ms - arrived_ms, times)
        effects, self._effects = self._effects, []
        self.unsent_bytes = 0
        return effects

    def follow_up(self) -> bool:
        """Do the work that no answer waits for.

        Return true if there was any.

        Call it after the effects were carried out. No request can see that this work is still pending.
        """
        if not self.transactions.unfinished_ids:
            return False
        self.transactions.write_pending_markers(self.now.ms)
        self._settle()
        return True

    def next_deadline_ms(self) -> int | None:
        """Return the time of the next call of `on_time`, or None."""
        parts = (self.transactions, self.groups, self.shares)
        times = [self.timers.next_ms(), *(part.next_deadline_ms() for part in parts)]
        if self._steady_ms is None:
            times.append(self._waits.next_ms())
        return min((time for time in times if time is not None), default=None)

    def next_wait_ms(self) -> int | None:
        """Return the time on the steady clock at which a waiting request expires and `on_time` must be called."""
        return None if self._steady_ms is None else self._waits.next_ms()

    def housekeep(self, now_ms: int) -> None:
        """Run retention and expiry now, which otherwise run periodically."""
        self.now.ms = now_ms
        self.cleaner.expire_producers(now_ms)
        self._clean_logs(now_ms)
        self.cleaner.compact(now_ms, eager=True)
        self._settle()

    def address(self, connection: Connection) -> tuple[str, int]:
        """Return the advertised address for the client of this connection."""
        host, port = connection.listener.advertised
        return (connection.local[0], port) if host in ("", "0.0.0.0", "::") else (host, port)  # noqa: S104

    def answer(self, call: Call, response: Any) -> None:
        """Encode the response of a call, and send it after the answers of earlier requests."""
        key, version = call.api_key, call.version
        if call.finish is not None:
            response = call.finish(response)
        count_errors(self, key, response)
        if self.settings.quotas and key in _HOT:
            response.throttle_ms = self._count_quota_bytes(call, response)
        if key in _HOT:
            buffers = _encode_hot(key, response, version)
            size = sum(map(len, buffers))
            self.deliver(call, [encode_response_head(key, version, call.correlation_id, size), *buffers])
        else:
            self.deliver(call, (_encoded(call, response),))

    def deliver(self, call: Call, answer: Buffers) -> None:
        """Send the encoded response of a call, after the answers of earlier requests."""
        self.metrics.latencies[call.api_key].add(self.steady_ms() - call.began_ms)
        call.answer = answer
        if call.fault is not None:
            self._faults.apply_to_reply(call, call.fault)
        size = call.connection.count_answer(call.answer)
        self.unsent_bytes += size
        self.metrics.response_bytes[call.api_key] += size
        call.connection.flush(self._effects)

    def answer_at_once(self, connection: Connection, api_key: int, *frames: bytes) -> None:
        """Send the responses of the present requests, which have no `Call`.

        The connection has no unanswered `Call`.
        """
        kind = api_key, self.arrived_ms
        self._answered[kind] = self._answered.get(kind, 0) + len(frames)
        size = 0
        for frame in frames:
            size += len(frame)
            self._effects.append(Reply(connection.connection_id, (frame,)))
        connection.answered_bytes += size
        self.metrics.response_bytes[api_key] += size

    def complete_unanswered(self, call: Call) -> None:
        """Complete a request without an answer."""
        if self.settings.quotas:
            self._count_quota_bytes(call, None)
        self._effects.append(HandleNext(call.connection.connection_id))
        call.connection.flush(self._effects)

    def _count_quota_bytes(self, call: Call, response: ProduceResponse | FetchResponse | None) -> int:
        """Count the client's bytes for its quotas.

        Return the throttle time in ms.

        Above the quota, the connection's requests are delayed for that time (KIP-219).
        """
        connection = call.connection
        if isinstance(response, FetchResponse):
            kind = CONSUMER_BYTE_RATE
            size = sum(len(result.records) for topic in response.topics for result in topic.partitions)
        else:
            kind, size = PRODUCER_BYTE_RATE, call.size
        user = connection.principal.partition(":")[2]
        wait_ms = self.throttling.record(self.now.ms, self.settings.quotas, kind, user, call.client_id, size)
        if wait_ms > 0:
            self.metrics.count("throttled_requests")
            connection.hold()
            self.after(wait_ms, lambda: self._end_throttle(connection))
        return wait_ms

    def _end_throttle(self, connection: Connection) -> None:
        """Continue with a client after its throttle time. The shell may hold further frames of it."""
        if not connection.closed:
            self.release(connection)
            self._effects.append(HandleNext(connection.connection_id))

    def flush(self, connection: Connection) -> None:
        """Send the answers for which no earlier request waits."""
        connection.flush(self._effects)

    def drop(self, now_ms: int, connection: Connection) -> None:
        """Close a connection, because no response can tell its client about an error."""
        self._effects.append(Close(connection.connection_id))
        self.disconnected(now_ms, connection.connection_id)

    def reset(self, connection: Connection) -> None:
        """Close a connection at once and drop its unsent answers."""
        self._effects.append(Close(connection.connection_id, reset=True))
        self.disconnected(self.now.ms, connection.connection_id)

    def disconnect(self, client_id: str | None = None) -> int:
        """Reset the connections of that client, or all. Return their number."""
        doomed = [each for each in self._connections.values() if client_id is None or each.client_id == client_id]
        for connection in doomed:
            self.reset(connection)
        return len(doomed)

    def began(
        self, connection: Connection, api_key: int, version: int, client_id: str, size: int, times: int = 1
    ) -> None:
        """Count a request that is being handled, or several alike, of `size` bytes together."""
        if _log.isEnabledFor(logging.DEBUG):
            for _ in range(times):
                _log.debug("%s v%s from %s", SERVED[api_key].name, version, connection.connection_id)
        self.metrics.requests[api_key] += times
        self.metrics.request_bytes[api_key] += _PREFIX_BYTES * times + size
        connection.client_id = client_id

    def _handle(self, now_ms: int, connection: Connection, frame: memoryview, spared: bool) -> None:
        login = connection.login
        if login is not None and login.state is LoginState.RAW:
            self._take_token(now_ms, connection, login, frame)
            return
        header, position = decode_request_header(frame)
        key, version = header.api_key, header.api_version
        if login is not None:
            self._check_login(now_ms, login, key, len(frame))
        served = SERVED.get(key)
        request: Any
        call = Call(self, connection, key, version, header.correlation_id, header.client_id, len(frame))
        if served is None or not served.min_version <= version <= served.max_version:
            if served is None or key != _API_VERSIONS:
                raise MalformedMessage(f"API {key} version {version} is not served")
            call.version, request = 0, None
        else:
            body = frame[position:]
            request = _decode_hot(key, body, version) if key in _HOT else decode_request(key, version, body)
        self.began(connection, key, version, call.client_id, call.size)
        if self._faults.table.requests and not spared and self._faults.apply_to_request(call, request, frame):
            return
        connection.enter(call)
        try:
            response = None if request is None else self._refused(call, served, request)
            if response is None and (name := missing_topic(self.topics, served, request)) is not None:
                call.change(request, self._handle_with(name, served, call, request))
            elif response is None:
                response = handler(served.key).handle(call, now_ms, request)
        except OSError as error:
            self.storage_failed(now_ms, call, request, error)
            return
        if response is not None:
            self.answer(call, response)

    def _refused(self, call: Call, served: Api, request: Any) -> Any | None:
        """Return the response that refuses a request before its handler runs, or None if none of these rules does."""
        response = enter(call, served, request) if self.rights.enforced else None
        if response is None and served.timed and request.timeout_ms <= 0:
            response = refusal(request, ErrorCode.REQUEST_TIMED_OUT)
        if response is None and self.doubts.exist:
            response = self._doubtful.refuse(served, request)
        return response

    def _handle_with(self, name: str, served: Api, call: Call, request: Any) -> Change[Any]:
        """Create the internal topic `name`, then handle the request. Raises OSError."""
        yield from self.topics.create_internal(name)
        return handler(served.key).handle(call, self.now.ms, request)

    def storage_failed(self, now_ms: int, call: Call, request: Any, error: OSError) -> None:
        """Handle an error of the disk: answer with an error, or close the connection if no response can have one."""
        self.metrics.count("storage_errors")
        _log.error("API %s of %s: the data directory failed: %s", call.api_key, call.connection, error)
        if call.connection.closed or call not in call.connection.calls:
            return
        if request is None or getattr(request, "acks", -1) == 0:
            self.drop(now_ms, call.connection)
        else:
            self.answer(call, refusal(request, failure_code(error, SERVED[call.api_key].log_failure)))

    def log_malformed(self, now_ms: int, connection: Connection, error: Exception) -> None:
        """Log that a connection is closed because of invalid bytes.

        Each cause is logged at a limited rate, because clients reconnect.
        """
        if (end := self._malformed.hit(now_ms, connection.host, str(error))) is not None:
            _log.warning("closing connection %s: %s%s", connection, error, end)

    def login_failed(self, connection: Connection, reason: str) -> None:
        """Log a failed login. Each name and address is logged at a limited rate."""
        self.metrics.count("failed_logins")
        claimed_name = "" if connection.login is None else connection.login.claimed_name[:_MOST_SHOWN]
        if (end := self._failed_logins.hit(self.now.ms, connection.host, claimed_name)) is not None:
            who = f" as {claimed_name!r}" if claimed_name else ""
            _rights_log.info("%s failed to log in%s: %s%s", connection, who, reason, end)

    def request_failed(self, connection: Connection, error: Exception) -> None:
        """Close the connection of a request that raised an unexpected exception."""
        self.metrics.count("failed_requests")
        self._effects.append(Failed(connection.connection_id, error))
        self.disconnected(self.now.ms, connection.connection_id)

    def _expect_login(self, connection: Connection, login: Login) -> None:
        """Close a connection that does not log in within the time limit."""
        if not connection.closed and not login.principal:
            _log.info("closing connection %s: not authenticated in time", connection)
            self.drop(self.now.ms, connection)

    def _check_login(self, now_ms: int, login: Login, key: int, size: int) -> None:
        """Check that the client may send this request before its login. Raises MalformedMessage."""
        if not login.done:
            login.received_bytes += size
            if login.received_bytes > self.config.number("sasl.server.max.receive.size"):
                raise MalformedMessage(f"{login.received_bytes} bytes before authentication")
        if not login.answers(now_ms, key):
            raise MalformedMessage(f"API {key} before authentication ({login.state.value})")

    def _take_token(self, now_ms: int, connection: Connection, login: Login, frame: memoryview) -> None:
        """Handle a SASL token without a request header, which follows SaslHandshake v0."""
        try:
            answer = login.authenticate(now_ms, bytes(frame))
        except LoginFailed as failed:
            self.login_failed(connection, str(failed))
            self.after(
                self.config.number("connection.failed.authentication.delay.ms"),
                lambda: None if connection.closed else self.drop(now_ms, connection),
            )
            return
        if answer.principal:
            connection.principal = answer.principal
        buffers = (len(answer.message).to_bytes(4, "big"), answer.message)
        connection.count_answer(buffers)
        self._effects.append(Reply(connection.connection_id, buffers))

    def _settle(self) -> None:
        while self._advanced:
            partitions, self._advanced = self._advanced, {}
            for partition in partitions:
                for fetch in list(partition.waiting):
                    fetch.look(partition)

    def _sync_interval(self, now_ms: int) -> None:
        self.timers.at(now_ms + self.config.number("fsync.interval.ms"), self._sync_interval)
        sync = self.durability.next_sync(forced=True)
        if sync is not None:
            self._effects.append(sync)


def _encoded(call: Call, response: Any) -> bytearray:
    """Return the response as a frame."""
    frame = begin_response(call.api_key, call.version, call.correlation_id)
    head_bytes = len(frame)
    try:
        write_response(frame, response, call.version)
    except ValueError:  # a string exceeds the protocol's limit
        cut_messages(response)
        del frame[head_bytes:]
        write_response(frame, response, call.version)
    end_response(frame)
    return frame


def _decode_hot(key: int, body: memoryview, version: int) -> Any:
    return produce_wire.decode_request(body, version) if key == _PRODUCE else fetch_wire.decode_request(body, version)


def _encode_hot(key: int, response: Any, version: int) -> list[bytes | bytearray | memoryview]:
    return (
        produce_wire.encode_response(response, version)
        if key == _PRODUCE
        else fetch_wire.encode_response(response, version)
    )
