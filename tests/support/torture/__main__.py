"""`fencepost torture`, and more at once: `python -m tests.support.torture --minutes 60 --seed 1`.

Beside its clients and faults a topic is deleted and made anew under a producer that writes to another, too, and clients
ask and never read, or promise bytes that they never send. The history must be without anomalies, the producer must
survive, and the broker's memory must stay bounded.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import random
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import psutil

import fencepost
from fencepost_lab.check.history.file import operations_of
from fencepost_lab.check.history.model import History
from fencepost_lab.check.report.verdict import judge, text_of
from fencepost_lab.demo.chaos import family
from fencepost_lab.torture.access import Access
from fencepost_lab.torture.broker_process import BrokerProcess
from fencepost_lab.torture.child_process import free_port
from fencepost_lab.torture.supervisor import Torture, TortureOptions
from fencepost_lab.torture.two_phase import KEEP_PREPARED
from tests.support.torture.feeders import Recreator
from tests.support.torture.hostiles import Hostile

MEMORY_MOST_MB = 1_000
BIG_MB = 60
PARTITIONS = 4
SETTINGS: dict[str, str | int | bool] = {
    "fsync": "commit",
    "offsets.topic.num.partitions": 3,
    "transaction.state.log.num.partitions": 3,
}


class Beside(threading.Thread):
    """Does something again and again until the faults end. `error` is the exception that ended it before."""

    def __init__(self, deed: Callable[[], object], until: float) -> None:
        super().__init__(daemon=True)
        self._deed, self._until = deed, until
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            while time.monotonic() < self._until:
                self._deed()
        except Exception as error:
            self.error = error
            raise


class Memory:
    """The most memory that the broker's process was seen to have."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker
        self.most_mb = 0.0

    def look(self) -> None:
        for process in family(self._broker.pid)[:1]:
            with contextlib.suppress(psutil.Error):  # it has just been killed
                self.most_mb = max(self.most_mb, process.memory_info().rss / 2**20)
        time.sleep(0.05)


def fill(servers: str, topic: str, chance: random.Random) -> None:
    """Something worth not being read."""
    with fencepost.Admin(servers) as admin, fencepost.Producer(servers) as producer:
        admin.create_topic(topic, PARTITIONS)
        for number in range(BIG_MB):
            producer.send(topic, chance.randbytes(900_000), partition=number % PARTITIONS)


def run(minutes: float, seed: int, work: Path, say: Callable[[str], None]) -> list[str]:
    """Run everything. Return the anomalies."""
    chance = random.Random(seed)
    happened: Counter[str] = Counter()
    port = free_port()
    broker = BrokerProcess(SETTINGS, folder=work / "broker", address=f"127.0.0.1:{port}")
    broker.start()
    try:
        servers = broker.bootstrap_servers
        fill(servers, "big", chance)
        memory = Memory(broker)
        recreator = Recreator(servers, chance.randrange(2**32), happened)
        hostile = Hostile(port, "big", chance.randrange(2**32), happened)
        until = time.monotonic() + minutes * 60
        others = [Beside(deed, until) for deed in (recreator.one_round, hostile.one_bad_thing, memory.look)]
        for other in others:
            other.start()
        options = TortureOptions(
            Access(servers),
            minutes,
            seed,
            "fencepost",
            "torture-",
            keep=False,
            work=work,
            broker=broker,
            two_phase=KEEP_PREPARED,
        )
        torture = Torture(options, say)
        torture.run(work / "history.jsonl")
        for other in others:
            other.join(120)
        recreator.finish()
    finally:
        broker.stop()
    with (work / "history.jsonl").open(encoding="utf-8") as lines:
        verdict = judge(History(operations_of(lines)), 5)
    for what, count in sorted((happened + torture.happened).items()):
        say(f"{count:7} {what}")
    say(f"the broker took at most {memory.most_mb:.0f} MB")
    anomalies = [] if verdict.clean else [text_of(verdict)]
    anomalies += [f"ended early: {other.error!r}" for other in others if other.error is not None]
    anomalies += ["somebody beside does not come back" for other in others if other.is_alive()]
    if memory.most_mb > MEMORY_MOST_MB:
        anomalies.append(f"the broker took {memory.most_mb:.0f} MB")
    return anomalies + recreator.anomalies


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    logging.basicConfig(level=logging.CRITICAL)
    work = Path(tempfile.mkdtemp(prefix="fencepost-torture-"))
    anomalies = run(given.minutes, given.seed, work, lambda line: print(line, flush=True))
    for anomaly in anomalies:
        print(anomaly)
    if anomalies:
        print(f"kept for a look: {work}")
        return 1
    shutil.rmtree(work)
    return 0


if __name__ == "__main__":
    sys.exit(main())
