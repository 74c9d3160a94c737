"""Each finding, produced for real on both brokers, as `doctor`, the lists, the groups and the page tell it.

The brokers are those of this file, so that a healthy cluster has no finding. Apache Kafka does not verify partitions
here (KIP-890's first part), so that a transaction can be made to hang; at our broker, which accepts no such batch, what
the coordinators list is hidden instead.
"""

from __future__ import annotations

import errno
import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import fencepost
from fencepost.cli.diagnosis.examiner import Examiner
from fencepost.cli.ui.cluster_monitor import ClusterMonitor
from fencepost.client.admin.items import Outcomes
from fencepost.client.diagnosis.diagnosing import diagnose
from fencepost.client.diagnosis.findings import CODES, exit_status
from fencepost.client.diagnosis.limits import Limits
from fencepost.spark.sink.decision_store import DEFAULT_TOPIC
from fencepost.spark.sink.plan_steps import PreparedTask
from tests.conformance.conftest import SETTINGS
from tests.conformance.test_client_quotas import alter
from tests.spark.plan_by_hand import Bench
from tests.support import diagnosis_reports
from tests.support.apache_kafka import ApacheKafka
from tests.support.brokers import BrokerUnderTest, Killable
from tests.support.certificates import Authority
from tests.support.commands import Commands
from tests.support.diagnosis_reports import Findings, page_of, shown
from tests.support.raw_client import RawClient
from tests.support.sink_abilities import KEEPING, TWO_PHASE
from tests.support.waiting import until

if TYPE_CHECKING:
    from fencepost.broker.embedded import Broker

TP = fencepost.TopicPartition
OF_THE_MACHINE = {"FP104", "FP105"}  # its disk may be full


@pytest.fixture(scope="module")
def apache_kafka() -> Iterator[ApacheKafka]:
    """In the place of the one that all share: `broker` takes it."""
    with ApacheKafka({**SETTINGS, "transaction.partition.verification.enable": False}) as kafka:
        yield kafka


@pytest.fixture(scope="module")
def fencepost_broker() -> Iterator[Broker]:
    from fencepost.broker.embedded import Broker

    with Broker(SETTINGS) as broker:
        yield broker


Doctor = Callable[..., Findings]


@pytest.fixture
def run(broker: BrokerUnderTest, capsys: pytest.CaptureFixture[str]) -> Commands:
    return Commands(broker.bootstrap_servers, capsys)


@pytest.fixture
def doctor(broker: BrokerUnderTest, capsys: pytest.CaptureFixture[str]) -> Doctor:
    """The findings, without those about the disk of this machine."""

    def ask(*words: str, servers: str = broker.bootstrap_servers) -> Findings:
        found = diagnosis_reports.doctor(servers, capsys, "--no-probe", *words)[1]
        return {(code, name): each for (code, name), each in found.items() if code not in OF_THE_MACHINE}

    return ask


@pytest.fixture
def page(broker: BrokerUnderTest) -> Iterator[ClusterMonitor]:
    with page_of(broker.bootstrap_servers) as monitor:
        yield monitor


def test_a_healthy_cluster_has_no_finding(
    broker: BrokerUnderTest, doctor: Doctor, run: Commands, page: ClusterMonitor
) -> None:
    topic, group = broker.name("t"), broker.name("g")
    with (
        fencepost.Admin(broker.bootstrap_servers) as admin,
        fencepost.Producer(broker.bootstrap_servers, transactional_id=broker.name("x")) as producer,
        fencepost.Consumer(broker.bootstrap_servers, group_id=group, auto_offset_reset="earliest") as consumer,
    ):
        admin.create_topic(topic, 2)
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"v", partition=0)
        producer.commit_transaction()
        consumer.subscribe([topic])
        until(lambda: bool(consumer.poll(100)))
        consumer.commit()
        assert doctor() == {}
        described = run.json("groups", "describe", group)
        assert described["findings"] == []
        assert [row["waits_for"] for row in described["partitions"]] == [None, None]
        assert run.json("transactions", "list")["findings"] == []
        until(lambda: page.view("overview", {})["view"] != {})
        codes = {each["code"] for each in page.view("overview", {})["view"]["attention"]}
        assert codes <= OF_THE_MACHINE
    run("groups", "delete", group, "--yes")


