"""Findings about coordinators: their topics cannot be created or written to, they load, or they are away."""

from __future__ import annotations

import struct
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import fencepost
from fencepost.errors import KafkaTimeoutError
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.logs.partitioning import coordinator_partition
from tests.support import diagnosis_reports
from tests.support.apache_kafka import ApacheKafka
from tests.support.commands import Commands
from tests.support.diagnosis_reports import codes_in, page_of, shown
from tests.support.kafka_plugins import KafkaWithPlugin
from tests.support.older_kafka import OlderKafka
from tests.support.waiting import until

TP = fencepost.TopicPartition


@pytest.mark.kafka
@pytest.mark.parametrize("settings", [{"auto.create.topics.enable": False}, {}], ids=["no-creation", "creation"])
def test_topics_of_coordinators_that_a_new_cluster_cannot_create(
    settings: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """One node with Kafka's defaults for three. Nobody has asked for a coordinator, and nothing here does."""
    with ApacheKafka(
        {"offsets.topic.replication.factor": 3, "transaction.state.log.replication.factor": 3, **settings}
    ) as kafka:
        run, servers = Commands(kafka.bootstrap_servers, capsys), kafka.bootstrap_servers
        status, found = diagnosis_reports.doctor(servers, capsys, "--no-probe")
        assert status == 1
        groups, transactions = found["FP302", "groups"], found["FP301", "transactions"]
        assert groups["words"] == (
            "the coordinator of groups is not available: __consumer_offsets does not exist, and brokers cannot create "
            "it with offsets.topic.replication.factor=3, because the cluster has 1 broker"
        )
        assert groups["holds"] == ["every join and commit of a group"]
        assert groups["action"] == (
            "add brokers until there are 3, or set offsets.topic.replication.factor to 1 on every broker and restart it"
        )
        assert "__transaction_state does not exist, and brokers cannot create it with " in transactions["words"]
        assert run("groups", "list") == "GROUP  TYPE  STATE\n"
        assert f"FP302 error: cluster: {groups['words']}\n" in run.error
        assert run("groups", "describe", "g", status=1) == ""
        assert f"FP302 error: cluster: {groups['words']}\n" in run.error
        listed = run.json("transactions", "list")["findings"]
        assert [(each["code"], each["words"]) for each in listed] == [("FP301", transactions["words"])]
        with page_of(servers) as page:
            until(lambda: {("FP301", "transactions"), ("FP302", "groups")} <= shown(page))
            assert any('code="FP302"' in line and line.endswith(" 1") for line in page.watched_state().counts())
        with fencepost.Admin(servers) as admin:
            assert admin.list_topics(internal=True) == []
            with pytest.raises(KafkaTimeoutError):
                admin.init_producer_id("x", api_timeout_ms=3_000)
            assert admin.list_topics(internal=True) == [], "it is as the finding says"
        assert "FP301 error: cluster: " in run("doctor", "--timeout", "10", status=1)


@pytest.mark.kafka
def test_a_topic_of_share_coordinators_that_a_new_cluster_cannot_create(capsys: pytest.CaptureFixture[str]) -> None:
    """A share consumer gets no record and no error. The topic is needed from the first member of a share group on."""
    with ApacheKafka(
        {"share.coordinator.state.topic.replication.factor": 3, "share.coordinator.state.topic.min.isr": 2}
    ) as kafka:
        run, servers = Commands(kafka.bootstrap_servers, capsys), kafka.bootstrap_servers
        status, found = diagnosis_reports.doctor(servers, capsys, "--no-probe")
        assert status == 1
        assert {code for code, _ in found if code.startswith("FP3")} == {"FP304"}
        shares = found["FP304", "share groups"]
        assert shares["words"] == (
            "the coordinator of share groups is not available: __share_group_state does not exist, and brokers cannot "
            "create it with share.coordinator.state.topic.replication.factor=3, because the cluster has 1 broker"
        )
        assert shares["holds"] == ["every share consumer, which gets neither a record nor an error"]
        assert shares["action"] == (
            "add brokers until there are 3, or set share.coordinator.state.topic.replication.factor and "
            "share.coordinator.state.topic.min.isr to 1 on every broker and restart it"
        )
        with page_of(servers) as page:
            until(lambda: ("FP304", "share groups") in shown(page))
        with (
            fencepost.Admin(servers) as admin,
            fencepost.Producer(servers) as producer,
            fencepost.ShareConsumer(servers, group_id="sharing") as consumer,
        ):
            assert admin.list_topics(internal=True) == []
            admin.create_topic("t", 1)
            producer.send("t", b"v").result(60)
            consumer.subscribe(["t"])
            until(lambda: consumer.poll(100) is not None and admin.describe_group("sharing").members != ())
            until(lambda: "Auto topic creation failed for __share_group_state" in kafka.output())
            assert consumer.poll(1_000) == []
            assert "__share_group_state" not in admin.list_topics(internal=True), "it is as the finding says"
            assert f"FP304 error: cluster: {shares['words']}\n" in run("groups", "describe", "sharing")
        kafka.restart(
            {"share.coordinator.state.topic.replication.factor": 1, "share.coordinator.state.topic.min.isr": 1}
        )
        assert not {code for code, _ in diagnosis_reports.doctor(servers, capsys, "--no-probe")[1]} & {"FP304"}


@pytest.mark.kafka
def test_a_policy_that_refuses_the_topics_of_coordinators(capsys: pytest.CaptureFixture[str]) -> None:
    """The controller asks the policy for these topics too. The question whether it would creates nothing."""
    policy = Path(diagnosis_reports.__file__).with_name("NoInternalTopics.java")
    with KafkaWithPlugin(policy, {"create.topic.policy.class.name": policy.stem}) as kafka:
        servers = kafka.bootstrap_servers
        status, found = diagnosis_reports.doctor(servers, capsys, "--no-probe")
        assert status == 1
        for code, part, topic in (
            ("FP301", "transactions", "__transaction_state"),
            ("FP302", "groups", "__consumer_offsets"),
            ("FP304", "share groups", "__share_group_state"),
        ):
            assert found[code, part]["words"] == (
                f"the coordinator of {part} is not available: {topic} does not exist, and the controller refuses to "
                "create it: POLICY_VIOLATION (44): names with __ are not allowed"
            )
            assert "create.topic.policy.class.name at every controller" in found[code, part]["action"]
        with fencepost.Admin(servers) as admin:
            with pytest.raises(KafkaTimeoutError):
                admin.init_producer_id("x", api_timeout_ms=3_000)
            assert admin.list_topics(internal=True) == []
            admin.create_topic("t", 1)


@pytest.mark.kafka
@pytest.mark.slow
def test_older_brokers_need_as_many_in_sync_replicas_as_are_set(capsys: pytest.CaptureFixture[str]) -> None:
    """Kafka 3.6.2 rejects what test_more_in_sync_replicas_than_replicas_are_not_needed writes."""
    with OlderKafka("3.6.2", {"transaction.state.log.min.isr": 2}) as kafka:
        servers = kafka.bootstrap_servers
        found = diagnosis_reports.doctor(servers, capsys, "--no-probe")[1]
        assert {code for code, _ in found if code in ("FP301", "FP302")} == {"FP301"}
        assert found["FP301", "transactions"]["words"].endswith(
            "__transaction_state does not exist, and coordinators could not write to it with "
            "transaction.state.log.min.isr=2 and transaction.state.log.replication.factor=1"
        )
        assert found["FP301", "transactions"]["action"] == (
            "set transaction.state.log.min.isr to 1 on every broker and restart it"
        )
        with fencepost.Admin(servers) as admin, pytest.raises(KafkaTimeoutError):
            admin.init_producer_id("x", api_timeout_ms=3_000)
        found = diagnosis_reports.doctor(servers, capsys, "--no-probe")[1]
        assert "min.insync.replicas=2" in found["FP202", "__transaction_state"]["words"], "now that the topic exists"


@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_coordinator_that_is_loading(capsys: pytest.CaptureFixture[str]) -> None:
    """The log of its partition is long, and has no index for the offsets that were added while the node was down."""
    with ApacheKafka({"offsets.load.buffer.size": 1}) as kafka, ExitStack() as stack:
        with fencepost.Admin(kafka.bootstrap_servers) as admin:
            admin.create_topic("t", 1)
            admin.alter_group_offsets("g", {("t", 0): 7})
            count = len(admin.describe_topics(["__consumer_offsets"])["__consumer_offsets"].partitions)
        kafka.stop(keep_data=True)
        partition = f"__consumer_offsets-{coordinator_partition('g', count)}"
        repeat_last_batch(kafka.data_directory / partition / f"{0:020}.log", 6_000)
        kafka.start()
        page = stack.enter_context(page_of(kafka.bootstrap_servers))
        run = Commands(kafka.bootstrap_servers, capsys)
        status, found = diagnosis_reports.doctor(kafka.bootstrap_servers, capsys, "--no-probe", "--timeout", "5")
        assert status == 3, found
        assert found["FP303", "groups"]["words"].startswith("the coordinator of groups is loading: ListGroups: ")
        until(lambda: ("FP303", "groups") in shown(page))
        until(lambda: codes_in(page).isdisjoint({"FP303"}), within_s=240)
        assert "no findings" in run("doctor", "--no-probe")
        with fencepost.Admin(kafka.bootstrap_servers) as admin:
            assert admin.group_offsets("g")[TP("t", 0)].offset == 7


def repeat_last_batch(log: Path, times: int) -> None:
    """Append copies of a log's last batch, with the offsets that follow."""
    data, at = log.read_bytes(), 0
    while at < len(data):
        offset, length = struct.unpack_from(">qi", data, at)
        batch = data[at : at + 12 + length]
        at += len(batch)
    (last_offset_delta,) = struct.unpack_from(">i", batch, 23)
    with log.open("ab") as file:
        for _ in range(times):
            offset += last_offset_delta + 1
            file.write(struct.pack(">q", offset) + batch[8:])


def test_no_coordinator_at_our_broker(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with fencepost.Broker() as broker, fencepost.Admin(broker.bootstrap_servers) as admin:
        run = Commands(broker.bootstrap_servers, capsys)
        admin.create_topic("t", 1)
        admin.alter_group_offsets("g", {("t", 0): 0})
        for code, word in (
            (ErrorCode.COORDINATOR_NOT_AVAILABLE, "FP302 error: cluster: the coordinator of groups is not available: "),
            (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "FP303 warning: cluster: the coordinator of groups is loading: "),
        ):
            with broker.faults.fail("FindCoordinator", code, times=None):
                assert word in run("doctor", "--no-probe", "--timeout", "5", status=1 if code == 15 else 3)
            with (
                broker.faults.fail("ListGroups", code, times=None),
                monkeypatch.context() as patched,
            ):
                patched.setenv("FENCEPOST_DEFAULT_API_TIMEOUT_MS", "1000")
                for command in (("groups", "list"), ("groups", "describe", "g")):
                    run(*command, status=1)
                    assert f"the list is not complete: {word.partition('cluster: ')[2]}" in run.error
                    assert run.error.endswith(f" ({word[:5]})\n")
        assert "no findings" in run("doctor", "--no-probe")
