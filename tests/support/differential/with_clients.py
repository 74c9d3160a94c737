"""Clients of every family under the same chaotic workloads on both brokers: their outcomes, and the ratio of the times.

Each workload runs in rounds, on one broker after the other. A finding is an outcome that is worse than the worst of
Kafka's rounds, or a time above FACTOR times Kafka's; both times are the shortest of the rounds, because other work on
the machine only makes them longer.

python -m tests.support.differential.with_clients --seed 1 --runs 3
python -m tests.support.differential.with_clients --client librdkafka --workload segments
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import random
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from fencepost_lab.torture.broker_process import BrokerProcess
from tests.compat.burst_clients import PYTHON, InAThread, InGo, InJava
from tests.compat.java_clients import JavaClients
from tests.compat.test_franz_go import QUICKLY, go
from tests.support.apache_kafka import ApacheKafka
from tests.support.differential import readers
from tests.support.differential.arms import SETTINGS, Arm
from tests.support.differential.workloads import NEWEST, WORKLOADS, Client, Seen

__all__ = ["FACTOR", "Compared", "compared", "python_clients"]

FACTOR = 4.0
ROUNDS = 3
JAVA = ("2.0.1", "2.8.2", "3.9.1", "4.4.0")
EXPLAINED: Mapping[tuple[str, str], str] = {}
"""(workload, what) of slower times that have a reason, by reason."""


@dataclass
class Compared:
    """One workload of one client on both brokers, round by round."""

    workload: str
    client: str
    ours: list[Seen] = field(default_factory=list)
    kafka: list[Seen] = field(default_factory=list)
    cpu_s: dict[str, float] = field(default_factory=dict)

    def worse(self) -> list[str]:
        """Outcomes that are worse than the worst of Kafka's."""
        found = []
        for what in sorted({name for seen in self.ours for name in seen.bad}):
            worst = max(seen.bad.get(what, 0) for seen in self.kafka)
            for seen in self.ours:
                if seen.bad.get(what, 0) > worst:
                    found.append(f"{what}: {seen.bad[what]}, at Kafka {worst} at most ({seen.detail})")
                    break
        return found

    def times(self) -> dict[str, tuple[list[float], list[float]]]:
        """Seconds of each round, ours and Kafka's, by what took them."""
        found = {}
        for what in sorted({name for seen in self.ours for name in seen.seconds}):
            ours = [seen.seconds[what] for seen in self.ours if what in seen.seconds]
            theirs = [seen.seconds[what] for seen in self.kafka if what in seen.seconds]
            if ours and theirs:
                found[what] = ours, theirs
        return found

    def ratios(self) -> dict[str, float]:
        """The shortest time of ours to Kafka's, by what took it."""
        return {what: min(ours) / max(min(theirs), 1e-6) for what, (ours, theirs) in self.times().items()}

    def slow(self, factor: float = FACTOR) -> list[str]:
        """Times above `factor` times Kafka's that nothing explains."""
        times = self.times()
        return [
            f"{what}: {ratio:.1f} times as long as at Kafka ({_seconds(times[what][0])} against"
            f" {_seconds(times[what][1])} s)"
            for what, ratio in self.ratios().items()
            if ratio > factor and (self.workload, what) not in EXPLAINED
        ]

    def findings(self) -> list[str]:
        return [f"{self.workload}, {self.client}: {what}" for what in (*self.worse(), *self.slow())]

    def __str__(self) -> str:
        times = ", ".join(f"{what} {ratio:.2f}x" for what, ratio in self.ratios().items())
        cpu = self.cpu_s.get("kafka") and self.cpu_s["fencepost"] / self.cpu_s["kafka"]
        bad = {name: max(seen.bad.get(name, 0) for seen in self.ours) for name in self.ours[0].bad} if self.ours else {}
        shown = ", ".join(f"{name} {count}" for name, count in bad.items() if count) or "nothing wrong"
        return f"{self.workload:10} {self.client:14} {shown}; {times}; broker's processor time {cpu or 0:.2f}x"


def _seconds(rounds: Sequence[float]) -> str:
    return ", ".join(f"{seconds:.3f}" for seconds in rounds)


def compared(ours: Arm, kafka: Arm, client: Client, workload: str, seed: int, rounds: int = ROUNDS) -> Compared | None:
    """Run a workload in turns on both brokers; None if it is not for this client."""
    found = Compared(workload, client.name)
    for number in range(rounds):
        order = [(ours, found.ours), (kafka, found.kafka)]
        for arm, seen in order if number % 2 else reversed(order):
            before = arm.cpu_s()
            outcome = WORKLOADS[workload](arm, client, random.Random(f"{seed} {workload} {number}"))
            if outcome is None:
                return None
            seen.append(outcome)
            if workload != "restarted":
                found.cpu_s[arm.name] = found.cpu_s.get(arm.name, 0.0) + arm.cpu_s() - before
    return found


def python_clients() -> list[Client]:
    """Those that need nothing but Python."""
    names = dict.fromkeys([*readers.PYTHON_READERS, *PYTHON])
    return [
        Client(
            name,
            reader=readers.PYTHON_READERS.get(name),
            burst=partial(InAThread, PYTHON[name]) if name in PYTHON else None,
            newest=NEWEST.get(name),
        )
        for name in names
    ]


def java_clients(java: JavaClients) -> list[Client]:
    """kafka-clients of several ages."""
    numbers = iter(range(10**6))
    return [
        Client(
            release,
            reader=readers.InJava(java, release),
            burst=lambda release=release: InJava(java, release, f"burst{next(numbers)}"),  # type: ignore[misc]
        )
        for release in JAVA
    ]


def of_franz_go(folder: Path) -> Client:
    binary = folder / "story"
    go("build", *QUICKLY, "-o", str(binary), ".")
    return Client("franz-go", reader=readers.InGo(binary), burst=partial(InGo, binary))


def show(found: Iterable[Compared]) -> int:
    """Print the findings; how many there are."""
    findings = [text for each in found for text in each.findings()]
    print(f"{len(findings)} findings")
    for text in findings:
        print(f"  {text}")
    return len(findings)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.support.differential.with_clients", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--runs", type=int, default=1, help="so many seeds, from --seed on")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--client", action="append", default=[], help="only this one; repeatable")
    parser.add_argument("--workload", action="append", default=[], choices=[*WORKLOADS], help="only this; repeatable")
    options = parser.parse_args(arguments)
    logging.disable(logging.CRITICAL)  # clients tell of every topic that is gone
    found: list[Compared] = []
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fencepost-differential-")))
        clients = python_clients()
        wanted = options.client or [*(client.name for client in clients), *JAVA, "franz-go"]
        if any(release in wanted for release in JAVA):
            clients += java_clients(stack.enter_context(JavaClients(folder)))
        if "franz-go" in wanted:
            clients.append(of_franz_go(folder))
        broker = BrokerProcess(SETTINGS)
        broker.start()
        stack.callback(broker.stop)
        kafka = stack.enter_context(ApacheKafka(SETTINGS))
        ours = stack.enter_context(Arm("fencepost", broker))
        theirs = stack.enter_context(Arm("kafka", kafka))
        for seed in range(options.seed, options.seed + options.runs):
            for workload in options.workload or WORKLOADS:
                for client in clients:
                    if client.name not in wanted:
                        continue
                    difference = compared(ours, theirs, client, workload, seed, options.rounds)
                    if difference is not None:
                        found.append(difference)
                        print(f"seed {seed}: {difference}", flush=True)
    return 1 if show(found) else 0


if __name__ == "__main__":
    sys.exit(main())
