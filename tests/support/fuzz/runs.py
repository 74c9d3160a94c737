"""A run against a broker, or against clients, from a seed: everything is in this process, so that a defect shows."""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from threading import Semaphore, Thread

from fencepost.broker.embedded import Broker
from fencepost.errors import KafkaError
from tests.support.fuzz.broker_side import Attacker, descriptors, prepare
from tests.support.fuzz.client_side import APPLICATIONS, Application
from tests.support.fuzz.mutating_broker import MutatingBrokers
from tests.support.fuzz.neighbour import Neighbour
from tests.support.fuzz.requests import Requests
from tests.support.fuzz.watch import Watch

__all__ = ["BROKER_BYTES", "CLIENT_BYTES", "Report", "attack_broker", "mutate_responses"]

MIB = 1 << 20
UNREAD_BYTES = 64 * MIB
BROKER_BYTES = UNREAD_BYTES + 2 * 128 * MIB + 100 * MIB
"""Answers that nobody takes; one batch decompressed (128 MiB at most, held twice for a moment), or, at another time, of
each of 120 connections a megabyte of answers that does not count and the one batch that a fetch always brings; and all
else."""
CONNECTION_BYTES = 20 * 1024
"""Of a crowd, both ends; what the allocator keeps of bombs comes on top."""

CLIENT_BYTES = 512 * MIB
TOGETHER = 6
HANGS_S = 90.0

SETTINGS: dict[str, object] = {
    "queued.max.response.bytes": UNREAD_BYTES,
    "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
    "connection.failed.authentication.delay.ms": 1,
}


@dataclass(slots=True)
class Report:
    """Events of a run. `taken_bytes`: the peak of memory beyond that at its start."""

    happened: Counter[str] = field(default_factory=Counter)
    taken_bytes: int = 0
    transactions: int = 0


def attack_broker(seed: int, *, deeds: int = 300, crowd: int = 1_000, only: str = "") -> Report:
    """Every attack once, or the one of that name, with `deeds` random ones of the kinds that can be many; then the
    broker is killed and opens what is left. `crowd` is cut to what the descriptors allow. Raises AssertionError for any
    harm.
    """
    random, report = Random(seed), Report()
    with (
        descriptors() as most,
        Watch(BROKER_BYTES + crowd * CONNECTION_BYTES) as watch,
        Broker(SETTINGS, users={"alice": "secret"}) as broker,
    ):
        with Neighbour(broker) as neighbour:
            servers = broker.bootstrap_servers

            def beside() -> None:
                neighbour.gets_on()
                watch.look()

            requests = Requests(random, prepare(servers))
            quick = Attacker(servers, requests, random, watch.look, report.happened)
            slow = Attacker(servers, requests, random, beside, report.happened)
            unauthenticated = Attacker(broker.listener("SASL_PLAINTEXT"), requests, random, watch.look, report.happened)
            attacks: dict[str, Callable[[], None]] = {
                "every request": quick.every_request,
                "random requests": lambda: quick.random_requests(deeds),
                "before login": lambda: unauthenticated.before_login(deeds // 3),
                "lying sizes": slow.lying_sizes,
                "a byte at a time": slow.a_byte_at_a_time,
                "unread answers": slow.unread_answers,
                "bombs": slow.bombs,
                "crowd": lambda: slow.crowd(min(crowd, most)),
            }
            for name in random.sample(list(attacks), len(attacks)):
                if only in ("", name):
                    attacks[name]()
                    beside()
        broker.restart(clean=False)
        neighbour.check()
        report.taken_bytes, report.transactions = watch.taken_bytes, neighbour.transactions
    return report


def mutate_responses(seed: int, *, applications: int = 40, only: Sequence[Application] = APPLICATIONS) -> Report:
    """So many applications, a few at a time, each with a lying broker of its own. Raises AssertionError when one gets
    anything but a KafkaError, does not come to an end, or harms one that works with the honest broker.
    """
    report, running = Report(), Semaphore(TOGETHER)
    with (
        Watch(CLIENT_BYTES, clients_may_complain=True) as watch,
        Broker({"group.initial.rebalance.delay.ms": 0}) as broker,
    ):
        prepare(broker.bootstrap_servers)
        with Neighbour(broker) as neighbour, MutatingBrokers(broker.bootstrap_servers) as mutating_brokers:
            victims = [
                Victim(seed * 100_000 + number, only, mutating_brokers, running) for number in range(applications)
            ]
            for victim in victims:
                if not running.acquire(timeout=HANGS_S):
                    raise AssertionError(
                        "hangs: "
                        + ", ".join(running_victim.name for running_victim in victims if running_victim.is_alive())
                    )
                victim.start()
                watch.look()
            for victim in victims:
                victim.join(HANGS_S)
                if victim.is_alive():
                    raise AssertionError(f"{victim.name} hangs")
                report.happened[f"{victim.application.__name__}: {victim.outcome}"] += 1
            defects = [f"{victim.name}: {victim.defect}" for victim in victims if victim.defect]
            if defects:
                raise AssertionError("\n".join(defects))
            neighbour.gets_on()
            report.happened += mutating_brokers.happened
        report.taken_bytes, report.transactions = watch.taken_bytes, neighbour.transactions
    return report


class Victim(Thread):
    """An application whose broker sends wrong responses. `outcome`: its end; `defect`: any error but KafkaError."""

    def __init__(
        self, seed: int, applications: Sequence[Application], mutating_brokers: MutatingBrokers, running: Semaphore
    ) -> None:
        random = Random(seed)
        self.application = random.choice(applications)
        super().__init__(name=f"{self.application.__name__} of seed {seed}", daemon=True)
        self._random = random
        self._servers = mutating_brokers.new(random.getrandbits(32), answers_per_change=random.choice((1.5, 4, 10)))
        self._running = running
        self.outcome = "done"
        self.defect = ""

    def run(self) -> None:
        try:
            self.application(self._servers, self._random)
        except KafkaError as error:
            self.outcome = type(error).__name__
        except BaseException as error:  # noqa: BLE001 - it is looked at by who joins
            self.outcome = "defect"
            self.defect = "".join(traceback.format_exception(error))
        finally:
            self._running.release()
