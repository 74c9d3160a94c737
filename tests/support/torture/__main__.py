"""`fencepost torture`, and more at once: `python -m tests.support.torture --minutes 60 --seed 1`.

Beside its clients and faults, a topic is deleted and created again under a producer that also writes to another topic.
Hostile clients send requests and never read, or announce bytes that they never send. The history must have no
anomalies, the producer must survive, and the broker's memory must stay bounded.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import random
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
from tests.support.torture.judging import tell
from tests.support.torture.repeating import Repeating

MEMORY_MOST_MB = 1_000
BIG_MB = 60
PARTITIONS = 4
SETTINGS: dict[str, str | int | bool] = {
    "fsync": "commit",
    "offsets.topic.num.partitions": 3,
    "transaction.state.log.num.partitions": 3,
}


class Memory:
    """The highest observed memory of the broker's process."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker
        self.most_mb = 0.0

    def look(self) -> None:
        for process in family(self._broker.pid)[:1]:
            with contextlib.suppress(psutil.Error):  # it has just been killed
                self.most_mb = max(self.most_mb, process.memory_info().rss / 2**20)
        time.sleep(0.05)


def fill(servers: str, topic: str, chance: random.Random) -> None:
    """Fill a topic with large records, for clients that request them and do not read."""
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
        stopping = threading.Event()
        others = [Repeating(deed, stopping) for deed in (recreator.one_round, hostile.one_bad_thing, memory.look)]
        for other in others:
            other.start()
        end = threading.Timer(minutes * 60, stopping.set)  # the torture itself goes on: it reads everything
        end.daemon = True
        end.start()
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
    anomalies += ["a thread beside the clients did not end" for other in others if other.is_alive()]
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
    return tell(run(given.minutes, given.seed, work, lambda line: print(line, flush=True)), folder=work)


if __name__ == "__main__":
    sys.exit(main())
