"""Findings that need several brokers, produced on three nodes of Apache Kafka by nodes that stop and hang.

Fencepost's broker has one node. There these findings are absent, or arise in another way:

| finding | at Fencepost's broker |
|---|---|
| FP001 | a request that is not answered in time: `test_diagnosis_alone.py` |
| FP101 for one of several brokers | none: without it nobody answers, which is FP101 for the address |
| FP102, FP203 | none: its only replica is in sync, and with it the broker is away |
| FP201 | none: a partition whose log cannot be opened keeps its leader, which answers KAFKA_STORAGE_ERROR |
| FP202 | none: no partition needs more in-sync replicas than it has replicas |
| FP301, FP302 | a request that fails: `test_diagnosis_coordinators.py`; their topics need one replica |
| FP303 | a request that fails: `test_diagnosis_coordinators.py`; it has read these topics before it answers |
| FP304 | none: the topic of its share coordinators needs one replica |
| FP404 | a disk that refuses the marker: `test_diagnosis_alone.py` |
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import confluent_kafka.admin
import pytest

import fencepost
from fencepost.cli.diagnosis.examiner import Examiner
from fencepost.cli.ui.cluster_monitor import ClusterMonitor
from fencepost.client.admin.topics import NewTopic
from fencepost.client.diagnosis.diagnosing import diagnose
from fencepost.client.types import TopicPartition
from fencepost.compat import confluent_kafka as compat_module
from fencepost.compat.confluent_kafka import admin as compat
from fencepost.errors import ItemsFailedError, KafkaTimeoutError
from fencepost.protocol.logs.partitioning import coordinator_partition
from fencepost.spark.sink.decision_store import DEFAULT_TOPIC
from tests.support.apache_kafka_cluster import ApacheKafkaCluster
from tests.support.commands import Commands
from tests.support.diagnosis_reports import Findings, codes_in, doctor, page_of, shown
from tests.support.led_by_nodes import a_name_for, follower, led_by, named
from tests.support.standing_still import standing_still
from tests.support.waiting import until

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(600)]

SINGLE_REPLICA, TWO, ALL, GROUP, CUT_OFF, UNFINISHED = "one", "two", "all", "readers", "cut-off", "unfinished"


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
                NewTopic(SINGLE_REPLICA, replica_assignments={0: (gone.node_id,)}, configs=single),
                NewTopic(TWO, replica_assignments={0: (other, gone.node_id)}),
                NewTopic(ALL, 2, 3),
            ]
        )
        cut_off = open_transaction(cluster, admin, CUT_OFF, SINGLE_REPLICA, gone.node_id)
        unfinished = open_transaction(cluster, admin, UNFINISHED, TWO, gone.node_id)
        (begun, waiting) = sorted(each.transactional_id for each in admin.list_transactions(states=["Ongoing"]))
        gone.stop(keep_data=True)
        cut_off.commit_transaction()
        unfinished.commit_transaction()

        found = errors_of(cluster, capsys, "--watch", "1", "--timeout", "60")
        missing = found["FP102", str(gone.node_id)]
        assert "partitions, and is not in the cluster" in missing["words"]
        assert found["FP201", SINGLE_REPLICA]["words"] == f"{SINGLE_REPLICA}-0: 1 of 1 partition has no leader"
        assert found["FP201", SINGLE_REPLICA]["action"].endswith(f"fencepost topics describe {SINGLE_REPLICA}")
        assert "fewer in-sync replicas than min.insync.replicas=2" in found["FP202", TWO]["words"]
        assert found["FP203", ALL]["words"] == f"{ALL}-0, {ALL}-1: 2 of 2 partitions have replicas that are not in sync"
        assert ("FP203", TWO) not in found, "FP202 says more"
        decided = found["FP404", waiting]
        assert decided["words"] == "it is decided (PrepareCommit), and partitions still wait for its markers"
        assert decided["holds"] == [f"{TWO}-0 (1 offset)"]
        assert decided["action"] == f"fencepost transactions describe {waiting}"
        assert "state: PrepareCommit" in run(*decided["action"].split()[1:])
        assert (
            "none" in run(*found["FP201", SINGLE_REPLICA]["action"].partition("fencepost ")[2].split()).splitlines()[1]
        )

        run("transactions", "find-hanging", "--topic", SINGLE_REPLICA, "--topic", ALL, "--older-than", "0", status=1)
        assert "no hanging transactions in 2 partitions, " in run.error, "the others were looked at"
        assert f"not looked at, because it has no leader (FP201): {SINGLE_REPLICA}-0" in run.error

        expected = {
            ("FP102", str(gone.node_id)),
            ("FP201", SINGLE_REPLICA),
            ("FP202", TWO),
            ("FP203", ALL),
            ("FP404", waiting),
        }
        until(lambda: expected <= shown(page))
        assert count(page, "FP404") == count(page, "FP201") == count(page, "FP102") == 1

        gone.start()
        cluster.wait_until_whole()
        until(lambda: not codes_in(page) & {"FP102", "FP201", "FP202", "FP203", "FP404"})
        hanging = errors_of(cluster, capsys, "--timeout", "60")["FP401", f"{SINGLE_REPLICA}-0"]
        assert "which its coordinator may have committed without a marker here" in hanging["words"]
        assert f"of {begun!r} (producer " in hanging["words"]
        command = hanging["action"].partition(";")[0]
        assert command.endswith("--commit")
        run(*command.split()[1:-1], "--abort", "--yes", status=1)
        assert "the coordinator may have committed the hanging transaction of " in run.error
        run(*command.split()[1:], "--yes")
        until(lambda: ("FP401", f"{SINGLE_REPLICA}-0") not in shown(page))
        assert values(cluster, SINGLE_REPLICA) == values(cluster, TWO) == [b"committed"]
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
    cluster: ApacheKafkaCluster, page: ClusterMonitor, capsys: pytest.CaptureFixture[str]
) -> None:
    """The others answer. What only this node knows stays unknown, and is named."""
    with fencepost.Admin(cluster.bootstrap_servers) as admin:
        hanging = follower(cluster, admin)
        away, there = hanging.node_id, next(node.node_id for node in cluster.nodes if node is not hanging)
        groups = named(admin, away, there).groups
        assert hanging.pid is not None
        until(lambda: page.view("overview", {})["view"] != {})
        with standing_still(hanging.pid):
            found = errors_of(cluster, capsys)
            assert found["FP101", str(away)]["words"].startswith("it does not answer: ")
            assert [code for code, _ in found if code == "FP101"] == ["FP101"]
            for part in ("groups", "transactions"):
                assert found["FP001", part]["severity"] == "unknown"
                assert found["FP001", part]["words"].startswith(f"{part} whose coordinator is broker {away}: not known")
            assert "run the command again" in found["FP001", "groups"]["action"]
            assert ("FP001", "features") not in found, "the others have answered"
            until(lambda: ("FP001", "groups") in shown(page), within_s=120)
            assert ("FP101", str(away)) in shown(page), "the page names the cause at once"
            assert count(page, "FP001") > 0
            until(lambda: groups[there] in {row["name"] for row in page.view("groups", {})["view"]["rows"]})
        until(lambda: ("FP001", "groups") not in shown(page), within_s=120)


def test_a_node_that_has_stopped_counts_for_new_topics(capsys: pytest.CaptureFixture[str]) -> None:
    """Kafka 3.9 does not report such a node, and its controller gives it replicas."""
    with ApacheKafkaCluster(release="3.9.1") as older:
        older.nodes[2].stop(keep_data=True)
        servers = older.bootstrap_servers
        with fencepost.Admin(servers) as admin:
            until(lambda: len(admin.describe_cluster().brokers) == 2)
            found = doctor(servers, capsys, "--no-probe")[1]
            assert not {code for code, _ in found if code.startswith("FP3")}
            admin.init_producer_id("x")
            topic = admin.describe_topics(["__transaction_state"])["__transaction_state"]
            assert {len(at.replicas) for at in topic.partitions.values()} == {3}, "it is as doctor says"


def test_lists_without_a_node_that_hangs(
    cluster: ApacheKafkaCluster, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "quick.properties").write_text("default.api.timeout.ms=4000\n")
    run = Commands(cluster.bootstrap_servers, capsys, "--command-config", str(tmp_path / "quick.properties"))
    with fencepost.Admin(cluster.bootstrap_servers) as admin:
        hanging = follower(cluster, admin)
        away, there = hanging.node_id, next(node.node_id for node in cluster.nodes if node is not hanging)
        (groups, ids) = named(admin, away, there)
        absent, known_absent = (a_name_for(node, admin, "__consumer_offsets", "absent") for node in (away, there))
        assert hanging.pid is not None
        with standing_still(hanging.pid):
            with pytest.raises(ItemsFailedError, match="ListGroups: 1 of 3 failed") as failed:
                admin.list_groups(api_timeout_ms=8_000)
            assert set(failed.value.errors) == {away}
            assert groups[there] in {each.group_id for each in failed.value.results[there]}

            listed = [line.split()[0] for line in run("groups", "list", status=1).splitlines()[1:]]
            assert groups[there] in listed
            assert groups[away] not in listed
            assert f"the list is not complete: groups whose coordinator is broker {away}: not known: " in run.error
            run("groups", "describe", absent, status=1)
            assert "there is no group" not in run.error, "only the node that hangs knows"
            run("groups", "describe", known_absent, status=1)
            assert "there is no group" in run.error
            run("groups", "delete", absent, "--yes", status=1)
            assert "there is no group" not in run.error
            with pytest.raises(ItemsFailedError, match="describe groups: 1 of 2 failed") as failed:
                admin.describe_groups([groups[away], groups[there]], api_timeout_ms=3_000)
            assert [each.state for each in failed.value.results.values()] == ["Empty"]
            assert set(failed.value.errors) == {groups[away]}
        # It must not stand still for so long that it leaves the cluster.
        until(lambda: {*groups.values()} <= {each.group_id for each in admin.list_groups()}, within_s=120)
        with standing_still(hanging.pid):
            assert run("groups", "describe", groups[there]).startswith(f"{groups[there]}: ")
        until(lambda: {*groups.values()} <= {each.group_id for each in admin.list_groups()}, within_s=120)
        with standing_still(hanging.pid):
            listed = [line.partition(" ")[0] for line in run("transactions", "list", "--all", status=1).splitlines()]
            assert ids[there] in listed
            assert ids[away] not in listed
            missing = f"the list is not complete: transactions whose coordinator is broker {away}: not known: "
            assert missing in run.error


def test_partitions_whose_leader_hangs(
    cluster: ApacheKafkaCluster, page: ClusterMonitor, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The others are described, and these are not told to be empty."""
    (tmp_path / "quick.properties").write_text("default.api.timeout.ms=6000\n")
    run = Commands(cluster.bootstrap_servers, capsys, "--command-config", str(tmp_path / "quick.properties"))
    with fencepost.Admin(cluster.bootstrap_servers) as admin, fencepost.Producer(cluster.bootstrap_servers) as producer:
        hanging = follower(cluster, admin)
        away, there = hanging.node_id, next(node.node_id for node in cluster.nodes if node is not hanging)
        group = named(admin, away, there).groups[there]
        both = f"both-of-{away}-{there}"
        admin.create_topics([NewTopic(both, replica_assignments={0: (away, there), 1: (there, away)})])
        for partition in (0, 1):
            producer.send(both, b"here", partition=partition).result(60)
        admin.alter_group_offsets(group, {(both, 0): 0, (both, 1): 0})
        asked = {TopicPartition(both, partition): -1 for partition in (0, 1)}
        unknown = f"is not complete: offsets of {both}-0: not known: "
        until(lambda: page.view("overview", {})["view"] != {})
        assert hanging.pid is not None
        with standing_still(hanging.pid):
            with pytest.raises(ItemsFailedError, match="ListOffsets: 1 of 2 failed: list offsets of") as failed:
                admin.list_offsets(asked, api_timeout_ms=8_000)
            assert [at.offset for at in failed.value.results.values()] == [1]
            assert set(failed.value.errors) == {(both, 0)}
            with pytest.raises(KafkaTimeoutError):
                admin.list_offsets({(both, 0): -1}, api_timeout_ms=1_000)

            rows = [line.split() for line in run("groups", "describe", group, status=1).splitlines()[2:5]]
            assert rows[0] == [both, "0", "0"]
            assert rows[1] == [both, "1", "0", "1", "1"]
            assert f"the description {unknown}" in run.error
            rows = [line.split() for line in run("topics", "describe", both, status=1).splitlines()[1:3]]
            assert rows[0][-3:] == ["unknown"] * 3
            assert rows[1][-3:] == ["0", "1", "1"]
            assert f"the description {unknown}" in run.error
            found = page.view("messages", {"name": both})["view"]
            assert [(row["partition"], row["value"]["text"]) for row in found["rows"]] == [(1, "here")]
            assert [words.partition(": ")[0] for words in found["flaws"]] == ["Partition 0 is not read"]
        until(lambda: len(admin.list_offsets(asked)) == len(asked), within_s=120)