def test_an_open_transaction_and_the_group_that_waits_for_it(
    broker: BrokerUnderTest, doctor: Doctor, run: Commands, page: ClusterMonitor
) -> None:
    topic, name, group = broker.name("t"), broker.name("x"), broker.name("g")
    with (
        fencepost.Admin(broker.bootstrap_servers) as admin,
        fencepost.Producer(broker.bootstrap_servers, transactional_id=name, transaction_timeout_ms=600_000) as producer,
    ):
        admin.create_topic(topic, 2)
        admin.alter_group_offsets(group, {(topic, 0): 0})
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"v", partition=0).result(60)
        assert ("FP403", name) not in doctor(), "it is as young as usual transactions"
        found = doctor("--older-than", "0")
        assert found["FP403", name]["holds"] == [f"{topic}-0 (1 offset)"]
        assert "its coordinator aborts it in " in found["FP403", name]["words"]
        assert "waits for transaction " in found["FP505", group]["words"]
        assert found["FP502", group]["severity"] == "warning"
        (row,) = run.json("groups", "describe", group)["partitions"]
        assert row["waits_for"].startswith(f"transaction {name!r} (producer ")
        (reported,) = run.json("transactions", "describe", name)
        assert reported["holds_back"] == [f"{topic}-0"]
        assert re.search(
            rf"\n  times out in: (10 min|9 min \d+ s)\n(.*\n)*  holds back: {topic}-0\n",
            run("transactions", "describe", name),
        )
        (held,) = run.json("transactions", "list", "--topic", topic)["held_back"]
        assert held == {"partition": f"{topic}-0", "last_stable_offset": 0, "behind": 1, "held_by": name}
        until(lambda: page.view("transaction", {"name": name})["view"]["holds"] == [f"{topic}-0"])
        shown = page.view("group", {"name": group})["view"]
        assert shown["rows"][0]["waits_for"]["id"] == name
        producer.commit_transaction()
        admin.alter_group_offsets(group, {(topic, 0): 2})
        found = doctor("--older-than", "0")
        assert not {("FP403", name), ("FP505", group), ("FP502", group)} & set(found)
        admin.delete_group(group)


def test_a_list_of_a_topic_has_no_transactions_of_others(
    broker: BrokerUnderTest, run: Commands, client: RawClient
) -> None:
    """It has those that wait behind another one, which hold nobody back yet."""
    topic, other = client.create_topic(broker.name("t")), client.create_topic(broker.name("t"))
    here, behind, elsewhere = (broker.name(f"x{number}") for number in range(3))
    pairs = {name: client.start_producer(name) for name in (here, behind, elsewhere)}
    for name, me in pairs.items():
        into = other if name == elsewhere else topic
        assert client.produce(into, [b"p"], transactional_id=name, producer=me, sequence=0).error_code == 0
    listed = run.json("transactions", "list", "--topic", topic)
    assert [each["transactional_id"] for each in listed["transactions"]] == [here, behind]
    assert elsewhere not in run("transactions", "list", "--topic", topic)
    assert f"{elsewhere} " in run("transactions", "list", "--topic", topic, "--topic", other)
    for name, me in pairs.items():
        assert client.end_transaction(name, me, commit=False).error_code == 0
        client.wait_for_state(name, "CompleteAbort")


def test_a_prepared_transaction_waits_for_its_owner(broker: BrokerUnderTest, doctor: Doctor, client: RawClient) -> None:
    topic, name = client.create_topic(broker.name("t")), broker.name("x")
    me = client.start_producer(name, two_phase=True)
    assert client.produce(topic, [b"p"], transactional_id=name, producer=me, sequence=0).error_code == 0
    found = doctor("--older-than", "0")["FP402", name]
    assert found["words"].startswith(f"it is prepared, or about to be, on {topic}-0")
    assert found["holds"] == [f"{topic}-0 (1 offset)"]
    assert client.end_transaction(name, me, commit=True).error_code == 0
    client.wait_for_state(name, "CompleteCommit")
    assert ("FP402", name) not in doctor("--older-than", "0")


