"""Brokers that stand still for minutes under load: ours and Apache Kafka, side by side, with the same clients.

Transactional producers (timeout 60 s) and groups (session 45 s) of librdkafka, Java and Fencepost work on both brokers.
Both processes are stopped by SIGSTOP at once, and go on after `--seconds`. The producers end when every group has had
a new record, and the members when they have had all records. A finding is a record that is lost or doubled, a group
that does not come back or needs far more time than at Kafka, and a kind of error that Kafka's clients do not see.

    python -m tests.support.long_stops [--seconds 150] [--rounds 2]
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import fencepost
from fencepost.client.admin.core import AdminCore
from fencepost.client.types import TopicPartition
from fencepost.config import AdminConfig
from fencepost_lab.check.history import Outcome, RecordRead
from fencepost_lab.check.reader import read_to_end
from fencepost_lab.torture.broker_process import BrokerProcess
from fencepost_lab.torture.settling import with_admin
from tests.compat.java_clients import JavaClients
from tests.support.apache_kafka import ApacheKafka, unavailable_reason
from tests.support.long_stop_clients import (
    POLLED,
    SESSION_MS,
    Ends,
    Member,
    MemberInJava,
    Span,
    Worker,
    Writer,
    WriterInJava,
    members,
    writers,
)
from tests.support.waiting import until

__all__ = ["Arm", "Seen", "findings", "lost_and_doubled"]

TOPIC = "work"
PARTITIONS = 2
SETTINGS: dict[str, str | int | bool] = {
    "offsets.topic.num.partitions": 5,
    "transaction.state.log.num.partitions": 5,
    "group.initial.rebalance.delay.ms": 0,
}
BEFORE_S = 15.0
PATIENCE_S = 240.0
MEMBERS = 2
FACTOR, GRACE_S = 2.0, 10.0
"""A time is similar if it is at most so many times Kafka's, or a session's, and so much more. On both brokers a group
may have to wait for the session of a member whose requests were read after it had given them up."""


@dataclass
class Seen:
    """One arm: its applications, the committed records, and the seconds from the end of the stop to the first success.

    `back` is by group, and by producer.
    """

    name: str
    workers: list[Worker] = field(default_factory=list)
    committed: Counter[str] = field(default_factory=Counter)
    delivered: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    """Of each group: how often each value came."""
    back: dict[str, float] = field(default_factory=dict)

    def errors(self) -> Mapping[str, Counter[str]]:
        """Return the kinds of errors by client; the members of a group together."""
        found: dict[str, Counter[str]] = defaultdict(Counter)
        for worker in self.workers:
            found[worker.name.removesuffix("-0").removesuffix("-1")] += worker.errors
        return found

    def outcomes(self) -> Counter[str]:
        return Counter(outcome.value for worker in self.workers for outcome in worker.outcomes.values())

    def doubled(self) -> dict[str, int]:
        """Return the number of values that a group was given more than once."""
        return {group: sum(count > 1 for count in values.values()) for group, values in self.delivered.items()}

    def __str__(self) -> str:
        back = ", ".join(f"{who} {seconds:.1f} s" for who, seconds in sorted(self.back.items()))
        lines = [
            f"{self.name}: transactions {dict(self.outcomes())}, {sum(self.committed.values())} committed records",
            f"    back after: {back}",
            f"    given again: { {group: count for group, count in self.doubled().items() if count} or 'nothing' }",
        ]
        lines += [f"    {who}: {dict(kinds)}" for who, kinds in sorted(self.errors().items()) if kinds]
        lines += [f"    {each.name} broke: {each.broken!r}" for each in self.workers if each.broken is not None]
        return "\n".join(lines)


def lost_and_doubled(seen: Seen) -> Iterator[str]:
    """Yield what contradicts what the applications were told, in the log and in each group."""
    for value, count in seen.committed.items():
        if count > 1:
            yield f"{seen.name}: {value} is committed {count} times"
    for worker in seen.workers:
        if worker.broken is not None:
            yield f"{seen.name}: {worker.name} broke: {worker.broken!r}"
        for number, outcome in worker.outcomes.items():
            sent = 2 if number == "span" else 3
            there = sum(seen.committed[f"{worker.name}-{number}-{index}"] > 0 for index in range(3))
            allowed = {Outcome.COMMITTED: {sent}, Outcome.ABORTED: {0}, Outcome.UNKNOWN: {0, sent}}[outcome]
            if there not in allowed:
                yield f"{seen.name}: {worker.name}-{number} is {outcome.value} with {there} of {sent} records"
    for group, values in seen.delivered.items():
        if missing := seen.committed.keys() - values.keys():
            yield f"{seen.name}: {group} was not given {len(missing)} records, such as {min(missing)}"
        if more := values.keys() - seen.committed.keys():
            yield f"{seen.name}: {group} was given {len(more)} records that are not committed, such as {min(more)}"


EXPLAINED: Mapping[str, str] = {
    "TimeoutError": "the client's own patience",
    "TimeoutException": "the client's own patience",
    "_TIMED_OUT": "the client's own patience",
    "TransactionCommittedError": "the commit that was in flight at the stop succeeded, and the abort found that out",
    "UNKNOWN_MEMBER_ID": "the session ended during the stop; on both brokers a queued heartbeat may be read first",
    "CommitFailedException": "as UNKNOWN_MEMBER_ID, in Java's words",
    "GroupFencedError": "as UNKNOWN_MEMBER_ID, in our words",
    "UNKNOWN_PRODUCER_ID abortable": "a transaction that timed out: our broker tells it from a takeover",
    "TransactionTimedOutError": "a transaction that timed out: our broker tells it from a takeover",
}
"""Parts of kinds of errors that are no finding, with the reason."""


def findings(ours: Sequence[Seen], kafka: Sequence[Seen]) -> list[str]:
    """Compare rounds: contradictions, unexplained errors that no client saw at Kafka, times, records given again."""
    found = [text for seen in ours for text in lost_and_doubled(seen)]
    known: dict[str, set[str]] = defaultdict(set)
    for seen in kafka:
        for who, kinds in seen.errors().items():
            known[who] |= kinds.keys()
    for seen in ours:
        for who, kinds in seen.errors().items():
            for kind in sorted(kinds.keys() - known[who]):
                if not any(part in kind for part in EXPLAINED):
                    found.append(f"{who}: {kind}, which it does not see at Kafka")
    for who in sorted({name for seen in (*ours, *kafka) for name in seen.back}):
        best = min(seen.back.get(who, PATIENCE_S) for seen in ours)
        worst = max(seen.back.get(who, PATIENCE_S) for seen in kafka)
        if best > max(FACTOR * worst, SESSION_MS / 1000) + GRACE_S:
            found.append(f"{who} is back after {best:.1f} s, at Kafka after {worst:.1f} s")
    for group in sorted({name for seen in ours for name in seen.doubled()}):
        most = max(seen.doubled().get(group, 0) for seen in kafka)
        again = min(seen.doubled().get(group, 0) for seen in ours)
        if again > max(most, MEMBERS * POLLED):
            found.append(f"{group} is given {again} records again, at Kafka {most} at most")
    return found


class Arm:
    """A broker with its applications."""

    def __init__(self, name: str, broker: BrokerProcess | ApacheKafka, java: JavaClients, folder: Path) -> None:
        self.name = name
        self._broker = broker
        self._writers_end = Ends(folder, f"{name}-writers")
        self._members_end = Ends(folder, f"{name}-members")
        with fencepost.Admin(broker.bootstrap_servers) as admin:
            admin.create_topic(TOPIC, PARTITIONS, 1)
        servers = broker.bootstrap_servers
        self._writers: list[Writer] = list(writers(java, servers, TOPIC, self._writers_end))
        self._members: list[Member | MemberInJava] = list(members(java, servers, TOPIC, self._members_end))

    def start(self) -> None:
        """Start all applications. Wait for the transactions that span the stop, and for the groups' first commits."""
        for writer in (*self._members, *self._writers):
            writer.start()
        for span in self._spans():
            if not span.is_begun.wait(PATIENCE_S):
                raise TimeoutError(f"{self.name}: {span.seen.name} has not begun: {span.seen.broken!r}")
        partitions = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
        until(partial(self._have_all, dict.fromkeys(partitions, 1)), within_s=PATIENCE_S)

    def _spans(self) -> Iterator[Span]:
        return (writer for writer in self._writers if isinstance(writer, Span))

    def signal(self, number: signal.Signals) -> None:
        if self._broker.pid is None:
            raise RuntimeError(f"{self.name} has ended")
        os.kill(self._broker.pid, number)

    def after(self, resumed: float) -> Seen:
        """Let the applications come back, end them, and read what is there."""
        with fencepost.Admin(self._broker.bootstrap_servers) as admin:
            until(lambda: not self._timed_out(admin), within_s=PATIENCE_S)
        for span in self._spans():
            span.may_go.set()
        until(lambda: self._are_back(resumed), within_s=PATIENCE_S)
        self._writers_end.say()
        seen = Seen(self.name, [writer.wait(PATIENCE_S) for writer in self._writers])
        records = with_admin(AdminConfig(bootstrap_servers=self._broker.bootstrap_servers), self._read)
        seen.committed = Counter(record.value for record in records)
        ends = {TopicPartition(record.topic, record.partition): record.offset + 1 for record in records}
        until(partial(self._have_all, ends), within_s=PATIENCE_S)
        self._members_end.say()
        for member in self._members:
            worker = member.wait(PATIENCE_S)
            seen.workers.append(worker)
            for value, times in worker.values.items():
                seen.delivered[member.group][value] += len(times)
                self._note(seen, member.group, resumed, times)
        for worker in seen.workers:
            self._note(seen, worker.name, resumed, worker.at)
        return seen

    @staticmethod
    def _note(seen: Seen, who: str, resumed: float, times: Sequence[float]) -> None:
        for when in times:
            if when > resumed:
                seen.back[who] = min(seen.back.get(who, PATIENCE_S), when - resumed)

    def _timed_out(self, admin: fencepost.Admin) -> list[str]:
        names = {span.seen.name for span in self._spans()}
        return [
            found.transactional_id
            for found in admin.list_transactions(states=["Ongoing"])
            if found.transactional_id in names
        ]

    def _are_back(self, resumed: float) -> bool:
        """True when each application in a thread has had a success. Java's tell at their end."""
        groups: dict[str, bool] = defaultdict(bool)
        for member in self._members:
            if isinstance(member, Member):
                times = [when for each in list(member.seen.values.values()) for when in list(each)]
                groups[member.group] |= any(when > resumed for when in times)
        work = [writer.seen for writer in self._writers if not isinstance(writer, WriterInJava | Span)]
        return all(groups.values()) and all(any(when > resumed for when in seen.at) for seen in work)

    def _have_all(self, ends: Mapping[TopicPartition, int]) -> bool:
        """True when every group has committed positions behind the last committed records."""
        with fencepost.Admin(self._broker.bootstrap_servers) as admin:
            for group in {member.group for member in self._members}:
                offsets = admin.group_offsets(group, list(ends))
                if any(partition not in offsets or offsets[partition].offset < end for partition, end in ends.items()):
                    return False
        return True

    async def _read(self, admin: AdminCore) -> list[RecordRead]:
        return [
            record
            for number in range(PARTITIONS)
            for record in await read_to_end(admin, "reader", TopicPartition(TOPIC, number))
        ]


