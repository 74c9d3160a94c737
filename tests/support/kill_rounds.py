"""kill -9 under load, again and again: `python -m tests.support.kill_rounds --rounds 200 --seed 1 --fsync commit`.

Transactional and idempotent producers of our own client and of librdkafka write all the time, partly into a topic that
is compacted meanwhile. The program kills the broker at random moments, sometimes while it starts, and starts it again
on its data. While the broker is down, the program checks every segment. At the end it reads all records and compares
them with the answers that the producers received. No record may be lost, doubled or out of order, no transaction may be
torn or open, and no outcome unknown.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

import fencepost
from fencepost.client.admin.core import AdminCore
from fencepost.client.types import TopicPartition
from fencepost.config import AdminConfig
from fencepost.errors import ProduceFailedError
from fencepost_lab.check.checks import check_all
from fencepost_lab.check.history import Anomaly, Outcome, RecordWrite, Summary, TransactionSummary
from fencepost_lab.check.reader import read_group_offsets, read_to_end
from fencepost_lab.torture.access import Access
from fencepost_lab.torture.broker_process import BrokerProcess
from fencepost_lab.torture.clients import CLIENTS, ClientFailed, MustAbort, OurProducer, ProducerFace, ours
from fencepost_lab.torture.settling import with_admin
from tests.support.segments import Verified, verify_data_directory
from tests.support.torture.judging import open_after, tell
from tests.support.torture.repeating import Repeating
from tests.support.waiting import until

__all__ = ["Findings", "run"]

TOPICS = {"red": 2, "blue": 1, "compacted": 2}
INPUT = TopicPartition("input", 0)
CHURN_KEYS = 20
PATIENCE_MS = 120_000
STABLE_WITHIN_S = 10.0
SETTINGS: dict[str, str | int | bool] = {
    "log.segment.bytes": 100_000,
    "log.cleaner.backoff.ms": 100,
    "log.cleaner.min.cleanable.ratio": "0.2",
    "offsets.topic.num.partitions": 3,
    "transaction.state.log.num.partitions": 3,
}


@dataclass
class Findings:
    """Counts, durations and anomalies of a run."""

    rounds: int = 0
    killed_in_start: int = 0
    transactions: dict[Outcome, int] = field(default_factory=dict)
    records_read: int = 0
    verified: Verified = field(default_factory=Verified)
    slowest_start_s: float = 0.0
    stable_after_s: float = 0.0
    compactions: int = 0
    anomalies: list[Anomaly] = field(default_factory=list)
    seconds: float = 0.0

    def text(self) -> str:
        told = ", ".join(f"{count} {outcome.value}" for outcome, count in self.transactions.items())
        return (
            f"{self.rounds} rounds in {self.seconds:.0f} s, {self.killed_in_start} further kills while starting; "
            f"transactions and single records: {told}; {self.records_read} records read; "
            f"{self.compactions} compactions; "
            f"{self.verified.batches} batches of {self.verified.segments} segments walked over, "
            f"{self.verified.torn_bytes} torn bytes at ends; slowest start {self.slowest_start_s:.2f} s; "
            f"last stable offset at the end after {self.stable_after_s:.2f} s; {len(self.anomalies)} anomalies"
        )


class Actor(Repeating):
    """A producer's application. `history` has its transactions with the outcomes that it received."""

    def __init__(self, name: str, bootstrap: str, seed: int, stop: threading.Event) -> None:
        super().__init__(self.live, stop, name=name)
        self.bootstrap = bootstrap
        self.chance = random.Random(seed)
        self.history: list[TransactionSummary] = []

    def live(self) -> None:
        raise NotImplementedError

    def new_transaction(self) -> TransactionSummary:
        made = TransactionSummary(self.name, len(self.history) + 1)
        self.history.append(made)
        return made

    def writes(self, transaction: TransactionSummary) -> Iterator[RecordWrite]:
        for index in range(self.chance.randint(1, 8)):
            topic = self.chance.choice(sorted(TOPICS))
            partition = self.chance.randrange(TOPICS[topic])
            write = RecordWrite(topic, partition, f"{self.name}-{transaction.number}-{index}")
            transaction.writes.append(write)
            yield write
            if self.chance.random() < 0.1:
                time.sleep(self.chance.uniform(0, 0.02))


