"""Java's consumer (kafka-clients 4.4.0) in groups of both protocols on our broker: everybody gets a share."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self
from uuid import uuid4

import pytest

from fencepost.broker.embedded import Broker
from tests.support.apache_kafka import Unavailable
from tests.support.group_member import describe
from tests.support.java_programs import compile_java, java_program
from tests.support.raw_client import RawClient

pytestmark = pytest.mark.java

SOURCE = Path(__file__).with_name("java_groups") / "Groups.java"
PATIENCE_S = 90.0
COOPERATIVE = "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"


class JavaConsumers:
    """Context manager: one JVM of consumers. `owned` and `read` are what each said last."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.owned: dict[str, frozenset[str]] = {}
        self.read: dict[str, int] = {}
        self.ended: dict[str, str] = {}
        self._logged: list[str] = []

    def __enter__(self) -> Self:
        compile_java([SOURCE], self._folder)
        self._process = subprocess.Popen(
            java_program("Groups", folder=self._folder),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._reader = threading.Thread(target=self._listen)
        self._reader.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()

    def _listen(self) -> None:
        for line in self._process.stdout or ():
            sign, *words = line.split() or [""]
            if sign != ">":  # Kafka's classes log to the same stream
                self._logged.append(line)
                continue
            name, what, *rest = words
            if what == "owns":
                self.owned[name] = frozenset(rest[0].split(",") if rest else ())
            elif what == "read":
                self.read[name] = int(rest[0])
            else:
                self.ended[name] = " ".join([what, *rest])

    def start(self, name: str, topics: str, **properties: str) -> None:
        self.owned[name] = frozenset()
        self._send("start", name, topics, *(f"{key.replace('_', '.')}={value}" for key, value in properties.items()))

    def stop(self, name: str) -> None:
        self._send("stop", name)
        self.until(lambda: name in self.ended)
        assert self.ended.pop(name) == "closed"
        del self.owned[name]

    def _send(self, *words: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(words) + "\n")
        self._process.stdin.flush()

    def until(self, done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not done():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.owned} {self.ended}\n{''.join(self._logged[-100:])}")
            time.sleep(0.05)

    def shares(self, *sizes: int) -> Callable[[], bool]:
        """Return a function that is true once the consumers own disjoint shares of these sizes, in any order."""

        def check() -> bool:
            owned = list(self.owned.values())
            return sorted(map(len, owned)) == sorted(sizes) and len(frozenset().union(*owned)) == sum(sizes)

        return check


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaConsumers]:
    try:
        with JavaConsumers(tmp_path_factory.mktemp("groups")) as consumers:
            yield consumers
    except Unavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker({"group.consumer.heartbeat.interval.ms": 300}) as running:
        yield running


@pytest.fixture
def client(broker: Broker, java: JavaConsumers) -> Iterator[RawClient]:
    java.owned.clear()
    with RawClient(broker.bootstrap_servers) as connection:
        yield connection


@pytest.fixture
def run() -> str:
    """Goes into names, so that a second try finds nothing of the first."""
    return uuid4().hex[:6]


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_the_consumer_protocol(java: JavaConsumers, client: RawClient, broker: Broker, assignor: str, run: str) -> None:
    topic = client.create_topic(f"j-{assignor}-{run}", 6)
    for partition in range(6):
        client.produce(topic, [b"v"] * 5, partition=partition)
    group = {
        "bootstrap_servers": broker.bootstrap_servers,
        "group_id": f"g-{assignor}-{run}",
        "group_protocol": "consumer",
        "group_remote_assignor": assignor,
    }
    java.start("a", topic, **group)
    java.until(lambda: java.shares(6)() and java.read.get("a") == 30)
    java.start("b", topic, **group)
    java.until(java.shares(3, 3))
    java.start("c", topic, **group)
    java.until(java.shares(2, 2, 2))
    described = describe(client, f"g-{assignor}-{run}")
    assert (described.assignor_name, len(described.members)) == (assignor, 3)
    java.stop("a")
    java.until(java.shares(3, 3))
    java.stop("b")
    java.stop("c")
    assert describe(client, f"g-{assignor}-{run}").group_state == "Empty"


def test_a_static_member_and_a_pattern(java: JavaConsumers, client: RawClient, broker: Broker, run: str) -> None:
    client.create_topic(f"{run}-one", 2)
    group = {"bootstrap_servers": broker.bootstrap_servers, "group_id": f"g-{run}", "group_protocol": "consumer"}
    java.start("a", f"~{run}-.*", group_instance_id="a", **group)
    java.start("b", f"~{run}-.*", group_instance_id="b", **group)
    java.until(java.shares(1, 1))
    before = java.owned["a"]
    epoch = describe(client, f"g-{run}").group_epoch
    java.stop("a")
    java.start("a", f"~{run}-.*", group_instance_id="a", **group)
    java.until(java.shares(1, 1))
    assert (java.owned["a"], describe(client, f"g-{run}").group_epoch) == (before, epoch)
    client.create_topic(f"{run}-two", 2)
    java.until(java.shares(2, 2))
    java.stop("a")
    java.stop("b")


def test_cooperative_sticky_in_a_classic_group(
    java: JavaConsumers, client: RawClient, broker: Broker, run: str
) -> None:
    topic = client.create_topic(f"j-{run}", 4)
    group = {
        "bootstrap_servers": broker.bootstrap_servers,
        "group_id": f"g-{run}",
        "group_protocol": "classic",
        "partition_assignment_strategy": COOPERATIVE,
        "heartbeat_interval_ms": "200",
    }
    java.start("a", topic, **group)
    java.until(java.shares(4))
    java.start("b", topic, **group)
    java.until(java.shares(2, 2))
    java.stop("a")
    java.until(java.shares(4))
    java.stop("b")


@pytest.mark.parametrize("assignor", ["RangeAssignor", "CooperativeStickyAssignor"])
def test_a_group_goes_over_to_the_consumer_protocol_and_back(
    java: JavaConsumers, client: RawClient, broker: Broker, assignor: str, run: str
) -> None:
    name = f"over-{assignor}-{run}"
    topic = client.create_topic(f"j-{name}", 6)
    group = {"bootstrap_servers": broker.bootstrap_servers, "group_id": f"g-{name}"}
    strategy = f"org.apache.kafka.clients.consumer.{assignor}"
    classic = {"group_protocol": "classic", "partition_assignment_strategy": strategy, "heartbeat_interval_ms": "200"}
    java.start("old", topic, **group, **classic)
    java.until(java.shares(6))
    java.start("new", topic, **group, group_protocol="consumer")
    java.until(java.shares(3, 3))
    java.stop("old")
    java.until(java.shares(6))
    java.start("older", topic, **group, **classic)
    java.until(java.shares(3, 3))
    assert sorted(member.member_type for member in describe(client, f"g-{name}").members) == [0, 1]
    java.stop("new")
    java.until(java.shares(6))
    assert describe(client, f"g-{name}").error_code != 0
    java.stop("older")
