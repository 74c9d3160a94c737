"""Start and log of `fencepost broker`: refused settings, readiness, and names that cannot forge log lines."""

from __future__ import annotations

import errno
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fencepost.cli.broker.command import _SingleLine
from fencepost.cli.main import main
from fencepost.properties import read_properties
from fencepost.spark.options import SinkOptions


@pytest.mark.parametrize("listen", ["127.0.0.1:99999", "127.0.0.1:65536", "127.0.0.1:-1", "nowhere"])
def test_a_port_that_does_not_exist_is_refused(listen: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["broker", "--listen", listen, "--data-dir", str(tmp_path / "data")])
    assert ended.value.code == 2
    assert listen in capsys.readouterr().err
    assert not (tmp_path / "data").exists()


def test_metrics_without_their_package_are_refused_before_anything_is_started(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(SystemExit) as ended:
        main(["broker", "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path / "data"), "--metrics-port", "0"])
    assert ended.value.code == 2
    reported = capsys.readouterr()
    assert "fencepost[metrics]" in reported.err
    assert reported.out == ""
    assert not (tmp_path / "data").exists()


def test_a_used_port_of_the_metrics_is_named_before_the_broker_is_ready(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with socket.create_server(("127.0.0.1", 0)) as used:
        address = f"127.0.0.1:{used.getsockname()[1]}"
        with pytest.raises(SystemExit) as ended:
            main(["broker", "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path), "--metrics-listen", address])
        with pytest.raises(SystemExit):
            main(["broker", "--listen", address, "--data-dir", str(tmp_path)])
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers
    assert ended.value.code == 1
    assert f"metrics at {address}: Address already in use" in caplog.text
    assert capsys.readouterr().out == ""


def test_a_foreign_directory_is_refused_with_words(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "thesis.doc").write_text("x")
    with pytest.raises(SystemExit) as ended:
        main(["broker", "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path)])
    assert ended.value.code == 1
    assert "it holds thesis.doc" in caplog.text
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.doc"]


def test_a_properties_file_is_read_as_kafkas_programs_read_it(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_bytes(
        b"\xef\xbb\xbflisteners=PLAINTEXT://127.0.0.1:0\r\n# one\r\n! another\r\n\r\n"
        b"  log.retention.ms: 60000\nsuper.users = User:a;\\\n    User:b\nuser.note=a=b:c%d\nempty=\n"
    )
    assert read_properties(file) == {
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.retention.ms": "60000",
        "super.users": "User:a;User:b",
        "user.note": "a=b:c%d",
        "empty": "",
    }


@pytest.mark.parametrize("content", [b"listeners=PLAINTEXT://:0\nsecret\n", b"\xff\xfe\x00secret"])
def test_a_file_that_is_none_is_refused_without_its_lines(
    content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "broker.conf"
    file.write_bytes(content)
    with pytest.raises(SystemExit) as ended:
        main(["broker", "--listen", "127.0.0.1:0", "--config-file", str(file)])
    reported = capsys.readouterr().err
    assert ended.value.code == 2
    assert "broker.conf" in reported.replace("\n", "")
    assert "secret" not in reported


def test_a_host_that_cannot_be_listened_on_is_named(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["broker", "--listen", "no.such.host.invalid:0"])
    assert ended.value.code == 1
    assert "cannot listen on no.such.host.invalid:0: " in caplog.text


def test_a_port_in_use_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SystemExit) as ended:
            main(["broker", "--listen", f"127.0.0.1:{port}"])
    assert ended.value.code == 1
    assert caplog.messages[-1] == f"cannot listen on 127.0.0.1:{port}: {os.strerror(errno.EADDRINUSE)}"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            ["listeners=SSL://127.0.0.1:0", "ssl.keystore.type=PEM", "ssl.keystore.location=/no/such.pem"],
            "/no/such.pem",
        ),
        (
            [
                "listeners=SASL_PLAINTEXT://127.0.0.1:0",
                "sasl.enabled.mechanisms=OAUTHBEARER",
                "sasl.oauthbearer.jwks.endpoint.url=file:///no/such/keys.json",
            ],
            "keys.json",
        ),
    ],
)
def test_settings_that_only_the_start_finds_wrong_are_named(
    settings: list[str], message: str, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    options = [argument for setting in settings for argument in ("--config", setting)]
    with pytest.raises(SystemExit) as ended:
        main(["broker", "--data-dir", str(tmp_path / "data"), *options])
    assert ended.value.code == 1
    critical = [record for record in caplog.records if record.levelno == logging.CRITICAL]
    assert len(critical) == 1 and message in critical[0].getMessage() and critical[0].exc_info is None


def test_no_name_makes_a_line_of_its_own() -> None:
    name = "x\n2026-01-01 00:00:00,000 CRITICAL fencepost.broker: all is lost\r\x1b[2J"
    record = logging.LogRecord("fencepost.broker", logging.INFO, "", 0, "client %s", (name,), None)
    line = _SingleLine("%(levelname)s %(message)s").format(record)
    assert line.startswith(r"INFO client x\n2026")
    assert line.isprintable()


def test_settings_of_the_sink_do_not_show_passwords() -> None:
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="s3cr3t";'
    options = {
        "kafka.bootstrap.servers": "broker:9092",
        "topic": "t",
        "sink.id": "a",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": jaas,
    }
    assert "s3cr3t" not in repr(SinkOptions.parse(options))


def test_a_start_imports_nothing_that_few_brokers_need() -> None:
    dear = ("numpy", "typer", "email", "importlib.metadata", "urllib.request", "configparser")
    program = (
        f"import sys; import fencepost.cli.broker.command; print([name for name in {dear} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


class Manager:
    """The socket of a service manager, as sd_notify(3) describes it."""

    def __init__(self, address: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(f"\0{address[1:]}" if address.startswith("@") else address)
        self._socket.settimeout(60)

    def hears(self, state: str) -> None:
        while self._socket.recv(100).decode() != state:
            pass


@pytest.mark.parametrize("is_abstract", [False, True])
def test_a_service_manager_is_told_when_the_broker_is_ready_alive_and_stopping(
    is_abstract: bool, tmp_path: Path
) -> None:
    address = f"@fencepost-{tmp_path}" if is_abstract else str(tmp_path / "notify")
    manager = Manager(address)
    environment = {**os.environ, "NOTIFY_SOCKET": address, "WATCHDOG_USEC": "300000"}
    command = [sys.executable, "-m", "fencepost", "broker", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            manager.hears("READY=1")
            assert process.stdout is not None
            assert process.stdout.readline().startswith("listening on ")
            manager.hears("WATCHDOG=1")
            manager.hears("WATCHDOG=1")
        finally:
            process.terminate()
        manager.hears("STOPPING=1")
        assert process.wait(60) == 0


def test_a_broker_whose_manager_is_gone_works_on(tmp_path: Path) -> None:
    environment = {**os.environ, "NOTIFY_SOCKET": str(tmp_path / "nobody"), "WATCHDOG_USEC": "soon"}
    command = [sys.executable, "-m", "fencepost", "broker", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("listening on ")
        process.terminate()
        _, reported = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "the service manager did not receive READY=1" in reported


RECOVERY = """
import sys, time
from fencepost.broker.core import BrokerCore
from fencepost.cli.main import main
def recover(core, now_ms):
    print("recovering", flush=True)
    for _ in range(6000):
        time.sleep(0.01)
BrokerCore.open = recover
main(sys.argv[1:])
"""


@contextmanager
def starting(run: list[str]) -> Iterator[subprocess.Popen[str]]:
    """Start the program, which is killed at the end."""
    with subprocess.Popen(run, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_recovery_is_stopped_by_a_signal(number: signal.Signals, tmp_path: Path) -> None:
    arguments = ["broker", "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path / "data")]
    with starting([sys.executable, "-c", RECOVERY, *arguments]) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == "recovering\n"
        process.send_signal(number)
        assert process.wait(30) == 0
        log = process.stderr.read()
        assert process.stdout.read() == ""
    assert "stopped by a signal before the broker had started" in log
    assert "Traceback" not in log
    with starting([sys.executable, "-m", "fencepost", *arguments]) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("listening on ")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_start_that_waits_for_keys_is_stopped_by_a_signal(number: signal.Signals, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/keys"
        settings = (
            "listeners=SASL_PLAINTEXT://127.0.0.1:0",
            "sasl.enabled.mechanisms=OAUTHBEARER",
            f"sasl.oauthbearer.jwks.endpoint.url={url}",
            "sasl.oauthbearer.expected.audience=fencepost",
        )
        chosen = [part for each in settings for part in ("--config", each)]
        with starting([sys.executable, "-m", "fencepost", "broker", "--data-dir", str(tmp_path), *chosen]) as process:
            assert process.stderr is not None
            connection, _ = silent.accept()
            with connection:
                process.send_signal(number)
                began_s = time.monotonic()
                log = process.stderr.read()
                assert process.wait(30) == 0, log
                assert time.monotonic() - began_s < 8, "it has waited for the keys"
    assert "stopped by a signal before the broker had started" in log
    assert "Traceback" not in log
