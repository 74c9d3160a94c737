"""What every simulated world stands on: one clock, one network, one broker on a simulated disk, and its crashes."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from fencepost.broker.settings.values import BrokerConfig
from fencepost.check.broker_host import BrokerHost
from fencepost.check.disk import MemoryDisk
from fencepost.check.net import Network, NetworkFaults
from fencepost.check.scheduler import Scheduler, SimTask

__all__ = ["Stage"]


class Stage:
    """`random` decides everything; `trace` is told what happens, with its time."""

    def __init__(
        self, random: Random, faults: NetworkFaults, settings: Mapping[str, str | int | bool], lines: list[str]
    ) -> None:
        self._random = random
        self._lines = lines
        self._faults = faults
        self.scheduler = Scheduler()
        self.healed = False
        self.over = False
        self.crashes = 0
        self.network = Network(self.scheduler, self.fork(), faults, self.trace)
        self.disk = MemoryDisk()
        config = BrokerConfig({"fsync": "commit", "log.segment.bytes": 20_000, **settings})
        self.host = BrokerHost(self.network, self.disk, config, self.fork(), self.trace)

    def fork(self) -> Random:
        """A stream of chance of its own, so that one part's draws do not shift another's."""
        return Random(self._random.getrandbits(64))

    def trace(self, line: str) -> None:
        """Note what happened, with its time."""
        if not self.over:
            self._lines.append(f"{self.scheduler.now_ms()} {line}")

    def wait_for(self, task: SimTask, within_ms: float) -> None:
        """Let things happen until the task has ended. Raises what it raised, SimulationStuck."""
        self.scheduler.run_until(task.done, within_ms=within_ms)
        task.result()

    def heal(self) -> None:
        """No more faults of network and broker from now on."""
        self.healed = True
        self._faults.heal()
        self.start_host()
        self.disk.power_stays()
        self.trace("healed")

    def end(self) -> None:
        """The run is over, and nothing of it happens later."""
        self.over = True
        self.scheduler.bury()

    def start_host(self) -> None:
        """Start the broker if it is down; a power cut while it recovers is one more crash."""
        while not self.host.running:
            self.host.crash()
            self.host.start()

    def _is_healed(self) -> bool:
        return self.healed

    async def crash_again_and_again(self, interval_ms: float, power_cut_chance: float) -> None:
        """Crash the broker about every `interval_ms` until the stage is healed."""
        chance = self.fork()
        while True:
            await self.scheduler.sleep_ms(chance.uniform(0.2, 1.8) * interval_ms)
            if self._is_healed():
                return
            if chance.random() < power_cut_chance:
                self.disk.power_cut_after(chance.randint(0, 8))
                await self.scheduler.sleep_ms(chance.uniform(1, 50))
            if self._is_healed():
                return
            self.crashes += 1
            self.trace("crash")
            self.host.crash()
            await self.scheduler.sleep_ms(chance.uniform(1, 400))
            self.start_host()
