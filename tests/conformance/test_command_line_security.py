"""`fencepost acls` and `users` against both brokers, as an administrator who has to log in."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest

import fencepost
from fencepost.broker.security.acls import Operation
from fencepost.client.admin.acls import Acl, AclOperation, AclPermission, PatternType, ResourceType
from fencepost.client.admin.scram import ScramCredential, ScramMechanism
from fencepost.small_files import MOST_BYTES
from tests.conformance.conftest import ARMS
from tests.support.brokers import Arm
from tests.support.commands import Commands
from tests.support.secured import ADMIN, PASSWORD, USERS, Secured, secured
from tests.support.waiting import until


@pytest.fixture(scope="module", params=ARMS)
def world(request: pytest.FixtureRequest) -> Iterator[Secured]:
    with secured(request.param, scram=True) as running:
        yield running


@pytest.fixture
def run(
    world: Secured, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Commands:
    """As the administrator: settings from a file, the password from the environment."""
    file = tmp_path / "admin.properties"
    file.write_text(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username={ADMIN}\n")
    monkeypatch.setenv("FENCEPOST_SASL_PASSWORD", PASSWORD)
    return Commands(world.bootstrap_servers, capsys, "--command-config", str(file))


def test_acls(world: Secured, run: Commands) -> None:
    who, topic = f"User:{world.name('u')}", world.name("t")
    read_and_write = ["--operation", "read", "--operation", "write"]
    added = run.json("acls", "add", who, *read_and_write, "--resource", f"topic:{topic}", "--prefixed")
    fact = {"principal": who, "permission": "allow", "resource": f"topic:{topic}", "pattern": "prefixed", "host": "*"}
    assert added == [{**fact, "operation": "read"}, {**fact, "operation": "write"}]
    run("acls", "add", who, "--operation", "two-phase-commit", "--resource", "transactional-id:x", "--deny")
    run("acls", "add", who, "--operation", "describe", "--resource", "cluster", "--host", "10.0.0.1")
    with fencepost.Admin(world.open_address) as admin:
        found = [acl for acl in admin.describe_acls() if acl.principal == who]
    assert found == sorted(
        [
            Acl(ResourceType.TOPIC, topic, who, AclOperation.READ, pattern=PatternType.PREFIXED),
            Acl(ResourceType.TOPIC, topic, who, AclOperation.WRITE, pattern=PatternType.PREFIXED),
            Acl(ResourceType.TRANSACTIONAL_ID, "x", who, AclOperation.TWO_PHASE_COMMIT, AclPermission.DENY),
            Acl(ResourceType.CLUSTER, "kafka-cluster", who, AclOperation.DESCRIBE, host="10.0.0.1"),
        ]
    )
    assert len(run.json("acls", "list", "--principal", who)) == 4
    assert len(run.json("acls", "list", "--principal", who, "--operation", "write")) == 1
    assert f"{who}  deny        two-phase-commit  transactional-id:x" in run("acls", "list", "--principal", who)

    gone = ["--principal", who, "--resource", f"topic:{topic}"]
    assert len(run.json("acls", "delete", *gone, "--dry-run")) == 2
    assert len(run.json("acls", "list", "--principal", who)) == 4
    assert len(run.json("acls", "delete", *gone, "--yes")) == 2
    assert len(run.json("acls", "list", "--principal", who)) == 2
    run("acls", "delete", *gone, "--yes", status=1)
    assert "no such rule" in run.error
    run("acls", "delete", "--yes", status=2)
    for operation, resource in (("fly", "topic:x"), ("any", "topic:x"), ("read", "shelf:x"), ("read", "topic")):
        run("acls", "add", who, "--operation", operation, "--resource", resource, status=2)


def test_a_rule_that_looks_like_a_pattern_and_is_none_is_warned_of(world: Secured, run: Commands) -> None:
    who, base = f"User:{world.name('u')}", world.name("t")
    run("acls", "add", who, "--operation", "read", "--resource", f"topic:{base}*")
    assert f"topic '{base}*' matches no topic" in run.error
    run("acls", "add", who, "--operation", "read", "--resource", f"group:{base}*")
    assert f"group '{base}*' matches only this name" in run.error
    for resource, more in ((f"topic:{base}", ["--prefixed"]), ("topic:*", []), (f"topic:{base}", [])):
        run("acls", "add", who, "--operation", "read", "--resource", resource, *more)
        assert run.error == ""
    run("acls", "delete", "--principal", who, "--yes")


def test_users(world: Secured, run: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    user, secret = world.name("u"), "pass=wörd"
    (tmp_path / "secret").write_text(f"{secret}\n")
    run("users", "set-password", user, "--password-file", str(tmp_path / "secret"), "--iterations", "5000")
    monkeypatch.setattr("sys.stdin", io.StringIO("another\n"))
    run("users", "set-password", user, "--mechanism", "SCRAM-SHA-256", "--password-file", "-")
    both = [{"mechanism": "SCRAM-SHA-256", "iterations": 4096}, {"mechanism": "SCRAM-SHA-512", "iterations": 5000}]
    assert [row for row in run.json("users", "list") if row["user"] == user] == [
        {"user": user, **mechanism} for mechanism in both
    ]
    login = fencepost.Admin(
        world.bootstrap_servers,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="SCRAM-SHA-512",
        sasl_username=user,
        sasl_password=secret,
    )
    with login as own:
        assert own.list_topics() == []

    run("users", "delete", user, "--mechanism", "SCRAM-SHA-512", "--yes")
    with fencepost.Admin(world.open_address) as admin:
        left = ScramCredential(user, ScramMechanism.SCRAM_SHA_256, 4096)
        assert admin.describe_user_scram_credentials([user]) == [left]
    run("users", "delete", user, "--mechanism", "SCRAM-SHA-512", "--yes", status=1)
    assert "does not exist" in run.error
    run("users", "set-password", user, "--password-file", str(tmp_path / "secret"))
    reported = run("users", "delete", user, "--yes")
    assert [line for line in reported.splitlines() if user in line] == [
        f"{user} has no password for SCRAM-SHA-256 any more",
        f"{user} has no password for SCRAM-SHA-512 any more",
    ]
    with fencepost.Admin(world.open_address) as admin:
        assert admin.describe_user_scram_credentials([user]) == []
    run("users", "delete", user, "--yes", status=1)
    assert f"delete user {user!r}: no password is stored for that name" in run.error
    (tmp_path / "secret").write_text("\n")
    run("users", "set-password", user, "--password-file", str(tmp_path / "secret"), status=1)
    run("users", "set-password", user, "--password-file", str(tmp_path / "none"), status=1)
    (tmp_path / "secret").write_bytes(b"\xff\n")
    run("users", "set-password", user, "--password-file", str(tmp_path / "secret"), status=1)
    assert "can't decode" in run.error
    for text in ("x" * (MOST_BYTES + 1), "\udcff\n"):
        monkeypatch.setattr("sys.stdin", io.StringIO(text))
        run("users", "set-password", user, "--password-file", "-", status=1)
        assert "has more than" in run.error or "is not UTF-8" in run.error
    assert secret not in run.error


def test_doctor_tells_the_rights_that_one_has(world: Secured, run: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    user = world.user()
    monkeypatch.setenv("FENCEPOST_SASL_USERNAME", user)
    monkeypatch.setenv("FENCEPOST_SASL_PASSWORD", USERS[user])
    found = json.loads(run("doctor", "--json", status=4))
    assert found["about"]["rights on the cluster"] == []
    reported = {each["name"]: each["words"] for each in found["findings"] if each["code"] == "FP002"}
    assert reported["clock"].startswith("clock: not known: describe the quorum: CLUSTER_AUTHORIZATION_FAILED")
    assert "TRANSACTIONAL_ID_AUTHORIZATION_FAILED (53)" in reported["guarantee of Spark sinks"]
    assert "CLUSTER_AUTHORIZATION_FAILED" in reported["disks of broker 1"]
    assert reported["rights"] == (
        "rights: not known: without DESCRIBE on all topics, groups, transactional ids, brokers leave out the objects "
        "that this principal may not see"
    )


def test_doctor_tells_the_lag_with_describe_alone_and_names_the_rights_for_the_rest(
    world: Secured, run: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OffsetFetch and ListOffsets need DESCRIBE; Fetch and DescribeProducers need READ."""
    user, topic, group, open_id = world.user(), world.name("t"), world.name("g"), world.name("x")
    with (
        fencepost.Admin(world.open_address) as admin,
        fencepost.Producer(world.open_address, transactional_id=open_id) as producer,
    ):
        admin.create_topic(topic, 1)
        admin.alter_group_offsets(group, {(topic, 0): 0})
        producer.init_transactions()
        with producer.transaction():
            producer.send(topic, b"v", partition=0)
        producer.begin_transaction()
        producer.send(topic, b"v", partition=0).result(60)
        with world.connect(ADMIN) as client:
            described = [(ResourceType.TOPIC, topic), (ResourceType.GROUP, group)]
            world.grant(client, user, [(Operation.DESCRIBE, kind, name) for kind, name in described])
        monkeypatch.setenv("FENCEPOST_SASL_USERNAME", user)
        monkeypatch.setenv("FENCEPOST_SASL_PASSWORD", USERS[user])

        def found() -> dict[tuple[str, str], str]:
            reported = json.loads(run("doctor", "--no-probe", "--json", status=4))["findings"]
            return {(each["code"], each["name"]): each["words"] + " | " + each["action"] for each in reported}

        reported = found()
        assert reported["FP502", group].startswith("it has no members and is 3 offsets behind")
        rights = {
            name: words.rpartition(" | use a principal with ")[2]
            for (code, name), words in reported.items()
            if code == "FP002" and name != "rights"
        }
        assert rights == {
            "clock": "DESCRIBE on the cluster",
            "disks of broker 1": "DESCRIBE on the cluster",
            "settings": "DESCRIBE_CONFIGS on the topics",
            "records": "READ on the topics of the groups that are behind",
            "transactions that hold readers back": "READ on the topics that are held back",
            "sinks": "DESCRIBE and READ on the decision topic",
        }
        (row,) = run.json("groups", "describe", group)["partitions"]
        assert (row["committed"], row["end"], row["lag"]) == (0, 3, 3)
        assert row["waits_for"].startswith("an open transaction; which one is not known: ")
        with world.connect(ADMIN) as client:
            world.grant(
                client,
                user,
                [
                    (Operation.READ, ResourceType.TOPIC, topic),
                    (Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, topic),
                    (Operation.DESCRIBE, ResourceType.CLUSTER, ""),
                ],
            )
        until(lambda: {name for code, name in found() if code == "FP002"} == {"rights", "sinks"})
        assert not {code for code, _ in found()} & {"FP401"}, "its transactional id is hidden, so it may be alive"
        producer.abort_transaction()


