"""The broker's shell with listeners, users and rights: embedded, and as a process that is killed."""

from __future__ import annotations

import socket
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from fencepost.broker.embedded import Broker
from fencepost.broker.security.listeners import jaas_line
from fencepost.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from fencepost.protocol.messages.describe_acls import DescribeAclsRequest
from fencepost.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from fencepost.protocol.messages.metadata import MetadataRequest
from fencepost.protocol.messages.sasl_handshake import SaslHandshakeRequest
from fencepost_lab.torture.broker_process import BrokerProcess
from tests.support.raw_client import Closed, RawClient

USERS = {"admin": "a", "alice": "secret"}
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin",
}
EVERYTHING = DescribeAclsRequest(resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1)


def acls(address: str) -> list[tuple[str, str]]:
    with RawClient(address, login=("admin", "a")) as admin:
        answer = admin.call(EVERYTHING, 3)
        assert answer.error_code == 0
        return [(each.resource_name, acl.principal) for each in answer.resources for acl in each.acls]


def create(address: str, name: str) -> None:
    creation = AclCreation(
        resource_type=2, resource_name=name, principal="User:alice", host="*", operation=3, permission_type=3
    )
    with RawClient(address, login=("admin", "a")) as admin:
        assert admin.call(CreateAclsRequest(creations=[creation]), 3).results[0].error_code == 0


def test_users_make_the_only_listener_ask() -> None:
    with Broker(users=USERS) as broker:
        with RawClient(broker.bootstrap_servers, login=("alice", "secret")) as client:
            assert client.call(MetadataRequest(topics=()), 9).brokers
        with RawClient(broker.bootstrap_servers) as client, pytest.raises((Closed, OSError)):
            client.call(MetadataRequest(topics=()), 9)
        with pytest.raises(PermissionError, match="Invalid username or password"):
            RawClient(broker.bootstrap_servers, login=("alice", "Secret"))


