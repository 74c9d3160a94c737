"""Base of every simulated world: one clock, one network, and one broker on a simulated disk with crashes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from random import Random
from typing import Final

from fencepost.broker.settings.values import BrokerConfig
from fencepost_lab.check.disk import MemoryDisk
from fencepost_lab.check.machine import Machine, MachineFaults
from fencepost_lab.check.net import Network, NetworkFaults
from fencepost_lab.check.scheduler import Scheduler, SimTask
from fencepost_lab.check.sim_broker import SimBroker

__all__ = ["SimCluster"]

KILLED_ONLY: Final = 0.3
"""Fraction of crashes without loss of power, in which all written data survives."""
WATCHED_MS: Final = (50.0, 2_000.0)
"""Range of ms until an operator notices that the broker stopped, or that a partition needs a restart."""


class SimCluster:
    """The base of a world.

    `random` is the source of all random choices, `lines` receives the events with their times, and `found` is called
    for each failure of the broker that no disk fault explains.
    """

    def __init__(
        self,
        random: Random,
        faults: NetworkFaults,
        settings: Mapping[str, str | int | bool],
        lines: list[str],
        found: Callable[[str], None],
    ) -> None:
        self._random = random
        self._lines = lines
        self._faults = faults
        self.scheduler = Scheduler()
        self.healed = False
        self.over = False
        self.happened: Counter[str] = Counter()
        """Number of faults by kind."""
        self.at_rest: Callable[[], None] = lambda: None
        """Called while the broker is down, directly before its next start."""
        self.power_may_go: Callable[[], bool] = lambda: True
        """Called before each power loss. False turns it into a kill of the process."""
        self.network = Network(self.scheduler, self.fork(), faults, self.record_fault)
        self.disk = MemoryDisk()
        self.machine = Machine(self.scheduler, self.disk, self.fork(), self.record_fault)
        config = self.configured(settings)
        self.host = SimBroker(self.network, self.disk, config, self.fork(), self.trace, self.machine, found)

    @staticmethod
    def configured(settings: Mapping[str, str | int | bool]) -> BrokerConfig:
        """Return a broker's configuration with fsync for every commit."""
        return BrokerConfig({"fsync": "commit", "log.segment.bytes": 20_000, **settings})

    def fork(self) -> Random:
        """Return a separate random generator, so that one part's draws do not change another's."""
        return Random(self._random.getrandbits(64))

    def trace(self, line: str) -> None:
        """Record an event with its time."""
        if not self.over:
            self._lines.append(f"{self.scheduler.now_ms()} {line}")

    def record_fault(self, kind: str, line: str) -> None:
        """Record and count a fault."""
        self.happened[kind] += 1
        self.trace(line)

    def wait_for(self, task: SimTask, within_ms: float) -> None:
        """Run the world until the task has ended. Raises the task's exception, or SimulationStuck."""
        self.scheduler.run_until(task.done, within_ms=within_ms)
        task.result()

    def heal(self) -> None:
        """End all faults of network, machine and broker."""
        self.healed = True
        self._faults.heal()
        self.machine.heal()
        if self.host.wants_restart:
            self.trace("the broker is started anew")
            self.host.crash(power=False)
        if not self.host.running:
            self._crash(power=self.host.lost_power)
            self._start()
        self.trace("healed")

    def end(self) -> None:
        """End the run and close all tasks."""
        self.over = True
        self.scheduler.close()

    async def start_host(self, *, power: bool = True) -> None:
        """Start the broker if it is down, repeatedly. A power cut during recovery counts as another crash."""
        while not self.healed and not self.host.running:
            self._crash(power=power)
            self._start()
            if not self.host.running:
                await self.scheduler.sleep_ms(20)

    def _crash(self, *, power: bool) -> None:
        self.host.crash(power=power and self.power_may_go())

    def _start(self) -> None:
        self.at_rest()
        self.host.start()

    def inject_machine_faults(self, machine: MachineFaults) -> None:
        """Draw these faults of the machine until the cluster is healed, and restart a broker that stopped."""
        if machine.any:
            self.scheduler.spawn(self.machine.inject_faults(machine))
            self.scheduler.spawn(self._restart_if_stopped())

    async def _restart_if_stopped(self) -> None:
        chance = self.fork()
        while not self.healed:
            await self.scheduler.sleep_ms(chance.uniform(*WATCHED_MS))
            if self.host.wants_restart and not self.healed:
                self.trace("the broker is started anew")
                self.host.crash(power=False)
            if not self.host.running:
                await self.start_host(power=chance.random() < KILLED_ONLY)

    def _is_healed(self) -> bool:
        return self.healed

    async def crash_repeatedly(self, interval_ms: float, power_cut_chance: float, outage_ms: float = 0.0) -> None:
        """Crash the broker about every `interval_ms` until the cluster is healed.

        `outage_ms`: longest downtime, if longer than usual.
        """
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
            power = chance.random() >= KILLED_ONLY
            self.record_fault("crashes", "crash" if power else "kill -9 of the broker")
            self._crash(power=power)
            await self.scheduler.sleep_ms(chance.uniform(1, max(min(400, interval_ms), outage_ms)))
            await self.start_host(power=power)
