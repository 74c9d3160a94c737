"""Findings of one broker that needs a world of its own: a small disk, an old release, requests without an answer.

| finding | at Apache Kafka | at Fencepost's broker |
|---|---|---|
| FP001 | a node that hangs: `test_diagnosis_of_a_cluster.py` | a request that waits |
| FP003, FP109, FP603 | release 2.4.1 | none: it has every API that is asked |
| FP004 | the page, with more partitions than one look covers | the same |
| FP103 | a full disk, of which Kafka takes the directory offline | none: it stays online, with FP104 |
| FP104, FP105 | a small file system that fills up | the same |
| FP404 | a partition with too few replicas: `test_diagnosis_of_a_cluster.py` | a disk that refuses the marker |
"""

from __future__ import annotations

import base64
import contextlib
import errno
import os
import re
import uuid
from pathlib import Path
from typing import Any

import pytest

import fencepost
from fencepost.cli.diagnosis import cluster_snapshot
from fencepost.client.admin.topics import NewTopic
from fencepost.client.diagnosis.findings import Severity
from fencepost.errors import KafkaError
from fencepost_lab.torture.broker_process import BrokerProcess
from tests.conformance.conftest import ARMS
from tests.support.apache_kafka import ApacheKafka
from tests.support.brokers import BrokerUnderTest
from tests.support.commands import Commands
from tests.support.diagnosis_reports import codes_in, doctor, page_of
from tests.support.older_kafka import OlderKafka
from tests.support.small_disk import small_disk
from tests.support.waiting import until

DISK_BYTES = 64 << 20
BATCH_BYTES = 500_000


def fill(disk: Path, free_bytes: int) -> None:
    """Write a file that leaves so many bytes free."""
    there = os.statvfs(disk)
    with open(disk / "filler", "ab") as filler:
        filler.write(bytes(there.f_bavail * there.f_frsize - free_bytes))


class TwoDirectories(ApacheKafka):
    """A node with a second log directory."""

    def __init__(self, second: Path) -> None:
        super().__init__()
        self.second = second

    def _format(self, configuration: Path) -> None:
        super()._format(configuration)
        identity = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        text = (self.data_directory / "meta.properties").read_text()
        text = re.sub(r"(?m)^directory\.id=.*", f"directory.id={identity}", text)
        (self.second / "meta.properties").write_text(text)

    def _configuration(self) -> str:
        return f"{super()._configuration()}log.dirs={self.data_directory},{self.second}\n"


