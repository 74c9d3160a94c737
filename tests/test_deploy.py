"""The files in deploy/ ask of the broker what there is, and give it what it needs."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import fencepost
from tests.support.readme import ROOT
from tests.support.tls import Certificates

DEPLOY = ROOT / "deploy"
UNIT = (DEPLOY / "fencepost.service").read_text()
TLS = (DEPLOY / "tls.conf").read_text()
RECIPE = (DEPLOY / "Dockerfile").read_text().replace("\\\n", " ")


def instructions(name: str) -> list[str]:
    return re.findall(rf"^{name} (.+)$", RECIPE, re.MULTILINE)


def settings(name: str) -> list[str]:
    return re.findall(rf"^{name}=(.*)$", UNIT, re.MULTILINE)


def arguments_of_the_service(folder: Path) -> list[str]:
    (command,) = settings("ExecStart")
    program, broker, *arguments = shlex.split(command)
    assert (program, broker) == ("/opt/fencepost/bin/fencepost", "broker")
    (credential,) = settings("LoadCredential")
    name, source = credential.split(":")
    assert source.endswith("/broker.properties")
    shutil.copy(DEPLOY / "broker.properties", folder / name)
    assert settings("StateDirectory") == ["fencepost"]
    known = {"${STATE_DIRECTORY}": str(folder), "${CREDENTIALS_DIRECTORY}": str(folder)}
    arguments[arguments.index("--metrics-port") + 1] = "0"
    return [re.sub(r"\$\{\w+\}", lambda found: known[found[0]], argument) for argument in arguments]


def arguments_of_the_image(folder: Path) -> list[str]:
    (entry,), (volume,) = instructions("ENTRYPOINT"), instructions("VOLUME")
    program, broker, *arguments = json.loads(entry)
    assert (program, broker) == ("/opt/fencepost/bin/fencepost", "broker")
    assert f"{volume}/data" in arguments
    assert f"0.0.0.0:{instructions('EXPOSE')[0]}" in arguments
    added = ["--config", "advertised.listeners=PLAINTEXT://kafka.example:9092"]
    return [argument.replace(volume, str(folder)) for argument in [*arguments, *added]]


@pytest.mark.parametrize("arguments", [arguments_of_the_service, arguments_of_the_image])
def test_a_broker_runs_on_these_arguments_until_sigterm(arguments: Callable[[Path], list[str]], tmp_path: Path) -> None:
    command = [sys.executable, "-m", "fencepost.cli.main", "broker", *arguments(tmp_path)]
    command += ["--config", "listeners=PLAINTEXT://127.0.0.1:0"]  # 9092 may be somebody's
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        reported = process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0, process.stderr.read()
    assert reported.startswith("listening on 127.0.0.1:")
    assert (tmp_path / "data" / "meta.properties").exists()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / "fencepost.service"
    unit.write_text(UNIT.replace("/opt/fencepost/bin/fencepost", shutil.which("true") or ""))
    for question in (["verify"], ["security", "--offline=true", "--threshold=20"]):
        command = ["systemd-analyze", *question, str(unit)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "Unknown key" not in done.stderr


def tls_settings() -> dict[str, str]:
    """Return the settings that docs/deploying.md shows for TLS."""
    (shown,) = re.findall(
        r"^```properties\n(.*?)^```", (ROOT / "docs" / "deploying.md").read_text(), re.MULTILINE | re.DOTALL
    )
    return dict(line.split("=", 1) for line in shown.splitlines())


def test_a_broker_speaks_tls_with_the_file_that_systemd_passes(tmp_path: Path) -> None:
    credentials = re.findall(r"^LoadCredential=(.*):", TLS, re.MULTILINE)
    shown = tls_settings()
    assert shown.pop("ssl.keystore.location") == f"/run/credentials/fencepost.service/{credentials[0]}"
    assert shown.pop("listeners").startswith("SSL://")
    assert shown.pop("advertised.listeners").startswith("SSL://")
    certificates = Certificates(tmp_path)
    passed = {"listeners": "SSL://127.0.0.1:0", "ssl.keystore.location": str(certificates.broker.keystore)}
    with fencepost.Broker({**shown, **passed}) as broker:
        address = broker.listener("SSL")
        with fencepost.Admin(address, security_protocol="SSL", ssl_context=certificates.context()) as admin:
            assert admin.describe_cluster().brokers


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_takes_the_unit_with_tls(tmp_path: Path) -> None:
    (tmp_path / "fencepost.service.d").mkdir()
    (tmp_path / "fencepost.service.d" / "tls.conf").write_text(TLS)
    unit = tmp_path / "fencepost.service"
    unit.write_text(UNIT.replace("/opt/fencepost/bin/fencepost", shutil.which("true") or ""))
    done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
    assert (done.returncode, "tls.conf" in done.stderr) == (0, False), done.stderr
    (tmp_path / "fencepost.service.d" / "tls.conf").write_text(TLS.replace("LoadCredential=", "LoadCredentials="))
    done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
    assert "tls.conf" in done.stderr, "the drop-in is not read, so that the check above says nothing"


def test_the_image_is_made_of_what_the_package_needs() -> None:
    copied = [word for line in instructions("COPY") if not line.startswith("--from") for word in line.split()[:-1]]
    assert {"pyproject.toml", "README.md", "LICENSE", "src"} == set(copied)
    assert all((ROOT / name).exists() for name in copied)
    included = re.findall(r"^!(\S+)$", (DEPLOY / "Dockerfile.dockerignore").read_text(), re.MULTILINE)
    assert set(copied) == set(included)
    assert instructions("USER")[-1].isdecimal()