def test_a_hanging_transaction_is_told_by_all(
    broker: BrokerUnderTest,
    doctor: Doctor,
    run: Commands,
    client: RawClient,
    page: ClusterMonitor,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic, name, group = client.create_topic(broker.name("t"), 2), broker.name("x"), broker.name("g")
    with fencepost.Admin(broker.bootstrap_servers) as admin:
        admin.alter_group_offsets(group, {(topic, 1): 0})
    me = client.start_producer(name)
    hidden = pytest.MonkeyPatch()
    version = 11
    if broker.is_ours:
        version = 12

        async def nothing(*_: object, **__: object) -> Outcomes[int]:
            return Outcomes()

        hidden.setattr("fencepost.client.admin.transactions.AdminTransactions._transactions_by_broker", nothing)
    sent = client.produce(topic, [b"x"], partition=1, transactional_id=name, producer=me, sequence=0, version=version)
    assert sent.error_code == 0
    found = doctor()
    assert found["FP401", f"{topic}-1"]["holds"] == [f"{topic}-1 (1 offset)"]
    assert found["FP505", group]["words"].startswith(f"1 of its 1 offset of lag, in {topic}-1, waits for a ")
    who = "which no coordinator names" if broker.is_ours else f"a hanging transaction of {name!r}"
    assert who in found["FP401", f"{topic}-1"]["words"]
    listed = run.json("transactions", "list")
    assert ("FP401", f"{topic}-1") in {(each["code"], each["name"]) for each in listed["findings"]}
    (row,) = run.json("groups", "describe", group)["partitions"]
    assert who in row["waits_for"]
    until(lambda: ("FP401", f"{topic}-1") in shown(page))
    if not broker.is_ours:
        (reported,) = page.view("transaction", {"name": name})["view"]["findings"]
        assert reported["code"] == "FP401"
        run(*found["FP401", f"{topic}-1"]["action"].split()[1:], "--yes")
    else:
        hidden.undo()
        assert client.end_transaction(name, me, commit=False).error_code == 0
        client.wait_for_state(name, "CompleteAbort")
    assert ("FP401", f"{topic}-1") not in doctor()
    until(lambda: ("FP401", f"{topic}-1") not in shown(page))
    run("groups", "delete", group, "--yes")


def test_a_group_that_does_not_finish_its_rebalance(broker: BrokerUnderTest, doctor: Doctor) -> None:
    topic, group = broker.name("t"), broker.name("g")
    settings: dict[str, Any] = {"group_id": group, "auto_offset_reset": "earliest", "max_poll_interval_ms": 300_000}
    with (
        fencepost.Admin(broker.bootstrap_servers) as admin,
        fencepost.Consumer(broker.bootstrap_servers, **settings) as slow,
        fencepost.Consumer(broker.bootstrap_servers, **settings) as late,
    ):
        admin.create_topic(topic, 2)
        slow.subscribe([topic])
        until(lambda: slow.poll(100) is not None and len(slow.assignment()) == 2)
        assert ("FP501", group) not in doctor("--watch", "1")
        late.subscribe([topic])
        until(lambda: late.poll(100) is not None and admin.describe_group(group).state == "PreparingRebalance")
        assert ("FP501", group) not in doctor("--watch", "0"), "one look cannot tell"
        found = doctor("--watch", "1")["FP501", group]
        assert found["words"] == "it stays in state PreparingRebalance"
        assert found["since_ms"] > 0
        until(lambda: [each.poll(100) for each in (slow, late)] != [] and len(late.assignment()) == 1)
        assert ("FP501", group) not in doctor("--watch", "1")


def test_partitions_that_no_member_reads_and_members_without_progress(
    broker: BrokerUnderTest, doctor: Doctor, run: Commands
) -> None:
    read, unread, group = broker.name("read"), broker.name("unread"), broker.name("g")
    with (
        fencepost.Admin(broker.bootstrap_servers) as admin,
        fencepost.Producer(broker.bootstrap_servers) as producer,
    ):
        for topic in (read, unread):
            admin.create_topic(topic, 1)
            producer.send(topic, b"v").result(60)
        admin.alter_group_offsets(group, {(read, 0): 0, (unread, 0): 0})
        assert doctor()["FP502", group]["words"] == "it has no members and is 2 offsets behind"
        with fencepost.Consumer(
            broker.bootstrap_servers, group_id=group, auto_offset_reset="earliest", client_id="sleeper"
        ) as consumer:
            consumer.subscribe([read])
            until(lambda: bool(consumer.poll(100)))
            assert "sleeper /127.0.0.1\n" in run("groups", "describe", group)
            found = doctor()
            assert found["FP503", group]["words"] == f"no member reads {unread}-0, where it is 1 offset behind"
            assert ("FP502", group) not in found
            with Examiner({"bootstrap.servers": broker.bootstrap_servers}, DEFAULT_TOPIC, 20.0) as examiner:
                first = examiner.collect()
                until(lambda: examiner.collect().at_ms > first.at_ms)
                stalled = [each for each in diagnose(examiner.collect(), Limits(stalled_ms=1)) if each.code == "FP504"]
                assert [each.name for each in stalled] == [group]
                assert f"its member sleeper at /127.0.0.1 has committed nothing of {read}-0 since" in stalled[0].words
                consumer.commit()
                moved = diagnose(examiner.collect(), Limits(stalled_ms=1))
                assert "FP504" not in {each.code for each in moved if each.name == group}
        admin.delete_group(group)


@pytest.mark.slow
def test_doctor_waits_for_a_member_without_progress(broker: BrokerUnderTest, doctor: Doctor) -> None:
    """The command of the documentation looks a second time, because the group is behind."""
    topic, group = broker.name("t"), broker.name("g")
    settings: dict[str, Any] = {"group_id": group, "auto_offset_reset": "earliest", "enable_auto_commit": False}
    with (
        fencepost.Admin(broker.bootstrap_servers) as admin,
        fencepost.Producer(broker.bootstrap_servers) as producer,
        fencepost.Consumer(broker.bootstrap_servers, **settings) as consumer,
    ):
        admin.create_topic(topic, 1)
        producer.send(topic, b"v").result(60)
        admin.alter_group_offsets(group, {(topic, 0): 0})
        consumer.subscribe([topic])
        until(lambda: bool(consumer.poll(100)))
        assert ("FP504", group) not in doctor()
        found = doctor("--watch", "60")["FP504", group]
        assert f"has committed nothing of {topic}-0 since offset 0, 1 offset before " in found["words"]


def test_more_in_sync_replicas_than_replicas_are_not_needed(broker: BrokerUnderTest, doctor: Doctor) -> None:
    """FP202 needs several brokers, see `test_diagnosis_of_a_cluster.py`, or an older Apache Kafka."""
    topic = broker.name("t")
    with fencepost.Admin(broker.bootstrap_servers) as admin, fencepost.Producer(broker.bootstrap_servers) as producer:
        admin.create_topic(topic, 2, configs={"min.insync.replicas": "2"})
        producer.send(topic, b"v").result(60)
        assert ("FP202", topic) not in doctor()
        admin.delete_topic(topic)


def test_clocks_that_differ(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(
            "fencepost.client.net.asyncio_runtime.AsyncioRuntime.wall_ms",
            lambda _: time.time_ns() // 1_000_000 + 3_600_000,
        )
        assert " behind the local one" in doctor()["FP106", "clock"]["words"]
    assert ("FP106", "clock") not in doctor()


def test_disks_report_their_space(broker: BrokerUnderTest) -> None:
    """Nobody fills this machine's disk: the bounds come to the disk."""
    with Examiner({"bootstrap.servers": broker.bootstrap_servers}, DEFAULT_TOPIC, 20.0) as examiner:
        look = examiner.collect()
    (disk,) = look.log_dirs
    assert 0 < disk.usable_bytes < disk.total_bytes
    for limits, code in (
        (Limits(full_share=1.0, nearly_full_share=1.0), "FP104"),
        (Limits(0, nearly_full_share=1.0), ""),
    ):
        codes = {each.code for each in diagnose(look, limits)} & OF_THE_MACHINE
        assert codes == ({code} if code else codes & OF_THE_MACHINE)
    assert not {each.code for each in diagnose(look, Limits(full_share=0.0, nearly_full_share=0.0))} & OF_THE_MACHINE


def test_a_full_disk(capsys: pytest.CaptureFixture[str]) -> None:
    """At our broker, of which the disk can be said to be full."""
    with fencepost.Broker() as broker:
        run = Commands(broker.bootstrap_servers, capsys)
        fault = broker.faults.disk.fail_write(errno.ENOSPC, times=None)
        reported = run("doctor", "--no-probe", status=1)
        assert "FP104 error: broker 1: log directory " in reported
        fault.remove()
        assert "FP104" not in run("doctor", "--no-probe")


@pytest.mark.kafka
def test_requests_that_are_throttled(
    apache_kafka: ApacheKafka, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Our broker enforces quotas of bytes only, and throttles no request for metadata."""
    file = tmp_path / "client.properties"
    file.write_text("client.id=hurried\n")
    parts: list[tuple[str, str | None]] = [("client-id", "hurried")]
    settings = {"bootstrap.servers": apache_kafka.bootstrap_servers, "client.id": "hurried"}

    def throttled() -> bool:
        return "FP108" in {each.code for each in diagnose(examiner.collect(("brokers",)))}

    with (
        RawClient(apache_kafka.bootstrap_servers) as client,
        Examiner(settings, DEFAULT_TOPIC, 60.0) as examiner,
    ):
        assert not throttled()
        assert alter(client, parts, ("request_percentage", 0.01)) == (0, "")
        until(throttled)
        found = codes_of(apache_kafka.bootstrap_servers, file, capsys)
        assert "FP108" in found
        assert "FP101" not in found, "it answers late because of the quota"
        assert alter(client, parts, ("request_percentage", None)) == (0, "")


@pytest.mark.parametrize("arm", ["fencepost", pytest.param("kafka", marks=pytest.mark.kafka)])
def test_a_certificate_that_ends_soon(arm: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    authority, settings = Authority(tmp_path), {}
    for name, days in (("soon", 20), ("later", 60)):
        settings[f"listener.name.{name}.ssl.keystore.type"] = "PEM"
        settings[f"listener.name.{name}.ssl.keystore.location"] = str(authority.issue(name, valid_days=days).keystore)
    file = tmp_path / "client.properties"
    file.write_text(f"security.protocol=SSL\nssl.truststore.location={authority.path}\n")
    with ExitStack() as stack:
        if arm == "kafka":
            kafka = stack.enter_context(ApacheKafka(settings, listeners={"SOON": "SSL", "LATER": "SSL"}))
            soon, later = kafka.address_of("SOON"), kafka.address_of("LATER")
        else:
            settings["listeners"] = "SOON://127.0.0.1:0,LATER://127.0.0.1:0"
            settings["listener.security.protocol.map"] = "SOON:SSL,LATER:SSL"
            broker = stack.enter_context(fencepost.Broker(settings))
            soon, later = broker.listener("SOON"), broker.listener("LATER")
        report = Commands(soon, capsys, "--command-config", str(file))("doctor", "--no-probe", status=3)
        assert re.search(rf"FP107 warning: cluster: the certificate at {soon} ends in (20 d|19 d 23 h)\n", report)
        run = Commands(later, capsys, "--command-config", str(file))
        assert "FP107" not in run("doctor", "--no-probe", status=0)
        keystore = authority.issue("soon", valid_days=90).keystore  # the same file, with a later end
        if arm == "kafka":  # it reads the file when its path is set once more
            location = f"listener.name.soon.ssl.keystore.location={keystore}"
            Commands(kafka.bootstrap_servers, capsys)("configs", "alter", "broker", "1", "--set", location)
        until(lambda: not codes_of(soon, file, capsys) & {"FP107"})


def codes_of(servers: str, config: Path, capsys: pytest.CaptureFixture[str]) -> set[str]:
    found = diagnosis_reports.doctor(servers, capsys, "--no-probe", "--command-config", str(config))[1]
    return {code for code, _ in found}


def test_no_broker_answers(
    killable: tuple[BrokerUnderTest, Killable], doctor: Doctor, capsys: pytest.CaptureFixture[str]
) -> None:
    tested, running = killable
    servers = tested.bootstrap_servers
    assert not {code for code, _ in doctor(servers=servers)} & {"FP101"}
    running.kill()
    found = doctor("--timeout", "2", servers=servers)
    assert list(found) == [("FP101", servers)]
    assert f"no broker answers at {servers}" in found["FP101", servers]["words"]
    running.restart()


ABILITIES = {"fencepost": KEEPING, "kafka": TWO_PHASE}


def test_a_decision_that_is_not_complete_and_a_batch_that_is_lost(
    broker: BrokerUnderTest, doctor: Doctor, run: Commands
) -> None:
    bench = Bench(broker.bootstrap_servers, ABILITIES[broker.arm])
    opened = bench.open()
    first, second = bench.task(opened, 0), bench.task(opened, 0)
    assert isinstance(first, PreparedTask)
    assert isinstance(second, PreparedTask)
    bench.decide(0, [first, second])
    found = doctor("--watch", "1")["FP601", bench.sink]
    assert found["words"] == f"batch 0 of query {bench.query} is decided, and 2 of its transactions are still open"
    assert found["action"].endswith(f"fencepost transactions resolve {bench.sink}")
    run("transactions", "abort", first.transactional_id, "--even-if-decided", "--even-if-prepared", "--yes")
    lost = doctor("--watch", "1")["FP602", bench.sink]
    assert "the rows of 1 lost transaction are not in the topic" in lost["words"]
    run("transactions", "commit", second.transactional_id, "--even-if-prepared", "--yes")
    assert ("FP601", bench.sink) not in doctor("--watch", "1")


def test_every_code_has_a_severity_and_a_status() -> None:
    assert {each.severity.value for each in CODES.values()} == {"error", "warning", "unknown", "note"}
    assert exit_status([]) == 0


def test_records_that_cannot_be_read(
    broker: BrokerUnderTest, doctor: Doctor, run: Commands, request: pytest.FixtureRequest
) -> None:
    """A byte of a stored record changes on the disk. Neither broker looks at it; the reader's checksum differs."""
    topic, group = broker.name("t"), broker.name("g")
    with (
        fencepost.Admin(broker.bootstrap_servers) as admin,
        fencepost.Producer(broker.bootstrap_servers, linger_ms=0) as producer,
    ):
        admin.create_topic(topic, 1)
        for number in range(3):
            producer.send(topic, b"value %d" % number).result(60)
        admin.alter_group_offsets(group, {(topic, 0): 0})
        assert ("FP204", f"{topic}-0") not in doctor()
        log = data_directory(broker) / f"{topic}-0" / f"{0:020}.log"
        data = log.read_bytes()
        log.write_bytes(data.replace(b"value 1", b"VALUE 1"))
        assert ("FP204", f"{topic}-0") not in doctor(), "the group stands before it"
        admin.alter_group_offsets(group, {(topic, 0): 1})
        found = doctor()["FP204", f"{topic}-0"]
        assert found["words"].startswith("the records from offset 1 on cannot be read: ")
        assert found["holds"] == [f"group {group}"]
        page = request.getfixturevalue("page")  # a page that begins now, because it reads records every 30 s only
        until(lambda: ("FP204", f"{topic}-0") in shown(page))
        described = run.json("groups", "describe", group)["findings"]
        assert "FP204" in {each["code"] for each in described}
        assert found["action"].endswith(f"fencepost groups reset-offsets {group} --to 2 --topic {topic}:0")
        admin.alter_group_offsets(group, {(topic, 0): 2})
        assert ("FP204", f"{topic}-0") not in doctor()
        admin.delete_group(group)
        admin.delete_topic(topic)


def data_directory(broker: BrokerUnderTest) -> Path:
    running: Any = broker.running
    return Path(running.data_dir) if broker.is_ours else Path(running.data_directory)
