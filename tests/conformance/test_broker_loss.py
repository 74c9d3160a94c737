"""Three Apache Kafka nodes, one of them killed (-9) and restarted again and again, under every kind of client.

Nothing that was acknowledged or committed may be lost, nothing may be doubled, and every client goes on by itself: none
is made anew. `FENCEPOST_BROKER_KILLS` is how often (default 4). Then what followers are for: reading from the nearest
(KIP-392), and a log that an election has cut (KIP-320).
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

import fencepost
from examples import consume_transform_produce
from fencepost import TopicPartition
from fencepost.client.net.topology import KnownPartition
from fencepost.errors import AbortableError, KafkaError, LogTruncationError, RetriableError, TransactionCommittedError
from tests.support.apache_kafka_cluster import ApacheKafkaCluster, ClusterNode
from tests.support.commands import Commands

KILLS = int(os.environ.get("FENCEPOST_BROKER_KILLS", "4"))
PAUSE_S = 2.0
SETTLE_S = 120.0
PARTITIONS = 3

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(60 * KILLS + 600)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[ApacheKafkaCluster]:
    with ApacheKafkaCluster() as running:
        yield running


def test_each_broker_shows_a_change_when_the_call_returns(cluster: ApacheKafkaCluster) -> None:
    with contextlib.ExitStack() as stack:
        looks = [stack.enter_context(fencepost.Admin(node.bootstrap_servers)) for node in cluster.nodes]
        admin = stack.enter_context(fencepost.Admin(cluster.bootstrap_servers))
        for number in range(20):
            topic = f"shown-{number}"
            admin.create_topic(topic, 3)
            assert [len(look.describe_topics([topic])[topic].partitions) for look in looks] == [3, 3, 3]
            admin.create_partitions(topic, 5)
            assert [len(look.describe_topics([topic])[topic].partitions) for look in looks] == [5, 5, 5]
            assert len(admin.partitions_of([topic])) == 5
            admin.alter_configs(topic, {"retention.ms": "123456"})
            assert [look.describe_configs(topic)["retention.ms"] for look in looks] == ["123456"] * 3
            admin.alter_configs(topic, {"retention.ms": None})
            assert [look.describe_configs(topic)["retention.ms"] for look in looks] == ["-1"] * 3
            admin.delete_topic(topic)
            assert [topic in look.list_topics() for look in looks] == [False] * 3


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
        for partition, end in ends.items():
            for fetched in consumer.fetch_range(
                topic, partition.partition, 0, end.offset, timeout_ms=round(SETTLE_S * 1000)
            ):
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
    workers += [Worker(f"transactional {n}", client, feeding) for n, client in enumerate(transactional)]

    def copy(stopping: threading.Event) -> None:
        consume_transform_produce.copy(servers, "plain", "copied", "copiers", stopping, lambda value: b"copy " + value)

    workers += [Worker(f"copier {number}", copy, copying) for number in range(2)]
    for worker in workers:
        worker.start()

    for kill in range(KILLS):
        node = cluster.nodes[kill % len(cluster.nodes)]
        time.sleep(PAUSE_S)
        node.kill()
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
    expected = [value for client in transactional for value in client.committed]
    assert len(expected) > 200
    assert sorted(decided) == sorted(expected), doubled(decided)
    copied = committed_values(cluster, "copied")
    assert sorted(copied) == sorted(b"copy " + value for value in plain_values), doubled(copied)
    print(
        f"{KILLS} kills: {len(plain_values)} plain and {len(copied)} copied records, {len(expected)} in transactions, "
        f"{sum(len(client.repeated) for client in transactional)} of them repeated"
    )


def leader_and_followers(cluster: ApacheKafkaCluster, topic: str) -> tuple[ClusterNode, list[ClusterNode]]:
    """The leader of partition 0, and the followers."""
    nodes = {node.node_id: node for node in cluster.nodes}
    found = in_sync(cluster, topic, lambda leader, replicas: leader in nodes)
    return nodes[found.leader], [nodes[number] for number in found.replicas if number != found.leader]


def in_sync(cluster: ApacheKafkaCluster, topic: str, wanted: Callable[[int, tuple[int, ...]], bool]) -> KnownPartition:
    """Partition 0, once its leader and in-sync replicas are as wanted. A node may hear late of a new topic."""
    deadline = time.monotonic() + SETTLE_S
    with fencepost.Admin(cluster.bootstrap_servers) as admin:
        while True:
            described = admin.describe_topics([topic])
            found = described[topic].partitions[0] if described else None
            if found is not None and wanted(found.leader, found.in_sync):
                return found
            assert time.monotonic() < deadline, found
            time.sleep(0.1)


def send(servers: str, topic: str, values: list[bytes], acks: str = "all") -> None:
    with fencepost.Producer(servers, acks=acks, enable_idempotence=False) as producer:
        for value in values:
            producer.send(topic, value, partition=0)


def read(consumer: fencepost.Consumer, count: int) -> list[bytes | None]:
    values: list[bytes | None] = []
    deadline = time.monotonic() + SETTLE_S
    while len(values) < count and time.monotonic() < deadline:
        values += [record.value for record in consumer.poll(1000)]
    return values


def test_a_consumer_reads_from_the_follower_in_its_rack_while_there_is_one(cluster: ApacheKafkaCluster) -> None:
    servers, topic = cluster.bootstrap_servers, "racks"
    with fencepost.Admin(servers) as admin:
        admin.create_topic(topic, 1, 3)
    nearest = leader_and_followers(cluster, topic)[1][0]
    with fencepost.Consumer(
        servers,
        client_rack=f"rack-{nearest.node_id}",
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    ) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        first = [b"%d" % number for number in range(100)]
        send(servers, topic, first)
        assert read(consumer, 100) == first
        assert consumer.metrics()["fetch_follower_total"] > 0
        nearest.kill()
        second = [b"%d" % number for number in range(100, 200)]
        send(servers, topic, second)
        assert read(consumer, 100) == second
        nearest.start()
        cluster.wait_until_whole()


def test_a_consumer_goes_on_where_an_unclean_election_has_cut_the_log(cluster: ApacheKafkaCluster) -> None:
    """acks=1, one replica in sync, and its node is lost: the other has an older log, and leads all the same."""
    servers = cluster.bootstrap_servers
    partition = TopicPartition("cut", 0)
    with fencepost.Admin(servers) as admin:
        unclean = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
        admin.create_topic(partition.topic, 1, 2, unclean)
    ahead, (behind,) = leader_and_followers(cluster, partition.topic)
    surviving, lost, instead = ([b"%s %d" % (what, n) for n in range(10)] for what in (b"kept", b"lost", b"instead"))
    send(servers, partition.topic, surviving)
    with (
        fencepost.Consumer(servers, auto_offset_reset="earliest") as consumer,
        fencepost.Consumer(servers, auto_offset_reset="none") as strict,
    ):
        behind.kill()
        in_sync(cluster, partition.topic, lambda leader, replicas: replicas == (ahead.node_id,))
        send(servers, partition.topic, lost, acks="1")
        for reader in (consumer, strict):
            reader.assign([partition])
        strict.seek(partition, 0)
        for reader in (consumer, strict):
            assert read(reader, 20) == [*surviving, *lost]

        ahead.kill()
        behind.start()
        in_sync(cluster, partition.topic, lambda leader, replicas: leader == behind.node_id)
        send(servers, partition.topic, instead, acks="1")
        assert read(consumer, 10) == instead
        assert consumer.metrics()["truncations_total"] == 1
        with pytest.raises(LogTruncationError) as reported:
            read(strict, 1)
        assert reported.value.divergent_offset == len(surviving)
        strict.seek(partition, reported.value.divergent_offset)
        assert read(strict, 10) == instead
    ahead.start()
    cluster.wait_until_whole()


def test_commands_tell_the_truth_while_a_node_is_gone(
    cluster: ApacheKafkaCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """At once, when nobody has noticed yet, and when others lead what it has led."""
    run = Commands(cluster.bootstrap_servers, capsys)
    gone = cluster.nodes[1]
    with (
        fencepost.Admin(cluster.bootstrap_servers) as admin,
        fencepost.Producer(
            cluster.bootstrap_servers, transactional_id="open", transaction_timeout_ms=600_000
        ) as producer,
    ):
        admin.create_topic("told", PARTITIONS, 3)
        admin.alter_group_offsets("readers", {("told", 0): 0})
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("told", b"", partition=0).result()
        gone.kill()
        for noticed in (False, True):
            for name, words in (("open", ("transactions", "list")), ("readers", ("groups", "list"))):
                listed = run(*words, status=0 if noticed else None)
                if run.status == 0:
                    assert name in listed
                else:  # the node that is gone coordinates some, which depends on how long the cluster runs
                    assert (
                        f"the list is not complete: {words[0]} whose coordinator is broker {gone.node_id}" in run.error
                    )
            reported = run.json("topics", "describe", "told")[0]["partitions"]
            assert {number for partition in reported for number in partition["replicas"]} == {1, 2, 3}
            in_sync(cluster, "told", lambda leader, replicas: gone.node_id not in replicas)
        assert all(
            partition["leader"] not in (None, gone.node_id)
            for partition in run.json("topics", "describe", "told")[0]["partitions"]
        )
        reported = run("doctor", status=1)
        assert f"FP102 error: broker {gone.node_id}: it has replicas of " in reported
        assert "FP203 warning: topic told: told-0, told-1" in reported
        gone.start()
        cluster.wait_until_whole()
        producer.commit_transaction()