def one_round(seconds: float, java: JavaClients, folder: Path) -> tuple[Seen, Seen]:
    """Start both brokers and all applications, stop both brokers for so long, and return what was seen."""
    with ExitStack() as stack:
        process = BrokerProcess(SETTINGS)
        process.start()
        stack.callback(process.stop)
        kafka = stack.enter_context(ApacheKafka(SETTINGS))
        arms = Arm("fencepost", process, java, folder), Arm("kafka", kafka, java, folder)
        for arm in arms:
            arm.start()
        time.sleep(BEFORE_S)
        for arm in arms:
            arm.signal(signal.SIGSTOP)
            stack.callback(arm.signal, signal.SIGCONT)
        time.sleep(seconds)
        resumed = time.time()
        for arm in arms:
            arm.signal(signal.SIGCONT)
        with ThreadPoolExecutor(2) as pool:
            ours, theirs = pool.map(lambda arm: arm.after(resumed), arms)
    return ours, theirs


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.support.long_stops", description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=150, help="how long the brokers stand still")
    parser.add_argument("--rounds", type=int, default=1)
    options = parser.parse_args(arguments)
    if (reason := unavailable_reason()) is not None:
        print(f"not run: {reason}")
        return 0
    logging.disable(logging.CRITICAL)
    rounds: list[tuple[Seen, Seen]] = []
    with tempfile.TemporaryDirectory(prefix="fencepost-stops-") as name:
        for number in range(options.rounds):
            folder = Path(name) / str(number)
            folder.mkdir()
            classes = folder / "classes"
            classes.mkdir()
            with JavaClients(classes) as java:
                rounds.append(one_round(options.seconds, java, folder))
            for seen in rounds[-1]:
                print(seen, flush=True)
    found = findings([ours for ours, _ in rounds], [kafka for _, kafka in rounds])
    print(f"{len(found)} findings")
    for text in found:
        print(f"  {text}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
