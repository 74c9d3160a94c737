"""The broker as an actor of the simulated world: the production core on a simulated disk, killed and started again."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from uuid import UUID

from fencepost.broker.core import BrokerCore
from fencepost.broker.effects import Close, Reply, Sync
from fencepost.broker.settings.values import BrokerConfig
from fencepost.check.disk import MemoryDisk, PowerCut
from fencepost.check.net import Network, ServerConnection
from fencepost.protocol.frame import FrameReader

__all__ = ["BrokerHost"]

HOST, PORT = "broker", 9092


class BrokerHost:
    """Connections in, frames to the core, effects out. A sync takes a random time, during which a crash may come."""

    def __init__(
        self, network: Network, disk: MemoryDisk, config: BrokerConfig, random: Random, trace: Callable[[str], None]
    ) -> None:
        self._network = network
        self._scheduler = network.scheduler
        self._disk = disk
        self._config = config
        self._random = random
        self._trace = trace
        self._core: BrokerCore | None = None
        self._connections: dict[int, ServerConnection] = {}
        self._readers: dict[int, FrameReader] = {}
        self._timer_at: int | None = None
        self.bootstrap_servers = f"{HOST}:{PORT}"

    @property
    def running(self) -> bool:
        return self._core is not None

    def start(self) -> None:
        """Open the data directory as it is and answer; not `running` afterwards when the power failed meanwhile."""
        core = BrokerCore(self._disk, self._config, new_uuid=lambda: UUID(int=self._random.getrandbits(128), version=4))
        core.listeners[0].advertised = (HOST, PORT)
        self._core = core
        self._do(core, lambda: core.open(self._scheduler.now_ms()))
        if self.running:
            self._network.listen(HOST, PORT, self)

    def crash(self) -> None:
        """kill -9, and the power with it: what was not synced is lost or torn, as the disk's dice fall."""
        self._core = None
        self._timer_at = None
        self._network.unlisten(HOST, PORT)
        for connection in list(self._connections.values()):
            connection.reset()
        self._connections.clear()
        self._readers.clear()
        self._disk.crash(self._random.getrandbits(32))

    def accept(self, connection: ServerConnection) -> None:
        core = self._core
        if core is None:
            connection.reset()
            return
        self._connections[connection.number] = connection
        self._readers[connection.number] = FrameReader()
        core.connected(self._scheduler.now_ms(), connection.number, (HOST, PORT), ("client", connection.number))

    def received(self, connection: ServerConnection, data: bytes) -> None:
        core, reader = self._core, self._readers.get(connection.number)
        if core is None or reader is None:
            return
        for frame in reader.feed(data):
            self._do(core, partial(core.handle_frame, self._scheduler.now_ms(), connection.number, frame))

    def lost(self, connection: ServerConnection) -> None:
        self._readers.pop(connection.number, None)
        if self._connections.pop(connection.number, None) is not None and self._core is not None:
            self._core.disconnected(self._scheduler.now_ms(), connection.number)

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
                case Sync():
                    self._scheduler.call_later(self._random.uniform(0.1, 5.0), partial(self._synced, core, effect))
        self._set_timer(core)

    def _do(self, core: BrokerCore, action: Callable[[], None]) -> None:
        """Let the core do something and carry out what it asks for. A power cut inside it is a crash."""
        if core is not self._core:
            return  # that process is dead
        try:
            action()
        except PowerCut:
            self._trace("power cut")
            self.crash()
        else:
            self._perform(core)

    def _synced(self, core: BrokerCore, sync: Sync) -> None:
        def finish() -> None:
            for file in sync.files:
                file.sync()
            core.synced(self._scheduler.now_ms(), sync.token)

        self._do(core, finish)

    def _set_timer(self, core: BrokerCore) -> None:
        deadline = core.next_deadline_ms()
        if deadline is None or (self._timer_at is not None and self._timer_at <= deadline):
            return
        self._timer_at = deadline
        self._scheduler.call_at(deadline, lambda: self._on_time(core, deadline))

    def _on_time(self, core: BrokerCore, deadline: int) -> None:
        if core is not self._core or self._timer_at != deadline:
            return
        self._timer_at = None
        self._do(core, lambda: core.on_time(self._scheduler.now_ms()))