def reads(servers: str, module: Any, group: str, topic: str) -> set[int]:
    """Read from the beginning, and return the partitions of the records that come until there are some."""
    consumer = module.Consumer({"bootstrap.servers": servers, "group.id": group, "enable.auto.commit": False})
    try:
        consumer.assign([module.TopicPartition(topic, partition, module.OFFSET_BEGINNING) for partition in (0, 1)])
        until_s = time.monotonic() + 30
        found: set[int] = set()
        while not found and time.monotonic() < until_s:
            found |= {message.partition() for message in consumer.consume(10, 1) if message.error() is None}
        return found
    finally:
        consumer.close()


def test_a_consumer_reads_beside_a_leader_that_hangs(cluster: ApacheKafkaCluster) -> None:
    with fencepost.Admin(cluster.bootstrap_servers) as admin, fencepost.Producer(cluster.bootstrap_servers) as producer:
        hanging = follower(cluster, admin)
        others = [node for node in cluster.nodes if node is not hanging]
        away, there = hanging.node_id, others[0].node_id
        servers = ",".join(node.bootstrap_servers for node in others)
        topic = f"read-{away}-{there}"
        admin.create_topics([NewTopic(topic, replica_assignments={0: (away, there), 1: (there, away)})])
        for partition in (0, 1):
            producer.send(topic, b"here", partition=partition).result(60)
        group = named(admin, away, there).groups[there]
        assert hanging.pid is not None
        for module in (confluent_kafka, compat_module):
            with standing_still(hanging.pid):
                assert reads(servers, module, group, topic) == {1}, module
            until(lambda: len(admin.list_offsets({(topic, 0): -1})) == 1, within_s=120)
        with (
            standing_still(hanging.pid),
            fencepost.Consumer(servers, group_id=group, auto_offset_reset="earliest") as consumer,
        ):
            consumer.assign([(topic, 0), (topic, 1)])
            assert consumer.position((topic, 1), timeout_ms=15_000) == 0
            with pytest.raises(KafkaTimeoutError):
                consumer.position((topic, 0), timeout_ms=1_000)
            assert [record.partition for record in consumer.poll(20_000)] == [1]
        until(lambda: len(admin.list_offsets({(topic, 0): -1})) == 1, within_s=120)


