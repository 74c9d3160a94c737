"""A process of the simulated world.

It can be killed, frozen for minutes, or considered dead while it continues.

All actions of a process go through its clock. A fault takes effect before the n-th step, and a step ends at each await.
A kill or a freeze is therefore possible at every await.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, TypeVar

from fencepost.client.admin.core import AdminCore
from fencepost.client.net.cluster import Cluster
from fencepost.config import AdminConfig
from fencepost_lab.check.net import Network, SimRuntime
from fencepost_lab.check.scheduler import Scheduler, SimFuture

__all__ = ["Process", "ProcessLost"]

T = TypeVar("T")
Action = Callable[[], None]


class ProcessLost(Exception):
    """The process no longer answers. It may be dead, or still running."""


class ProcessClock(Scheduler):
    """The scheduler as seen by one process."""

    def __init__(self, outer: Scheduler) -> None:
        super().__init__()
        self.unfinished = outer.unfinished
        self._outer = outer
        self._held: list[Action] = []
        self._steps_left = 0
        self._call: Action | None = None
        self.frozen = False
        self.dead = False

    def now_ms(self) -> int:
        return self._outer.now_ms()

    def call_soon(self, action: Action) -> None:
        self._outer.call_soon(lambda: self._run(action))

    def call_later(self, delay_ms: float, action: Action) -> None:
        self._outer.call_later(delay_ms, lambda: self._run(action))

    def call_at(self, time_ms: float, action: Action) -> None:
        self._outer.call_at(time_ms, lambda: self._run(action))

    def call_after_steps(self, steps: int, call: Action) -> None:
        """Call `call` before the process's n-th step from now."""
        self._steps_left, self._call = steps, call

    def freeze(self) -> None:
        """Hold back all actions that become due."""
        self.frozen = True

    def thaw(self) -> None:
        """Run the held actions in order and continue."""
        held, self._held, self.frozen = self._held, [], False
        for action in held:
            self.call_soon(action)

    def forget(self) -> None:
        """Drop all pending actions, and mark the process as dead."""
        self._held, self.dead = [], True

    def _run(self, action: Action) -> None:
        call = self._call
        if call is not None and not self.frozen:
            self._steps_left -= 1
            if self._steps_left <= 0:
                self._call = None
                call()
        if self.dead:
            return
        if self.frozen:
            self._held.append(action)
        else:
            action()


class ProcessRuntime(SimRuntime):
    """A client's `Runtime` whose actions are steps of its process."""

    def __init__(self, network: Network, random: Random, clock: ProcessClock, ahead_ms: int) -> None:
        super().__init__(network, random)
        self._scheduler = clock
        self._ahead_ms = ahead_ms

    def wall_ms(self) -> int:
        return self._scheduler.now_ms() + self._ahead_ms


class Process:
    """One process with a client of its own.

    `ended` is called with the name and the result of each piece of work. `ahead_ms` is the error of its machine's
    clock, and `number` identifies the process in the world.
    """

    def __init__(
        self,
        name: str,
        network: Network,
        random: Random,
        bootstrap: str,
        ended: Callable[[str, object], None],
        ahead_ms: int = 0,
        number: int = 0,
    ) -> None:
        self.name = name
        self.life_name = f"{name}.{number}"
        self.clock = ProcessClock(network.scheduler)
        self.runtime = ProcessRuntime(network, random, self.clock, ahead_ms)
        self.admin = AdminCore(Cluster(self.runtime, AdminConfig(bootstrap_servers=bootstrap)))
        self.alive = True
        self._outer = network.scheduler
        self._ended = ended
        self._promised: list[SimFuture[Any]] = []
        self._under_way = 0
        self._lost = False

    @property
    def busy(self) -> bool:
        """Return true if the process is alive and has work in progress."""
        return self.alive and self._under_way > 0

    def start(self, what: str, work: Callable[[], Coroutine[Any, Any, T]]) -> SimFuture[T]:
        """Run the work in this process. The future raises the work's exception, or ProcessLost."""
        promised: SimFuture[T] = SimFuture()
        self._promised = [promise for promise in self._promised if not promise.done()]
        self._promised.append(promised)
        self._under_way += 1

        async def run() -> None:
            try:
                result = await work()
            except Exception as error:  # noqa: BLE001 (passed to the waiting task, and to `ended`)
                self._end(what, error)
                promised.set_error(error)
            else:
                self._end(what, result)
                promised.set_result(result)

        self.runtime.spawn(run())
        return promised

    def _end(self, what: str, result: object) -> None:
        self._under_way -= 1
        self._ended(f"{self.name} {what}", result)
        if self._lost and not self._under_way:
            self.kill()  # the program has ended, so its clients' heartbeats must stop

    def lose(self) -> None:
        """Raise ProcessLost in everything that waits for the process.

        The process may continue until its work has ended.
        """
        self._lost = True
        promised, self._promised = self._promised, []
        for promise in promised:
            promise.set_error(ProcessLost(self.name))

    def kill(self) -> None:
        """Kill the process (kill -9): it takes no further step."""
        if self.alive:
            self.alive = False
            self.clock.forget()
            self.runtime.kill()
            self.lose()

    def freeze(self, for_ms: float) -> None:
        """Freeze the process for `for_ms`, then let it continue."""
        if self.alive and not self.clock.frozen:
            self.clock.freeze()
            self._outer.call_later(for_ms, self._thaw)

    def _thaw(self) -> None:
        if self.alive:
            self.clock.thaw()