def test_no_password_is_ever_shown(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    with Broker(AUTHORIZER, users=USERS) as broker, RawClient(broker.bootstrap_servers, login=("admin", "a")) as admin:
        resource = DescribeConfigsResource(resource_type=4, resource_name="1", configuration_keys=None)
        request = DescribeConfigsRequest(resources=[resource], include_synonyms=True, include_documentation=True)
        (answer,) = admin.call(request, 4).results
        values = {config.name: config.value for config in answer.configs}
        assert values["super.users"] == "User:admin"
        with pytest.raises(PermissionError):
            RawClient(broker.bootstrap_servers, login=("alice", "almost secret"))
        assert "secret" not in str(answer)
        assert "secret" not in repr(vars(broker)) + caplog.text
    assert "failed to log in" in caplog.text


def test_every_listener_keeps_its_port_over_a_restart() -> None:
    listeners = {"listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0"}
    with Broker(listeners, users=USERS) as broker:
        before = [broker.listener(name) for name in ("PLAINTEXT", "SASL_PLAINTEXT")]
        assert broker.bootstrap_servers == before[0] != before[1]
        broker.restart()
        assert [broker.listener(name) for name in ("PLAINTEXT", "SASL_PLAINTEXT")] == before
        with RawClient(before[1], login=("admin", "a")) as client:
            (node,) = client.call(MetadataRequest(topics=()), 9).brokers
            assert f"{node.host}:{node.port}" == before[1]
        with pytest.raises(KeyError):
            broker.listener("OTHER")
    with pytest.raises(RuntimeError):
        broker.listener("PLAINTEXT")


def test_a_port_that_is_taken_leaves_no_listener_behind() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with socket.create_server(("127.0.0.1", 0)) as free:
            first = free.getsockname()[1]
        broker = Broker(
            {
                "listeners": f"A://127.0.0.1:{first},B://127.0.0.1:{port}",
                "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT",
            }
        )
        with pytest.raises(OSError, match=str(port)):
            broker.start()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", first), timeout=300)


def test_much_is_taken_only_of_those_who_are_known() -> None:
    with Broker({"sasl.server.max.receive.size": 2000}, users=USERS) as broker:
        large = MetadataRequest(topics=[])
        with RawClient(broker.bootstrap_servers, client_id="x" * 3000) as client, pytest.raises((Closed, OSError)):
            client.api_versions()
        with RawClient(broker.bootstrap_servers) as client:
            # Only the size: nothing is to be kept for what may never come.
            client._socket.sendall(struct.pack(">i", 100_000_000))
            with pytest.raises((Closed, OSError)):
                client._receive(1)
        with RawClient(broker.bootstrap_servers, login=("alice", "secret")) as client:
            client._client_id = "x" * 30_000
            assert client.call(large, 9).brokers


@pytest.fixture
def process() -> BrokerProcess:
    return BrokerProcess(
        {
            **AUTHORIZER,
            "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": jaas_line({"admin": "a", "alice": "secret"}),
        }
    )


def test_rights_survive_kill_9(process: BrokerProcess) -> None:
    process.start()
    try:
        names = [f"topic-{number}" for number in range(20)]
        for name in names:
            create(process.bootstrap_servers, name)
        process.kill()
        process.start()
        assert acls(process.bootstrap_servers) == [(name, "User:alice") for name in names]
    finally:
        process.stop()


def test_settings_come_from_a_file(tmp_path: Path) -> None:
    """Check that --config has precedence over the file."""
    settings = tmp_path / "server.properties"
    settings.write_text(
        "# who may\n\nlisteners=PLAINTEXT://127.0.0.1:0, INSIDE://127.0.0.1:0\n"
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,INSIDE:SASL_PLAINTEXT\n"
        f"listener.name.inside.plain.sasl.jaas.config={jaas_line(USERS)}\nnum.partitions=3\n"
    )
    command = [
        sys.executable,
        "-m",
        "fencepost",
        "broker",
        "--config-file",
        str(settings),
        "--config",
        "num.partitions=5",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as broker:
        try:
            assert broker.stdout is not None
            lines = [broker.stdout.readline().strip() for _ in range(2)]
            assert lines[0].startswith("listening on 127.0.0.1:")
            assert lines[1].endswith(" as INSIDE")
            inside = lines[1].removeprefix("listening on ").removesuffix(" as INSIDE")
            with RawClient(inside) as client:
                assert client.call(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
            with RawClient(inside, login=("alice", "secret")) as client:
                assert client.call(MetadataRequest(topics=()), 9).brokers
        finally:
            broker.terminate()
        assert broker.wait(120) == 0


@pytest.mark.parametrize(
    "before",
    [
        "# the data was in C:\\kafka\\\n",
        "! \\\n",
        "num.partitions=3\\\n\n",
        "#\\\r\n",
        "\f# \\\r",
        "num.partitions  3\n",
    ],
)
def test_no_line_of_a_file_takes_the_authorizer_away(before: str, tmp_path: Path) -> None:
    """As java.util.Properties reads it: a comment ends with its line."""
    settings = tmp_path / "server.properties"
    rule = "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer\nsuper.users=User:admin\n"
    settings.write_bytes(f"{before}{rule}".encode())
    command = [sys.executable, "-m", "fencepost", "broker", "--config-file", str(settings), "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as broker:
        try:
            assert broker.stdout is not None
            address = broker.stdout.readline().strip().removeprefix("listening on ")
            with RawClient(address) as client, pytest.raises(ValueError, match=r"secret: 29 "):
                client.create_topic("secret", 1)  # 29: TOPIC_AUTHORIZATION_FAILED
        finally:
            broker.terminate()
        assert broker.wait(120) == 0


@pytest.mark.parametrize(
    "line", ["no.such.setting=1", "listeners=SSL://127.0.0.1:0", "listeners=SASL_PLAINTEXT://127.0.0.1:0", "nonsense"]
)
def test_the_command_refuses_listeners_that_cannot_be(tmp_path: Path, line: str) -> None:
    settings = tmp_path / "server.properties"
    settings.write_text(line)
    command = [sys.executable, "-m", "fencepost", "broker", "--config-file", str(settings)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert run.returncode == 2, run.stderr
    assert "Traceback" not in run.stderr
