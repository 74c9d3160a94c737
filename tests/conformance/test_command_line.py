"""The commands about a cluster, against both brokers: what they do is read back with clients, or by other commands."""

from __future__ import annotations

import io
import json
import socket
from pathlib import Path
from typing import Any

import pytest

import fencepost
from fencepost.cli.main import main
from fencepost.client.admin.configs import GROUP_RESOURCE
from fencepost.client.net.asyncio_runtime import AsyncioRuntime
from tests.support.brokers import BrokerUnderTest
from tests.support.commands import Commands
from tests.support.waiting import until

TP = fencepost.TopicPartition
START_MS = 1_700_000_000_000  # 2023-11-14T22:13:20Z


@pytest.fixture
def run(broker: BrokerUnderTest, capsys: pytest.CaptureFixture[str]) -> Commands:
    return Commands(broker.bootstrap_servers, capsys)


def put(broker: BrokerUnderTest, topic: str, count: int, **more: Any) -> None:
    with fencepost.Producer(broker.bootstrap_servers, linger_ms=0) as producer:
        for number in range(count):
            producer.send(topic, b"v%d" % number, partition=0, timestamp_ms=START_MS + 1000 * number, **more)


def test_topics(broker: BrokerUnderTest, run: Commands, admin: fencepost.Admin) -> None:
    topic = broker.name("t")
    output = run("topics", "create", topic, "-p", "2", "--config", "retention.ms=-1")
    assert output == f"created {topic}\n"
    assert admin.describe_configs(topic)["retention.ms"] == "-1"
    run("topics", "create", topic, status=1)
    assert "TOPIC_ALREADY_EXISTS" in run.error
    assert run("topics", "create", topic, "--if-not-exists") == f"{topic} exists already\n"
    assert topic in run("topics", "list").split()
    assert topic in run.json("topics", "list")

    put(broker, topic, 3)
    assert run("topics", "alter", topic, "-p", "3") == f"{topic} has 3 partitions\n"
    (described,) = run.json("topics", "describe", topic)
    assert [partition["partition"] for partition in described["partitions"]] == [0, 1, 2]
    first = {"partition": 0, "leader": 1, "replicas": [1], "in_sync": [1], "begin": 0, "stable": 3, "end": 3}
    assert described["partitions"][0] == first
    assert f"{topic}  0          1       1         1        0      3       3" in run("topics", "describe", topic)

    nothing = broker.name("nothing")
    assert topic in run("topics", "describe", topic, nothing, status=1), "what exists is shown all the same"
    assert nothing in run.error
    run("topics", "delete", topic, nothing, "--yes", status=1)
    assert "nothing was deleted" in run.error
    assert topic in admin.list_topics()
    assert run("topics", "delete", topic, nothing, "--yes", "--if-exists") == f"deleted {topic}\n"
    assert topic not in admin.list_topics()


def test_programs_are_told_what_was_done(broker: BrokerUnderTest, run: Commands, tmp_path: Path) -> None:
    topic, group, user = broker.name("t"), broker.name("g"), broker.name("u")
    assert run.json("topics", "create", topic) == {"done": "created", "topic": topic}
    assert run.json("topics", "create", topic, "--if-not-exists") == {"done": "nothing", "topic": topic}
    assert run.json("topics", "alter", topic, "-p", "2") == {"done": "grown", "topic": topic, "partitions": 2}
    changed = run("configs", "alter", "topic", topic, "--set", "retention.ms=1", "--unset", "segment.ms", "--json")
    assert [json.loads(line) for line in changed.splitlines()] == [
        {"done": "set", "setting": "retention.ms"},
        {"done": "unset", "setting": "segment.ms"},
    ]
    run("groups", "reset-offsets", group, "--to", "beginning", "--topic", topic, "--yes")
    assert run.json("groups", "delete", group, "--yes") == {"done": "deleted", "group": group}
    (tmp_path / "password").write_text("a secret")
    reported = {"user": user, "mechanism": "SCRAM-SHA-512"}
    assert run.json("users", "set-password", user, "--password-file", str(tmp_path / "password")) == {
        "done": "set",
        **reported,
    }
    until(lambda: user in run("users", "list"))
    assert run.json("users", "delete", user, "--yes") == {"done": "deleted", **reported}
    assert run.json("topics", "delete", topic, "--yes") == {"done": "deleted", "topic": topic}


