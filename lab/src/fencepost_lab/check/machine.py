"""Faults of the machine under the simulated broker: its disk, its file descriptors and its clock."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial
from random import Random
from typing import Final

from fencepost.protocol.logs.topic_names import CONSUMER_OFFSETS, TRANSACTION_STATE
from fencepost_lab.check.disk import MemoryDisk
from fencepost_lab.check.scheduler import Scheduler

__all__ = ["Machine", "MachineFaults"]

LOOK_MS: Final = (100.0, 400.0)
STATE_MS: Final = (5.0, 1_500.0)
"""Range of durations in ms of a full disk, a read-only disk, or a lack of descriptors."""
JUMPS_MS: Final = (1, 500, 5_000, 3_600_000)
BEHIND_MS_AT_MOST: Final = 1_800_000
"""Limit for setting the clock back.

Records from clients an hour ahead are refused correctly, which would only stop the run's work.
"""
SYNC_MS: Final = (0.1, 5.0)
SLOW_SYNC_MS: Final = (5.0, 500.0)
WITHIN: Final = ("", ".log", TRANSACTION_STATE, CONSUMER_OFFSETS, ".snapshot")


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineFaults:
    """Chance of each fault, drawn about four times a second; `slow_sync` is drawn for every sync."""

    full: float = 0.0
    read_only: float = 0.0
    descriptors: float = 0.0
    write_error: float = 0.0
    read_error: float = 0.0
    sync_error: float = 0.0
    clock_jump: float = 0.0
    slow_sync: float = 0.0

    @property
    def any(self) -> bool:
        """Return true if any fault has a chance above zero."""
        return any(getattr(self, fault.name) for fault in fields(self))


class Machine:
    """The simulated machine.

    `wall_ms` is its adjustable clock. `on_fault` is called with the kind and details of each fault.
    """

    def __init__(
        self, scheduler: Scheduler, disk: MemoryDisk, chance: Random, on_fault: Callable[[str, str], None]
    ) -> None:
        self._scheduler = scheduler
        self._disk = disk
        self._chance = chance
        self._on_fault = on_fault
        self._set_by_ms = 0
        self._slow_sync = 0.0
        self._healed = False

    def wall_ms(self) -> int:
        """Return the machine's wall-clock time in ms since the epoch."""
        return self._scheduler.now_ms() + self._set_by_ms

    def sync_ms(self) -> float:
        """Draw the duration of the next sync in ms."""
        is_slow = self._slow_sync > 0 and self._chance.random() < self._slow_sync
        return self._chance.uniform(*(SLOW_SYNC_MS if is_slow else SYNC_MS))

    async def inject_faults(self, faults: MachineFaults) -> None:
        """Draw faults until `heal`."""
        chance = self._chance
        self._slow_sync = faults.slow_sync
        while True:
            await self._scheduler.sleep_ms(chance.uniform(*LOOK_MS))
            if self._healed:
                return
            for name, how_often, action in (
                ("full", faults.full, partial(self._for_a_while, "is_full")),
                ("read_only", faults.read_only, partial(self._for_a_while, "is_read_only")),
                ("descriptors", faults.descriptors, partial(self._for_a_while, "is_out_of_descriptors")),
                ("write_error", faults.write_error, self._fail_write),
                ("read_error", faults.read_error, self._fail_read),
                ("sync_error", faults.sync_error, self._fail_sync),
                ("clock_jump", faults.clock_jump, self._set_clock),
            ):
                if chance.random() < how_often:
                    kind = "clock jumps" if name == "clock_jump" else "disk faults"
                    self._on_fault(kind, f"machine: {name} {action()}")

    def heal(self) -> None:
        """End all faults. The clock keeps its offset."""
        self._healed = True
        self._slow_sync = 0.0
        self._disk.heal()

    def _for_a_while(self, state: str) -> str:
        for_ms = self._chance.uniform(*STATE_MS)
        setattr(self._disk, state, True)
        self._scheduler.call_later(for_ms, lambda: setattr(self._disk, state, False))
        return f"for {for_ms:.0f} ms"

    def _fail_write(self) -> str:
        within, written = self._chance.choice(WITHIN), self._chance.choice((0, 0, 1, 70, 600))
        self._disk.fail_next_write(OSError(errno.EIO, "the simulated disk failed"), written=written, within=within)
        return f"after {written} bytes in {within or 'any file'}"

    def _fail_read(self) -> str:
        self._disk.fail_next_read()
        return "once"

    def _fail_sync(self) -> str:
        self._disk.fail_next_sync()
        return "once"

    def _set_clock(self) -> str:
        by_ms = self._chance.choice(JUMPS_MS) * self._chance.choice((1, -1))
        by_ms = max(by_ms, -BEHIND_MS_AT_MOST - self._set_by_ms)
        self._set_by_ms += by_ms
        return f"by {by_ms} ms"
