"""Options of a simulated run: actors and faults, drawn from its seed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from enum import Enum
from random import Random
from typing import Any, Final

from fencepost_lab.check.machine import MachineFaults
from fencepost_lab.check.net import NetworkFaults

__all__ = ["Profile", "SimulationOptions"]


class Profile(Enum):
    """The classes of faults that a run may draw."""

    SWARM = "swarm"
    """Each run omits a random part of the faults, because constant faults can hide other defects."""
    LITE = "lite"
    """Short runs with crashes and kills only: thousands of runs in a minute of CPU time."""
    LIVENESS = "liveness"
    """All faults, with their highest chances. All work must end in time after them."""


FAULTS: Final[dict[str, tuple[float, ...]]] = {
    "request_lost_chance": (0.005, 0.03),
    "reply_lost_chance": (0.005, 0.03),
    "late_chance": (0.01,),
    "slow_chance": (0.01, 0.05),
    "crash_interval_ms": (3_000.0, 800.0),
    "power_cut_chance": (0.5,),
    "kill_chance": (0.1, 0.4),
    "pause_chance": (0.1, 0.2),
    "cancel_chance": (0.02, 0.15),
    "raise_chance": (0.02, 0.1),
    "full_chance": (0.05, 0.2),
    "read_only_chance": (0.05,),
    "descriptors_chance": (0.05, 0.2),
    "write_error_chance": (0.05, 0.2),
    "read_error_chance": (0.05, 0.2),
    "sync_error_chance": (0.05,),
    "clock_jump_chance": (0.1,),
    "slow_sync_chance": (0.3,),
}
"""The values to draw from, by fault. A fault that is off has the value 0."""
AT_START: Final[dict[str, tuple[float, ...]]] = {
    "flip_chance": (0.9,),
    "restore_chance": (0.5,),
    "resetting_chance": (0.3,),
}
"""Faults that happen while the broker is down."""
CRASHES: Final = frozenset({"crash_interval_ms", "power_cut_chance", "kill_chance"})
WHILE_IN_SWARM: Final = 0.5
SHORT: Final[Mapping[str, tuple[float, ...]]] = {
    "storm_ms": (30, 60, 120),
    "producers": (1, 2),
    "copiers": (0, 0, 0, 1),
    "deciders": (0, 0, 1),
    "feeders": (0, 0, 1),
    "crash_interval_ms": (20.0, 60.0),
}
"""Values of the profile `lite`, so small that a run costs some 30 ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationOptions:
    """Options of one run: chances of faults, and numbers and settings of actors.

    The unit of a chance depends on the fault: per message (network), per second of a process's life (kill, pause), per
    call (cancel, raise), per sync (slow_sync), per start of the broker (flip, restore, resetting). It is per
    transaction of a copier for second_poll, per failure to send positions for heedless (the copier commits regardless),
    and per committed transaction of a writer for look (the writer reads it back). Other machine faults (full to
    clock_jump) are drawn about four times a second.

    `crowds`: number of consumers and of producers that several tasks share.

    `storm_ms`: duration of the faults in simulated time. Afterwards all work must end. `group_protocol`: classic,
    consumer, or mixed, where each life of a copier chooses. `transaction_version`: of the broker, 0 to 2.
    `shrink_interval_ms`: mean time between periods in which a topic accepts no record (max.message.bytes); 0: never.
    `gather_ms`: duration of a copier's second polls. `outage_ms`: longest time that the broker is down.
    `transaction_timeout_ms`: of the writers; 0: each chooses.
    """

    storm_ms: int = 5_000
    producers: int = 2
    copiers: int = 0
    deciders: int = 0
    operators: int = 0
    watchers: int = 0
    feeders: int = 0
    mutes: int = 0
    crowds: int = 0
    group_protocol: str = "classic"
    transaction_version: int = 2
    compacted: bool = False
    request_lost_chance: float = 0.0
    reply_lost_chance: float = 0.0
    late_chance: float = 0.0
    slow_chance: float = 0.0
    crash_interval_ms: float = 0.0
    power_cut_chance: float = 0.0
    kill_chance: float = 0.0
    pause_chance: float = 0.0
    cancel_chance: float = 0.0
    raise_chance: float = 0.0
    full_chance: float = 0.0
    read_only_chance: float = 0.0
    descriptors_chance: float = 0.0
    write_error_chance: float = 0.0
    read_error_chance: float = 0.0
    sync_error_chance: float = 0.0
    clock_jump_chance: float = 0.0
    slow_sync_chance: float = 0.0
    flip_chance: float = 0.0
    restore_chance: float = 0.0
    resetting_chance: float = 0.0
    second_poll_chance: float = 0.15
    gather_ms: int = 0
    careless_chance: float = 0.5
    shrink_interval_ms: float = 0.0
    outage_ms: float = 0.0
    transaction_timeout_ms: int = 0
    look_chance: float = 0.0

    @property
    def disk_fails(self) -> bool:
        """True if the broker's disk may fail."""
        names = ("full", "read_only", "descriptors", "write_error", "read_error", "sync_error")
        return any(getattr(self, f"{name}_chance") for name in names)

    @property
    def fragile(self) -> bool:
        """True if a topic's files are damaged in the run."""
        return self.flip_chance > 0 or self.restore_chance > 0

    @classmethod
    def draw(cls, seed: int, profile: Profile = Profile.SWARM) -> SimulationOptions:
        """Draw options. The same seed and profile give the same options."""
        random = Random(f"options of {seed}")
        pick = random.choice
        drawn: dict[str, Any] = {
            "storm_ms": pick((500, 2_000, 5_000)),
            "producers": pick((1, 2, 3)),
            "copiers": pick((0, 1, 2, 3)),
            "deciders": pick((0, 0, 1)),
            "operators": pick((0, 0, 1)),
            "watchers": pick((0, 0, 1)),
            "group_protocol": pick(("classic", "consumer")),
            "compacted": random.random() < 0.15,
            "feeders": pick((0, 0, 1, 2)),
        }
        for name, values in (FAULTS | AT_START).items():
            value, on = pick(values), random.random() < WHILE_IN_SWARM
            if profile is Profile.LIVENESS:
                drawn[name] = max(values) if name != "crash_interval_ms" else min(values)
            elif on and (profile is Profile.SWARM or name in CRASHES):
                drawn[name] = value
        drawn["mutes"] = pick((0, 0, 1))
        drawn["transaction_version"] = pick((2, 2, 2, 1, 0))
        if pick((False, False, True)):
            drawn["group_protocol"] = "mixed"
        if profile is Profile.LITE:
            short = {name: pick(values) for name, values in SHORT.items()}
            on = "crash_interval_ms" in drawn
            drawn |= {name: value for name, value in short.items() if on or name != "crash_interval_ms"}
            drawn |= {"operators": 0, "watchers": 0, "mutes": 0}
        drawn["look_chance"] = pick((0.0, 0.0, 0.3))
        if pick((False, False, True)) and profile is not Profile.LITE:
            drawn["crowds"] = 1
        return cls(**drawn)

    def changed(self, given: Iterable[str]) -> SimulationOptions:
        """Return a copy changed by "name=value" texts. Raises ValueError for an unknown name or an invalid value."""
        kinds = {field.name: type(getattr(self, field.name)) for field in fields(self)}
        found: dict[str, Any] = {}
        for text in given:
            name, _, value = text.partition("=")
            kind = kinds.get(name)
            if kind is None:
                raise ValueError(f"there is no option {name!r}; there are {', '.join(kinds)}")
            try:
                found[name] = value == "True" if kind is bool else kind(value)
            except ValueError:
                raise ValueError(f"{name} is a {kind.__name__}, not {value!r}") from None
        return replace(self, **found)

    def shown(self) -> dict[str, Any]:
        """Return name and value of each option in order."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def smaller(self) -> Iterator[SimulationOptions]:
        """Yield options with one fault less, fewer actors or less time, as candidates for shrinking."""
        for name in FAULTS | AT_START:
            if getattr(self, name):
                yield self._with(name, 0.0)
        if self.compacted:
            yield replace(self, compacted=False)
        for name in ("crowds", "mutes", "operators", "watchers", "feeders", "deciders", "copiers", "producers"):
            least = 1 if name == "producers" else 0
            if getattr(self, name) > least:
                yield self._with(name, least)
                if getattr(self, name) > least + 1:
                    yield self._with(name, getattr(self, name) - 1)
        if self.storm_ms > 100:
            yield replace(self, storm_ms=self.storm_ms // 2)

    def _with(self, name: str, value: Any) -> SimulationOptions:
        return replace(self, **{name: value})

    def machine(self) -> MachineFaults:
        """Return the chances of faults of the broker's disk, descriptors and clock."""
        return MachineFaults(
            full=self.full_chance,
            read_only=self.read_only_chance,
            descriptors=self.descriptors_chance,
            write_error=self.write_error_chance,
            read_error=self.read_error_chance,
            sync_error=self.sync_error_chance,
            clock_jump=self.clock_jump_chance,
            slow_sync=self.slow_sync_chance,
        )

    def network(self) -> NetworkFaults:
        """Return the chances of faults of the network."""
        return NetworkFaults(
            slow_chance=self.slow_chance,
            request_lost_chance=self.request_lost_chance,
            reply_lost_chance=self.reply_lost_chance,
            late_chance=self.late_chance,
            late_ms_at_most=20_000.0,
        )
