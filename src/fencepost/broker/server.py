"""The broker's shell: sockets, the clock, timers and fsync around one `BrokerCore`.

One event loop owns the core. The broker reads no further requests from a client that does not read its answers. Syncs
run in separate threads. After a failed sync the broker stops, because the synced data is unknown.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import time
import uuid
from collections.abc import Callable, Sequence

from fencepost.broker.clock_watch import ClockWatch
from fencepost.broker.core import BrokerCore
from fencepost.broker.disk.changes import Write
from fencepost.broker.disk.directory_checks import DirectoryGone, check_directory, lock_directory
from fencepost.broker.disk.files import File, Files, Sync
from fencepost.broker.disk.sync_threads import SyncThreads
from fencepost.broker.disk.system_files import SystemFiles, default_max_open, descriptor_limit
from fencepost.broker.effects import Close, Failed, HandleNext, Reply
from fencepost.broker.faults.files import FaultyFiles
from fencepost.broker.faults.table import FaultTable
from fencepost.broker.gauges import take_snapshot
from fencepost.broker.metrics.counters import Snapshot
from fencepost.broker.metrics.failure_guard import WorkFailed
from fencepost.broker.metrics.log_rate_limit import RateLimit, SubjectRateLimits
from fencepost.broker.network.admission import Admission, connections_for
from fencepost.broker.network.key_source import KeySource
from fencepost.broker.network.listening_sockets import ListeningSockets
from fencepost.broker.network.memory_watch import MemoryWatch
from fencepost.broker.network.sockets import ClientSocket
from fencepost.broker.security.listeners import Listener, listeners_of
from fencepost.broker.security.mechanisms import OAUTHBEARER
from fencepost.broker.settings.sasl import JWKS_URL
from fencepost.broker.settings.values import BrokerConfig
from fencepost.broker.timing.clock import Clock, SystemTime
from fencepost.protocol.cursor import Buffer
from fencepost.protocol.receiver import common_buffer

__all__ = ["BrokerServer", "system_clock"]

_NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)
_DESCRIPTOR_PAUSE_S = 0.1
_LONGEST_DELAY_S = 3600.0
_LOOK_S = 1.0
_SLOW_MS = 500
_STRIDES = 2000  # most steps of a jump in time

_log = logging.getLogger("fencepost.broker")


def system_clock() -> Clock:
    """Return a clock that follows the system's time and never goes back."""
    wall_s = time.time  # looked up now, so that a test that replaces it affects brokers made later
    system = SystemTime(lambda: int(wall_s() * 1000), _steady_ms)
    return Clock(system.now_ms, system)


