"""Plant a known defect into the running code, by replacing functions and restoring them afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

__all__ = [
    "ALONE",
    "CALM_GROUP",
    "COMPACTED",
    "CUT_SHORT",
    "DECIDED",
    "GROUP",
    "KILLED",
    "NO_DISK_FAULTS",
    "OUTAGES",
    "PLANTS",
    "POWER_LOSS",
    "STORM",
    "WATCHED",
    "Patches",
    "Plant",
    "plant",
    "planted",
]

_ABSENT: Final = object()


POWER_LOSS: Final = (
    *("storm_ms=5000", "feeders=2", "watchers=1"),
    *("crash_interval_ms=800", "power_cut_chance=0.5", "slow_sync_chance=0.3"),
)
KILLED: Final = ("storm_ms=5000", "crash_interval_ms=300", "power_cut_chance=0.0")
COMPACTED: Final = ("storm_ms=5000", "producers=3", "compacted=True")
WATCHED: Final = ("storm_ms=5000", "watchers=1")
DECIDED: Final = ("storm_ms=5000", "deciders=1", "transaction_version=2")
GROUP: Final = ("storm_ms=5000", "copiers=3", "pause_chance=0.1")
CALM_GROUP: Final = (
    *("storm_ms=20000", "copiers=3", "feeders=2", "operators=0", "pause_chance=0.1", "crash_interval_ms=0"),
    *("request_lost_chance=0", "reply_lost_chance=0", "cancel_chance=0", "raise_chance=0"),
)
"""Options for a group whose members come and go, with time to copy."""
CUT_SHORT: Final = (
    *("storm_ms=5000", "cancel_chance=0.15", "reply_lost_chance=0.03"),
    *("slow_sync_chance=0.3", "crash_interval_ms=800"),
)
ALONE: Final = (
    *("storm_ms=5000", "producers=3", "copiers=0", "operators=0", "kill_chance=0", "pause_chance=0"),
    *("clock_jump_chance=0", "late_chance=0"),
)
OUTAGES: Final = (
    *("storm_ms=10000", "producers=16", "copiers=0", "feeders=0", "watchers=0", "operators=0", "deciders=0"),
    *("kill_chance=0", "pause_chance=0", "cancel_chance=0", "raise_chance=0", "clock_jump_chance=0"),
    *("crash_interval_ms=800", "power_cut_chance=1", "slow_sync_chance=0.9", "outage_ms=8000"),
    *("transaction_version=2", "transaction_timeout_ms=2000"),
)
"""Options for power losses after transactions have timed out."""
NO_DISK_FAULTS: Final = (
    *("full_chance=0", "read_only_chance=0", "descriptors_chance=0"),
    *("write_error_chance=0", "read_error_chance=0", "sync_error_chance=0"),
)
STORM: Final = (
    *("spark.fault_chance=0.15", "spark.driver_fault_chance=0.3", "spark.second_driver_chance=0.4"),
    *("spark.speculation_chance=0.3", "spark.broken_rows_chance=0.1", "spark.stop_chance=0.1"),
    *("network.request_lost_chance=0.02", "network.reply_lost_chance=0.04", "network.late_chance=0.01"),
    *("transaction_timeout_ms=20000", "step_timeout_ms=5000", "sinks=1"),
)


class Patches:
    """Attributes that stay replaced until `undo`."""

    def __init__(self) -> None:
        self._before: list[tuple[Any, str, Any]] = []

    def setattr(self, target: Any, name: str, value: Any) -> None:
        """Replace an existing attribute. Raises AttributeError if it does not exist, because the plant is outdated."""
        getattr(target, name)
        self._before.append((target, name, vars(target).get(name, _ABSENT)))
        setattr(target, name, value)

    def undo(self) -> None:
        """Restore all replaced attributes."""
        while self._before:
            target, name, value = self._before.pop()
            if value is _ABSENT:
                delattr(target, name)
            else:
                setattr(target, name, value)


@dataclass(frozen=True, slots=True)
class Plant:
    """A known defect.

    `world` names the simulation that finds it. `options` ("name=value") override the drawn ones, so that most runs
    contain the conditions of the defect.
    """

    name: str
    summary: str
    world: str
    options: tuple[str, ...]
    apply: Callable[[Patches], None]


PLANTS: Final[dict[str, Plant]] = {}


def plant(world: str, *options: str) -> Callable[[Callable[[Patches], None]], Callable[[Patches], None]]:
    """Register the function in `PLANTS` under its name with dashes.

    Its docstring is the plant's summary, which `fencepost simulate --plants` shows. It therefore describes the defect
    and not the function.
    """

    def enter(apply: Callable[[Patches], None]) -> Callable[[Patches], None]:
        name = apply.__name__.replace("_", "-")
        summary = " ".join((apply.__doc__ or "").split())
        PLANTS[name] = Plant(name, summary, world, options, apply)
        return apply

    return enter


@contextmanager
def planted(name: str) -> Iterator[Plant]:
    """Run the block with the defect planted. Raises KeyError for an unknown name."""
    chosen = PLANTS[name]
    patches = Patches()
    try:
        chosen.apply(patches)
        yield chosen
    finally:
        patches.undo()
