"""Listeners and users out of Kafka's settings."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.broker.security.listeners import jaas_line, listeners_of, users_of, with_users
from fencepost.broker.settings.table import InvalidSetting
from fencepost.broker.settings.values import BrokerConfig

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
LINE = f'{MODULE} required username="x" password="y" user_alice="secret" user_bob="a \\" b\\\\";'

PEM = {"listeners": "SSL://:1", "ssl.keystore.type": "PEM", "ssl.keystore.location": "k.pem"}


def test_without_settings_there_is_one_listener() -> None:
    (listener,) = listeners_of(BrokerConfig(), "localhost", 9092)
    assert (listener.name, listener.host, listener.port) == ("PLAINTEXT", "localhost", 9092)
    assert (listener.advertised, listener.sasl) == (("localhost", 9092), False)


def test_several_listeners_with_names_of_their_own() -> None:
    config = BrokerConfig(
        {
            "listeners": "inside://[::1]:9092, OUTSIDE://0.0.0.0:9093",
            "advertised.listeners": "OUTSIDE://kafka.example:443",
            "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:SASL_PLAINTEXT",
            "listener.name.outside.plain.sasl.jaas.config": LINE,
            "listener.name.outside.connections.max.reauth.ms": 5000,
            "connections.max.reauth.ms": 7000,
        }
    )
    inside, outside = listeners_of(config, "ignored", 1)
    assert (inside.name, inside.host, inside.port, inside.advertised) == ("INSIDE", "::1", 9092, ("::1", 9092))
    assert (outside.host, outside.port, outside.advertised) == ("0.0.0.0", 9093, ("kafka.example", 443))  # noqa: S104
    assert outside.users == {"alice": "secret", "bob": 'a " b\\'}
    assert outside.max_reauth_ms == {"PLAIN": 5000}
    assert "secret" not in repr(outside)


def test_the_advertised_address_may_be_given_without_a_name() -> None:
    (listener,) = listeners_of(BrokerConfig({"advertised.listeners": "kafka.example:443"}), "", 0)
    assert listener.advertised == ("kafka.example", 443)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"listeners": "localhost:9092"}, "NAME://HOST:PORT"),
        ({"listeners": "PLAINTEXT://localhost"}, "NAME://HOST:PORT"),
        ({"listeners": "PLAINTEXT://:1,PLAINTEXT://:2"}, "name of its own"),
        ({"listeners": "OTHER://:1"}, "protocol.map"),
        ({"listeners": "SSL://:1"}, "listener SSL needs the broker's key and certificate: ssl.keystore.location"),
        (
            {"listeners": "X://:1", "listener.security.protocol.map": "X:QUIC"},
            "QUIC is not served; these are: PLAINTEXT, SSL",
        ),
        (
            {"listeners": "SSL://:1", "ssl.keystore.location": "k.jks"},
            "ssl.keystore.type=JKS is not served, only PEM is",
        ),
        ({**PEM, "ssl.truststore.location": "t", "ssl.truststore.type": "PKCS12"}, "ssl.truststore.type=PKCS12 is not"),
        ({**PEM, "ssl.keystore.key": "a secret"}, "both ssl.keystore.location and a certificate"),
        (
            {"listeners": "SSL://:1", "ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": "c"},
            "given together",
        ),
        ({**PEM, "ssl.client.auth": "required"}, "ssl.client.auth=required needs ssl.truststore.location"),
        (
            {**PEM, "ssl.truststore.type": "PEM", "ssl.truststore.location": "t", "ssl.truststore.certificates": "c"},
            "both ssl.truststore.location and",
        ),
        ({**PEM, "ssl.principal.mapping.rules": "RULE:a"}, "cannot be read from 'RULE:a' on"),
        ({"listeners": "SASL_PLAINTEXT://:1"}, "listener.name.sasl_plaintext.plain.sasl.jaas.config"),
        ({"advertised.listeners": "OTHER://a:1"}, "not in listeners"),
        ({"listener.security.protocol.map": "PLAINTEXT"}, "NAME:PROTOCOL"),
    ],
)
def test_settings_that_make_no_listener(settings: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidSetting, match=message):
        listeners_of(BrokerConfig(settings), "localhost", 9092)


@pytest.mark.parametrize("key", ["listener.name.x.nonsense", "listener.name.x", "plain.sasl.jaas.config"])
def test_settings_of_listeners_that_there_are_not(key: str) -> None:
    with pytest.raises(InvalidSetting, match="there is no broker setting"):
        BrokerConfig({key: "x"})


@pytest.mark.parametrize(
    "line",
    [
        "",
        "user_a=secret",
        f"{MODULE} user_a=secret;",
        "other.Module required user_a=secret;",
        f"{MODULE} required =secret;",
    ],
)
def test_a_line_that_cannot_be_read_is_not_repeated_in_the_message(line: str) -> None:
    with pytest.raises(InvalidSetting) as raised:
        users_of(line)
    assert "secret" not in str(raised.value)


def test_values_without_quotes() -> None:
    assert users_of(f"{MODULE} required user_a=secret  user_b=x;") == {"a": "secret", "b": "x"}
    assert users_of(f"{MODULE} required;") == {}


@given(st.dictionaries(st.text("abc_-.@ü", min_size=1, max_size=5), st.text(max_size=8), max_size=4))
def test_users_come_back_from_the_line(users: dict[str, str]) -> None:
    assert users_of(jaas_line(users)) == users


@pytest.mark.parametrize("name", ["", "a b", "a=b", 'a"b', "a\0b", "a;b"])
def test_names_that_a_line_cannot_hold(name: str) -> None:
    with pytest.raises(InvalidSetting):
        jaas_line({name: "x"})


def test_users_go_to_the_listeners_that_have_none() -> None:
    settings = with_users({}, {"a": "x"}, "::1", 0)
    (listener,) = listeners_of(BrokerConfig(settings), "ignored", 1)
    assert (listener.name, listener.host, listener.users) == ("SASL_PLAINTEXT", "::1", {"a": "x"})
    given_ones = {
        "listeners": "A://h:1,B://h:2",
        "listener.security.protocol.map": "A:SASL_PLAINTEXT,B:SASL_PLAINTEXT",
        "listener.name.a.plain.sasl.jaas.config": LINE,
    }
    first, second = listeners_of(BrokerConfig(with_users(given_ones, {"a": "x"}, "", 0)), "", 0)
    assert (set(first.users), set(second.users)) == ({"alice", "bob"}, {"a"})


@pytest.mark.parametrize("port", [65_536, 99_999, -1])
def test_a_port_that_is_none_is_refused(port: int) -> None:
    """The operating system would listen on the rest of a division by 65,536."""
    with pytest.raises(InvalidSetting, match=f"{port} is not a port"):
        listeners_of(BrokerConfig({}), "127.0.0.1", port)
    if port > 0:
        with pytest.raises(InvalidSetting, match=f"{port} is not a port"):
            listeners_of(BrokerConfig({"listeners": f"PLAINTEXT://127.0.0.1:{port}"}), "", 0)
