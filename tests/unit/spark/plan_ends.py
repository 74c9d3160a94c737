"""Known ends of lives in plan_world.py: undisturbed lives continue alike from a state, so a search runs each once."""

from __future__ import annotations

import pickle
from collections.abc import Callable

from tests.unit.spark.plan_world import World

_THE_SAME = {"settings", "rules", "choose", "may_depart", "met"}  # in all lives of a search, where nothing disturbs
_REPORTED = {"trace", "offered", "sweeps", "repairs", "reused", "is_known"}
_LOOKED_AT = {"processes", "late", "errors", "faults", "idle", "runs"}  # in `_state`
_NOT_STATE = _THE_SAME | _REPORTED | _LOOKED_AT


def _state(world: World) -> bytes:
    """Return the state that determines the rest of a life without tasks, awake processes, late requests and faults.

    Sleeping processes do not wake up then. Errors count only from the last run on.
    """
    state = {name: value for name, value in vars(world).items() if name not in _NOT_STATE}
    sleepers = sum(process.alive for process, _ in world.processes)
    idle = [worker.ids.pool for worker in world.idle]
    return pickle.dumps((state, sleepers, idle, len(world.runs)))


class Ends:
    """The ends of the lives of one search, by state: the problem, and the number of ids used again until then."""

    def __init__(self) -> None:
        self._known: dict[bytes, tuple[str | None, int]] = {}

    def live(self, world: World, is_settled: Callable[[], bool]) -> str | None:
        """Run one life until its end is known, and return its verdict. `is_settled`: no fault happens any more."""
        passed: list[tuple[bytes, int]] = []
        known: list[tuple[str | None, int]] = []

        def met() -> bool:
            if world.late or not (world.healing or is_settled()):
                return False
            if any(process.name.startswith("task") and process.alive for process, _ in world.processes):
                return False  # at its end its worker becomes idle, with its ids
            state = _state(world)
            if state in self._known:
                known.append(self._known[state])
            else:
                passed.append((state, world.reused))
            return bool(known)

        world.met = met
        world.live()
        problem, reused = known[0] if known else (world.verdict(), 0)
        world.reused += reused
        self._known.update((state, (problem, world.reused - before)) for state, before in passed)
        return problem
