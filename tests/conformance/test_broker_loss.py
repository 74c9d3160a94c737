"""Three Apache Kafka nodes, one of them killed (-9) and restarted again and again, under every kind of client.

Nothing that was acknowledged or committed may be lost, nothing may be doubled, and every client goes on by itself: none
is made anew. `FENCEPOST_BROKER_KILLS` is how often (default 4).
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

import fencepost
from examples import consume_transform_produce
from fencepost import TopicPartition
from fencepost.errors import AbortableError, KafkaError, RetriableError, TransactionCommittedError
from tests.support.apache_kafka_cluster import ApacheKafkaCluster

KILLS = int(os.environ.get("FENCEPOST_BROKER_KILLS", "4"))
PAUSE_S = 2.0
SETTLE_S = 120.0
PARTITIONS = 3

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(60 * KILLS + 600)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[ApacheKafkaCluster]:
    with ApacheKafkaCluster() as running:
        yield running


class Worker(threading.Thread):
    """Works until told to stop; what it died of is kept in `failure`."""

    def __init__(self, name: str, work: Callable[[threading.Event], object], stopping: threading.Event) -> None:
        super().__init__(name=name, daemon=True)
        self._work = work
        self._stopping = stopping
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            self._work(self._stopping)
        except BaseException as error:  # noqa: BLE001 (the test raises it)
            self.failure = error


class Idempotent:
    """One record after the other, without transactions; knows which were acknowledged."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        self.acknowledged: list[bytes] = []
        self.failures: list[KafkaError] = []
        self._bootstrap_servers = bootstrap_servers
        self._topic = topic

    def __call__(self, stopping: threading.Event) -> None:
        with fencepost.Producer(self._bootstrap_servers, linger_ms=5) as producer:
            number = 0
            while not stopping.is_set():
                value = b"%d" % number
                producer.send(self._topic, value, key=value, on_delivery=self._delivered(value))
                number += 1
                if number % 20 == 0:
                    stopping.wait(0.02)
            producer.flush()  # as long as delivery_timeout_ms allows; close() alone waits 30 s

    def _delivered(self, value: bytes) -> Callable[[KafkaError | None, object], None]:
        def tell(error: KafkaError | None, _: object) -> None:
            if error is None:
                self.acknowledged.append(value)
            else:
                self.failures.append(error)

        return tell


class Transactional:
    """Transactions of ten records over all partitions; every fifth is aborted on purpose, a failed one is repeated."""

    def __init__(self, bootstrap_servers: str, topic: str, name: str) -> None:
        self.committed: list[bytes] = []
        self.repeated: list[str] = []
        self._bootstrap_servers = bootstrap_servers
        self._topic = topic
        self._name = name

    def __call__(self, stopping: threading.Event) -> None:
        with fencepost.Producer(self._bootstrap_servers, transactional_id=f"{self._topic}-{self._name}") as producer:
            _until_done(producer.init_transactions)
            number = 0
            while not stopping.is_set():
                values = [b"%s-%d-%d" % (self._name.encode(), number, index) for index in range(10)]
                if self._write(producer, values, commit=number % 5 != 4):
                    self.committed += values
                number += 1

    def _write(self, producer: fencepost.Producer, values: list[bytes], *, commit: bool) -> bool:
        """True: committed, False: aborted on purpose."""
        while True:
            try:
                producer.begin_transaction()
                for index, value in enumerate(values):
                    producer.send(self._topic, value, partition=index % PARTITIONS)
                if commit:
                    producer.commit_transaction()
                    return True
                producer.flush()
            except AbortableError as error:
                self.repeated.append(repr(error))
            try:
                _until_done(producer.abort_transaction)
            except TransactionCommittedError:
                producer.init_transactions()
                return True
            if not commit:
                return False


def _until_done(call: Callable[[], object]) -> None:
    while True:
        try:
            call()
        except RetriableError:
            continue
        return


def committed_values(cluster: ApacheKafkaCluster, topic: str) -> list[bytes]:
    """Everything a read_committed reader finds up to the high watermark; fails when a transaction still hangs."""
    with fencepost.Admin(cluster.bootstrap_servers) as admin, fencepost.Consumer(cluster.bootstrap_servers) as consumer:
        ends = admin.list_offsets(
            dict.fromkeys([TopicPartition(topic, number) for number in range(PARTITIONS)], -1),
            isolation=fencepost.Isolation.READ_UNCOMMITTED,
        )
        found: list[bytes | None] = []
        for one, end in ends.items():
            for fetched in consumer.fetch_range(topic, one.partition, 0, end.offset, timeout_ms=round(SETTLE_S * 1000)):
                found += fetched.columns.values()
    return [value for value in found if value is not None]


def doubled(values: list[bytes]) -> list[tuple[bytes, int]]:
    return [(value, count) for value, count in Counter(values).items() if count > 1]


def test_brokers_die_and_come_back_under_every_client(cluster: ApacheKafkaCluster) -> None:
    servers = cluster.bootstrap_servers
    with fencepost.Admin(servers) as admin:
        for topic in ("plain", "copied", "decided"):
            admin.create_topic(topic, PARTITIONS, 3)

    feeding, copying = threading.Event(), threading.Event()
    plain = Idempotent(servers, "plain")
    transactional = [Transactional(servers, "decided", name) for name in ("a", "b")]
    workers = [Worker("idempotent", plain, feeding)]
    workers += [Worker(f"transactional {n}", one, feeding) for n, one in enumerate(transactional)]

    def copy(stopping: threading.Event) -> None:
        consume_transform_produce.copy(servers, "plain", "copied", "copiers", stopping, lambda value: b"copy " + value)

    workers += [Worker(f"copier {number}", copy, copying) for number in range(2)]
    for worker in workers:
        worker.start()

    for kill in range(KILLS):
        node = cluster.nodes[kill % len(cluster.nodes)]
        time.sleep(PAUSE_S)
        node.kill9()
        time.sleep(PAUSE_S)
        node.restart()
        cluster.wait_until_whole()
    feeding.set()
    for worker in workers[:3]:
        worker.join(SETTLE_S)
    plain_values = committed_values(cluster, "plain")
    deadline = time.monotonic() + SETTLE_S
    while len(committed_values(cluster, "copied")) < len(plain_values) and time.monotonic() < deadline:
        time.sleep(0.5)
    copying.set()
    for worker in workers:
        worker.join(SETTLE_S)
        assert not worker.is_alive(), f"{worker.name} hangs"
        assert worker.failure is None, f"{worker.name}: {worker.failure!r}"

    assert plain.failures == []
    assert len(plain.acknowledged) > 1000
    assert sorted(plain_values) == sorted(plain.acknowledged), doubled(plain_values)
    decided = committed_values(cluster, "decided")
    expected = [value for one in transactional for value in one.committed]
    assert len(expected) > 200
    assert sorted(decided) == sorted(expected), doubled(decided)
    copied = committed_values(cluster, "copied")
    assert sorted(copied) == sorted(b"copy " + value for value in plain_values), doubled(copied)
    print(
        f"{KILLS} kills: {len(plain_values)} plain and {len(copied)} copied records, {len(expected)} in transactions, "
        f"{sum(len(one.repeated) for one in transactional)} of them repeated"
    )
