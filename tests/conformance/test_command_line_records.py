"""`fencepost produce` and `consume` against both brokers: what clients write is shown, what is written clients read."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fencepost
from fencepost.client.net.list_offsets import LATEST
from fencepost.client.records import to_records
from tests.support.brokers import BrokerUnderTest
from tests.support.commands import Commands
from tests.support.waiting import until

TP = fencepost.TopicPartition
START_MS = 1_700_000_000_000  # 2023-11-14T22:13:20Z
Feed = Callable[[bytes], None]


@pytest.fixture
def run(broker: BrokerUnderTest, capsys: pytest.CaptureFixture[str]) -> Commands:
    return Commands(broker.bootstrap_servers, capsys)


@pytest.fixture
def feed(monkeypatch: pytest.MonkeyPatch) -> Feed:
    """Set the standard input of the next command."""
    return lambda content: monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))


@pytest.fixture
def topic(broker: BrokerUnderTest, admin: fencepost.Admin) -> str:
    """With two partitions."""
    name = broker.name("t")
    admin.create_topic(name, 2)
    return name


def records_of(broker: BrokerUnderTest, topic: str, partition: int) -> list[fencepost.Record]:
    """All committed records."""
    with fencepost.Consumer(broker.bootstrap_servers) as consumer:
        topic_partition = TP(topic, partition)
        end = consumer.offsets_for({topic_partition: LATEST})[topic_partition].offset
        return [record for piece in consumer.fetch_range(topic, partition, 0, end) for record in to_records(piece)]


def written(broker: BrokerUnderTest, topic: str) -> list[tuple[Any, ...]]:
    """(offset, timestamp, key, value, headers) of three records of partition 1, one after the other."""
    rows: list[tuple[Any, ...]] = [
        (0, START_MS, b"k", "wörd\n".encode(), [("h", b"\xff"), ("n", None)]),
        (1, START_MS + 1000, None, b"\xff\x00", []),
        (2, START_MS + 2000, b"\xfe", None, []),
    ]
    with fencepost.Producer(broker.bootstrap_servers) as producer:
        for _, timestamp, key, value, headers in rows:
            producer.send(topic, value, key, partition=1, headers=headers, timestamp_ms=timestamp)
    return rows


def rows_of(records: list[fencepost.Record]) -> list[tuple[Any, ...]]:
    return [(record.offset, record.timestamp_ms, record.key, record.value, list(record.headers)) for record in records]


def test_records_come_out_as_they_are(broker: BrokerUnderTest, run: Commands, topic: str, feed: Feed) -> None:
    rows = written(broker, topic)
    lines = run("consume", topic, "--json").splitlines()
    assert run.error == "3 records\n"
    fields = {"topic": topic, "partition": 1}
    assert [json.loads(line) for line in lines] == [
        {
            **fields,
            "offset": 0,
            "timestamp": START_MS,
            "key": "k",
            "value": "wörd\n",
            "headers": [{"name": "h", "value_base64": "/w=="}, {"name": "n", "value": None}],
        },
        {**fields, "offset": 1, "timestamp": START_MS + 1000, "key": None, "value_base64": "/wA="},
        {**fields, "offset": 2, "timestamp": START_MS + 2000, "key_base64": "/g==", "value": None},
    ]
    feed("\n".join(lines).encode())
    run("produce", topic, "--json", "--keep-partitions")
    assert run.error == f"3 records written to {topic}\n"
    assert [row[1:] for row in rows_of(records_of(broker, topic, 1))[3:]] == [row[1:] for row in rows]


@pytest.mark.parametrize("kind", ["parquet", "arrow", "jsonl"])
def test_records_go_through_files(
    broker: BrokerUnderTest, run: Commands, topic: str, tmp_path: Path, kind: str
) -> None:
    rows = written(broker, topic)
    file = str(tmp_path / f"records.{kind}")
    run("consume", topic, "--output", file)
    assert run.error == "3 records\n"
    run("consume", topic, "--output", file, status=1)
    assert run.error == f"fencepost: {file}: File exists\n", "nothing is written over"
    run("produce", topic, "--input", file, "--keep-partitions")
    again = records_of(broker, topic, 1)[3:]
    assert [row[1:] for row in rows_of(again)] == [row[1:] for row in rows]
    run("produce", topic, "--input", file)  # by their keys
    assert run.error == f"3 records written to {topic}\n"


def test_what_is_read_of_a_topic(broker: BrokerUnderTest, run: Commands, topic: str) -> None:
    with fencepost.Producer(broker.bootstrap_servers) as producer:
        for number in range(6):
            producer.send(topic, b"%d" % number, b"k", partition=0, timestamp_ms=START_MS + 1000 * number)

    def values(*words: str) -> list[int]:
        return [int(line) for line in run("consume", topic, *words).split()]

    assert values() == [0, 1, 2, 3, 4, 5]
    assert values("--from", "4") == [4, 5]
    assert values("--from", "-2") == [4, 5]
    assert values("--from", "-99") == [0, 1, 2, 3, 4, 5]
    assert values("--to", "2") == [0, 1]
    assert values("--to", "99", "-n", "2") == [0, 1]
    assert values("--from", "2023-11-14T22:13:22Z", "--to", "2023-11-14T23:13:24+01:00") == [2, 3]
    assert values("--from", "2033-01-01T00:00:00Z") == values("--from", "end") == values("--partition", "1") == []
    assert values("--follow", "-n", "6") == [0, 1, 2, 3, 4, 5]
    assert run("consume", topic, "-n", "1", "--key-separator", ": ") == "k: 0\n"
    for words in (
        ["--from", "never"],
        ["--follow", "--to", "3"],
        ["-n", "0"],
        ["--json", "--output", "x.jsonl"],
        ["--output", "x.xls"],
        ["-X", "x=1"],
    ):
        run("consume", topic, *words, status=2)
    run("consume", topic, "--partition", "2", status=1)
    run("consume", broker.name("nothing"), status=1)
    assert "there is no topic" in run.error


def committed(admin: fencepost.Admin, group: str) -> dict[int, int]:
    """By partition."""
    return {partition.partition: at.offset for partition, at in admin.group_offsets(group).items()}


def test_a_group_goes_on_where_it_was(
    broker: BrokerUnderTest, run: Commands, admin: fencepost.Admin, topic: str, tmp_path: Path
) -> None:
    group = broker.name("g")

    def put(*numbers: int) -> None:
        with fencepost.Producer(broker.bootstrap_servers) as producer:
            for number in numbers:
                producer.send(topic, b"%d" % number, partition=0)

    put(0, 1, 2, 3, 4)
    words = ("consume", topic, "--group", group)
    assert run(*words, "-n", "2") == "0\n1\n"
    assert committed(admin, group)[0] == 2
    assert json.loads(run(*words, "-n", "1", "--json"))["offset"] == 2
    assert run(*words) == "3\n4\n"
    assert run.error == "2 records\n"
    assert run(*words) == "", "nothing has come since"
    put(5, 6)
    file = tmp_path / "more.jsonl"
    run(*words, "--output", str(file), "-X", "group.id=another", "-X", "enable.auto.commit=true")
    assert [json.loads(line)["value"] for line in file.read_text().splitlines()] == ["5", "6"]
    assert committed(admin, group) == {0: 7, 1: 0}
    put(7)
    run(*words, "--output", str(file), status=1)
    assert "exists" in run.error
    assert committed(admin, group)[0] == 7, "what is not in a file is not committed"
    assert run(*words) == "7\n"
    late = ("consume", topic, "--group", broker.name("late"), "--from", "end")
    assert run(*late) == ""
    put(8)
    assert run(*late) == "8\n"
    for wrong in (["--from", "3"], ["--from", "-1"], ["--partition", "0"], ["--to", "3"]):
        run(*words, *wrong, status=2)
    run("consume", broker.name("nothing"), "--group", group, status=1)
    assert "there is no topic" in run.error


def test_what_a_group_was_not_shown_is_not_committed(
    broker: BrokerUnderTest, admin: fencepost.Admin, topic: str
) -> None:
    """The reader of the output ends, or Ctrl-C comes; both with processes."""
    group = broker.name("g")
    with fencepost.Producer(broker.bootstrap_servers) as producer:
        producer.send(topic, b"first", partition=0)
    words = ("consume", topic, "--group", group, "--follow", "-b", broker.bootstrap_servers)
    reading, end = os.pipe()
    unread = program(*words, stdout=end)
    os.close(reading)
    os.close(end)
    _, error = unread.communicate(timeout=60)
    assert (unread.returncode, error) == (128 + signal.SIGPIPE, b"")
    assert committed(admin, group).get(0, 0) == 0
    following = program(*words)
    assert following.stdout
    assert following.stdout.readline() == b"first\n"
    until(lambda: committed(admin, group).get(0) == 1)
    following.send_signal(signal.SIGINT)
    _, error = following.communicate(timeout=60)
    assert (following.returncode, error) == (0, b"1 record\n")
    assert admin.describe_group(group).members == (), "it has left"


def test_open_transactions(broker: BrokerUnderTest, run: Commands, topic: str) -> None:
    producer = fencepost.Producer(broker.bootstrap_servers, transactional_id=broker.name("x"))
    producer.init_transactions()
    for is_committed in (False, True):
        producer.begin_transaction()
        producer.send(topic, b"%d" % is_committed, partition=0).result(60)
        producer.commit_transaction() if is_committed else producer.abort_transaction()
    producer.begin_transaction()
    producer.send(topic, b"open", partition=0).result(60)
    assert run("consume", topic) == "1\n"
    assert f"{topic}-0: 1 offset from 4 on waits for an open transaction" in run.error
    assert run("consume", topic, "--read-uncommitted") == "0\n1\nopen\n"
    assert "wait" not in run.error
    producer.abort_transaction()
    producer.close()


def test_lines_of_text(broker: BrokerUnderTest, run: Commands, topic: str, feed: Feed) -> None:
    feed(b"one\n\xff\n\nno end")
    run("produce", topic, "-X", "partitioner=murmur2_random")
    found = [record for number in (0, 1) for record in records_of(broker, topic, number)]
    assert sorted(record.value or b"" for record in found) == [b"", b"no end", b"one", b"\xff"]
    feed(b"k=v=w\n")
    run("produce", topic, "--key-separator", "=")
    feed(b"k=v\nnothing\n")
    run("produce", topic, "--key-separator", "=", status=1)
    assert "line 2: there is no '='" in run.error
    assert f"1 record written to {topic}" in run.error
    for words in (["--json", "--key-separator", "="], ["--keep-partitions"]):
        run("produce", topic, *words, status=2)


@pytest.mark.parametrize(
    "line",
    [
        "[]",
        "{",
        '{"key": "k"}',
        '{"value": 1}',
        '{"value": "v", "value_base64": ""}',
        '{"value_base64": "a"}',
        '{"value": "v", "colour": "red"}',
        '{"value": "v", "headers": {"a": "b"}}',
        '{"value": "v", "timestamp": "now"}',
        '{"value": "\\ud800"}',
    ],
)
def test_of_a_transaction_nothing_is_written_when_a_line_is_none(
    broker: BrokerUnderTest, run: Commands, topic: str, feed: Feed, line: str
) -> None:
    feed(b'{"value": "v"}\n' + line.encode() + b"\n")
    run("produce", topic, "--json", "--transactional-id", topic, status=1)
    assert "line 2: " in run.error
    assert f"0 records written to {topic}" in run.error
    assert [record for number in (0, 1) for record in records_of(broker, topic, number)] == []


def test_a_whole_transaction(broker: BrokerUnderTest, run: Commands, topic: str, feed: Feed) -> None:
    feed(b'{"value": "v", "partition": 1, "timestamp": 7, "headers": [{"name": "a", "value": "b"}]}\n')
    run("produce", topic, "--json", "--transactional-id", topic, "--keep-partitions")
    deadline = time.monotonic() + 60
    while not (records := records_of(broker, topic, 1)):  # Kafka answers EndTxn before the markers are written
        assert time.monotonic() < deadline
    (record,) = records
    assert (record.value, record.timestamp_ms, list(record.headers)) == (b"v", 7, [("a", b"b")])


def test_a_topic_is_not_made_by_writing(broker: BrokerUnderTest, run: Commands, feed: Feed) -> None:
    feed(b"x\n")
    run("produce", broker.name("nothing"), status=1)
    assert "there is no topic" in run.error


def program(*words: str, stdout: int = subprocess.PIPE, **more: Any) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "fencepost", *words]
    return subprocess.Popen(command, stdout=stdout, stderr=subprocess.PIPE, **more)


def test_ctrl_c_and_closed_pipes(broker: BrokerUnderTest, admin: fencepost.Admin, topic: str) -> None:
    """As processes, for signals and pipes are theirs."""
    at = ("-b", broker.bootstrap_servers)
    following = program("consume", topic, "--follow", *at)
    ids = ("--transactional-id", topic)
    writers = [program("produce", topic, *more, *at, stdin=subprocess.PIPE, bufsize=0) for more in ((), ids)]
    assert following.stdout
    for number, writer in enumerate(writers):
        assert writer.stdin
        writer.stdin.write(b"from %d\n" % number)
    assert following.stdout.readline() == b"from 0\n"
    until(lambda: admin.describe_transactions([topic])[0].error_code == 0)  # the other one has started, too
    for process, status in ((writers[0], 130), (writers[1], 130), (following, 0)):
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=60)
        assert process.returncode == status, error
        reported = {writers[0]: b"1 record written", writers[1]: b"0 records written", following: b"1 record\n"}
        assert reported[process] in error
        assert b"Traceback" not in error
    reading, end = os.pipe()
    unread = program("consume", topic, *at, stdout=end)
    os.close(reading)
    os.close(end)
    _, error = unread.communicate(timeout=60)
    assert (unread.returncode, error) == (128 + signal.SIGPIPE, b"")
