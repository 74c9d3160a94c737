"""Changes whose answer does not come: at its time limit and at Ctrl-C a command says that the outcome is unknown."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import fencepost
from fencepost.broker.embedded import Broker
from fencepost.broker.embedded_control import Fault
from fencepost.cli.main import main
from tests.support.waiting import until

CHANGES = {
    "CreateTopics": (["topics", "create", "new"], "topic new was created"),
    "CreatePartitions": (["topics", "alter", "t", "-p", "3"], "t has 3 partitions"),
    "DeleteTopics": (["topics", "delete", "t", "--yes"], "topic t was deleted"),
    "IncrementalAlterConfigs": (
        ["configs", "alter", "topic", "t", "--set", "retention.ms=5"],
        "the settings of topic 't' were changed",
    ),
    "AlterUserScramCredentials": (
        ["users", "set-password", "alice", "--password-file", "PASSWORD"],
        "alice has the new password",
    ),
    "CreateAcls": (
        ["acls", "add", "User:a", "--operation", "read", "--resource", "topic:t"],
        "the rules were created",
    ),
    "OffsetCommit": (
        ["groups", "reset-offsets", "g", "--topic", "t", "--to", "latest", "--yes"],
        "the offsets of g were set",
    ),
    "EndTxn": (["transactions", "abort", "x"], "x was aborted"),
    "DeleteGroups": (["groups", "delete", "g", "--yes"], "group g was deleted"),
}
QUESTIONS = [
    ("OffsetCommit", "OffsetFetch"),
    ("OffsetCommit", "ListOffsets"),
    ("DeleteGroups", "ConsumerGroupDescribe"),
    ("EndTxn", "DescribeTransactions"),
]
"""Changes, each with a question that its command asks before."""


@pytest.fixture
def words_of(fencepost_broker: Broker, tmp_path: Path) -> Iterator[Callable[[str], tuple[list[str], str]]]:
    """Prepare the objects that a change needs; return its command line and the change in words."""
    servers = fencepost_broker.bootstrap_servers
    (tmp_path / "password").write_text("secret-of-alice\n")
    (tmp_path / "settings").write_text("default.api.timeout.ms=1500\nrequest.timeout.ms=1000\n")
    with fencepost.Admin(servers) as admin:
        admin.create_topic("t", 1)
    with fencepost.Consumer(servers, group_id="g") as consumer:
        consumer.assign([fencepost.TopicPartition("t", 0)])
        consumer.commit({fencepost.TopicPartition("t", 0): 0})

    def command(api: str) -> tuple[list[str], str]:
        words, change = CHANGES[api]
        words = [str(tmp_path / "password") if word == "PASSWORD" else word for word in words]
        yes = ["--yes"] if api == "EndTxn" else []
        return [*words, *yes, "-b", servers, "--command-config", str(tmp_path / "settings")], change

    with fencepost.Producer(servers, transactional_id="x") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", b"v").result()
        yield command
        fencepost_broker.faults.clear()


def interrupt_after(fault: Fault) -> threading.Thread:
    """Send Ctrl-C when the broker has received the request."""

    def strike() -> None:
        fault.wait()
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=strike)
    thread.start()
    return thread


@pytest.mark.parametrize("api", CHANGES)
@pytest.mark.parametrize("is_interrupted", [False, True], ids=["late", "interrupted"])
def test_a_change_without_an_answer(
    api: str,
    is_interrupted: bool,
    words_of: Callable[[str], tuple[list[str], str]],
    fencepost_broker: Broker,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words, change = words_of(api)
    capsys.readouterr()
    fault = fencepost_broker.faults.swallow(api, times=None)
    thread = interrupt_after(fault) if is_interrupted else None
    with pytest.raises(SystemExit) as ended:
        main(words)
    if thread is not None:
        thread.join()
    assert ended.value.code == (128 + signal.SIGINT if is_interrupted else 1)
    assert f"it is unknown if {change}\n" in capsys.readouterr().err


@pytest.mark.parametrize(("api", "before"), QUESTIONS)
def test_a_question_before_the_change_without_an_answer(
    api: str,
    before: str,
    words_of: Callable[[str], tuple[list[str], str]],
    fencepost_broker: Broker,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words, _ = words_of(api)
    capsys.readouterr()
    fault = fencepost_broker.faults.swallow(before, times=None)
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert fault.hits > 0
    assert ended.value.code == 1
    assert capsys.readouterr().err.endswith("\nnothing was changed\n")


def test_a_refused_change_is_not_unknown(
    words_of: Callable[[str], tuple[list[str], str]], capsys: pytest.CaptureFixture[str]
) -> None:
    words, _ = words_of("CreateTopics")
    with pytest.raises(SystemExit):
        main([*words, "--config", "no.such=1"])
    assert capsys.readouterr().err.endswith("\nnothing was changed\n")


def test_objects_after_one_whose_outcome_is_unknown_are_named(
    words_of: Callable[[str], tuple[list[str], str]], fencepost_broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    words, _ = words_of("DeleteTopics")
    with fencepost.Admin(fencepost_broker.bootstrap_servers) as admin:
        admin.create_topics(["s", "u"])
    fencepost_broker.faults.swallow("DeleteTopics", times=None)
    with pytest.raises(SystemExit):
        main([*words[:2], "s", *words[2:3], "u", *words[3:]])
    assert capsys.readouterr().err.endswith("\nit is unknown if topic s was deleted; not tried: t, u\n")


def produced(servers: str, file: Path, strike: Callable[[], None], *options: str) -> object:
    """Run `produce` beside a thread that sends Ctrl-C. Return its status."""
    with fencepost.Admin(servers) as admin:
        admin.create_topic("t", 1)
    thread = threading.Thread(target=strike)
    thread.start()
    with pytest.raises(SystemExit) as ended:
        main(["produce", "t", "--input", str(file), *options, "-b", servers])
    thread.join()
    return ended.value.code


def test_produce_says_that_it_waits_and_the_next_interrupt_ends_it(
    fencepost_broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "lines.jsonl"
    os.mkfifo(file)
    fault = fencepost_broker.faults.swallow("Produce", times=None)
    seen: list[str] = []

    def is_waiting() -> bool:
        seen.append(capsys.readouterr().err)
        return "another Ctrl-C" in "".join(seen)

    def strike() -> None:
        with open(file, "wb", buffering=0) as lines:
            lines.write(b'{"value": "v"}\n')
            fault.wait()
            os.kill(os.getpid(), signal.SIGINT)
            until(is_waiting)
            os.kill(os.getpid(), signal.SIGINT)

    assert produced(fencepost_broker.bootstrap_servers, file, strike) == 128 + signal.SIGINT
    text = "".join(seen) + capsys.readouterr().err
    waiting = "stopped\nwaiting for the brokers' answers; another Ctrl-C ends that\n"
    assert text == waiting + "fencepost: interrupted: it is unknown how many records were written\n"


def test_an_interrupted_commit_of_produce_is_not_told_as_nothing_written(
    fencepost_broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "lines.jsonl"
    file.write_text('{"value": "v"}\n')
    fault = fencepost_broker.faults.delay_reply("EndTxn", 3.0)

    def strike() -> None:
        fault.wait()
        os.kill(os.getpid(), signal.SIGINT)

    status = produced(fencepost_broker.bootstrap_servers, file, strike, "--transactional-id", "x")
    assert status == 128 + signal.SIGINT
    assert capsys.readouterr().err == "stopped\nit is unknown how many records were written\n"
    with fencepost.Consumer(fencepost_broker.bootstrap_servers, isolation_level="read_committed") as consumer:
        consumer.assign([fencepost.TopicPartition("t", 0)])
        consumer.seek_to_beginning()
        assert [record.value for record in consumer.poll(30_000)] == [b"v"]


def test_the_list_of_transactions_asks_a_broker_that_hangs_once(
    fencepost_broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "settings").write_text("default.api.timeout.ms=1500\n")
    fault = fencepost_broker.faults.swallow("ListTransactions", times=None)
    servers = fencepost_broker.bootstrap_servers
    with pytest.raises(SystemExit) as ended:
        main(["transactions", "list", "-b", servers, "--command-config", str(tmp_path / "settings")])
    assert ended.value.code == 1
    assert "the list is not complete" in capsys.readouterr().err
    assert fault.hits == 1