@pytest.mark.parametrize("arm", ARMS)
def test_a_disk_that_fills_up(arm: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with contextlib.ExitStack() as stack:
        disk = stack.enter_context(small_disk(tmp_path / "disk", DISK_BYTES))
        directory = disk / "data" if arm == "fencepost" else disk
        running = BrokerProcess(folder=disk) if arm == "fencepost" else TwoDirectories(disk)
        stack.callback(running.stop)
        running.start()
        servers = running.bootstrap_servers
        admin = stack.enter_context(fencepost.Admin(servers))
        admin.create_topic("t", 2)
        ours = f"log directory {directory}: "

        def disk_finding() -> dict[str, Any] | None:
            """The finding about the small disk, and not about that of this machine."""
            found = doctor(servers, capsys, "--no-probe")[1].values()
            seen = [each for each in found if f"log directory {directory}" in each["words"]]
            assert len(seen) <= 1
            return seen[0] if seen else None

        assert disk_finding() is None
        fill(disk, DISK_BYTES // 20)
        nearly = disk_finding()
        assert nearly is not None
        assert (nearly["code"], nearly["kind"], nearly["name"]) == ("FP105", "broker", "1")
        assert nearly["words"].startswith(ours)
        assert " of 67 MB are free (" in nearly["words"]
        assert nearly["holds"] == []
        assert nearly["action"] == (
            "fencepost configs alter topic t --set retention.bytes=BYTES, or make the disk larger"
        )
        fill(disk, 100_000)
        full = disk_finding()
        assert full is not None
        assert (full["code"], full["holds"]) == ("FP104", ["every write to this broker"])
        with fencepost.Producer(servers, delivery_timeout_ms=3_000, request_timeout_ms=2_000) as producer:
            refused = [producer.send("t", os.urandom(BATCH_BYTES), partition=number % 2) for number in range(8)]
            errors = [each.exception(60) for each in refused]
        assert any(isinstance(each, KafkaError) for each in errors)
        if arm == "fencepost":
            still = disk_finding()
            assert still is not None
            assert still["code"] == "FP104"
            os.unlink(disk / "filler")
            assert disk_finding() is None
            with fencepost.Producer(servers) as producer:
                producer.send("t", b"again", partition=0).result(60)
            return
        offline = disk_finding()
        assert offline is not None
        assert (offline["code"], offline["holds"]) == ("FP103", ["all partitions in it"])
        assert offline["words"] == f"log directory {directory} is not usable: KAFKA_STORAGE_ERROR (56)"
        assert offline["action"] == "repair the disk, then start the broker again"
        until(lambda: ("FP201", "t") in doctor(servers, capsys, "--no-probe")[1])
        with page_of(servers) as page:
            until(lambda: {"FP103", "FP201"} <= codes_in(page))


def test_a_question_that_is_not_answered_in_time(capsys: pytest.CaptureFixture[str]) -> None:
    with fencepost.Broker() as broker, fencepost.Admin(broker.bootstrap_servers) as admin:
        admin.create_topic("t", 1)
        admin.alter_group_offsets("g", {("t", 0): 0})
        with broker.faults.delay("OffsetFetch", 120, times=None):
            found = doctor(broker.bootstrap_servers, capsys, "--no-probe", "--timeout", "5")[1]
        assert not {code for code, _ in found} & {"FP101"}, "the broker answers other questions"
        groups = found["FP001", "groups"]
        assert (groups["severity"], groups["kind"]) == ("unknown", "cluster")
        assert groups["words"].startswith("groups: not known: ")
        assert " did not answer " in groups["words"]
        assert groups["action"] == "run the command again; if it stays, see the broker's log"


@pytest.mark.parametrize(
    ("share", "words"),
    [
        (0.3, "Metadata was sent to {broker}, and no time was left to wait for the response"),
        (1, "not asked, because earlier questions took the 3000 ms for all"),
    ],
)
def test_questions_after_the_end_of_the_time_are_not_asked(
    share: float,
    words: str,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The broker holds one question, and with it all that follow on the connection."""
    monkeypatch.setattr(cluster_snapshot, "CALL_SHARE", share)
    with fencepost.Broker() as broker, fencepost.Admin(broker.bootstrap_servers) as admin:
        admin.create_topic("t", 1)
        admin.alter_group_offsets("g", {("t", 0): 0})
        with broker.faults.delay("ListGroups", 120, times=None):
            said = Commands(broker.bootstrap_servers, capsys)("doctor", "--no-probe", "--timeout", "3", status=4)
        assert words.format(broker=broker.bootstrap_servers) in said
        assert not re.search(r"(within|in the) [01] ms", said + caplog.text)


def test_a_decided_transaction_without_its_marker(capsys: pytest.CaptureFixture[str]) -> None:
    with (
        fencepost.Broker() as broker,
        fencepost.Admin(broker.bootstrap_servers) as admin,
        fencepost.Producer(broker.bootstrap_servers, transactional_id="pay") as producer,
        page_of(broker.bootstrap_servers) as page,
    ):
        admin.create_topic("t", 1)
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", b"v", partition=0).result(60)
        with broker.faults.disk.fail_write(errno.ENOSPC, times=None, path="t-0/"):
            producer.commit_transaction()
            status, found = doctor(broker.bootstrap_servers, capsys, "--no-probe", "--watch", "1")
            decided = found["FP404", "pay"]
            assert status == 1
            assert decided["words"] == "it is decided (PrepareCommit), and partitions still wait for its markers"
            assert decided["holds"] == ["t-0 (1 offset)"]
            until(lambda: "FP404" in codes_in(page))
        until(lambda: "FP404" not in codes_in(page))
        assert ("FP404", "pay") not in doctor(broker.bootstrap_servers, capsys, "--no-probe", "--watch", "1")[1]


def test_the_page_covers_a_part_and_doctor_all(broker: BrokerUnderTest, capsys: pytest.CaptureFixture[str]) -> None:
    """One transaction is open in more partitions than the page describes at a time."""
    topic, partitions = broker.name("wide"), 105
    with (
        fencepost.Admin(broker.bootstrap_servers) as admin,
        fencepost.Producer(broker.bootstrap_servers, transactional_id=topic) as producer,
    ):
        admin.create_topics([NewTopic(topic, partitions)])
        producer.init_transactions()
        producer.begin_transaction()
        for sent in [producer.send(topic, b"v", partition=number) for number in range(partitions)]:
            sent.result(60)
        with page_of(broker.bootstrap_servers) as page:
            # Not by the overview, which shows the worst of the findings about all that is in the cluster.
            until(lambda: any('code="FP004"' in line and line.endswith(" 1") for line in page.watched_state().counts()))
            (reported,) = [each for each in page.watched_state().findings if each.code == "FP004"]
            assert reported.severity is Severity.NOTE
            assert "transactions that hold readers back: not everything was asked: only 100 of " in reported.words
        found = doctor(broker.bootstrap_servers, capsys, "--no-probe", "--older-than", "0")[1]
        assert not {code for code, _ in found} & {"FP004"}
        assert f"{topic}-104 (1 offset)" in found["FP403", topic]["holds"]
        producer.abort_transaction()
        admin.delete_topic(topic)


@pytest.mark.kafka
@pytest.mark.slow
def test_brokers_that_are_too_old(capsys: pytest.CaptureFixture[str]) -> None:
    with OlderKafka("2.4.1") as kafka:
        with fencepost.Admin(kafka.bootstrap_servers) as admin:
            admin.create_topic("t", 1)
        status, found = doctor(kafka.bootstrap_servers, capsys)
        assert status == 4
        old = {name: each["words"] for (code, name), each in found.items() if code == "FP003"}
        assert set(old) == {"transactions", "clock", "free space of broker 1", "rights"}
        assert old["free space of broker 1"].endswith("this broker does not report free space (Kafka 3.3 and later do)")
        assert old["transactions"].startswith("transactions: not known: ")
        assert found["FP109", "features"]["words"] == "offsets in transactions are not fenced by group (KIP-447)"
        refused = found["FP603", "Spark sinks"]
        assert refused["action"] == "upgrade the brokers, or write at least once"
        assert refused["words"].startswith("Spark sinks cannot write exactly once: exactly-once is not possible with ")
        assert "do not list and describe transactions (KIP-664)" in refused["words"]
        with page_of(kafka.bootstrap_servers) as page:
            until(lambda: {"FP003", "FP109"} <= codes_in(page))


def test_a_limit_that_is_reached_is_a_note(broker: BrokerUnderTest, capsys: pytest.CaptureFixture[str]) -> None:
    """A group is behind at more positions than doctor reads. The other findings decide on the status."""
    topic, group, partitions = broker.name("many"), broker.name("g"), 600
    servers = broker.bootstrap_servers
    with fencepost.Admin(servers) as admin, fencepost.Producer(servers) as producer:
        admin.create_topics([NewTopic(topic, partitions)])
        for sent in [producer.send(topic, b"v", partition=number) for number in range(partitions)]:
            sent.result(60)
        admin.alter_group_offsets(group, {(topic, number): 0 for number in range(partitions)})
        status, found = doctor(servers, capsys, "--no-probe", "--timeout", "60")
        note = found["FP004", "records"]
        assert note["severity"] == "note"
        # Other groups of the cluster may be left out as well, and the note names three.
        left_out = (
            rf"at 500 of \d+ positions of groups, those with the largest lag; left out: positions of .*({group}|more)"
        )
        assert re.search(left_out, note["words"])
        assert note["action"] == "fencepost groups describe GROUP reads the next records of a single group"
        assert found["FP502", group]["severity"] == "warning"
        assert status == 3, found
        described = Commands(servers, capsys).json("groups", "describe", group)["findings"]
        assert "FP004" not in {each["code"] for each in described}, "it reads them all"
        admin.delete_group(group)
        admin.delete_topic(topic)
