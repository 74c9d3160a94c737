"""OAUTHBEARER at our broker: our client's logins and those of three others, and every token that must not get in."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aiokafka
import aiokafka.abc
import confluent_kafka.admin
import jwt
import kafka
import kafka.net.sasl.oauth
import pytest

import fencepost
from fencepost.broker.settings.table import InvalidSetting
from fencepost.client.oauth import ClientCredentials
from fencepost.client.sasl import OAuthToken
from fencepost.errors import AuthenticationError, ConfigurationError
from tests.support.tokens import AUDIENCE, ISSUER, Key, key_set, web

KEY = Key("first")


def settings(url: str, **more: object) -> dict[str, object]:
    return {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": url,
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "sasl.oauthbearer.expected.audience": f"other, {AUDIENCE}",
        **more,
    }


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    path = tmp_path / "keys.json"
    path.write_bytes(key_set(KEY))
    return path


@pytest.fixture
def broker(keys: Path) -> Iterator[fencepost.Broker]:
    with fencepost.Broker(settings(keys.as_uri())) as running:
        yield running


def client(broker: fencepost.Broker, provider: Callable[[], OAuthToken | str]) -> fencepost.Admin:
    return fencepost.Admin(
        broker.bootstrap_servers,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_provider=provider,
    )


def test_a_signed_token_gets_in(broker: fencepost.Broker) -> None:
    with client(broker, KEY.token) as admin:
        assert admin.list_topics() == []


SHARED = "a secret of the broker and of others, which is long enough"
REFUSED: list[tuple[str, Callable[[], str], str]] = [
    ("expired", lambda: KEY.token(lives_s=-60), r"the token expired \d+ s ago"),
    ("not yet", lambda: KEY.token(nbf=int(time.time()) + 300), r"the token counts only in \d+ s"),
    ("no end", lambda: KEY.token(exp=None), "does not say until when it counts"),
    ("another issuer", lambda: KEY.token(iss="https://else.example.com"), "from another issuer"),
    ("no issuer", lambda: KEY.token(iss=None), "from another issuer"),
    ("another audience", lambda: KEY.token(aud=["mail", "web"]), "for another audience"),
    ("no audience", lambda: KEY.token(aud=None), "for another audience"),
    ("nobody", lambda: KEY.token(None), "names no user"),
    ("forged", lambda: Key("first").token(), "signature is wrong"),
    ("unknown key", lambda: Key("second").token(), "signed with key 'second', which is not accepted"),
    ("changed", lambda: KEY.token()[:-8] + "AAAAAAAA", "signature is wrong"),
    ("unsigned", lambda: jwt.encode({"sub": "alice"}, "", "none", {"kid": "first"}), "in another way than its key"),
    ("shared secret", lambda: jwt.encode({"sub": "alice"}, SHARED, "HS256", {"kid": "first"}), "in another way than"),
    ("nonsense", lambda: "nonsense", "not a signed JWT"),
]


@pytest.mark.parametrize(("token", "reason"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_a_token_that_does_not_count_is_refused_by_its_reason(
    token: Callable[[], str], reason: str, broker: fencepost.Broker, caplog: pytest.LogCaptureFixture
) -> None:
    value = token()
    with (
        caplog.at_level(logging.DEBUG),
        client(broker, lambda: value) as admin,
        pytest.raises(AuthenticationError, match=reason) as caught,
    ):
        admin.list_topics()
    assert caught.value.code == 58
    assert broker.metrics().counters["failed_logins"] == 1
    assert "invalid_token" in str(caught.value)
    said = f"{caught.value!r} {caught.value.__cause__!r} {caplog.text} {OAuthToken(value)!r}"
    assert len(value) < 10 or not any(part in said for part in value.split(".") if len(part) > 20)


def test_a_key_that_is_taken_away_counts_no_more(broker: fencepost.Broker, keys: Path) -> None:
    """Rotated: the new key counts as soon as a token names it, and from then on the old one does not."""
    new = Key("new")
    keys.write_bytes(key_set(new))
    deadline = time.monotonic() + 60
    while True:
        try:
            with client(broker, new.token) as admin:
                admin.list_topics()
            break
        except AuthenticationError:
            assert time.monotonic() < deadline
    with client(broker, KEY.token) as admin, pytest.raises(AuthenticationError, match="key 'first', which is not"):
        admin.list_topics()


def test_keys_that_cannot_be_read_any_more_stay(
    broker: fencepost.Broker, keys: Path, caplog: pytest.LogCaptureFixture
) -> None:
    keys.write_bytes(b"{}")
    with client(broker, Key("new").token) as admin, pytest.raises(AuthenticationError):
        admin.list_topics()
    deadline = time.monotonic() + 60
    while "those before go on counting" not in caplog.text:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    with client(broker, KEY.token) as admin:
        admin.list_topics()


def test_a_session_lasts_as_long_as_its_token(broker: fencepost.Broker) -> None:
    """KIP-368: a client that renews goes on; with a token that has ended it is out."""
    given = []

    def provider() -> OAuthToken:
        given.append(KEY.token(lives_s=3600))
        return OAuthToken(given[-1])

    with client(broker, provider) as admin:
        admin.list_topics()
        broker.clock.advance(4000)
        with pytest.raises(AuthenticationError, match="expired"):
            admin.list_topics()
    assert len(given) >= 2


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"sasl.oauthbearer.jwks.endpoint.url": ""}, "OAUTHBEARER needs sasl.oauthbearer.jwks.endpoint.url"),
        ({"sasl.oauthbearer.jwks.endpoint.url": "file:///nowhere.json"}, "No such file"),
        ({"sasl.oauthbearer.jwks.endpoint.url": "ftp://x/keys"}, "begins with file:, https: or http:"),
        (
            {"listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config": 'X required unsecuredLogin_sub="a";'},
            "OAuthBearerLoginModule required;",
        ),
    ],
)
def test_a_broker_that_could_not_check_tokens_does_not_start(changed: dict[str, str], told: str, keys: Path) -> None:
    with pytest.raises(InvalidSetting, match=told), fencepost.Broker({**settings(keys.as_uri()), **changed}):
        pass


# --- an identity provider over HTTP ---


def test_keys_and_tokens_come_from_an_identity_provider() -> None:
    with web({"/keys": key_set(KEY)}, {"alice": "s3cret"}, KEY) as address:
        with fencepost.Broker(settings(f"{address}/keys")) as broker:
            with client(broker, ClientCredentials(f"{address}/token", "alice", "s3cret")) as admin:
                admin.list_topics()
            wrong = ClientCredentials(f"{address}/token", "alice", "guessed")
            with (
                client(broker, wrong) as admin,
                pytest.raises(AuthenticationError, match=r"401 .*invalid_client") as told,
            ):
                admin.list_topics()
        assert "guessed" not in f"{told.value!r} {told.value.__cause__!r} {wrong!r}"


def test_a_secret_does_not_go_out_in_the_clear() -> None:
    with pytest.raises(ConfigurationError, match="https:// is needed"):
        ClientCredentials("http://login.example.com/token", "alice", "s3cret")


# --- strangers ---


def by_librdkafka(servers: str, token: str) -> object:
    lives_until = time.time() + 600
    settings: dict[str, Any] = {
        "bootstrap.servers": servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": lambda _: (token, lives_until),
        "log_level": 0,
    }
    return confluent_kafka.admin.AdminClient(settings).list_topics(timeout=30)


def by_aiokafka(servers: str, token: str) -> object:
    class Provider(aiokafka.abc.AbstractTokenProvider):  # type: ignore[misc] # the package has no types
        async def token(self) -> str:
            return token

    async def main() -> None:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=servers,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="OAUTHBEARER",
            sasl_oauth_token_provider=Provider(),
        )
        try:
            await producer.start()
        finally:
            await producer.stop()

    return asyncio.run(main())


def by_kafka_python(servers: str, token: str) -> object:
    class Provider(kafka.net.sasl.oauth.AbstractTokenProvider):  # type: ignore[misc] # the package has no types
        def token(self) -> str:
            return token

    options: dict[str, Any] = {"sasl_oauth_token_provider": Provider(), "bootstrap_timeout_ms": 5000}
    admin = kafka.KafkaAdminClient(
        bootstrap_servers=servers, security_protocol="SASL_PLAINTEXT", sasl_mechanism="OAUTHBEARER", **options
    )
    admin.close()
    return admin


@pytest.mark.parametrize("log_in", [by_librdkafka, by_aiokafka, by_kafka_python])
def test_other_clients_get_in(log_in: Callable[[str, str], object], broker: fencepost.Broker) -> None:
    log_in(broker.bootstrap_servers, KEY.token())


@pytest.mark.parametrize("log_in", [by_aiokafka])
def test_other_clients_are_kept_out(log_in: Callable[[str, str], object], broker: fencepost.Broker) -> None:
    with pytest.raises(Exception, match="bootstrap"):
        log_in(broker.bootstrap_servers, KEY.token(lives_s=-60))
    assert broker.metrics().counters["failed_logins"] == 1