class BrokerServer:
    """One broker over one data directory.

    `clock`: its time. `faults`: injected faults.

    It listens at `host` and `port`, or at the addresses in the setting `listeners`. After `await start()`, `listeners`
    have their ports and `address` is that of the first one. `failed` completes with the reason if the broker has to
    stop. `await stop()` closes the logs cleanly. Raises InvalidSetting for invalid listeners.
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
        self._faults = faults
        self._clients: dict[int, ClientSocket] = {}
        self.input, self.sealed_input = common_buffer(), common_buffer()
        self._admission = Admission(
            min(config.number("max.connections"), connections_for(descriptor_limit(), default_max_open())),
            config.number("max.connections.per.ip"),
            config.number("connections.max.idle.ms"),
        )
        self._refused, self._displaced, self._postponed = RateLimit(), RateLimit(), RateLimit()
        self._handshakes = SubjectRateLimits("failed handshakes")
        self.now_ms = ClockWatch(self.clock, _steady_ms, self._time_jumped).now_ms
        """The broker's time, milliseconds since the epoch."""
        self._stopping = False
        self._next_client = 0
        self._listening = ListeningSockets(self, _steady_ms)
        self._timer: asyncio.TimerHandle | None = None
        self._idle_timer: asyncio.TimerHandle | None = None
        self._directory_timer: asyncio.TimerHandle | None = None
        self._memory = MemoryWatch(config, self._clients, self.call_later, _steady_ms, lambda: self.core.metrics)
        self._timer_due: tuple[int | None, int | None] = (None, None)
        self._threads = SyncThreads()
        self._syncing: asyncio.Task[None] | None = None
        self._writing: asyncio.Task[None] | None = None
        self._slow_disk = RateLimit(60_000)
        self._moving = asyncio.Lock()
        self._lock = -1
        self._files: SystemFiles | None = None
        self._key_source: KeySource | None = None
        self.core: BrokerCore
        self.address = (host, port)
        self.failed: asyncio.Future[None]

    def _time_jumped(self, now_ms: int, by_ms: int) -> None:
        self.core.time_jumped(now_ms, by_ms)

    async def start(self) -> None:
        """Recover the data directory and listen. Raises OSError, DirectoryInUse and what `BrokerCore.open` raises."""
        self._loop = asyncio.get_running_loop()
        self.failed = self._loop.create_future()
        self._lock = lock_directory(self._directory)
        try:
            self._files = SystemFiles(self._directory, durable=self._config.text("fsync") != "never")
            files: Files = self._files if self._faults is None else FaultyFiles(self._files, self._faults, time.sleep)
            self.core = BrokerCore(
                files,
                self._config,
                new_uuid=uuid.uuid4,
                data_directory=self._directory,
                steady_ms=_steady_ms,
                faults=self._faults,
            )
            self.core.credentials.system_ms = self.clock.system_ms
            if any(OAUTHBEARER in listener.mechanisms for listener in self.listeners):
                refresh_ms = self._config.number("sasl.oauthbearer.jwks.endpoint.refresh.ms")
                self._key_source = KeySource(self._config.text(JWKS_URL), refresh_ms, self.core.credentials.keys)
                await asyncio.to_thread(self._key_source.start)
            self.core.open(self.now_ms())
            self.core.listeners = self.listeners
            self.core.answer_room = self._memory.answers.room
            await self._listening.open(self.listeners)
        except BaseException:
            for client in list(self._clients.values()):
                client.abort()
            self._listening.close()
            self._end_threads()
            self._leave_directory()
            raise
        self.address = (self.listeners[0].host, self.listeners[0].port)
        self._check_directory()
        self.pump()

    async def stop(self, *, clean: bool = True) -> None:
        """Stop accepting, close the connections and the logs. With `clean` false the logs are left as they are."""
        self._stopping = True
        self._listening.stop_accepting()
        self._memory.stop()
        for timer in (self._timer, self._idle_timer, self._directory_timer):
            if timer is not None:
                timer.cancel()
        for task in (self._syncing, self._writing):
            if task is not None:
                await asyncio.wait((task,))  # requests that wait for it are answered
        for client in list(self._clients.values()):
            client.abort()
        await self._synced()  # the end of one sync may begin the next
        self._listening.close()
        self._end_threads()
        try:
            if clean and not self.failed.done():
                self.core.close(self._threads.do_all)
        finally:
            self._leave_directory()

    def _end_threads(self) -> None:
        self._threads.stop()
        if self._key_source is not None:
            self._key_source.stop()

    def _leave_directory(self) -> None:
        """Close what a kill, a failure or a start that failed has left open, and unlock the directory."""
        if self._files is not None:
            self._files.close()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def pump(self) -> None:
        """Carry out the core's effects, and schedule its next call."""
        self._perform()
        while self.core.follow_up():
            self._perform()
        if self.core.deadline_signal.is_set and not self._stopping:
            # While time stands still, only clients' waiting times are due.
            due = (None if self.clock.frozen else self.core.next_deadline_ms(), self.core.next_wait_ms())
            self.core.deadline_signal.is_set = False
            if due != self._timer_due:
                self._set_timer(*due)

    def _look_again(self) -> None:
        """Ask the core for all its deadlines at the next `pump`."""
        self._timer_due = (None, None)
        self.core.deadline_signal.is_set = True

    def _perform(self) -> None:
        effects = self.core.take_effects()
        if not effects:
            return
        clients, steady_ms = self._clients, _steady_ms()
        replies: dict[int, list[Buffer]] = {}
        for effect in effects:
            if isinstance(effect, Reply):
                replies.setdefault(effect.connection_id, []).extend(effect.buffers)
            elif isinstance(effect, HandleNext):
                if (client := clients.get(effect.connection_id)) is not None:
                    client.handle_next()
            elif isinstance(effect, WorkFailed):
                pass  # it is logged and counted
            elif isinstance(effect, Sync):
                self._syncing = self._loop.create_task(self._sync(effect))
            elif isinstance(effect, Write):
                self._writing = self._loop.create_task(self._write(effect))
            else:
                if isinstance(effect, Failed):
                    _log.error("closing connection %s: a request failed", effect.connection_id, exc_info=effect.error)
                self._send(effect.connection_id, replies.pop(effect.connection_id, ()), steady_ms)
                client = clients.get(effect.connection_id)
                if client is not None:
                    is_reset = isinstance(effect, Close) and effect.reset
                    client.abort() if is_reset else client.close()
        for connection_id, buffers in replies.items():
            self._send(connection_id, buffers, steady_ms)

    def _send(self, connection_id: int, buffers: Sequence[Buffer], steady_ms: int) -> None:
        """Send all present answers of one connection in one write."""
        client = self._clients.get(connection_id)
        if client is not None and buffers:
            client.send(buffers)
            self._admission.used(steady_ms, connection_id, is_request=False)

    async def advance(self, duration_ms: int) -> None:
        """Advance the time, and return when all work due in between is done and durable.

        Time moves from one deadline to the next, so that consequences happen in order.
        """
        async with self._moving:
            was_frozen = self.clock.frozen
            self.clock.freeze()
            try:
                await self._advance(self.clock.now_ms() + duration_ms, max(1, duration_ms // _STRIDES))
            finally:
                if not was_frozen:
                    self.clock.thaw()
                self._look_again()
                self.pump()

    async def freeze(self) -> None:
        """Let time stand still."""
        async with self._moving:
            self.clock.freeze()
            self._look_again()
            self.pump()

    async def thaw(self) -> None:
        """Let time go on."""
        async with self._moving:
            self.clock.thaw()
            self._look_again()
            self.pump()

    def read_certificates(self) -> None:
        """Reload the TLS files of all listeners, as happens at a new connection after a change."""
        for certificates in self._listening.certificates:
            certificates.context()
        _log.info(
            "SIGHUP: the TLS files of %d listeners were checked; other settings are read only at a start",
            len(self._listening.certificates),
        )

    async def snapshot(self) -> Snapshot:
        """Return the broker's counters and its present state."""
        return take_snapshot(
            self.core,
            self.now_ms(),
            connections=len(self._clients),
            untaken_answer_bytes=self._memory.answers.total,
            unfinished_request_bytes=self._memory.requests.total,
            certificate_end_timestamp_seconds=min(
                (each.end_s for each in self._listening.certificates if each.end_s is not None), default=0
            ),
            clock_ahead_seconds=self.clock.ahead_of_system_ms / 1000,
        )

    def disconnect(self, client_id: str | None) -> int:
        """Reset the connections of that client, or all. Return their number."""
        count = self.core.disconnect(client_id)
        self.pump()
        return count

    def enter(self, client: ClientSocket, host: str) -> int:
        """Register a new connection from that address. Return its id, or 0 if it is refused."""
        now_ms = _steady_ms()
        connection_id = self._next_client + 1
        admitted = self._admission.enter(now_ms, connection_id, host)
        metrics = self.core.metrics
        if admitted.refusal is not None:
            metrics.count("refused_connections")
            if times := self._refused.hit(now_ms):
                _log.warning("a connection is refused: %s; %d since the last such message", admitted.refusal, times)
            return 0
        if admitted.displaced is not None:
            metrics.count("displaced_connections")
            if times := self._displaced.hit(now_ms):
                _log.warning(
                    "connection limit reached, an idle connection is closed; %d since the last such message",
                    times,
                )
            self._drop(admitted.displaced)
        self._next_client = connection_id
        self._clients[connection_id] = client
        self._watch_idle()
        return connection_id

    def request_arrived(self, connection_id: int, steady_ms: int, *, is_known: bool) -> None:
        """Note that a whole request has arrived at that time. `is_known`: the client has authenticated."""
        self._admission.used(steady_ms, connection_id, is_request=is_known)

    def leave(self, connection_id: int) -> None:
        """Forget a connection."""
        self._admission.leave(connection_id)
        self._memory.left(connection_id)
        if self._clients.pop(connection_id, None) is not None and not self.failed.done():
            self.core.disconnected(self.now_ms(), connection_id)
            self.call_soon(self.pump)

    def call_soon(self, action: Callable[[], None]) -> None:
        """Call `action` after the present work."""
        self._loop.call_soon(action)

    def call_later(self, delay_s: float, action: Callable[[], None]) -> asyncio.TimerHandle:
        """Call `action` after a delay."""
        return self._loop.call_later(delay_s, action)

    def handshake_failed(self, listener: Listener, host: str, reason: str) -> None:
        """Log and count a failed TLS handshake."""
        self.core.metrics.count("failed_handshakes")
        if (end := self._handshakes.hit(_steady_ms(), listener.name, host, reason)) is not None:
            _log.warning("listener %s: a client at %s is refused: %s%s", listener.name, host, reason, end)

    def record_unread(self, connection_id: int, unread_bytes: int) -> None:
        """Note the number of written bytes that the client has not read."""
        if connection_id in self._clients:
            self._memory.record_unread(connection_id, unread_bytes)

    def record_held(self, connection_id: int, held_bytes: int, *, finished: bool) -> None:
        """Note the memory held for requests of the connection that are incomplete or waiting."""
        self._memory.record_held(connection_id, held_bytes, finished=finished)

    def may_read(self, connection_id: int) -> bool:
        """Return true if there is memory for more requests of the connection."""
        return self._memory.requests.may_read(connection_id)

    def _drop(self, connection_id: int) -> None:
        client = self._clients.get(connection_id)
        if client is not None:
            client.abort()

    def _watch_idle(self) -> None:
        """Schedule the check for idle connections at the time when the longest idle one may expire."""
        due_ms = self._admission.next_ms()
        if self._idle_timer is None and due_ms is not None and not self._stopping:
            delay_s = min(max(0, due_ms - _steady_ms()) / 1000, _LONGEST_DELAY_S)
            self._idle_timer = self._loop.call_later(delay_s, self._close_idle)

    def _close_idle(self) -> None:
        self._idle_timer = None
        for connection_id in self._admission.idle(_steady_ms()):
            self.core.metrics.count("idle_connections")
            _log.info("closing connection %s: idle for too long", connection_id)
            self._drop(connection_id)
        self._watch_idle()

    def fail(self, error: BaseException) -> None:
        """Stop answering and report the reason."""
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
            raise RuntimeError(f"the broker does not become idle: work is always due at {due_ms}")
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
        """Do the due work, and wait until all appended records are durable and their consequences are done.

        Raises the error that ended the broker, if any.
        """
        self._on_time()
        await self._synced()
        if self.failed.done():
            self.failed.result()

    async def _synced(self) -> None:
        """Return when no sync or write is in progress and none follows."""
        while running := [task for task in (self._syncing, self._writing) if task is not None and not task.done()]:
            await asyncio.wait(running)

    def _on_time(self) -> None:
        self._look_again()
        if not self.failed.done():
            try:
                self.core.on_time(self.now_ms())
            except Exception as error:  # noqa: BLE001 - nobody else would learn of it
                _log.exception("the broker stops: due work failed")
                self.fail(error)
                return
            self.pump()

    def _check_directory(self) -> None:
        """Check the data directory periodically, because without a sync nothing else would detect its loss."""
        if self._is_in_place(self.core.deleted_file_monitor.check_next):
            self._directory_timer = self._loop.call_later(_LOOK_S, self._check_directory)

    def _is_in_place(self, look: Callable[[], None] = lambda: None) -> bool:
        """Return true if the data directory still exists and `look` finds it complete. Stop the broker otherwise."""
        try:
            check_directory(self._directory, self._lock)
            look()
        except DirectoryGone as error:
            if not self.failed.done():
                _log.critical("the broker stops: %s", error)
                self.fail(error)
            return False
        return True

    async def _sync(self, effect: Sync) -> None:
        began_ms = _steady_ms()
        try:
            failed = await self._run_syncs(effect.files)
            took_ms = _steady_ms() - began_ms
            self.core.metrics.syncs.add(took_ms)
            self._note_slowness(took_ms)
            if not self._is_in_place():  # before any client is told that its data is safe
                return
            self.core.synced(self.now_ms(), effect.token, failed)
        except Exception as error:  # noqa: BLE001 - whatever it is, what is on disk is in doubt
            _log.critical("the broker stops: data could not be synced", exc_info=True)
            self.fail(error)
            return
        self.pump()

    async def _write(self, effect: Write) -> None:
        """Carry out a step of a change in another thread."""
        began_ms = _steady_ms()
        try:
            error = await self._threads.write(effect.step)
            self._note_slowness(_steady_ms() - began_ms)
            if self.failed.done() or not self._is_in_place():
                return
            self.core.written(self.now_ms(), effect.token, error)
        except Exception as failure:  # noqa: BLE001 - nobody else would learn of it
            _log.critical("the broker stops: a change of its small files failed", exc_info=True)
            self.fail(failure)
            return
        self.pump()

    def _note_slowness(self, took_ms: int) -> None:
        if took_ms >= _SLOW_MS and (times := self._slow_disk.hit(_steady_ms())):
            _log.warning(
                "the disk is slow: a sync took %d ms, and requests waited for it; %d took %d ms or more since "
                "the last such message",
                *(took_ms, times, _SLOW_MS),
            )

    async def _run_syncs(self, files: Sequence[File]) -> list[tuple[File, OSError]]:
        """Sync the files.

        Return those that failed, with their errors.

        Without free file descriptors nothing was tried, so it is repeated. Meanwhile no reply depends on the data.
        """
        failed: list[tuple[File, OSError]] = []
        while True:
            outcomes = await self._threads.sync(files)
            failed += [(file, error) for file, error in outcomes if error.errno not in _NO_DESCRIPTORS]
            files = [file for file, error in outcomes if error.errno in _NO_DESCRIPTORS]
            if not files:
                return failed
            self.core.metrics.count("postponed_syncs")
            if times := self._postponed.hit(_steady_ms()):
                _log.error(
                    "no descriptors left to sync with: answers wait; %d tries since the last such message", times
                )
            if self._stopping:
                for client in list(self._clients.values()):
                    client.abort()
            await asyncio.sleep(_DESCRIPTOR_PAUSE_S)


def _steady_ms() -> int:
    return int(time.monotonic() * 1000)
