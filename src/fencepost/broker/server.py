"""The broker's shell: sockets, the clock, timers and fsync around one `BrokerCore`.

One event loop owns the core. A connection whose client does not read its answers is not read from any more until it
does. Syncs run in threads of their own; when one fails the broker stops, because nobody can tell any more what is on
disk.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import time
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import IO, cast

from fencepost.broker.clock import Clock
from fencepost.broker.config import BrokerConfig
from fencepost.broker.core import BrokerCore
from fencepost.broker.effects import Close, Reply, Sync
from fencepost.broker.faults import FaultTable
from fencepost.broker.faulty_files import FaultyFiles
from fencepost.broker.files import File, Files
from fencepost.broker.listeners import Listener, listeners_of
from fencepost.broker.receiver import Receiver
from fencepost.broker.system_files import SystemFiles
from fencepost.protocol.errors import ProtocolError

__all__ = ["BrokerServer", "DirectoryInUse", "new_event_loop", "system_clock"]

_WRITE_BUFFER_BYTES = 4 * 1024 * 1024
_SYNC_THREADS = 8
_STRIDES = 2000  # in how many steps time moves at most, however far

_log = logging.getLogger("fencepost.broker")


class DirectoryInUse(Exception):
    """Another broker works on the data directory."""


def new_event_loop() -> asyncio.AbstractEventLoop:
    """uvloop's loop where it is installed, else asyncio's."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def system_clock() -> Clock:
    """The system's time. It never goes back, whatever is done to the system's clock meanwhile."""
    base = time.time() - time.monotonic()
    return Clock(lambda: int((base + time.monotonic()) * 1000))