def test_the_other_admin_client_lists_the_same_offsets(cluster: ApacheKafkaCluster) -> None:
    """Both return the offsets of the leaders that answer.

    For the other one confluent-kafka returns -1001 without an error. Ours raises the error, as it does for groups,
    because a program would take the number for an offset.
    """
    with fencepost.Admin(cluster.bootstrap_servers) as admin:
        hanging = follower(cluster, admin)
        others = [node for node in cluster.nodes if node is not hanging]
        nodes = (hanging.node_id, others[0].node_id)
        named(admin, *nodes)
        seen = []
        assert hanging.pid is not None
        with standing_still(hanging.pid):
            for module in (confluent_kafka, compat_module):
                client = module.admin.AdminClient(
                    {"bootstrap.servers": ",".join(node.bootstrap_servers for node in others)}
                )
                at = {module.TopicPartition(led_by(node), 0): module.admin.OffsetSpec.latest() for node in nodes}
                futures = client.list_offsets(at, request_timeout=8)
                answers = {}
                for partition, future in futures.items():
                    try:
                        answers[partition.topic] = future.result(60).offset
                    except module.KafkaException as error:
                        answers[partition.topic] = error.args[0].name()
                seen.append(answers)
        assert seen == [
            {led_by(nodes[0]): confluent_kafka.OFFSET_INVALID, led_by(nodes[1]): 0},
            {led_by(nodes[0]): "_TIMED_OUT", led_by(nodes[1]): 0},
        ]