@pytest.mark.parametrize(
    ("command", "kind", "resource"),
    [
        ("topics", "topic", ResourceType.TOPIC),
        ("groups", "group", ResourceType.GROUP),
        ("transactions", "transactional id", ResourceType.TRANSACTIONAL_ID),
    ],
)
def test_an_empty_list_without_rights_is_no_success(
    command: str,
    kind: str,
    resource: ResourceType,
    world: Secured,
    run: Commands,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Brokers leave hidden objects out without an error. With the right, an empty list is one."""
    user, topic = world.user(), world.name("t")
    with (
        fencepost.Admin(world.open_address) as admin,
        fencepost.Producer(world.open_address, transactional_id=world.name("x")) as producer,
    ):
        admin.create_topic(topic, 1)
        admin.alter_group_offsets(world.name("g"), {(topic, 0): 0})
        producer.init_transactions()
        monkeypatch.setenv("FENCEPOST_SASL_USERNAME", user)
        monkeypatch.setenv("FENCEPOST_SASL_PASSWORD", USERS[user])
        why = f"no {kind} is visible to this principal: there is none, or DESCRIBE on all {kind}s is missing (FP002)"
        for options in ((), ("--json",)):
            run(command, "list", *options, status=1)
            assert run.error == f"fencepost: {why}\n"
        admin.create_acls([Acl(resource, "*", f"User:{user}", AclOperation.DESCRIBE)])
        until(lambda: _listed(run, command))
        assert run.error == ""


@pytest.mark.parametrize("arm", ARMS)
def test_lists_without_the_right_to_ask_about_absent_coordinators(
    arm: Arm, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The cluster is new. The settings that its internal topics will have need DESCRIBE_CONFIGS on the cluster."""
    internal = {"groups": "__consumer_offsets", "transactions": "__transaction_state"}
    rest = {*internal.values(), "__share_group_state"}
    described = [ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID]
    file = tmp_path / "monitor.properties"
    file.write_text("security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n")
    with secured(arm) as world, fencepost.Admin(world.open_address) as admin:
        user, topic = world.user(), world.name("t")
        admin.create_topic(topic, 1)
        monkeypatch.setenv("FENCEPOST_SASL_USERNAME", user)
        monkeypatch.setenv("FENCEPOST_SASL_PASSWORD", USERS[user])
        run = Commands(world.bootstrap_servers, capsys, "--command-config", str(file))
        admin.create_acls([Acl(kind, "*", f"User:{user}", AclOperation.DESCRIBE) for kind in described])
        admin.create_acls([Acl(ResourceType.CLUSTER, "kafka-cluster", f"User:{user}", AclOperation.DESCRIBE)])

        def unknown(found: Iterable[Mapping[str, str]]) -> dict[str, str]:
            """The actions of the findings about topics that are not there, by topic."""
            named = {each["name"].rpartition(" ")[2]: each for each in found if each["code"] == "FP002"}
            return {name: each["action"] for name, each in named.items() if name in rest}

        ask = "use a principal with DESCRIBE_CONFIGS on the cluster"

        def found() -> list[dict[str, str]]:
            reported: list[dict[str, str]] = json.loads(run("doctor", "--no-probe", "--json", status=None))["findings"]
            return reported

        until(lambda: unknown(found()) == dict.fromkeys(rest, ask))
        assert not {each["code"] for each in found()} & {"FP301", "FP302", "FP304"}
        assert unknown(run.json("transactions", "list")["findings"]) == {internal["transactions"]: ask}
        assert run("groups", "list") == "GROUP  TYPE  STATE\n"
        assert "FP002 unknown: cluster: creation of __consumer_offsets: not known: " in run.error
        run("groups", "describe", "g", status=1)
        assert run.error.endswith("fencepost: there is no group 'g'\n")
        admin.alter_group_offsets("g", {(topic, 0): 0})
        assert run("groups", "list") == "GROUP  TYPE     STATE\ng      classic  Empty\n"
        assert run.error == ""
        admin.create_acls([Acl(ResourceType.CLUSTER, "kafka-cluster", f"User:{user}", AclOperation.DESCRIBE_CONFIGS)])
        until(lambda: unknown(found()) == {})


def _listed(run: Commands, command: str) -> bool:
    """A granted right takes Kafka a moment."""
    try:
        run(command, "list", status=0)
    except AssertionError:
        return False
    return True


def test_a_group_that_one_may_not_see_is_not_said_to_be_missing(
    world: Secured, run: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, group = world.name("t"), world.name("g")
    with fencepost.Admin(world.open_address) as admin:
        admin.create_topic(topic, 1)
        admin.alter_group_offsets(group, {fencepost.TopicPartition(topic, 0): 0})
    assert f"{topic}  0" in run("groups", "describe", group)
    user = world.user()
    monkeypatch.setenv("FENCEPOST_SASL_USERNAME", user)
    monkeypatch.setenv("FENCEPOST_SASL_PASSWORD", USERS[user])
    for words in (["describe", group], ["delete", group, "--yes"], ["reset-offsets", group, "--to", "end", "--yes"]):
        run("groups", *words, status=1)
        assert "GROUP_AUTHORIZATION_FAILED" in run.error


def test_who_is_not_let_in_is_told_at_once(run: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FENCEPOST_SASL_PASSWORD", "a wrong one")
    run("topics", "list", status=1)
    assert "Authentication failed" in run.error
    assert "a wrong one" not in run.error
