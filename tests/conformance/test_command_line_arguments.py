"""Arguments of commands that cannot be meant: a sentence that says why, at once, and nothing is done."""

from __future__ import annotations

from pathlib import Path

import pytest

import fencepost
from tests.support.brokers import BrokerUnderTest
from tests.support.commands import Commands

# A command with a name in it (NAME), and what else it needs to be complete.
NAMES = [
    "transactions describe NAME",
    "transactions abort NAME --yes",
    "transactions commit NAME --yes",
    "transactions resolve NAME",
    "transactions finish-flink NAME --checkpoint 1",
    "spark decisions NAME",
    "spark forget NAME --query q --lost accept --yes",
    "groups describe NAME",
    "groups delete NAME --yes",
    "groups reset-offsets NAME --to end --yes",
    "configs describe group NAME",
    "configs alter group NAME --set consumer.session.timeout.ms=50000",
    "configs alter topic t --unset NAME",
    "users set-password NAME --password-file -",
    "users delete NAME --yes",
    "acls list --principal NAME",
    "acls list --host NAME",
    "acls add NAME --operation read --resource topic:t",
    "acls add User:a --operation read --resource topic:NAME",
    "acls delete --principal NAME --yes",
    "consume t --group NAME",
    "produce t --transactional-id NAME",
]
TOPICS = [
    "topics describe NAME",
    "topics create NAME",
    "topics alter NAME --partitions 3",
    "topics delete NAME --yes",
    "configs describe topic NAME",
    "configs alter topic NAME --set retention.ms=1",
    "groups reset-offsets g --to end --topic NAME --yes",
    "transactions list --topic NAME",
    "transactions list --decision-topic NAME",
    "consume NAME",
    "produce NAME",
]
WRONG = {
    "": "must not be empty|names no topic",
    "\udcff": "cannot be written in UTF-8",  # what Python makes of a byte that is none
    "User:" + "x" * 32_768: "has 32773 bytes; 32767 are possible",
}
NO_TOPICS = {"t\u00fcr": "at most 249", "a b": "at most 249", "x" * 250: "at most 249", "..": "not '.' or '..'"}
NUMBERS = {
    "topics create n --partitions -2": "-1 or more, and at most 2147483647",
    "topics create n --partitions 0": "0 cannot be",
    "topics create n --replication-factor 0": "0 cannot be",
    "topics create n --partitions 2147483648": "-1 or more, and at most 2147483647",
    "topics create n --replication-factor 32768": "at most 32767",
    "topics alter t --partitions 2147483648": "1 or more, and at most 2147483647",
    "users set-password u --iterations 4095": "from 4096 to 16384",
    "users set-password u --iterations 16385": "from 4096 to 16384",
    "transactions finish-flink p --checkpoint -1": "0 or more",
    "groups list --state Stabil": "one of PreparingRebalance",
    "configs describe broker \u0663": "not a broker's id",
    "acls add alice --operation read --resource topic:t": "is not a principal",
    "produce t -X acks=2": "acks='2': one of -1, 0, 1",
    "produce t -X fetch.max.bytes=1": "fetch.max.bytes",
    "consume t -X fetch.max.bytes=many": "'many'",
    "topics list --command-config /no/such/file": "/no/such/file",
    "consume t --from 1969-12-31T23:59:59.999Z": "is a time before 1970",  # in ms it is -1, the end for Kafka
    "consume t --to 1969-12-31T23:59:59.998+00:00": "is a time before 1970",
    "groups reset-offsets g --topic t --yes --to 1900-01-01": "is a time before 1970",
    "consume t --output t.csv": "the name must end in the suffix of",
    "produce t --input t.csv": "the name must end in the suffix of",
}
# In a properties file, or in the environment, they are arguments, too.
SETTINGS = {
    "security.protocol=SASL": "'SASL': one of PLAINTEXT",
    "security.protocol=SASL_PLAINTEXT": "sasl_",
    "secret\n": "is not NAME=VALUE",
}


@pytest.fixture
def run(broker: BrokerUnderTest, capsys: pytest.CaptureFixture[str]) -> Commands:
    return Commands(broker.bootstrap_servers, capsys)


def refused(run: Commands, words: list[str]) -> str:
    """Run a command that must be refused. Return its error without the lines of the usage."""
    assert run(*words, status=2) == ""
    reported = run.error.partition("Error: ")[2].strip()
    assert reported, run.error
    assert "\n" not in reported
    assert len(reported) < 350, "a sentence, and not all that was given"
    return reported


@pytest.mark.parametrize("command", NAMES + TOPICS)
def test_what_cannot_be_a_name(run: Commands, admin: fencepost.Admin, command: str) -> None:
    called = {*command.split(), *WRONG, *NO_TOPICS}
    before = called.intersection(admin.list_topics())  # others may come and go
    for wrong, why in (WRONG | (NO_TOPICS if command in TOPICS else {})).items():
        words = [word.replace("NAME", wrong) for word in command.split()]
        reported = refused(run, words)
        assert any(part in reported for part in why.split("|")), reported
    assert called.intersection(admin.list_topics()) == before


@pytest.mark.parametrize("words", [("decisions", " "), ("adopt", "/cp", "--sink-id", " \t")])
def test_the_name_of_a_sink_is_not_only_spaces(run: Commands, words: tuple[str, ...]) -> None:
    assert "must not be empty" in refused(run, ["spark", *words])


@pytest.mark.parametrize("command", NUMBERS)
def test_what_cannot_be_a_value(run: Commands, command: str) -> None:
    assert NUMBERS[command] in refused(run, command.split())


@pytest.mark.parametrize("command", ["topics list", "produce t", "consume t", "transactions list", "spark sinks", "ui"])
def test_what_cannot_be_a_setting(
    run: Commands, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "'99999' is not a port" in refused(Commands("127.0.0.1:99999", capsys), command.split())
    file = tmp_path / "client.properties"
    for line, why in SETTINGS.items():
        file.write_text(line)
        assert why in refused(run, [*command.split(), "--command-config", str(file)])
    name, _, value = next(iter(SETTINGS)).partition("=")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(f"FENCEPOST_{name.replace('.', '_').upper()}", value)
        assert value in refused(run, command.split())


def test_what_is_not_there_is_not_waited_for(broker: BrokerUnderTest, run: Commands, admin: fencepost.Admin) -> None:
    topic = broker.name("t")
    run("topics", "alter", topic, "--partitions", "3", status=1)
    assert run.error == f"fencepost: there is no topic {topic!r}\n"
    run("configs", "describe", "broker", "4711", status=1)
    assert "there is no broker 4711; there are: 1" in run.error
    run("configs", "alter", "broker", "4711", "--set", "log.retention.ms=1", status=1)
    assert "there is no broker 4711; there are: 1" in run.error
    admin.create_topic(topic, 1)
    run("configs", "alter", "topic", topic, "--set", "segment.ms=9", "--unset", "segment.sm", status=1)
    assert run.error == f"fencepost: topic {topic!r} has no setting 'segment.sm'; nothing was changed\n"
    assert "segment.ms" not in run("configs", "describe", "topic", topic)
