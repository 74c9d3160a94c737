"""Settings in the environment: what looks like one and is none is told, and not taken in silence."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer

from fencepost.cli import cluster_settings
from fencepost.cli.cluster_settings import client_settings


@pytest.fixture(autouse=True)
def _nothing_told_yet() -> None:
    cluster_settings._warn_of_unknown.cache_clear()


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("FENCEPOST_SASL_PASWORD", "; did you mean 'FENCEPOST_SASL_PASSWORD'?"),
        ("FENCEPOST_BOOTSTRAP_SERVER", "; did you mean 'FENCEPOST_BOOTSTRAP_SERVERS'?"),
        ("FENCEPOST_NATIV", "; did you mean 'FENCEPOST_NATIVE'?"),
        ("FENCEPOST_SOMETHING_ELSE", ""),
        ("FENCEPOST_X\x1b[31m", ""),
    ],
)
def test_a_mistyped_name_is_told_once(name: str, meant: str, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        assert client_settings(None, None, {name: "secret"}) == {"bootstrap.servers": "localhost:9092"}
    out, err = capsys.readouterr()
    shown = name.replace("\x1b", "\\x1b")
    assert (out, err) == ("", f"{shown} in the environment is no setting and has no effect{meant}\n")


def test_what_any_client_knows_is_not_told(capsys: pytest.CaptureFixture[str]) -> None:
    """One environment does for all commands, as one file does."""
    given = {"FENCEPOST_NATIVE": "0", "FENCEPOST_LINGER_MS": "5", "FENCEPOST_GROUP_ID": "g", "HOME": "/"}
    assert client_settings(None, None, given) == {"bootstrap.servers": "localhost:9092"}
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("variable", "value"), [("FENCEPOST_REQUEST_TIMEOUT_MS", "abc"), ("FENCEPOST_BOOTSTRAP_SERVERS", "")]
)
def test_the_error_of_a_setting_names_the_variable_that_sets_it(variable: str, value: str) -> None:
    with pytest.raises(typer.BadParameter) as raised:
        client_settings(None, None, {variable: value, "FENCEPOST_CLIENT_ID": "me"})
    assert raised.value.message.endswith(f" ({variable} in the environment)")


def test_an_option_that_overrides_a_variable_is_not_blamed_on_it() -> None:
    with pytest.raises(typer.BadParameter) as raised:
        client_settings("nowhere:", None, {"FENCEPOST_BOOTSTRAP_SERVERS": "localhost:9092"})
    assert "environment" not in raised.value.message


def test_a_variable_overrides_any_spelling_in_the_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "client.properties"
    file.write_text("request_timeout_ms=1000\nmetadata.broker.list=file:1\n")
    given = {"FENCEPOST_REQUEST_TIMEOUT_MS": "2000"}
    expected = {"bootstrap.servers": "option:1", "request.timeout.ms": "2000"}
    assert client_settings("option:1", file, given) == expected
    assert caplog.messages == []


def test_servers_by_another_client_s_name_are_those_of_errors(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "client.properties"
    file.write_text("metadata.broker.list=file:1\n")
    assert client_settings(None, file, {}, needs_servers=True) == {"bootstrap.servers": "file:1"}
    assert caplog.messages == []
    file.write_text("metadata.broker.list=file:1\nbootstrap.servers=file:2\n")
    assert client_settings(None, file, {}) == {"bootstrap.servers": "file:2"}
    assert "that of bootstrap.servers is used" in caplog.text
