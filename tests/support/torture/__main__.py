"""`fencepost torture`, and more at once: `python -m tests.support.torture --minutes 60 --seed 1`.

Beside its clients and faults, producers update a compacted topic, and a topic is deleted and created again under a
producer that also writes to another topic. Hostile clients send requests and never read, or announce bytes that they
never send. The broker is killed, sometimes while it starts, and all its segments are checked after each kill.

The history must have no anomalies, the producers must survive, no transaction may stay open, and the broker's memory
must stay bounded.

With `--only-kills` the broker is killed again and again, and there are no other faults and no hostile clients.
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
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil

import fencepost
from fencepost_lab.check.history.file import operations_of
from fencepost_lab.check.history.model import History
from fencepost_lab.check.history.operations import Commit
from fencepost_lab.check.report.verdict import judge, text_of
from fencepost_lab.demo.chaos import family
from fencepost_lab.torture.access import Access
from fencepost_lab.torture.broker_process import BrokerProcess
from fencepost_lab.torture.child_process import free_port
from fencepost_lab.torture.clients import CLIENTS
from fencepost_lab.torture.supervisor import FAULTS, Torture, TortureOptions
from fencepost_lab.torture.two_phase import KEEP_PREPARED
from tests.support.torture.examined_broker import ExaminedBroker
from tests.support.torture.feeders import Recreator, Updater
from tests.support.torture.hostiles import Hostile
from tests.support.torture.judging import open_after, tell
from tests.support.torture.repeating import Repeating

MEMORY_MOST_MB = 1_000
BIG_MB = 60
PARTITIONS = 4
STABLE_WITHIN_S = 10.0
SETTINGS: dict[str, str | int | bool] = {
    "log.cleaner.backoff.ms": 100,
    "log.segment.bytes": 100_000,
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
        admin.create_topic(topic, PARTITIONS, 1, {"segment.bytes": str(BIG_MB << 20)})
        for number in range(BIG_MB):
            producer.send(topic, chance.randbytes(900_000), partition=number % PARTITIONS)


def options_of(
    minutes: float, seed: int, client: str, work: Path, broker: ExaminedBroker, *, only_kills: bool
) -> TortureOptions:
    """Return the options of the torture. Its topics stay, because they are read afterwards."""
    return TortureOptions(
        Access(broker.bootstrap_servers),
        minutes,
        seed,
        client,
        "torture-",
        keep=True,
        work=work,
        broker=broker,
        faults=("kill-broker",) if only_kills else FAULTS,
        between_faults_s=(0.05, 0.6) if only_kills else (1.0, 8.0),
        two_phase=KEEP_PREPARED,
    )


def finish(others: Sequence[Repeating]) -> list[str]:
    """Wait for the threads beside the torture. Return their anomalies."""
    for other in others:
        other.join(120)
    anomalies = [f"ended early: {other.name}: {other.error!r}" for other in others if other.error is not None]
    anomalies += [f"{other.name} did not end" for other in others if other.is_alive()]
    for other in others:
        if isinstance(other, Updater) and not other.is_alive():
            anomalies += other.finish()
    return anomalies


def judge_history(file: Path, happened: Counter[str]) -> list[str]:
    """Check the clients' history. Return its anomalies, and add its counts to `happened`."""
    with file.open(encoding="utf-8") as lines:
        verdict = judge(History(operations_of(lines)), 5)
    happened["records read"] = verdict.records_read
    happened["transactions committed"] = sum(
        isinstance(operation, Commit) and operation.ok for operation in verdict.history.operations
    )
    return [] if verdict.clean else [text_of(verdict)]


def run(
    minutes: float,
    seed: int,
    work: Path,
    say: Callable[[str], None],
    *,
    fsync: str = "commit",
    client: str = "fencepost",
    only_kills: bool = False,
) -> tuple[list[str], Counter[str]]:
    """Run everything. Return the anomalies, and the counts of events."""
    chance = random.Random(seed)
    happened: Counter[str] = Counter()
    port = free_port()
    broker = ExaminedBroker(
        {**SETTINGS, "fsync": fsync},
        folder=work / "broker",
        address=f"127.0.0.1:{port}",
        seed=chance.randrange(2**32),
        histories=work if only_kills else None,
    )
    stopping, all_read = threading.Event(), threading.Event()
    broker.start()
    try:
        servers = broker.bootstrap_servers
        updaters = [
            Updater(servers, f"compacted-{number}", seed, all_read, transactional=number == 1) for number in range(2)
        ]
        memory = Memory(broker)
        others: list[Repeating] = [*updaters, Repeating(memory.look, stopping)]
        recreator = None
        if not only_kills:
            fill(servers, "big", chance)
            recreator = Recreator(servers, chance.randrange(2**32), happened)
            hostile = Hostile(port, "big", chance.randrange(2**32), happened)
            others += [Repeating(deed, stopping) for deed in (recreator.one_round, hostile.misbehave)]
        for other in others:
            other.start()
        end = threading.Timer(minutes * 60, stopping.set)  # the torture itself goes on: it reads everything
        end.daemon = True
        end.start()
        torture = Torture(options_of(minutes, seed, client, work, broker, only_kills=only_kills), say)
        torture.run(work / "history.jsonl")
        all_read.set()
        anomalies = finish(others)
        if recreator is not None:
            recreator.finish()
            anomalies += recreator.anomalies
        with fencepost.Admin(servers) as admin:
            anomalies += open_after(admin, torture.topics, STABLE_WITHIN_S)
    finally:
        stopping.set()
        all_read.set()
        broker.stop()
    anomalies += judge_history(work / "history.jsonl", happened)
    happened += broker.counts()
    say(f"the broker took at most {memory.most_mb:.0f} MB, and its slowest start {broker.slowest_start_s:.2f} s")
    if memory.most_mb > MEMORY_MOST_MB:
        anomalies.append(f"the broker took {memory.most_mb:.0f} MB")
    return anomalies, happened + torture.happened


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--fsync", choices=("commit", "interval", "never"), default="commit")
    parser.add_argument("--client", choices=sorted(CLIENTS), default="fencepost")
    parser.add_argument("--only-kills", action="store_true")
    given = parser.parse_args()
    logging.basicConfig(level=logging.CRITICAL)
    work = Path(tempfile.mkdtemp(prefix="fencepost-torture-"))
    anomalies, happened = run(
        given.minutes,
        given.seed,
        work,
        lambda line: print(line, flush=True),
        fsync=given.fsync,
        client=given.client,
        only_kills=given.only_kills,
    )
    return tell(anomalies, happened, folder=work)


if __name__ == "__main__":
    sys.exit(main())
