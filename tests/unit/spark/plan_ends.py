"""Where lives meet in plan_world.py: from one state on, undisturbed, all go the same way, and a search goes it once."""

from __future__ import annotations

import pickle
from collections.abc import Callable

from tests.unit.spark.plan_world import World

_THE_SAME = {"settings", "rules", "choose", "may_depart", "met"}  # in all lives of a search, where nothing disturbs
_TOLD = {"trace", "offered", "sweeps", "repairs", "reused", "is_known"}
_LOOKED_AT = {"processes", "late", "errors", "faults", "idle", "runs"}  # in `_state`
_NOT_STATE = _THE_SAME | _TOLD | _LOOKED_AT


def _state(world: World) -> bytes:
    """All that the rest of a life depends on where no task lives, no process is awake, no request is on its way and
    nothing goes wrong any more. Who sleeps does not wake up; errors count only from the last run on."""
    state = {name: value for name, value in vars(world).items() if name not in _NOT_STATE}
    sleepers = sum(process.alive for process, _ in world.processes)
    idle = [(worker.ids.pool, sorted(worker.ids._once)) for worker in world.idle]
    return pickle.dumps((state, sleepers, idle, len(world.runs)))


class Ends:
    """Of the lives of one search: by state, what is wrong in the end, and how many ids are used again until then."""

    def __init__(self) -> None:
        self._known: dict[bytes, tuple[str | None, int]] = {}

    def live(self, world: World, is_settled: Callable[[], bool]) -> str | None:
        """One life, up to where its end is known; returns its verdict. `is_settled`: nothing goes wrong any more."""
        passed: list[tuple[bytes, int]] = []
        known: list[tuple[str | None, int]] = []

        def met() -> bool:
            if world.late or not (world.healing or is_settled()):
                return False
            if any(process.name.startswith("task") and process.alive for process, _ in world.processes):
                return False  # in the end its worker is idle, and its ids with it
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