class FacedActor(Actor):
    """An actor with a producer of `client`, one of CLIENTS. It replaces a client that can no longer be used."""

    client: str
    transactional = False

    def live(self) -> None:
        make, _ = CLIENTS[self.client]
        with contextlib.suppress(ClientFailed):  # a new client goes on, and ends what this one left, or could not close
            producer = make(Access(self.bootstrap), self.name if self.transactional else None)
            try:
                self.work(producer)
            finally:
                producer.close()

    def work(self, producer: ProducerFace) -> None:
        raise NotImplementedError


class Transactions(FacedActor):
    transactional = True

    def work(self, producer: ProducerFace) -> None:
        producer.init()
        while not self.stopping.is_set():
            self.one(producer)

    def one(self, producer: ProducerFace) -> None:
        record = self.new_transaction()
        record.outcome = Outcome.ABORTED  # until commit is asked for
        producer.begin()
        try:
            for write in self.writes(record):
                producer.send(write.topic, write.partition, write.value, _ignored, key=write.value)
            if isinstance(producer, OurProducer) and self.chance.random() < 0.5:
                record.offsets[self.name] = record.number
                self.send_offsets(producer.producer, record.number)
            if self.chance.random() < 0.25:
                producer.abort()
            else:
                record.outcome = Outcome.UNKNOWN
                producer.commit()
                record.outcome = Outcome.COMMITTED
        except MustAbort:
            producer.abort()
            record.outcome = Outcome.ABORTED

    def send_offsets(self, producer: fencepost.Producer, number: int) -> None:
        ours(lambda: producer.send_offsets_to_transaction({INPUT: number}, self.name))


class OurTransactions(Transactions):
    client = "fencepost"


class TheirTransactions(Transactions):
    client = "confluent"


class Records(FacedActor):
    """Idempotent, without transactions: each record counts as a transaction of its own."""

    topic: str

    def work(self, producer: ProducerFace) -> None:
        while not self.stopping.is_set():
            for _ in range(self.chance.randint(1, 20)):
                record = self.new_transaction()
                write = RecordWrite(self.topic, 0, f"{self.name}-{record.number}")
                record.writes.append(write)
                producer.send(write.topic, write.partition, write.value, partial(_delivered, record))
            producer.flush()


class OurRecords(Records):
    client, topic = "fencepost", "blue"


class TheirRecords(Records):
    client, topic = "confluent", "red"


def _ignored(partition: int, offset: int, error: Exception | None, certain: bool) -> None:
    """Ignore a delivery report, because the outcome of its transaction includes it."""


def _delivered(record: TransactionSummary, partition: int, offset: int, error: Exception | None, certain: bool) -> None:
    if error is None:
        record.outcome = Outcome.COMMITTED


class Churn(Actor):
    """Writes the same keys repeatedly, so that compaction removes records. `told`: last acknowledged number by key."""

    def __init__(self, name: str, bootstrap: str, seed: int, stop: threading.Event) -> None:
        super().__init__(name, bootstrap, seed, stop)
        self.told: dict[bytes, int] = {}
        self.number = 0

    def live(self) -> None:
        with fencepost.Producer(self.bootstrap, enable_idempotence=True, delivery_timeout_ms=PATIENCE_MS) as producer:
            while not self.stopping.is_set():
                self.number += 1
                sent = []
                for key in (b"churn %d" % n for n in range(CHURN_KEYS)):
                    value = b"%s %d " % (key, self.number) + b"." * 300
                    sent.append((key, producer.send("compacted", value, key=key, partition=0)))
                for key, delivery in sent:
                    with contextlib.suppress(ProduceFailedError):
                        delivery.result()
                        self.told[key] = self.number
                time.sleep(0.01)


