"""Findings that need several brokers, produced on three nodes of Apache Kafka by nodes that stop and hang.

Fencepost's broker has one node. There these findings are absent, or arise in another way:

| finding | at Fencepost's broker |
|---|---|
| FP001 | a request that is not answered in time: `test_diagnosis_alone.py` |
| FP101 for one of several brokers | none: without it nobody answers, which is FP101 for the address |
| FP102, FP203 | none: its only replica is in sync, and with it the broker is away |
| FP201 | none: a partition whose log cannot be opened keeps its leader, which answers KAFKA_STORAGE_ERROR |
| FP404 | a disk that refuses the marker: `test_diagnosis_alone.py` |
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import fencepost
from fencepost.cli.ui.cluster_monitor import ClusterMonitor
from fencepost.client.admin.topics import NewTopic
from fencepost.protocol.logs.partitioning import coordinator_partition
from tests.support.apache_kafka_cluster import ApacheKafkaCluster, ClusterNode
from tests.support.commands import Commands
from tests.support.diagnosis_reports import Findings, codes_in, doctor, page_of, shown
from tests.support.standing_still import standing_still
from tests.support.waiting import until

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(600)]

ONE, TWO, ALL, GROUP, CUT_OFF, UNFINISHED = "one", "two", "all", "readers", "cut-off", "unfinished"


@pytest.fixture(scope="module")
def cluster() -> Iterator[ApacheKafkaCluster]:
    # So long a node that hangs stays in the cluster. One that stops leaves it at once, and cannot come back before.
    session = {"broker.session.timeout.ms": 60_000, "initial.broker.registration.timeout.ms": 180_000}
    with ApacheKafkaCluster(session) as running:
        yield running


@pytest.fixture
def run(cluster: ApacheKafkaCluster, capsys: pytest.CaptureFixture[str]) -> Commands:
    return Commands(cluster.bootstrap_servers, capsys)


@pytest.fixture
def page(cluster: ApacheKafkaCluster) -> Iterator[ClusterMonitor]:
    with page_of(cluster.bootstrap_servers) as monitor:
        yield monitor


def errors_of(cluster: ApacheKafkaCluster, capsys: pytest.CaptureFixture[str], *words: str) -> Findings:
    """Return the findings, of which the worst is an error."""
    status, found = doctor(cluster.bootstrap_servers, capsys, "--no-probe", *words)
    assert status == 1, found
    return found


def follower(cluster: ApacheKafkaCluster, admin: fencepost.Admin) -> ClusterNode:
    """A node that is not the active controller, whose absence would hold up everything for a while."""
    leader = admin.describe_metadata_quorum().leader_id
    return next(node for node in cluster.nodes if node.node_id != leader)


def count(page: ClusterMonitor, code: str) -> int:
    """The value of the metric."""
    (line,) = [line for line in page.watched_state().counts() if f'code="{code}"' in line]
    return int(line.rpartition(" ")[2])


def open_transaction(
    cluster: ApacheKafkaCluster, admin: fencepost.Admin, name: str, topic: str, away: int
) -> fencepost.Producer:
    """Begin a transaction whose coordinator is not on the node `away`."""
    number = 0
    while True:
        producer = fencepost.Producer(
            cluster.bootstrap_servers, transactional_id=f"{name}-{number}", transaction_timeout_ms=600_000
        )
        producer.init_transactions()
        state = admin.describe_topics(["__transaction_state"])["__transaction_state"].partitions
        if state[coordinator_partition(f"{name}-{number}", len(state))].leader != away:
            producer.begin_transaction()
            producer.send(topic, b"committed", partition=0).result(60)
            return producer
        producer.close()
        number += 1


def test_a_node_that_stops(
    cluster: ApacheKafkaCluster, run: Commands, page: ClusterMonitor, capsys: pytest.CaptureFixture[str]
) -> None:
    with fencepost.Admin(cluster.bootstrap_servers) as admin:
        gone = follower(cluster, admin)
        other = next(node.node_id for node in cluster.nodes if node is not gone)
        single = {"min.insync.replicas": "1"}
        admin.create_topics(
            [
                NewTopic(ONE, replica_assignments={0: (gone.node_id,)}, configs=single),
                NewTopic(TWO, replica_assignments={0: (other, gone.node_id)}),
                NewTopic(ALL, 2, 3),
            ]
        )
        cut_off = open_transaction(cluster, admin, CUT_OFF, ONE, gone.node_id)
        unfinished = open_transaction(cluster, admin, UNFINISHED, TWO, gone.node_id)
        (begun, waiting) = sorted(each.transactional_id for each in admin.list_transactions(states=["Ongoing"]))
        gone.stop(keep_data=True)
        cut_off.commit_transaction()
        unfinished.commit_transaction()

        found = errors_of(cluster, capsys, "--watch", "1", "--timeout", "60")
        missing = found["FP102", str(gone.node_id)]
        assert "partitions, and is not in the cluster" in missing["words"]
        assert found["FP201", ONE]["words"] == f"{ONE}-0: 1 of 1 partitions have no leader"
        assert found["FP201", ONE]["action"].endswith(f"fencepost topics describe {ONE}")
        assert "fewer in-sync replicas than min.insync.replicas=2" in found["FP202", TWO]["words"]
        assert found["FP203", ALL]["words"] == f"{ALL}-0, {ALL}-1: 2 of 2 partitions have replicas that are not in sync"
        assert ("FP203", TWO) not in found, "FP202 says more"
        decided = found["FP404", waiting]
        assert decided["words"] == "it is decided (PrepareCommit), and partitions still wait for its markers"
        assert decided["holds"] == [f"{TWO}-0 (1 offsets)"]
        assert decided["action"] == f"fencepost transactions describe {waiting}"
        assert "state: PrepareCommit" in run(*decided["action"].split()[1:])
        assert "none" in run(*found["FP201", ONE]["action"].partition("fencepost ")[2].split()).splitlines()[1]

        expected = {("FP102", str(gone.node_id)), ("FP201", ONE), ("FP202", TWO), ("FP203", ALL), ("FP404", waiting)}
        until(lambda: expected <= shown(page))
        assert count(page, "FP404") == count(page, "FP201") == count(page, "FP102") == 1

        gone.start()
        cluster.wait_until_whole()
        until(lambda: not codes_in(page) & {"FP102", "FP201", "FP202", "FP203", "FP404"})
        hanging = errors_of(cluster, capsys, "--timeout", "60")["FP401", f"{ONE}-0"]
        assert "which its coordinator may have committed without a marker here" in hanging["words"]
        assert f"of {begun!r} (producer " in hanging["words"]
        command = hanging["action"].partition(";")[0]
        assert command.endswith("--commit")
        run(*command.split()[1:-1], "--abort", "--yes", status=1)
        assert "the coordinator may have committed the hanging transaction of " in run.error
        run(*command.split()[1:], "--yes")
        until(lambda: ("FP401", f"{ONE}-0") not in shown(page))
        assert values(cluster, ONE) == values(cluster, TWO) == [b"committed"]
        for producer in (cut_off, unfinished):
            producer.close()


def values(cluster: ApacheKafkaCluster, topic: str) -> list[bytes | None]:
    """The committed values of a topic's only partition, up to its end."""
    with fencepost.Admin(cluster.bootstrap_servers) as admin, fencepost.Consumer(cluster.bootstrap_servers) as consumer:
        (end,) = admin.list_offsets({(topic, 0): -1}).values()
        return [
            value
            for fetched in consumer.fetch_range(topic, 0, 0, end.offset, timeout_ms=60_000)
            for value in fetched.columns.values()
        ]