class BrokerServer:
    """One broker over one data directory. `clock`: its time; `faults`: what is to go wrong.

    It listens at `host` and `port`, or where the setting `listeners` says. `await start()`, then `listeners` have the
    ports they got and `address` is the first one's; `failed` is done, with the reason, when it had to give up;
    `await stop()` closes the logs cleanly. Raises InvalidSetting for listeners that cannot be.
    """

    def __init__(
        self,
        config: BrokerConfig,
        data_directory: str,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        clock: Clock | None = None,
        faults: FaultTable | None = None,
    ) -> None:
        self._config = config
        self._directory = os.path.abspath(data_directory)
        self.listeners = listeners_of(config, host, port)
        self.clock = system_clock() if clock is None else clock
        self.now_ms = self.clock.now_ms
        self._faults = faults
        self._clients: dict[int, _Client] = {}
        self._next_client = 0
        self._servers: list[asyncio.Server] = []
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due: tuple[int | None, int | None] = (None, None)
        self._syncer = ThreadPoolExecutor(_SYNC_THREADS, "fencepost-sync")
        self._syncing: asyncio.Task[None] | None = None
        self._moving = asyncio.Lock()
        self._lock: IO[str] | None = None
        self.core: BrokerCore
        self.address = (host, port)
        self.failed: asyncio.Future[None]

    async def start(self) -> None:
        """Recover the data directory and listen. Raises OSError, DirectoryInUse and what `BrokerCore.open` raises."""
        self._loop = asyncio.get_running_loop()
        self.failed = self._loop.create_future()
        self._lock = _lock_directory(self._directory)
        try:
            files: Files = SystemFiles(self._directory, durable=self._config.text("fsync") != "never")
            if self._faults is not None:
                files = FaultyFiles(files, self._faults, time.sleep)
            self.core = BrokerCore(
                files,
                self._config,
                new_uuid=uuid.uuid4,
                data_directory=self._directory,
                steady_ms=_steady_ms,
                faults=self._faults,
            )
            self.core.open(self.now_ms())
            self.core.listeners = self.listeners
            for index, listener in enumerate(self.listeners):
                await self._listen(index, listener)
        except BaseException:
            for server in self._servers:
                server.close()
            self._lock.close()
            self._syncer.shutdown()
            raise
        self.address = (self.listeners[0].host, self.listeners[0].port)
        self.pump()

    async def stop(self, *, clean: bool = True) -> None:
        """Stop accepting, drop the connections, close the logs; not `clean`: leave the logs as they are."""
        for server in self._servers:
            server.close()
        if self._timer is not None:
            self._timer.cancel()
        if self._syncing is not None:
            await asyncio.wait((self._syncing,))
        for client in list(self._clients.values()):
            client.abort()
        self._syncer.shutdown()
        try:
            if clean and not self.failed.done():
                self.core.close()
        finally:
            if self._lock is not None:
                self._lock.close()

    def pump(self) -> None:
        """Carry out what the core wants done, and come back when it wants to be called."""
        clients = self._clients
        for effect in self.core.take_effects():
            if isinstance(effect, Reply):
                client = clients.get(effect.connection_id)
                if client is not None:
                    client.send(effect.buffers)
            elif isinstance(effect, Sync):
                self._syncing = self._loop.create_task(self._sync(effect))
            elif isinstance(effect, Close):
                client = clients.get(effect.connection_id)
                if client is not None:
                    client.abort() if effect.reset else client.close()
        # While time stands still nothing is due but what clients wait for.
        due = (None if self.clock.frozen else self.core.next_deadline_ms(), self.core.next_wait_ms())
        if due != self._timer_due:
            self._set_timer(*due)

    async def advance(self, duration_ms: int) -> None:
        """Let time pass, and return when all that fell due meanwhile is done and durable.

        Time goes from one deadline to the next, so that what follows from one happens in its turn.
        """
        async with self._moving:
            was_frozen = self.clock.frozen
            self.clock.freeze()
            try:
                await self._advance(self.clock.now_ms() + duration_ms, max(1, duration_ms // _STRIDES))
            finally:
                if not was_frozen:
                    self.clock.thaw()
                self._timer_due = (None, None)
                self.pump()

    async def freeze(self) -> None:
        """Let time stand still."""
        async with self._moving:
            self.clock.freeze()
            self.pump()

    async def thaw(self) -> None:
        """Let time go on."""
        async with self._moving:
            self.clock.thaw()
            self.pump()

    def disconnect(self, client_id: str | None) -> int:
        """Reset the connections of that client, or all; returns how many."""
        count = self.core.disconnect(client_id)
        self.pump()
        return count

    def enter(self, client: _Client) -> int:
        """Register a new connection; returns its id."""
        self._next_client += 1
        self._clients[self._next_client] = client
        return self._next_client

    def leave(self, connection_id: int) -> None:
        """Forget a connection."""
        if self._clients.pop(connection_id, None) is not None and not self.failed.done():
            self.core.disconnected(self.now_ms(), connection_id)

    def fail(self, error: BaseException) -> None:
        """Give up: answer nothing any more and say why."""
        if not self.failed.done():
            self.failed.set_exception(error)
            for client in list(self._clients.values()):
                client.abort()

    async def _advance(self, end_ms: int, stride_ms: int) -> None:
        clock = self.clock
        await self.settle()
        for _ in range(10 * _STRIDES):
            due_ms = self.core.next_deadline_ms()
            if due_ms is None or due_ms > end_ms:
                break
            clock.move_to(max(due_ms, min(end_ms, clock.now_ms() + stride_ms)))
            await self.settle()
        else:
            raise RuntimeError(f"the broker does not come to rest: something is always due at {due_ms}")
        clock.move_to(end_ms)
        self.core.housekeep(end_ms)
        await self.settle()

    def _set_timer(self, due_ms: int | None, wait_ms: int | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due = (due_ms, wait_ms)
        delays_ms = [] if due_ms is None else [due_ms - self.now_ms()]
        if wait_ms is not None:
            delays_ms.append(wait_ms - _steady_ms())
        self._timer = self._loop.call_later(max(0, min(delays_ms)) / 1000, self._on_time) if delays_ms else None

    async def settle(self) -> None:
        """Do what is due now, and wait until all that was appended is durable and what follows from it is done.

        Raises what ended the broker, if something did.
        """
        self._on_time()
        while self._syncing is not None and not self._syncing.done():
            await asyncio.wait((self._syncing,))
        if self.failed.done():
            self.failed.result()

    def _on_time(self) -> None:
        self._timer_due = (None, None)
        if not self.failed.done():
            try:
                self.core.on_time(self.now_ms())
            except Exception as error:  # noqa: BLE001 - nobody else would learn of it
                _log.exception("the broker stops: what was due failed")
                self.fail(error)
                return
            self.pump()

    async def _sync(self, effect: Sync) -> None:
        try:
            failed = await self._sync_all(effect.files)
            self.core.synced(self.now_ms(), effect.token, failed)
        except Exception as error:  # noqa: BLE001 - whatever it is, what is on disk is in doubt
            _log.critical("the broker stops: data could not be synced", exc_info=True)
            self.fail(error)
            return
        self.pump()

    async def _sync_all(self, files: Sequence[File]) -> list[tuple[File, OSError]]:
        """Sync the files, several at a time: the system writes its journal once for those that come together. Returns
        those that could not be synced."""
        shares = [files[first::_SYNC_THREADS] for first in range(min(_SYNC_THREADS, len(files)))]
        jobs = [self._loop.run_in_executor(self._syncer, _sync_each, share) for share in shares]
        return [failure for failures in await asyncio.gather(*jobs) for failure in failures]

    async def _listen(self, index: int, listener: Listener) -> None:
        server = await self._loop.create_server(
            lambda: _Client(self, index), listener.host or None, listener.port, backlog=1024
        )
        self._servers.append(server)
        listener.port = server.sockets[0].getsockname()[1]
        host, port = listener.advertised
        listener.advertised = (host, port or listener.port)


class _Client(asyncio.BufferedProtocol):
    """One connection's bytes."""

    def __init__(self, server: BrokerServer, listener: int) -> None:
        self._server = server
        self._listener = listener
        self._is_known = not server.listeners[listener].sasl
        config = server.core.config
        # Of somebody unknown only as much is taken as it takes to become known.
        limit = "socket.request.max.bytes" if self._is_known else "sasl.server.max.receive.size"
        self._receiver = Receiver(config.number(limit))
        self._transport: asyncio.Transport
        self._connection_id = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast("asyncio.Transport", transport)  # uvloop's transports are no subclass of it
        self._transport = transport
        transport.set_write_buffer_limits(high=_WRITE_BUFFER_BYTES)
        server = self._server
        self._connection_id = server.enter(self)
        local, peer = transport.get_extra_info("sockname"), transport.get_extra_info("peername")
        server.core.connected(
            server.now_ms(), self._connection_id, (local[0], local[1]), (peer[0], peer[1]), self._listener
        )
        if not self._is_known:
            server.pump()  # it has a limited time to become known

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._receiver.space()

    def buffer_updated(self, nbytes: int) -> None:
        server = self._server
        if server.failed.done():
            return
        try:
            frames = self._receiver.received(nbytes)
            now_ms = server.now_ms()
            for frame in frames:
                server.core.handle_frame(now_ms, self._connection_id, frame)
            if not self._is_known and server.core.is_known(self._connection_id):
                self._is_known = True
                self._receiver.max_frame_bytes = server.core.config.number("socket.request.max.bytes")
        except ProtocolError as error:
            _log.warning("closing connection %s: %s", self._connection_id, error)
            self._transport.close()
        except Exception:  # noqa: BLE001 - one request's failure is not to end the others' connections
            _log.exception("closing connection %s: a request failed", self._connection_id)
            self._transport.close()
        server.pump()

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.leave(self._connection_id)

    def pause_writing(self) -> None:
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        if not self._transport.is_closing():
            self._transport.resume_reading()

    def send(self, buffers: Sequence[bytes | bytearray | memoryview]) -> None:
        """Write one frame."""
        if not self._transport.is_closing():
            self._transport.writelines(buffers)

    def close(self) -> None:
        """Close after what is written has been sent."""
        self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        self._transport.abort()


def _steady_ms() -> int:
    return int(time.monotonic() * 1000)


def _sync_each(files: Sequence[File]) -> list[tuple[File, OSError]]:
    failed = []
    for file in files:
        try:
            file.sync()
        except FileNotFoundError:
            # Only the broker removes files: its topic was deleted, or retention took the segment, while this waited.
            _log.debug("nothing to sync any more: %r", file)
        except OSError as error:
            failed.append((file, error))
    return failed


def _lock_directory(directory: str) -> IO[str]:
    """Hold the directory's lock until the returned file is closed. Raises DirectoryInUse."""
    os.makedirs(directory, exist_ok=True)
    lock = open(os.path.join(directory, ".lock"), "w")  # noqa: SIM115 - it stays open as long as the broker runs
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        lock.close()
        raise DirectoryInUse(f"another broker works on {directory}") from error
    return lock