def test_the_other_admin_client_lists_the_same(cluster: ApacheKafkaCluster) -> None:
    """confluent-kafka returns the groups of the nodes that answer, and an error for the other one."""
    with fencepost.Admin(cluster.bootstrap_servers) as admin:
        hanging = follower(cluster, admin)
        others = [node for node in cluster.nodes if node is not hanging]
        named(admin, hanging.node_id, others[0].node_id)
        seen = []
        assert hanging.pid is not None
        with standing_still(hanging.pid):
            for module in (confluent_kafka.admin, compat):
                client = module.AdminClient({"bootstrap.servers": ",".join(node.bootstrap_servers for node in others)})
                found = client.list_consumer_groups(request_timeout=8).result(60)
                errors = [(type(each).__name__, each.name()) for each in found.errors]
                seen.append((sorted(each.group_id for each in found.valid), errors))
        assert seen[0] == seen[1]
        assert seen[0][1] == [("KafkaError", "_TIMED_OUT")]


def test_a_node_that_hangs_in_the_middle(cluster: ApacheKafkaCluster) -> None:
    """It answers the first question, and none of the coordinators'."""
    with (
        fencepost.Admin(cluster.bootstrap_servers) as admin,
        Examiner({"bootstrap.servers": cluster.bootstrap_servers}, DEFAULT_TOPIC, 20.0) as examiner,
        ExitStack() as stack,
    ):
        admin.init_producer_id("any")
        hanging = follower(cluster, admin)
        pid = hanging.pid
        assert pid is not None

        def stop(step: str) -> None:
            if step == "asking the coordinators":
                stack.enter_context(standing_still(pid))

        found = diagnose(examiner.collect(progress=stop))
        assert [each.name for each in found if each.code == "FP101"] == [str(hanging.node_id)]
        assert "transactions" in {each.name for each in found if each.code == "FP001"}


def test_a_controller_that_hangs(cluster: ApacheKafkaCluster, capsys: pytest.CaptureFixture[str]) -> None:
    """The others pass some questions on to it, and no other question may wait behind those."""
    with fencepost.Admin(cluster.bootstrap_servers) as admin:
        away = admin.describe_metadata_quorum().leader_id
        named(admin, *(node.node_id for node in cluster.nodes))
        pid = next(node.pid for node in cluster.nodes if node.node_id == away)
        assert pid is not None
        with standing_still(pid):
            found = errors_of(cluster, capsys)
        assert {name for code, name in found if code == "FP101"} == {str(away)}
        unknown = {name: each["words"] for (code, name), each in found.items() if code == "FP001"}
        assert set(unknown) <= {"groups", "transactions", "offsets", "clock", "creation of __share_group_state"}
        assert unknown["offsets"].startswith("offsets of ")
        for part in ("groups", "transactions"):
            assert unknown[part].startswith(f"{part} whose coordinator is broker {away}: not known")
    cluster.wait_until_whole()
