"""The broker as an actor of the simulated world: the production core on a simulated disk, killed and started again."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from uuid import UUID

from fencepost.broker.core import BrokerCore
from fencepost.broker.disk.files import File, Sync
from fencepost.broker.effects import Close, Failed, Reply
from fencepost.broker.settings.values import BrokerConfig
from fencepost.broker.timing.clock import Clock, SystemTime
from fencepost.check.disk import MemoryDisk, PowerCut
from fencepost.check.machine import Machine
from fencepost.check.net import Network, ServerConnection
from fencepost.protocol.frame import FrameReader

__all__ = ["BrokerHost"]

HOST, PORT = "broker", 9092


class BrokerHost:
    """Connections in, frames to the core, effects out. A sync takes a random time, during which a crash may come.

    It does with what goes wrong what `fencepost.broker.server` does: a request that fails costs its connection; a sync
    or timer that fails, the broker. The `machine` has the clock, which may jump, and says how long a sync takes.
    `found` is told of every failure that no disk is the reason of.
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
        """What the next start has."""
        self.lost_power = False
        """Whether it went down without power, the last time that it went down."""
        self._random = random
        self._trace = trace
        self._machine = machine
        self._found = found
        self._core: BrokerCore | None = None
        self._clock = self._new_clock()
        self._connections: dict[int, ServerConnection] = {}
        self._readers: dict[int, FrameReader] = {}
        self._due: tuple[int | None, int | None] = (None, None)
        self.bootstrap_servers = f"{HOST}:{PORT}"

    @property
    def running(self) -> bool:
        return self._core is not None

    @property
    def wants_restart(self) -> bool:
        """Whether a partition takes nothing more until the next start."""
        return self._core is not None and self._core.durability.failures > 0

    def start(self) -> None:
        """Open the data directory as it is and answer; not `running` afterwards when the power failed meanwhile, or
        the disk did."""
        core = BrokerCore(
            self._disk,
            self.config,
            new_uuid=lambda: UUID(int=self._random.getrandbits(128), version=4),
            steady_ms=self._scheduler.now_ms,
        )
        core.listeners[0].advertised = (HOST, PORT)
        self._core = core
        self._clock = self._new_clock()
        self._do(core, core.open)
        if self.running:
            self.lost_power = False
            self._network.listen(HOST, PORT, self)

    def crash(self, *, power: bool = True) -> None:
        """kill -9; and with the power what was not synced is lost or torn, as the disk's dice fall."""
        self._core = None
        self._due = (None, None)
        self._network.unlisten(HOST, PORT)
        for connection in list(self._connections.values()):
            connection.reset()
        self._connections.clear()
        self._readers.clear()
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
        self._readers[connection.number] = FrameReader()
        core.connected(self._now_ms(core), connection.number, (HOST, PORT), ("client", connection.number))

    def received(self, connection: ServerConnection, data: bytes) -> None:
        core, reader = self._core, self._readers.get(connection.number)
        if core is None or reader is None:
            return
        for frame in reader.feed(data):
            self._do(core, partial(core.handle_frame, connection_id=connection.number, frame=frame))

    def lost(self, connection: ServerConnection) -> None:
        self._readers.pop(connection.number, None)
        if self._connections.pop(connection.number, None) is not None and self._core is not None:
            self._core.disconnected(self._now_ms(self._core), connection.number)

    def _new_clock(self) -> Clock:
        system = SystemTime(self._machine.wall_ms, self._scheduler.now_ms)
        return Clock(system.now_ms, system)

    def _now_ms(self, core: BrokerCore) -> int:
        now_ms = self._clock.now_ms()
        jump_ms = self._clock.take_jump()
        if jump_ms:
            core.time_jumped(now_ms, jump_ms)
        return now_ms

    def _tell(self, what: str, error: Exception) -> None:
        if isinstance(error, OSError):
            self._trace(f"{what}: {error}")
        else:
            self._found(f"{what}: {type(error).__name__}: {error}")

    def _perform(self, core: BrokerCore) -> None:
        for effect in core.take_effects():
            match effect:
                case Reply(connection_id, buffers):
                    connection = self._connections.get(connection_id)
                    if connection is not None:
                        connection.send(b"".join(buffers))
                case Close(connection_id):
                    connection = self._connections.get(connection_id)
                    if connection is not None:
                        connection.reset()
                case Failed(connection_id, error):
                    self._tell("a request failed", error)
                    connection = self._connections.get(connection_id)
                    if connection is not None:
                        connection.reset()
                case Sync():
                    self._scheduler.call_later(self._machine.sync_ms(), partial(self._synced, core, effect))
        self._set_timer(core)

    def _do(self, core: BrokerCore, action: Callable[[int], None]) -> None:
        """Let the core do something and carry out what it asks for. A power cut inside it is a crash, an error its
        end."""
        if core is not self._core:
            return  # that process is dead
        try:
            action(self._now_ms(core))
        except PowerCut:
            self._trace("power cut")
            self.crash()
        except Exception as error:  # noqa: BLE001 (as the server: told, and the broker stops)
            self._tell("the broker stops", error)
            self.crash(power=False)
        else:
            self._perform(core)

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

    def _set_timer(self, core: BrokerCore) -> None:
        """Come back when something is due by the broker's time, or by the clock that never jumps."""
        due = (core.next_deadline_ms(), core.next_wait_ms())
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
        self._do(core, core.on_time)
