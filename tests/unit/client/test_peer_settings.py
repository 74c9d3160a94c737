"""The settings of the other clients, from their own lists: each works, is warned about, or is refused with advice."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest

import fencepost
from fencepost.common_config import aliases
from fencepost.config import AdminConfig, CommonConfig, ConsumerConfig, ProducerConfig
from fencepost.errors import ConfigurationError
from fencepost.foreign_settings import BOUND, CONVERTED, WITHOUT_EFFECT
from tests.golden.load import CLIENT_SETTINGS, CLIENT_SETTINGS_PROGRAM
from tests.support import settings_page
from tests.support.apache_kafka import REFERENCE, VERSION, run_kafka_class
from tests.support.peer_settings import PeerSetting, Treatment, all_of_them, treatment_of

CLIENTS: dict[type[CommonConfig], Any] = {
    AdminConfig: fencepost.Admin,
    ConsumerConfig: fencepost.Consumer,
    ProducerConfig: fencepost.Producer,
}
READ_BY_CLIENTS = re.compile("reset|assignment|partitioner|isolation|interceptor|protocol")
SERVERS = {"bootstrap.servers": "localhost:1"}

# Defaults of other clients that are refused with advice, because they would be wrong here or need another setting.
REFUSED_DEFAULTS = {
    "default_offset_commit_callback",  # kafka-python's default is a function that does nothing
    "max.in.flight",  # librdkafka's default is a million, which it lowers for an idempotent producer
    "max.in.flight.requests.per.connection",
}


def settings_with(peer: PeerSetting) -> dict[str, Any]:
    """Settings in which the setting may have an effect."""
    settings: dict[str, Any] = dict(SERVERS)
    if "auto.commit" in peer.name or "auto_commit" in peer.name or "commit.enable" in peer.name:
        settings["group.id"] = "g"
    if "kerberos" in peer.name:
        settings |= {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "GSSAPI"}
    if "ssl" in peer.name:
        settings["security.protocol"] = "SSL"
    return settings


def configured(peer: PeerSetting) -> None:
    """Take the setting at its default; in a client, where that reads it further."""
    settings = {**settings_with(peer), peer.name: peer.default}
    if READ_BY_CLIENTS.search(peer.name):
        CLIENTS[peer.config].from_config(settings).close()
    else:
        peer.config.from_dotted(settings)


@pytest.mark.parametrize("client", ["librdkafka", "Java", "aiokafka", "kafka-python"])
def test_defaults_may_stay_as_they_are(client: str) -> None:
    refused = {}
    peers = [peer for peer in all_of_them() if peer.client == client and peer.has_default]
    for peer in peers:
        try:
            configured(peer)
        except ConfigurationError as error:
            refused[peer.name] = str(error)
    assert len(peers) > 60
    assert {name: text for name, text in refused.items() if name not in REFUSED_DEFAULTS} == {}


def test_refused_defaults_come_with_advice() -> None:
    refused = {
        peer.name: peer
        for peer in all_of_them()
        if peer.name in REFUSED_DEFAULTS
        and peer.client in ("librdkafka", "kafka-python")
        and treatment_of(peer.name, peer.config) is not Treatment.NO_EFFECT
    }
    assert set(refused) == REFUSED_DEFAULTS
    for peer in refused.values():
        with pytest.raises(ConfigurationError, match=r"instead: |needs enable_idempotence=False"):
            peer.config.from_dotted({**settings_with(peer), peer.name: peer.default})


def test_every_setting_has_a_treatment() -> None:
    counted = Counter(treatment_of(peer.name, peer.config) for peer in all_of_them())
    assert counted[Treatment.UNKNOWN] == 0
    assert min(counted[each] for each in Treatment if each is not Treatment.UNKNOWN) > 20


def test_every_row_of_the_tables_is_somebodys() -> None:
    known = {peer.name.replace(".", "_") for peer in all_of_them()}
    rows = {*aliases(), *CONVERTED, *WITHOUT_EFFECT, *BOUND}
    assert rows - known == {"compression"}, "a short name of our own"


def test_every_bound_value_is_refused_with_advice() -> None:
    for name, (possible, instead) in BOUND.items():
        with pytest.raises(ConfigurationError, match=f"{name}=('other'|[.]{{3}}): ") as caught:
            ProducerConfig.make({"bootstrap_servers": "a:1", name: "other"})
        assert f"instead: {instead}" in str(caught.value)
        for value in (*possible, "", None):
            ProducerConfig.make({"bootstrap_servers": "a:1", name: value})


def test_the_migration_page_has_the_table() -> None:
    assert settings_page.section() in settings_page.PAGE.read_text()


@pytest.mark.kafka
@pytest.mark.java
@pytest.mark.skipif(VERSION != REFERENCE, reason="KAFKA_RELEASE chooses another release than the file is of")
def test_the_settings_of_javas_clients_are_those_of_the_jars() -> None:
    asked = run_kafka_class(str(CLIENT_SETTINGS_PROGRAM))
    assert asked.returncode == 0, asked.stderr
    assert asked.stdout == CLIENT_SETTINGS.read_text()