def run(rounds: int, seed: int, fsync: str, *, say: bool = False) -> Findings:
    """Run the rounds and judge them. Raises Damage, and the exception that ended an actor."""
    began = time.monotonic()
    chance = random.Random(seed)
    summary = Findings()
    broker = BrokerProcess({**SETTINGS, "fsync": fsync})
    broker.start()
    try:
        with fencepost.Admin(broker.bootstrap_servers) as admin:
            for name, partitions in {**TOPICS, INPUT.topic: 1}.items():
                admin.create_topic(
                    name, partitions, 1, {"cleanup.policy": "compact"} if name == "compacted" else {}, exist_ok=True
                )
        stop = threading.Event()
        kinds = [OurTransactions, OurTransactions, TheirTransactions, OurRecords, TheirRecords, Churn]
        actors = [
            kind(f"{kind.__name__}{number}", broker.bootstrap_servers, seed * 100 + number, stop)
            for number, kind in enumerate(kinds)
        ]
        for actor in actors:
            actor.start()
        for number in range(rounds):
            wait_for_work(actors, chance.randint(2, 12))
            kill_and_start(broker, chance, summary)
            summary.rounds += 1
            if any(actor.error for actor in actors):
                break
            if say and number % 10 == 9:
                sys.stdout.write(f"round {number + 1}: {sum(len(actor.history) for actor in actors)} transactions\n")
                sys.stdout.flush()
        wait_for_work(actors, 60)
        stop.set()
        for actor in actors:
            actor.join(2 * PATIENCE_MS / 1000)
            if actor.is_alive() or actor.error:
                raise AssertionError(f"{actor.name} did not come to an end: {actor.error!r}")
        judge(broker, actors, summary)
        summary.compactions = broker.output().count(": compacted below offset")
    finally:
        broker.stop()
    summary.seconds = time.monotonic() - began
    return summary


def wait_for_work(actors: list[Actor], wanted: int) -> None:
    """Wait until the actors have begun that many transactions, so that a kill meets work on any machine."""
    enough = sum(len(actor.history) for actor in actors) + wanted
    until(
        lambda: sum(len(actor.history) for actor in actors) >= enough or any(actor.error for actor in actors),
        within_s=PATIENCE_MS / 1000,
    )


def kill_and_start(broker: BrokerProcess, chance: random.Random, summary: Findings) -> None:
    time.sleep(chance.uniform(0.05, 0.6))
    broker.kill()
    summary.verified = verify_data_directory(broker.data_directory)
    while chance.random() < 0.15:
        broker.launch()
        time.sleep(chance.uniform(0.1, 0.6))
        broker.kill()
        summary.killed_in_start += 1
        summary.verified = verify_data_directory(broker.data_directory)
    began = time.monotonic()
    broker.start()
    summary.slowest_start_s = max(summary.slowest_start_s, time.monotonic() - began)


def judge(broker: BrokerProcess, actors: list[Actor], summary: Findings) -> None:
    """Compare the records and group positions of the broker with the actors' histories."""
    history = Summary([transaction for actor in actors for transaction in actor.history])
    with fencepost.Admin(broker.bootstrap_servers) as admin:
        began = time.monotonic()
        summary.anomalies += [Anomaly("hanging", found) for found in open_after(admin, TOPICS, STABLE_WITHIN_S)]
        summary.stable_after_s = time.monotonic() - began
    groups = [actor.name for actor in actors if isinstance(actor, OurTransactions)]
    read_all(broker.bootstrap_servers, groups, history)
    latest: dict[bytes, int] = {}
    for read in history.reads:
        if read.value.startswith("churn "):
            key, _, rest = read.value.encode().rpartition(b" ")[0].rpartition(b" ")
            latest[key] = max(latest.get(key, 0), int(rest))
    for key, wanted in [told for actor in actors if isinstance(actor, Churn) for told in actor.told.items()]:
        if latest.get(key, 0) < wanted:
            summary.anomalies.append(Anomaly("lost_write", f"{key!r}: {wanted} was told, {latest.get(key)} is there"))
    # Compaction may remove older values of a key, so the churn is no part of the history.
    history.reads = [read for read in history.reads if not read.value.startswith("churn ")]
    summary.anomalies += check_all(history)
    summary.records_read = len(history.reads)
    outcomes = [transaction.outcome for transaction in history.transactions]
    summary.transactions = {outcome: outcomes.count(outcome) for outcome in Outcome}


def read_all(bootstrap: str, groups: list[str], history: Summary) -> None:
    async def read(admin: AdminCore) -> None:
        for name, count in TOPICS.items():
            for partition in range(count):
                history.reads += await read_to_end(admin, "reader", TopicPartition(name, partition))
        history.committed_offsets = await read_group_offsets(admin, groups, INPUT)

    with_admin(AdminConfig(bootstrap_servers=bootstrap), read)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--fsync", choices=("commit", "interval", "never"), default="commit")
    given = parser.parse_args()
    summary = run(given.rounds, given.seed, given.fsync, say=True)
    sys.stdout.write(summary.text() + "\n")
    return tell(summary.anomalies)


if __name__ == "__main__":
    sys.exit(main())
