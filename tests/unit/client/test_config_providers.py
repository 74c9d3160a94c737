"""Settings that name a secret: what `config.providers` reads, as Kafka's own providers do."""

from __future__ import annotations

import os
import pickle
import threading
from pathlib import Path

import pytest

from fencepost import config_providers, small_files
from fencepost.config import AdminConfig, ConsumerConfig, ProducerConfig
from fencepost.config_providers import resolved
from fencepost.errors import ConfigurationError
from fencepost.small_files import MOST_BYTES
from fencepost.spark.options import SinkOptions, client_settings
from fencepost_lab.torture.access import Access

PHRASE = "of nobody's business"
SASL = {
    "bootstrap.servers": "a:1",
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.username": "alice",
    "sasl.password": "${env:TEST_PASSWORD}",
    "config.providers": "env",
}


@pytest.fixture(autouse=True)
def _password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_PASSWORD", PHRASE)


def test_a_variable_of_the_environment() -> None:
    assert AdminConfig.from_dotted(SASL).sasl_password == PHRASE


@pytest.mark.parametrize("ends", ["", "\n"])
def test_a_file_of_a_directory_counts_whole(tmp_path: Path, ends: str) -> None:
    (tmp_path / "password").write_text(PHRASE + ends)
    found = resolved({"x": f"${{directory:{tmp_path}:password}}", "config.providers": "directory"})
    assert found == {"x": PHRASE + ends}


def test_a_line_of_a_properties_file_within_a_text(tmp_path: Path) -> None:
    file = tmp_path / "secrets.properties"
    file.write_text(f"# of the service\npassword={PHRASE}\n")
    line = f'Module required username="alice" password="${{file:{file}:password}}";'
    found = resolved({"sasl.jaas.config": line, "config.providers": "file"})
    assert found == {"sasl.jaas.config": f'Module required username="alice" password="{PHRASE}";'}


def test_kafkas_classes_under_names_of_ones_own(tmp_path: Path) -> None:
    package = "org.apache.kafka.common.config.provider"
    (tmp_path / "key").write_text("of the file")
    settings = {
        "x": f"${{one::TEST_PASSWORD}} ${{two:{tmp_path}:key}}",
        "config.providers": "one, two",
        "config.providers.one.class": f"{package}.EnvVarConfigProvider",
        "config.providers.two.class": f"{package}.DirectoryConfigProvider",
    }
    assert resolved(settings) == {"x": f"{PHRASE} of the file"}


def test_without_providers_it_is_text_as_any_other() -> None:
    settings = {"sasl.password": "${env:TEST_PASSWORD}"}
    assert resolved(settings) == settings


def test_what_was_looked_up_is_not_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    like_placeholder = "${env:HOME}"
    monkeypatch.setenv("TEST_PASSWORD", like_placeholder)
    config = AdminConfig.from_dotted(SASL)
    assert config.sasl_password == like_placeholder
    assert AdminConfig.make(vars(config)).sasl_password == like_placeholder  # as a client is made of it


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"x": "${env:NOT_THERE}", "config.providers": "env"}, "x: NOT_THERE is not in this process's environment"),
        ({"x": "${env:a:TEST_PASSWORD}", "config.providers": "env"}, "has no path"),
        ({"x": "${file:/not/there:a}", "config.providers": "env"}, "x: config.providers=env does not name 'file'"),
        ({"x": "${file:/not/there:a}", "config.providers": "file"}, "x: /not/there: .*No such file"),
        ({"x": "${file::a}", "config.providers": "file"}, "names no file"),
        ({"x": "${directory:/not:there}", "config.providers": "directory"}, "x: /not/there: .*No such file"),
        ({"x": "${directory:/not:../a}", "config.providers": "directory"}, "the name of a file in it"),
        ({"config.providers": "vault"}, "config.providers.vault.class=vault: one of env, file, directory"),
        ({"config.providers": "env", "config.providers.env.param.allowlist.pattern": "A.*"}, "is not possible here"),
    ],
)
def test_what_cannot_be_looked_up_is_told(settings: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        resolved(settings)


@pytest.mark.parametrize("reference", ["${file:%s/secrets:a}", "${directory:%s:secrets}"])
def test_a_file_that_never_ends_is_not_read_for_ever(tmp_path: Path, reference: str) -> None:
    """As /dev/zero is none."""
    with open(tmp_path / "secrets", "wb") as file:
        file.truncate(MOST_BYTES + 1)
    settings = {"x": reference % tmp_path, "config.providers": "file, directory"}
    with pytest.raises(ConfigurationError, match=f"x: {tmp_path}/secrets: it has more than {MOST_BYTES} bytes"):
        resolved(settings)


@pytest.mark.parametrize("reference", ["${file:%s/secrets:a}", "${directory:%s:secrets}"])
def test_a_pipe_that_nobody_writes_to_is_not_waited_for_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reference: str
) -> None:
    monkeypatch.setattr(small_files, "PIPE_WAIT_MS", 50)
    os.mkfifo(tmp_path / "secrets")
    settings = {"x": reference % tmp_path, "config.providers": "file, directory"}
    with pytest.raises(ConfigurationError, match=f"x: {tmp_path}/secrets: a pipe to which nobody wrote within"):
        resolved(settings)


def test_a_pipe_is_read_like_a_file(tmp_path: Path) -> None:
    """A shell passes the output of a command by a pipe: `<(vault read ...)`."""
    os.mkfifo(tmp_path / "secrets")
    writer = threading.Thread(target=(tmp_path / "secrets").write_text, args=(f"a={PHRASE}\n",))
    writer.start()
    try:
        assert resolved({"x": f"${{file:{tmp_path}/secrets:a}}", "config.providers": "file"}) == {"x": PHRASE}
    finally:
        writer.join()


def test_a_slow_provider_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(config_providers, "SLOW_S", 0.0)
    (tmp_path / "password").write_text(PHRASE)
    resolved({"sasl.password": f"${{directory:{tmp_path}:password}}", "config.providers": "directory"})
    (record,) = caplog.records
    assert record.getMessage().startswith("sasl.password: the config provider 'directory' took 0.0 s")
    assert PHRASE not in record.getMessage()


def test_a_missing_line_is_told_without_the_others(tmp_path: Path) -> None:
    file = tmp_path / "secrets.properties"
    file.write_text(f"password={PHRASE}\n")
    with pytest.raises(ConfigurationError, match="has no line pasword=") as caught:
        resolved({"x": f"${{file:{file}:pasword}}", "config.providers": "file"})
    assert PHRASE not in repr(caught.value)


def test_what_spark_ships_to_its_workers_has_the_name_of_the_secret_only() -> None:
    options = {f"kafka.{name}": value for name, value in SASL.items()}
    sink = SinkOptions.parse({**options, "sink.id": "s"})
    source = client_settings(options, ConsumerConfig)
    shipped = pickle.dumps((sink, source))
    assert PHRASE.encode() not in shipped
    unpacked = pickle.loads(shipped)[0]
    assert unpacked.client.producer().sasl_password == PHRASE
    assert AdminConfig.from_dotted(dict(source.common)).sasl_password == PHRASE
    assert ProducerConfig.from_dotted(dict(sink.client.common)).sasl_password == PHRASE


def test_clients_of_a_torture_run_look_it_up() -> None:
    access = Access("a:1", {name: value for name, value in SASL.items() if name != "bootstrap.servers"})
    assert access.config().sasl_password == PHRASE
