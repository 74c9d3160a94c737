"""A broker whose files are checked after every kill, while no process can change them."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from fencepost_lab.torture.broker_process import BrokerProcess, Setting
from tests.support.segments import Verified, verify_data_directory
from tests.support.waiting import until

__all__ = ["ExaminedBroker"]

KILLED_IN_START = 0.15
ANSWERS_BETWEEN_KILLS = (20, 150)
WORK_WITHIN_S = 120.0


class ExaminedBroker(BrokerProcess):
    """A broker that is sometimes killed again while it starts.

    Args:
        settings: The broker's settings by name.
        folder: Folder for data, settings and log.
        address: HOST:PORT to listen on.
        seed: Seed of the random choices.
        histories: Folder with the clients' histories. If it is given, a restart ends when the clients have received
            further answers, so that the next kill interrupts work on any machine. No other fault may stop the clients.
    """

    def __init__(
        self, settings: Mapping[str, Setting], *, folder: Path, address: str, seed: int, histories: Path | None = None
    ) -> None:
        super().__init__(settings, folder=folder, address=address)
        self._chance = random.Random(seed)
        self._histories = histories
        self._verified = Verified()
        self._killed_in_start = 0
        self.slowest_start_s = 0.0

    def kill(self) -> None:
        """Send SIGKILL, and check all segments. Raises Damage."""
        super().kill()
        self._verified = verify_data_directory(self.data_directory)

    def start(self) -> None:
        """Start the broker, sometimes after further kills. Raises StartupError, Damage."""
        is_restart = self.data_directory.exists()
        while is_restart and self._chance.random() < KILLED_IN_START:
            self.launch()
            time.sleep(self._chance.uniform(0.1, 0.6))
            self.kill()
            self._killed_in_start += 1
        began = time.monotonic()
        super().start()
        self.slowest_start_s = max(self.slowest_start_s, time.monotonic() - began)
        if is_restart and self._histories is not None:
            enough = self._answers() + self._chance.randint(*ANSWERS_BETWEEN_KILLS)
            until(lambda: self._answers() >= enough, within_s=WORK_WITHIN_S)

    def counts(self) -> Counter[str]:
        """Return the counts of events."""
        return Counter(
            {
                "batches checked after the last kill": self._verified.batches,
                "torn bytes after the last kill": self._verified.torn_bytes,
                "broker killed while it started": self._killed_in_start,
                "compactions": self.output().count(": compacted below offset"),
            }
        )

    def _answers(self) -> int:
        """Return the number of successful operations of all clients."""
        return sum(file.read_bytes().count(b'"type": "ok"') for file in (self._histories or Path()).glob("*.jsonl"))
