"""Members of a group join, leave, are killed (-9) and stand still while they copy a topic: exactly once at the end.

Every member is a process that runs examples/consume_transform_produce.py. `FENCEPOST_STORM_S` is how long the storm
lasts (default 15 s), `FENCEPOST_STORM_SEED` repeats its choices.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from multiprocessing.context import ForkServerProcess

import pytest

import fencepost
from examples import consume_transform_produce
from fencepost import TopicPartition
from tests.support.brokers import BrokerUnderTest
from tests.support.forked import forked

SECONDS = float(os.environ.get("FENCEPOST_STORM_S", "15"))
SEED = int(os.environ.get("FENCEPOST_STORM_SEED", "1"))
MOST_MEMBERS = 4
PARTITIONS = 6
GROUP_RESOURCE = 32
SESSION_TIMEOUT_MS = 6_000
TRANSACTION_TIMEOUT_MS = 8_000
STANDS_STILL_S = 9.0  # longer than both timeouts: it wakes up as a zombie
SETTLE_S = 240.0

pytestmark = [pytest.mark.slow, pytest.mark.timeout(int(SECONDS) + 600)]


def send_signal(member: ForkServerProcess, number: signal.Signals) -> None:
    if member.exitcode is None and member.pid is not None:
        os.kill(member.pid, number)


class Storm:
    """The member processes, and what happens to them."""

    def __init__(self, broker: BrokerUnderTest, source: str, target: str, protocol: str) -> None:
        self._arguments = ["--bootstrap-servers", broker.bootstrap_servers, "--source", source, "--target", target]
        self._arguments += ["--group", f"{source}-group", "--threads", "1", "--group-protocol", protocol]
        self._arguments += ["--session-timeout-ms", str(SESSION_TIMEOUT_MS)]
        self._arguments += ["--transaction-timeout-ms", str(TRANSACTION_TIMEOUT_MS)]
        self._members: list[ForkServerProcess] = []
        self._leaving: list[ForkServerProcess] = []
        self._still: list[tuple[float, ForkServerProcess]] = []
        self.happened: Counter[str] = Counter()

    def join(self) -> None:
        self._members.append(forked(consume_transform_produce.main, self._arguments))
        self.happened["joined"] += 1

    def disturb(self, choice: random.Random, now: float) -> None:
        """Something happens to a member, or a new one comes."""
        for since, member in list(self._still):
            if now - since > STANDS_STILL_S:
                self._still.remove((since, member))
                send_signal(member, signal.SIGCONT)
                self._members.append(member)
        if len(self._members) < MOST_MEMBERS:
            self.join()
            return
        member = self._members.pop(choice.randrange(len(self._members)))
        what = choice.choice(("left", "killed", "killed", "stood still"))
        self.happened[what] += 1
        if what == "stood still":
            send_signal(member, signal.SIGSTOP)
            self._still.append((now, member))
            return
        send_signal(member, signal.SIGTERM if what == "left" else signal.SIGKILL)
        self._leaving.append(member)

    def calm(self) -> None:
        """The zombies wake up, and two members stay to finish the work."""
        for _, member in self._still:
            send_signal(member, signal.SIGCONT)
            self._members.append(member)
        self._still.clear()
        while len(self._members) < 2:
            self.join()

    def check(self) -> None:
        """Nobody died of anything but our signals."""
        for member in self._members + [stopped_member for _, stopped_member in self._still]:
            assert member.exitcode is None, f"a member ended by itself with {member.exitcode}"

    def end(self) -> list[int | None]:
        """Everybody goes; returns the exit codes of those that were asked to leave."""
        self.calm_still()
        for member in self._members:
            send_signal(member, signal.SIGTERM)
        for member in self._members + self._leaving:
            member.join(120)
        return [member.exitcode for member in self._members + self._leaving]

    def calm_still(self) -> None:
        for _, member in self._still:
            send_signal(member, signal.SIGCONT)

    def kill(self) -> None:
        for member in [*self._members, *self._leaving, *(stopped_member for _, stopped_member in self._still)]:
            member.kill()
            member.join()


def committed(broker: BrokerUnderTest, topic: str) -> list[bytes]:
    with fencepost.Admin(broker.bootstrap_servers) as admin, fencepost.Consumer(broker.bootstrap_servers) as consumer:
        ends = admin.list_offsets(
            dict.fromkeys([TopicPartition(topic, number) for number in range(2)], -1),
            isolation=fencepost.Isolation.READ_COMMITTED,
        )
        found: list[bytes | None] = []
        for partition, end in ends.items():
            for fetched in consumer.fetch_range(topic, partition.partition, 0, end.offset, timeout_ms=60_000):
                found += fetched.columns.values()
    return [value for value in found if value is not None]


@pytest.fixture(params=["classic", "consumer"])
def storm(broker: BrokerUnderTest, request: pytest.FixtureRequest) -> Iterator[tuple[Storm, str, str]]:
    source, target = broker.name("source"), broker.name("target")
    with fencepost.Admin(broker.bootstrap_servers) as admin:
        admin.create_topic(source, PARTITIONS)
        admin.create_topic(target, 2)
        if request.param == "consumer":
            session = {"consumer.session.timeout.ms": str(SESSION_TIMEOUT_MS), "consumer.heartbeat.interval.ms": "1000"}
            admin.alter_configs(f"{source}-group", session, resource_type=GROUP_RESOURCE)
    raging = Storm(broker, source, target, request.param)
    try:
        yield raging, source, target
    finally:
        raging.kill()


def test_a_rebalance_storm(broker: BrokerUnderTest, storm: tuple[Storm, str, str]) -> None:
    raging, source, target = storm
    sent: list[bytes] = []
    stop_feeding = threading.Event()

    def feed() -> None:
        with fencepost.Producer(broker.bootstrap_servers) as producer:
            while not stop_feeding.wait(0.01):
                value = b"record %d" % len(sent)
                producer.send(source, value, key=value)
                sent.append(value)

    feeder = threading.Thread(target=feed, daemon=True)
    feeder.start()
    choice = random.Random(SEED)
    raging.join()
    raging.join()
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        time.sleep(choice.uniform(0.3, 1.5))
        raging.disturb(choice, time.monotonic())
        raging.check()
    stop_feeding.set()
    feeder.join(120)
    raging.calm()

    deadline = time.monotonic() + SETTLE_S
    while len(got := committed(broker, target)) < len(sent) and time.monotonic() < deadline:
        raging.check()
        time.sleep(0.5)
    codes = raging.end()
    got = committed(broker, target)
    wanted = [value.upper() for value in sent]
    assert len(wanted) > 100
    twice = [value for value, count in Counter(got).items() if count > 1]
    assert sorted(got) == sorted(wanted), f"doubled: {twice[:5]}, missing: {sorted(set(wanted) - set(got))[:5]}"
    assert raging.happened["killed"] > 0
    # One that was asked to leave while Python was still starting has no handler yet.
    assert all(code in {0, -signal.SIGKILL, -signal.SIGTERM} for code in codes), codes
    print(f"{len(got)} records once each, members: {dict(raging.happened)}")