def test_a_node_that_hangs(
    cluster: ApacheKafkaCluster, run: Commands, page: ClusterMonitor, capsys: pytest.CaptureFixture[str]
) -> None:
    """The others answer. Lists of groups and transactions need every node, so a part stays unknown."""
    with fencepost.Admin(cluster.bootstrap_servers) as admin:
        hanging = follower(cluster, admin)
        assert hanging.pid is not None
        until(lambda: page.view("overview", {})["view"] != {})
        with standing_still(hanging.pid):
            found = errors_of(cluster, capsys)
            assert found["FP101", str(hanging.node_id)]["words"].startswith("it does not answer: ")
            assert [code for code, _ in found if code == "FP101"] == ["FP101"]
            unknown = {name for code, name in found if code == "FP001"}
            assert {"groups", "transactions"} <= unknown
            assert found["FP001", "groups"]["severity"] == "unknown"
            assert found["FP001", "groups"]["words"].startswith("groups: not known: ListGroups: ")
            assert "run the command again" in found["FP001", "groups"]["action"]
            until(lambda: ("FP001", "groups") in shown(page), within_s=120)
            assert count(page, "FP001") > 0
            assert "did not answer" in run("groups", "list", status=1) + run.error
        until(lambda: ("FP001", "groups") not in shown(page), within_s=120)