def test_nothing_is_deleted_without_an_answer(
    broker: BrokerUnderTest, run: Commands, admin: fencepost.Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = broker.name("t")
    admin.create_topic(topic, 1)
    for answer in ("", "n\n"):
        monkeypatch.setattr("sys.stdin", io.StringIO(answer))
        assert run("topics", "delete", topic, status=1) == ""
    assert topic in admin.list_topics()


def test_configs(broker: BrokerUnderTest, run: Commands, admin: fencepost.Admin) -> None:
    topic = broker.name("t")
    admin.create_topic(topic, 1)
    run("configs", "alter", "topic", topic, "--set", "retention.ms=123456", "--set", "cleanup.policy=compact")
    run("configs", "alter", "topic", topic, "--unset", "cleanup.policy")
    shown = run.json("configs", "describe", "topic", topic)
    assert [(entry["name"], entry["value"]) for entry in shown if entry["source"] == "TOPIC"] == [
        ("retention.ms", "123456")
    ]
    assert ["retention.ms", "123456", "TOPIC"] in map(
        str.split, run("configs", "describe", "topic", topic).splitlines()
    )
    every = {entry["name"] for entry in run.json("configs", "describe", "topic", topic, "--all")}
    assert {"cleanup.policy", "segment.bytes"} <= every - {entry["name"] for entry in shown}
    run("configs", "alter", "topic", topic, "--set", "cleanup.policy=")
    shown = run.json("configs", "describe", "topic", topic)
    assert ("cleanup.policy", "") in [(entry["name"], entry["value"]) for entry in shown]
    run("configs", "alter", "topic", topic, "--set", "no.such.setting=1", status=1)
    run("configs", "alter", "topic", topic, "--set", "retention.ms=9", "--unset", "retention.ms", status=2)
    run("configs", "alter", "topic", topic, status=2)
    run("configs", "describe", "broker", "first", status=2)
    assert {entry["name"] for entry in run.json("configs", "describe", "broker", "1", "--all")} >= {"log.retention.ms"}


def test_groups(broker: BrokerUnderTest, run: Commands, admin: fencepost.Admin) -> None:
    topic, group = broker.name("t"), broker.name("g")
    admin.create_topic(topic, 2)
    put(broker, topic, 5)
    with fencepost.Consumer(broker.bootstrap_servers, group_id=group, auto_offset_reset="earliest") as consumer:
        consumer.subscribe([topic])
        until(lambda: bool(consumer.poll(100)))
        consumer.commit({TP(topic, 0): 2})
        shown = run.json("groups", "describe", group)
        assert shown["state"] == "Stable"
        first, second = shown["partitions"]
        (member,) = shown["members"]
        fields = {"topic": topic, "partition": 0}
        assert first == {**fields, "committed": 2, "end": 5, "lag": 3, "waits_for": None, "member": member["member"]}
        assert (second["committed"], second["lag"], second["member"]) == (None, None, member["member"])
        assert member["assigned"] == [f"{topic}-0", f"{topic}-1"]
        assert f"{group}: classic, Stable, 1 member" in run("groups", "describe", group, "--members")
        assert {"group": group, "type": "classic", "state": "Stable"} in [
            {**row, "type": row["type"].lower()} for row in run.json("groups", "list")
        ]
        run("groups", "reset-offsets", group, "--to", "beginning", "--yes", status=1)
        assert "has members" in run.error
    until(lambda: admin.describe_group(group).members == ())

    def reset(*words: str) -> list[int]:
        return [row["new"] for row in run.json("groups", "reset-offsets", group, *words)]

    assert reset("--to", "beginning", "--dry-run") == [0]
    assert admin.group_offsets(group)[TP(topic, 0)].offset == 2
    assert reset("--to", "end", "--topic", topic, "--dry-run") == [5, 0]
    assert reset("--to", "-2", "--dry-run") == [3]
    assert reset("--to", "99", "--dry-run") == [5], "there is no such offset: the end"
    assert reset("--to", "2023-11-14T22:13:21.500Z", "--dry-run") == [2]
    assert reset("--to", "2033-01-01T00:00:00+00:00", "--dry-run") == [5]
    assert reset("--shift-by", "-1", "--yes") == [1]
    assert reset("--to", "4", "--topic", f"{topic}:1,0", "--yes") == [4, 0]
    assert {partition: at.offset for partition, at in admin.group_offsets(group).items()} == {
        TP(topic, 0): 4,
        TP(topic, 1): 0,
    }
    for words in (["--to", "yesterday"], ["--to", "end", "--shift-by", "1"], [], ["--to", "end", "--topic", "t:x"]):
        run("groups", "reset-offsets", group, *words, status=2)
    run("groups", "reset-offsets", group, "--to", "end", "--topic", f"{topic}:7", status=1)
    assert "has no partition 7" in run.error

    nobody = broker.name("nobody")
    run("groups", "describe", nobody, status=1)
    assert nobody in run.error
    run("groups", "delete", group, nobody, "--yes", status=1)
    assert run("groups", "delete", group, "--yes") == f"deleted {group}\n"
    assert group not in [listing.group_id for listing in admin.list_groups()]


def polled(consumer: fencepost.ShareConsumer) -> list[fencepost.SharedRecord]:
    found: list[fencepost.SharedRecord] = []

    def has_come() -> bool:
        found.extend(consumer.poll(500))
        return bool(found)

    until(has_come)
    return found


def test_a_share_group(broker: BrokerUnderTest, run: Commands, admin: fencepost.Admin) -> None:
    """Its lag is the one that the brokers report: accepted records after the start offset do not count (KIP-1226)."""
    topic, group = broker.name("t"), broker.name("g")
    admin.create_topic(topic, 1)
    put(broker, topic, 5)
    admin.alter_configs(group, {"share.auto.offset.reset": "earliest"}, resource_type=GROUP_RESOURCE)
    with fencepost.ShareConsumer(
        broker.bootstrap_servers, group_id=group, share_acknowledgement_mode="explicit"
    ) as consumer:
        consumer.subscribe([topic])
        for record in polled(consumer):
            accepts = record.offset in (0, 1, 3)
            consumer.acknowledge(
                record, fencepost.AcknowledgeType.ACCEPT if accepts else fencepost.AcknowledgeType.RELEASE
            )
        consumer.commit()
        shown = run.json("groups", "describe", group)
        (member,) = shown["members"]
        assert (shown["type"], shown["state"], member["assigned"]) == ("share", "Stable", [f"{topic}-0"])
        (row,) = shown["partitions"]
        start = row.pop("start")
        assert start == 2 or (start == 0 and not broker.is_ours)  # Kafka stores the new start with its next write
        assert row == {"topic": topic, "partition": 0, "end": 5, "lag": 2, "waits_for": None, "member": None}
        text = run("groups", "describe", group)
        assert text.startswith(f"{group}: share, Stable, 1 member\n")
        assert [line.split() for line in text.splitlines()[1:3]] == [
            ["TOPIC", "PARTITION", "START", "END", "LAG", "WAITS", "FOR", "MEMBER"],
            [topic, "0", str(start), "5", "2"],
        ]


def test_names_of_others_do_nothing_to_a_terminal(
    broker: BrokerUnderTest, run: Commands, admin: fencepost.Admin
) -> None:
    topic, name = broker.name("t"), f"{broker.name('n')}\n\x1b[31m"
    shown = name.replace("\n", "\\n").replace("\x1b", "\\x1b")
    admin.create_topic(topic, 1)
    run("groups", "reset-offsets", name, "--to", "end", "--topic", topic, "--yes")
    assert f"{shown}  " in run("groups", "list")
    assert run("groups", "describe", name).startswith(f"{shown}: classic")
    with fencepost.Producer(broker.bootstrap_servers, transactional_id=name) as producer:
        producer.init_transactions()
        assert run("transactions", "describe", name).startswith(f"{shown}\n  state: ")
        assert f"\n{shown}  " in run("transactions", "list", "--all")
    assert name in [row["group"] for row in run.json("groups", "list")]


def partitions_of(admin: fencepost.Admin) -> int:
    return sum(len(topic.partitions) for topic in admin.describe_topics().values())


def test_doctor(broker: BrokerUnderTest, admin: fencepost.Admin, capsys: pytest.CaptureFixture[str]) -> None:
    before = partitions_of(admin)
    with pytest.raises(SystemExit):  # the status is that of what other tests left behind
        main(["doctor", "--json", "-b", broker.bootstrap_servers])
    about = json.loads(capsys.readouterr().out)["about"]
    assert about["cluster"] == admin.describe_cluster().cluster_id
    assert about["brokers"] == [f"1 ({broker.bootstrap_servers})"]
    assert before <= about["partitions"] <= partitions_of(admin)  # Kafka adds topics of its own at their first use
    assert about["features"]["transaction.version"] == 2
    assert "differs by" in about["clock"]
    assert {"describe", "alter", "cluster-action"} <= set(about["rights on the cluster"])
    assert about["guarantee of Spark sinks"] == "durable: a decided batch cannot be lost"


@pytest.mark.parametrize("words", [("topics", "list"), ("transactions", "list")], ids=" ".join)
def test_a_broker_that_stands_still_keeps_nobody_from_the_others(
    broker: BrokerUnderTest, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    """Its system takes connections, and nothing is answered. Addresses are tried in any order: here it comes first."""
    monkeypatch.setattr(AsyncioRuntime, "random", lambda _: 0.0)
    monkeypatch.setenv("FENCEPOST_SOCKET_CONNECTION_SETUP_TIMEOUT_MS", "500")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        servers = f"127.0.0.1:{silent.getsockname()[1]},{broker.bootstrap_servers}"
        Commands(servers, capsys)(*words)
        silent.settimeout(0)
        silent.accept()[0].close()  # or it was never tried
