"""Commands that ask several brokers, while one of three nodes of Apache Kafka hangs: they show what the others know.

`groups`, `topics describe`, `transactions list` and `doctor`: `test_diagnosis_of_a_cluster.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import fencepost
from fencepost.cli.cluster import group_reading
from fencepost.client.admin.topics import NewTopic
from fencepost.errors import ItemsFailedError
from tests.support.apache_kafka_cluster import ApacheKafkaCluster, ClusterNode
from tests.support.commands import Commands
from tests.support.led_by_nodes import follower, named
from tests.support.raw_client import Producer, RawClient
from tests.support.standing_still import standing_still
from tests.support.waiting import until

consume: Any = import_module("fencepost.cli.cluster.consume")
pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[ApacheKafkaCluster]:
    # Without verification a batch can be written that no coordinator knows: it hangs (KIP-890).
    with ApacheKafkaCluster(
        {"broker.session.timeout.ms": 60_000, "transaction.partition.verification.enable": False}
    ) as running:
        yield running


@pytest.fixture
def admin(cluster: ApacheKafkaCluster) -> Iterator[fencepost.Admin]:
    with fencepost.Admin(cluster.bootstrap_servers) as admin:
        yield admin


@pytest.fixture
def run(cluster: ApacheKafkaCluster, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Commands:
    (tmp_path / "quick.properties").write_text("default.api.timeout.ms=8000\n")
    return Commands(cluster.bootstrap_servers, capsys, "--command-config", str(tmp_path / "quick.properties"))


def two_nodes(cluster: ApacheKafkaCluster, admin: fencepost.Admin) -> tuple[ClusterNode, ClusterNode]:
    """Return one that may hang, and another one."""
    hanging = follower(cluster, admin)
    return hanging, next(node for node in cluster.nodes if node is not hanging)


@contextmanager
def hangs(node: ClusterNode, admin: fencepost.Admin, topic: str) -> Iterator[None]:
    """Stop the node. Partition 0 of the topic is its own, and tells when it is back."""
    assert node.pid is not None
    with standing_still(node.pid):
        yield
    until(lambda: len(admin.list_offsets({(topic, 0): -1})) == 1, within_s=120)


def test_find_hanging(cluster: ApacheKafkaCluster, admin: fencepost.Admin, run: Commands) -> None:
    hanging, other = two_nodes(cluster, admin)
    away, there = hanging.node_id, other.node_id
    ids = named(admin, away, there).ids
    topic, other_topic = f"hangs-{away}", f"no-transactions-{there}"
    layout = {0: (away, there), 1: (there, away), 2: (there, away), 3: (there, away)}
    admin.create_topics(
        [NewTopic(topic, replica_assignments=layout), NewTopic(other_topic, replica_assignments={0: (there, away)})]
    )
    with RawClient(other.bootstrap_servers) as client:
        for partition, node in {1: there, 2: away}.items():
            pair = admin.init_producer_id(ids[node])
            sent = client.produce(
                topic,
                [b"x"],
                partition=partition,
                transactional_id=ids[node],
                producer=Producer(pair.producer_id, pair.producer_epoch),
                sequence=0,
                version=11,
            )
            assert sent.error_code == 0
    look = ("transactions", "find-hanging", "--topic", topic, "--older-than", "0")
    with hangs(hanging, admin, topic):
        with pytest.raises(ItemsFailedError) as failed:
            admin.find_hanging_transactions([topic], older_than_ms=0, api_timeout_ms=8_000)
        assert set(failed.value.errors) == {(topic, 0), (topic, 2)}
        assert {partition: len(found) for partition, found in failed.value.results.items()} == {
            (topic, 1): 1,
            (topic, 3): 0,
        }
        assert [line.split()[0] for line in run(*look, status=1).splitlines()[1:]] == [f"{topic}-1"]
        assert "fencepost: transactions that hang: 1\n" in run.error
        assert f"the search is not complete: open transactions in {topic}-0: not known: " in run.error
        assert f"the search is not complete: open transactions in {topic}-2: not known: " in run.error
        run(*look, "--abort", "--yes", status=1)
        assert f"may belong to a two-phase transaction: transactions whose coordinator is broker {away}: " in run.error
        assert run.error.endswith("(FP001); nothing was aborted\n")
        run("transactions", "find-hanging", "--topic", other_topic)
        assert "no hanging transactions in 1 partition, " in run.error
    assert [line.split()[0] for line in run(*look, status=1).splitlines()[1:]] == [f"{topic}-1", f"{topic}-2"]
    assert run(*look, "--abort", "--yes").splitlines()[-2:] == [f"aborted {topic}-1", f"aborted {topic}-2"]


def test_consume(
    cluster: ApacheKafkaCluster,
    admin: fencepost.Admin,
    run: Commands,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(group_reading, "QUIET_S", 8)
    hanging, other = two_nodes(cluster, admin)
    away, there = hanging.node_id, other.node_id
    group = named(admin, away, there).groups[there]
    topic = f"read-{away}"
    admin.create_topics([NewTopic(topic, replica_assignments={0: (away, there), 1: (there, away), 2: (there, away)})])
    with fencepost.Producer(cluster.bootstrap_servers) as producer:
        for partition in range(3):
            producer.send(topic, f"in-{partition}".encode(), partition=partition).result(60)
    file = tmp_path / "read.jsonl"
    with hangs(hanging, admin, topic):
        assert run("consume", topic, status=1) == "in-1\nin-2\n"
        assert run.error.splitlines()[-2] == "2 records"
        last = run.error.splitlines()[-1]
        assert last.startswith(f"fencepost: the output is not complete: {topic}-0: list offsets of {topic}-0: ")
        assert last.endswith(" (FP001)")
        assert run("consume", topic, "--from", "-1", "--read-uncommitted", status=1) == "in-1\nin-2\n"
        run("consume", topic, "--output", str(file), status=1)
        assert not file.exists()
        assert sorted(run("consume", topic, "--follow", "-n", "2").splitlines()) == ["in-1", "in-2"]
        assert f"fencepost: warning: {topic}-0: read when the leader answers: list offsets of " in run.error
        assert sorted(run("consume", topic, "--group", group, status=1).splitlines()) == ["in-1", "in-2"]
        assert f"not complete: {topic}-0: its end was not reached: no records in 8 s (FP001)" in run.error
    assert run("consume", topic, "--group", group) == "in-0\n"


def test_a_leader_that_hangs_while_its_records_are_read(
    cluster: ApacheKafkaCluster, admin: fencepost.Admin, run: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    hanging, other = two_nodes(cluster, admin)
    topic = f"read-then-{hanging.node_id}"
    layout = {0: (hanging.node_id, other.node_id), 1: (other.node_id, hanging.node_id)}
    admin.create_topics([NewTopic(topic, replica_assignments=layout)])
    with fencepost.Producer(cluster.bootstrap_servers) as producer:
        for partition in range(2):
            producer.send(topic, f"in-{partition}".encode(), partition=partition).result(60)
    with ExitStack() as stack:

        def read(*arguments: Any) -> Any:
            stack.enter_context(hangs(hanging, admin, topic))
            return original(*arguments)

        original = consume._read
        monkeypatch.setattr(consume, "_read", read)
        assert run("consume", topic, status=1) == "in-1\n"
        assert f"the output is not complete: {topic}-0: " in run.error


def test_transactions(cluster: ApacheKafkaCluster, admin: fencepost.Admin, run: Commands) -> None:
    hanging, other = two_nodes(cluster, admin)
    away, there = hanging.node_id, other.node_id
    ids = named(admin, away, there).ids
    topic = f"written-{away}"
    admin.create_topics([NewTopic(topic, replica_assignments={0: (away, there), 1: (there, away)})])
    with fencepost.Producer(cluster.bootstrap_servers, transactional_id=ids[there]) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"x", partition=1).result(60)
        with hangs(hanging, admin, topic):
            shown = run("transactions", "describe", ids[away], ids[there], status=1)
            assert shown.startswith(f"{ids[there]}\n  state: Ongoing\n")
            assert shown.endswith(f"  holds back: {topic}-1\n")
            incomplete = "the description is not complete: "
            assert f"{incomplete}transactions {ids[away]}: not known: DescribeTransactions of " in run.error
            assert f"{incomplete}offsets of {topic}-0: not known: " in run.error
            run("transactions", "abort", ids[away], "--yes", status=1)
            assert f"fencepost: DescribeTransactions of '{ids[away]}': time is up; " in run.error
            run("transactions", "sinks", status=1)
            assert f"the list is not complete: transactions whose coordinator is broker {away}: not" in run.error
            run("spark", "decisions", "no-sink", status=1)
            assert "fencepost: it is not known if there is a sink 'no-sink': ListTransactions: 1 of 3" in run.error
        producer.abort_transaction()
