"""The broker in the simulated world: the production core on a simulated disk, with crashes and restarts."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Final
from uuid import UUID

from fencepost.broker.core import BrokerCore
from fencepost.broker.disk.changes import Write
from fencepost.broker.disk.files import File, Sync
from fencepost.broker.effects import Close, Failed, HandleNext, Reply
from fencepost.broker.metrics.failure_guard import WorkFailed
from fencepost.broker.network import backpressure
from fencepost.broker.network.backpressure import MOST_UNREAD_BYTES, UnreadResponses
from fencepost.broker.settings.values import BrokerConfig
from fencepost.broker.timing.clock import Clock, SystemTime
from fencepost.protocol.receiver import Receiver
from fencepost_lab.check.disk import MemoryDisk, PowerCut
from fencepost_lab.check.machine import Machine
from fencepost_lab.check.net import Network, ServerConnection

__all__ = ["SimBroker"]

HOST, PORT = "broker", 9092
SMALL_ANSWERS_BYTES: Final = 1 << 16
"""Memory in bytes for answers, in addition to the answers of one turn's requests."""
LOOK_MS: Final = 1_000.0


class SimBroker:
    """A broker process that passes incoming frames to the core and carries out the core's effects.

    A sync takes a random time, and a crash may interrupt it.

    It treats errors as `fencepost.broker.server` does: a failed request costs its connection, and a failed sync or
    timer stops the broker. `machine` supplies the clock, which may jump, and the duration of a sync. `found` is called
    for each failure that no disk fault explains.
    """

    def __init__(
        self,
        network: Network,
        disk: MemoryDisk,
        config: BrokerConfig,
        random: Random,
        trace: Callable[[str], None],
        machine: Machine,
        found: Callable[[str], None],
    ) -> None:
        self._network = network
        self._scheduler = network.scheduler
        self._disk = disk
        self.config = config
        """Configuration of the next start."""
        self.lost_power = False
        """True if the last stop was a loss of power."""
        self._random = random
        self._trace = trace
        self._machine = machine
        self._found = found
        self._core: BrokerCore | None = None
        self._clock = self._new_clock()
        self._connections: dict[int, ServerConnection] = {}
        self._readers: dict[int, Receiver] = {}
        self._frames: dict[int, deque[memoryview]] = {}
        self._handed: dict[int, int] = {}
        self._answers = self._new_answers()
        self._due: tuple[int | None, int | None] = (None, None)
        self.bootstrap_servers = f"{HOST}:{PORT}"

    @property
    def running(self) -> bool:
        return self._core is not None

    @property
    def wants_restart(self) -> bool:
        """True if a partition refuses records until the next start."""
        return self._core is not None and self._core.durability.failures > 0

    def start(self) -> None:
        """Open the data directory and serve. `running` stays false if the power or the disk failed during the start."""
        core = BrokerCore(
            self._disk,
            self.config,
            new_uuid=lambda: UUID(int=self._random.getrandbits(128), version=4),
            steady_ms=self._scheduler.now_ms,
        )
        core.listeners[0].advertised = (HOST, PORT)
        self._answers = self._new_answers()
        core.answer_room = self._answers.room
        self._core = core
        self._clock = self._new_clock()
        self._do(core, core.open)
        if self.running:
            self.lost_power = False
            self._network.listen(HOST, PORT, self)

    def crash(self, *, power: bool = True) -> None:
        """Kill the process.

        With `power=True` the machine loses power as well, and the disk draws what survives of unsynced data.
        """
        self._core = None
        self._due = (None, None)
        self._network.unlisten(HOST, PORT)
        for connection in list(self._connections.values()):
            connection.reset()
        self._connections.clear()
        self._readers.clear()
        self._frames.clear()
        self._handed.clear()
        if power:
            self.lost_power = True
            self._disk.crash(self._random.getrandbits(32))
        else:
            self._disk.kill()

    def accept(self, connection: ServerConnection) -> None:
        core = self._core
        if core is None:
            connection.reset()
            return
        self._connections[connection.number] = connection
        self._readers[connection.number] = Receiver()
        self._frames[connection.number] = deque()
        self._handed[connection.number] = 0
        core.connected(self._now_ms(core), connection.number, (HOST, PORT), ("client", connection.number))

    def received(self, connection: ServerConnection, data: bytes) -> None:
        reader = self._readers.get(connection.number)
        if self._core is not None and reader is not None:
            self._frames[connection.number].extend(reader.feed(data))
            self._work(connection)

    def lost(self, connection: ServerConnection) -> None:
        for of_connection in (self._readers, self._frames, self._handed):
            of_connection.pop(connection.number, None)
        self._answers.note(self._scheduler.now_ms(), connection.number, 0)
        if self._connections.pop(connection.number, None) is not None and self._core is not None:
            self._core.disconnected(self._now_ms(self._core), connection.number)

    def taken(self, connection: ServerConnection) -> None:
        if connection.number in self._connections:
            self._note(connection)
            self._work(connection)

    def _work(self, connection: ServerConnection) -> None:
        """Handle the requests that are ready, as the server does."""
        while (core := self._core) is not None and (frames := self._frames.get(connection.number)):
            known = core.connection(connection.number)
            if known is None or known.closed:
                return
            unread_bytes = known.answered_bytes - self._handed[connection.number] + connection.unread_bytes
            if not backpressure.may_begin(known, frames[0], unread_bytes):
                return
            self._do(core, partial(core.handle_frame, connection_id=connection.number, frame=frames.popleft()))

    def _handle_next(self, connection: ServerConnection) -> None:
        if self._frames.get(connection.number):
            self._scheduler.call_soon(partial(self._work, connection))

    def _note(self, connection: ServerConnection) -> None:
        if connection.number not in self._connections:  # the connection broke while its last answer was sent
            return
        was_scarce = self._answers.is_scarce
        self._answers.note(self._scheduler.now_ms(), connection.number, connection.unread_bytes)
        if self._answers.is_scarce and not was_scarce:
            self._scheduler.call_later(LOOK_MS, partial(self._disconnect_slow, self._answers))

    def _disconnect_slow(self, answers: UnreadResponses) -> None:
        """Disconnect clients that do not read while too many answer bytes are unread."""
        if answers is not self._answers:
            return
        for number in answers.given_up(self._scheduler.now_ms()):
            self._trace(f"connection {number} is closed: its client does not take its answers")
            self._connections[number].reset()
        if answers.is_scarce:
            self._scheduler.call_later(LOOK_MS, partial(self._disconnect_slow, answers))

    def _new_answers(self) -> UnreadResponses:
        return UnreadResponses(self.config.number("queued.max.response.bytes"))

    def _new_clock(self) -> Clock:
        system = SystemTime(self._machine.wall_ms, self._scheduler.now_ms)
        return Clock(system.now_ms, system)

    def _now_ms(self, core: BrokerCore) -> int:
        now_ms = self._clock.now_ms()
        jump_ms = self._clock.take_jump()
        if jump_ms:
            core.time_jumped(now_ms, jump_ms)
        return now_ms

    def _trace_failure(self, what: str, error: Exception) -> None:
        if isinstance(error, OSError):
            self._trace(f"{what}: {error}")
        else:
            self._found(f"{what}: {type(error).__name__}: {error}")

    def _perform(self, core: BrokerCore) -> None:
        for effect in core.take_effects():
            match effect:
                case Reply(connection_id, buffers):
                    self._send(connection_id, b"".join(buffers))
                case HandleNext(connection_id):
                    connection = self._connections.get(connection_id)
                    if connection is not None:
                        self._handle_next(connection)
                case Close(connection_id):
                    connection = self._connections.get(connection_id)
                    if connection is not None:
                        connection.reset()
                case Failed() | WorkFailed():
                    self._failed(effect)
                case Write():
                    self._scheduler.call_later(self._machine.sync_ms(), partial(self._written, core, effect))
                case Sync():
                    self._scheduler.call_later(self._machine.sync_ms(), partial(self._synced, core, effect))
        self._set_timer(core)

    def _send(self, connection_id: int, data: bytes) -> None:
        connection = self._connections.get(connection_id)
        if connection is not None:
            if connection.unread_bytes > MOST_UNREAD_BYTES + SMALL_ANSWERS_BYTES:
                self._found(f"one client is answered while {connection.unread_bytes} bytes wait for it")
            self._handed[connection_id] += len(data)
            connection.send(data)
            self._note(connection)
            self._handle_next(connection)

    def _failed(self, effect: Failed | WorkFailed) -> None:
        if isinstance(effect, WorkFailed):
            self._trace_failure(f"{effect.subject} failed", effect.error)
            return
        self._trace_failure("a request failed", effect.error)
        connection = self._connections.get(effect.connection_id)
        if connection is not None:
            connection.reset()

    def _do(self, core: BrokerCore, action: Callable[[int], object]) -> None:
        """Let the core act and carry out its effects.

        A power cut inside is handled as a crash; an error stops the broker.
        """
        if core is not self._core:
            return  # the process of that core is dead
        try:
            action(self._now_ms(core))
        except PowerCut:
            self._trace("power cut")
            self.crash()
        except Exception as error:  # noqa: BLE001 (reported, and the broker stops, as the server does)
            self._trace_failure("the broker stops", error)
            self.crash(power=False)
        else:
            self._perform(core)
            if core.transactions.unfinished_ids:
                self._do(core, lambda _: core.follow_up())

    def _synced(self, core: BrokerCore, sync: Sync) -> None:
        def finish(now_ms: int) -> None:
            failed: list[tuple[File, OSError]] = []
            for file in sync.files:
                try:
                    file.sync()
                except OSError as error:
                    self._trace(f"sync failed: {error}")
                    failed.append((file, error))
            core.synced(now_ms, sync.token, failed)

        self._do(core, finish)

    def _written(self, core: BrokerCore, write: Write) -> None:
        def finish(now_ms: int) -> None:
            error: Exception | None = None
            try:
                write.step()
            except Exception as failure:  # noqa: BLE001 - passed to the core, as the server does
                self._trace(f"write failed: {failure}")
                error = failure
            core.written(now_ms, write.token, error)

        self._do(core, finish)

    def _set_timer(self, core: BrokerCore) -> None:
        """Schedule the next wake-up by the earlier of the broker's wall clock and its monotonic clock."""
        if not core.deadline_signal.is_set:
            return
        due = (core.next_deadline_ms(), core.next_wait_ms())
        core.deadline_signal.is_set = False
        if due == self._due:
            return
        self._due = due
        due_ms, wait_ms = due
        delays_ms = [] if due_ms is None else [due_ms - self._now_ms(core)]
        if wait_ms is not None:
            delays_ms.append(wait_ms - self._scheduler.now_ms())
        if delays_ms:
            self._scheduler.call_later(min(delays_ms), partial(self._on_time, core, due))

    def _on_time(self, core: BrokerCore, due: tuple[int | None, int | None]) -> None:
        if core is not self._core or self._due != due:
            return
        self._due = (None, None)
        core.deadline_signal.is_set = True
        self._do(core, core.on_time)
