"""The broker without its sockets and its clock: frames in, effects out, one caller at a time.

The shell tells it what happened (`connected`, `handle_frame`, `disconnected`, `on_time`, `synced`), takes the effects
after each call, and calls `on_time` again at `next_deadline_ms`. Files, the time and random ids are handed in, so that
the same code runs under a simulator. Whatever is to survive is written through `files` before a reply that promises it
becomes an effect.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from uuid import UUID

from fencepost.broker.acl.rights import Rights
from fencepost.broker.api.registry import SERVED, handler
from fencepost.broker.cleaner import Cleaner
from fencepost.broker.config import BrokerConfig
from fencepost.broker.connection import Call, Connection
from fencepost.broker.core_faults import RequestFaults
from fencepost.broker.durability import Durability
from fencepost.broker.dynamic_settings import DynamicSettings
from fencepost.broker.effects import Close, Effect, Reply
from fencepost.broker.faults import FaultTable
from fencepost.broker.fetch_sessions import FetchSessions
from fencepost.broker.files import File, Files
from fencepost.broker.groups import Groups
from fencepost.broker.listeners import listeners_of
from fencepost.broker.login import Login, LoginFailed, LoginState
from fencepost.broker.meta import Meta
from fencepost.broker.metrics import Metrics
from fencepost.broker.recovery_notes import note_recovery
from fencepost.broker.timers import Timer, Timers
from fencepost.broker.topics import Partition, TopicCatalogue
from fencepost.broker.transactions import Transactions
from fencepost.protocol import fetch_wire, produce_wire
from fencepost.protocol.codec import decode_request, encode_response
from fencepost.protocol.errors import MalformedMessage
from fencepost.protocol.frame import decode_request_header, encode_response_frame, encode_response_head

__all__ = ["BROKER_ID", "BrokerCore"]

BROKER_ID = 1
_PRODUCE, _FETCH, _API_VERSIONS = 0, 1, 18
_LOGIN_PATIENCE_MS = 60_000
_HOT = (_PRODUCE, _FETCH)
_SESSION_EVICTION_MS = 120_000

_log = logging.getLogger("fencepost.broker")


class BrokerCore:
    """One broker over one data directory. Call `open` first; every other method may then be called in any order.

    `steady_ms`: a clock that runs even where the broker's own is moved or stands still. How long a client is kept
    waiting is counted on it; without it, on the broker's own.
    """

    broker_id = BROKER_ID

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
        self.files = files
        self.data_directory = data_directory
        self.config = config
        self.new_uuid = new_uuid
        self.listeners = listeners_of(config, "localhost", 0)
        self.metrics = Metrics()
        self.rights = Rights(files, config, self.metrics)
        self._enter: Callable[[Call, Any], Any] | None = None
        self.timers = Timers()
        self._waits = Timers()
        self._steady_ms = steady_ms
        self._faults = RequestFaults(self, FaultTable() if faults is None else faults)
        self.cleaner = Cleaner(self)
        self.durability = Durability(config.waits_for_fsync, self.advanced)
        self.topics = TopicCatalogue(files, config, new_uuid, self._log_opened)
        self.meta = Meta(files)
        self.settings = DynamicSettings(files, config)
        self.transactions = Transactions(self)
        self.groups = Groups(self)
        slots = config.number("max.incremental.fetch.session.cache.slots")
        self.fetch_sessions = FetchSessions(slots, _SESSION_EVICTION_MS, lambda: new_uuid().int & 0x7FFF_FFFF)
        self._connections: dict[int, Connection] = {}
        self._effects: list[Effect] = []
        self._advanced: dict[Partition, None] = {}

    def open(self, now_ms: int) -> None:
        """Read the data directory and finish what a crash interrupted. Raises OSError, CatalogueCorrupt."""
        self.topics.tick(now_ms)
        self.meta.load(self.config.text("cluster.id"), self.new_uuid)
        self.settings.load()
        self.transactions.settings_changed()
        self.topics.stopped_cleanly = self.meta.stopped_cleanly
        self.topics.load()
        self._load_rights()
        self.transactions.load(now_ms)
        self.groups.load(now_ms)
        self.transactions.finish(now_ms)
        self.timers.at(now_ms + self.config.number("log.retention.check.interval.ms"), self._apply_retention)
        self.cleaner.start(now_ms)
        if self.config.text("fsync") == "interval":
            self.timers.at(now_ms + self.config.number("fsync.interval.ms"), self._sync_interval)

    def close(self) -> None:
        """Close the logs cleanly; the next start need not recover them."""
        self.topics.close()
        self.meta.mark_clean()

    def connected(
        self, now_ms: int, connection_id: int, local: tuple[str, int], peer: tuple[str, int], listener: int = 0
    ) -> None:
        """A client has connected to `listeners[listener]`."""
        connection = Connection(connection_id, local, peer, self.listeners[listener])
        self._connections[connection_id] = connection
        if connection.login is not None:
            self.topics.tick(now_ms)
            self.after(_LOGIN_PATIENCE_MS, partial(self._expect_login, connection, connection.login))

    def is_known(self, connection_id: int) -> bool:
        """Whether the client of the connection has said who it is, as far as its listener asks."""
        connection = self._connections.get(connection_id)
        return connection is not None and (connection.login is None or connection.login.done)

    def disconnected(self, now_ms: int, connection_id: int) -> None:
        """The connection is gone; what it waited for is dropped."""
        connection = self._connections.pop(connection_id, None)
        if connection is not None:
            connection.closed = True
            for call in connection.calls:
                if call.on_closed is not None:
                    call.on_closed()
            connection.calls.clear()

    def handle_frame(self, now_ms: int, connection_id: int, frame: memoryview) -> None:
        """One request, without its size prefix. Bytes that are not one close the connection."""
        connection = self._connections.get(connection_id)
        if connection is None:
            return
        self.topics.tick(now_ms)
        if connection.held is not None:
            connection.held.append(frame)
            return
        self.take(connection, frame)
        self._settle(now_ms)

    def take(self, connection: Connection, frame: memoryview, *, spared: bool = False) -> None:
        """Handle one frame now; `spared`: whatever the faults say."""
        now_ms = self.topics.now_ms
        try:
            self._handle(now_ms, connection, frame, spared)
        except MalformedMessage as error:
            _log.warning("closing connection %s: %s", connection, error)
            self.drop(now_ms, connection)
        except OSError:
            # The files are in doubt, so nothing may be promised: the client sees a lost connection and asks again.
            _log.exception("closing connection %s: the data directory failed", connection)
            self.drop(now_ms, connection)

    def on_time(self, now_ms: int) -> None:
        """Do what is due."""
        self.topics.tick(now_ms)
        self.timers.run(now_ms)
        self._waits.run(now_ms if self._steady_ms is None else self._steady_ms())
        self.transactions.on_time(now_ms)
        self.groups.on_time(now_ms)
        self._settle(now_ms)

    def synced(self, now_ms: int, token: int, failed: Sequence[tuple[File, OSError]] = ()) -> None:
        """The files of that `Sync` are synced, but for the failed ones. Raises OSError when the broker cannot go on."""
        self.topics.tick(now_ms)
        before = self.durability.failures
        self.durability.synced(now_ms, token, failed)
        self.metrics.count("failed_syncs", self.durability.failures - before)
        self._settle(now_ms)

    def take_effects(self) -> list[Effect]:
        """What is to be done now, in this order."""
        sync = self.durability.next_sync()
        if sync is not None:
            self._effects.append(sync)
        effects, self._effects = self._effects, []
        return effects

    def next_deadline_ms(self) -> int | None:
        """When `on_time` is to be called next, None for no time in particular."""
        times = [self.timers.next_ms(), self.transactions.next_deadline_ms(), self.groups.next_deadline_ms()]
        if self._steady_ms is None:
            times.append(self._waits.next_ms())
        return min((time for time in times if time is not None), default=None)

    def next_wait_ms(self) -> int | None:
        """When, on the steady clock, somebody has waited long enough and `on_time` is to be called."""
        return None if self._steady_ms is None else self._waits.next_ms()

    def after(self, wait_ms: int, action: Callable[[], None]) -> Timer:
        """Do something once a client has waited that long."""
        now_ms = self.topics.now_ms if self._steady_ms is None else self._steady_ms()
        return self._waits.at(now_ms + wait_ms, lambda _: action())

    def settings_changed(self, now_ms: int) -> None:
        """The broker's or a topic's settings were changed: let them count at once, for what is there already too."""
        self.topics.broker_settings_changed()
        self.transactions.settings_changed()
        self.timers.at(now_ms, self._clean_logs)

    def housekeep(self, now_ms: int) -> None:
        """Delete at once what is too old or too much, which otherwise happens now and then."""
        self.topics.tick(now_ms)
        self._clean_logs(now_ms)
        self.cleaner.compact(now_ms, eager=True)
        self._settle(now_ms)

    def advanced(self, partition: Partition) -> None:
        """The partition has more to be read, or is gone: fetches that wait for it are to be looked at."""
        if partition.waiting:
            self._advanced[partition] = None

    def address(self, connection: Connection) -> tuple[str, int]:
        """Where the client of this connection is to reach the broker."""
        host, port = connection.listener.advertised
        return (connection.local[0], port) if host in ("", "0.0.0.0", "::") else (host, port)  # noqa: S104

    def answer(self, call: Call, response: Any) -> None:
        """Encode the response of a call and send it when its turn has come."""
        key, version = call.api_key, call.version
        if call.finish is not None:
            response = call.finish(response)
        if key in _HOT:
            buffers = _encode_hot(key, response, version)
            size = sum(len(buffer) for buffer in buffers)
            call.answer = [encode_response_head(key, version, call.correlation_id, size), *buffers]
        else:
            call.answer = [encode_response_frame(key, version, call.correlation_id, encode_response(response, version))]
        if call.fault is not None:
            self._faults.divert(call, call.fault)
        call.connection.flush(self._effects)

    def flush(self, connection: Connection) -> None:
        """Send the answers whose turn has come."""
        connection.flush(self._effects)

    def drop(self, now_ms: int, connection: Connection) -> None:
        """Close a connection whose client can be told in no other way."""
        self._effects.append(Close(connection.connection_id))
        self.disconnected(now_ms, connection.connection_id)

    def reset(self, connection: Connection) -> None:
        """Close a connection at once, with what was still to be sent on it."""
        self._effects.append(Close(connection.connection_id, reset=True))
        self.disconnected(self.topics.now_ms, connection.connection_id)

    def disconnect(self, client_id: str | None = None) -> int:
        """Reset the connections of that client, or all; returns how many."""
        doomed = [each for each in self._connections.values() if client_id is None or each.client_id == client_id]
        for connection in doomed:
            self.reset(connection)
        return len(doomed)

    def _handle(self, now_ms: int, connection: Connection, frame: memoryview, spared: bool) -> None:
        login = connection.login
        if login is not None and login.state is LoginState.RAW:
            self._take_token(now_ms, connection, login, frame)
            return
        header, position = decode_request_header(frame)
        key, version = header.api_key, header.api_version
        if login is not None:
            self._check_login(now_ms, login, key, len(frame))
        api = SERVED.get(key)
        request: Any
        call = Call(self, connection, key, version, header.correlation_id, header.client_id)
        if api is None or not api.min_version <= version <= api.max_version:
            if key != _API_VERSIONS:
                raise MalformedMessage(f"API {key} version {version} is not served")
            call.version, request = 0, None
        else:
            body = frame[position:]
            if key == _PRODUCE:
                request = produce_wire.decode_request(body, version)
            elif key == _FETCH:
                request = fetch_wire.decode_request(body, version)
            else:
                request = decode_request(key, version, body)
            _log.debug("%s v%s from %s", api.name, version, connection.connection_id)
        connection.client_id = call.client_id
        if self._faults.table.requests and not spared and self._faults.strike(call, request, frame):
            return
        connection.calls.append(call)
        response = None if self._enter is None or request is None else self._enter(call, request)
        if response is None:
            response = handler(SERVED[key])(call, now_ms, request)
        if response is not None:
            self.answer(call, response)

    def _expect_login(self, connection: Connection, login: Login) -> None:
        """Somebody who does not say who it is must not occupy a connection for ever."""
        if not connection.closed and not login.principal:
            _log.info("closing connection %s: not authenticated in time", connection)
            self.drop(self.topics.now_ms, connection)

    def _check_login(self, now_ms: int, login: Login, key: int, size: int) -> None:
        """Raises MalformedMessage where the client has to say first who it is."""
        if not login.done:
            login.received_bytes += size
            if login.received_bytes > self.config.number("sasl.server.max.receive.size"):
                raise MalformedMessage(f"{login.received_bytes} bytes before authentication")
        if not login.answers(now_ms, key):
            raise MalformedMessage(f"API {key} before authentication ({login.state.value})")

    def _take_token(self, now_ms: int, connection: Connection, login: Login, frame: memoryview) -> None:
        """A SASL token without a request around it, as it follows SaslHandshake v0."""
        try:
            login.authenticate(now_ms, bytes(frame))
        except LoginFailed as failed:
            self.metrics.count("failed_logins")
            _log.info("%s was not let in: %s", connection, failed)
            self.after(
                self.config.number("connection.failed.authentication.delay.ms"),
                lambda: None if connection.closed else self.drop(now_ms, connection),
            )
            return
        connection.principal = login.principal
        self._effects.append(Reply(connection.connection_id, (bytes(4),)))

    def topic_name(self, name: str | None, topic_id: UUID | None) -> str | None:
        """The name of a topic that is given by name or by id; None for an id that does not exist."""
        if name:
            return name
        topic = self.topics.by_id(topic_id)
        return None if topic is None else topic.name

    def _load_rights(self) -> None:
        self.rights.store.load()
        if self.rights.enforced:
            # Only then, because it draws in the messages of many APIs.
            from fencepost.broker.acl.gate import enter

            self._enter = enter

    def _settle(self, now_ms: int) -> None:
        while self._advanced:
            partitions, self._advanced = self._advanced, {}
            for partition in partitions:
                for fetch in list(partition.waiting):
                    fetch.look(now_ms)

    def _log_opened(self, partition: Partition) -> None:
        note_recovery(partition, self.metrics)
        self.transactions.log_opened(self.topics.now_ms, partition)

    def _apply_retention(self, now_ms: int) -> None:
        self._clean_logs(now_ms)
        self.timers.at(now_ms + self.config.number("log.retention.check.interval.ms"), self._apply_retention)

    def _clean_logs(self, now_ms: int) -> None:
        self.cleaner.apply_retention(now_ms)
        self.cleaner.compact(now_ms)

    def _sync_interval(self, now_ms: int) -> None:
        sync = self.durability.next_sync(forced=True)
        if sync is not None:
            self._effects.append(sync)
        self.timers.at(now_ms + self.config.number("fsync.interval.ms"), self._sync_interval)


def _encode_hot(key: int, response: Any, version: int) -> list[bytes | bytearray | memoryview]:
    return (
        produce_wire.encode_response(response, version)
        if key == _PRODUCE
        else fetch_wire.encode_response(response, version)
    )
