"""OAUTHBEARER at our broker: our client's logins and those of three others, and every token that must not get in.

Our client's words for an identity provider, Java's and librdkafka's, at Apache Kafka too.
"""

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
from fencepost.cli.main import main
from fencepost.client.oauth import ClientCredentials
from fencepost.client.sasl import OAuthToken
from fencepost.config import AdminConfig
from fencepost.errors import AuthenticationError, ConfigurationError
from fencepost_lab.torture.access import librdkafka_settings
from tests.support.apache_kafka import TEST_NODE, ApacheKafka, Setting
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
    ("expired", lambda: KEY.token(lives_s=-60), r"the token expired 1 min( \d+ s)? ago"),
    ("not yet", lambda: KEY.token(nbf=int(time.time()) + 300), r"the token counts only in (5 min|4 min \d+ s)"),
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
    while "the previous ones remain in use" not in caplog.text:
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
    ("changed", "error_text"),
    [
        ({"sasl.oauthbearer.jwks.endpoint.url": ""}, "OAUTHBEARER needs sasl.oauthbearer.jwks.endpoint.url"),
        ({"sasl.oauthbearer.jwks.endpoint.url": "file:///nowhere.json"}, "No such file"),
        ({"sasl.oauthbearer.jwks.endpoint.url": "ftp://x/keys"}, "must begin with file:, https: or http:"),
        (
            {"listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config": 'X required unsecuredLogin_sub="a";'},
            "OAuthBearerLoginModule required;",
        ),
    ],
)
def test_a_broker_that_could_not_check_tokens_does_not_start(
    changed: dict[str, str], error_text: str, keys: Path
) -> None:
    with pytest.raises(InvalidSetting, match=error_text), fencepost.Broker({**settings(keys.as_uri()), **changed}):
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
                pytest.raises(AuthenticationError, match=r"401 .*invalid_client") as reported,
            ):
                admin.list_topics()
        assert "guessed" not in f"{reported.value!r} {reported.value.__cause__!r} {wrong!r}"


OAUTH = "org.apache.kafka.common.security.oauthbearer"
DIALECTS: dict[str, dict[str, str]] = {
    "java": {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.login.callback.handler.class": f"{OAUTH}.OAuthBearerLoginCallbackHandler",
        "sasl.jaas.config": f'{OAUTH}.OAuthBearerLoginModule required clientId="alice" clientSecret="s3+cret" '
        'scope="orders" extension_team="north";',
    },
    "java-4.1": {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": f"{OAUTH}.OAuthBearerLoginModule required;",
        "sasl.oauthbearer.jwt.retriever.class": f"{OAUTH}.ClientCredentialsJwtRetriever",
        "sasl.oauthbearer.client.credentials.client.id": "alice",
        "sasl.oauthbearer.client.credentials.client.secret": "s3+cret",
        "sasl.oauthbearer.scope": "orders",
        "sasl.login.connect.timeout.ms": "10000",
    },
    "librdkafka": {
        "sasl.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": "alice",
        "sasl.oauthbearer.client.secret": "s3+cret",
        "sasl.oauthbearer.scope": "orders",
        "sasl.oauthbearer.extensions": "team=north,room=7",
    },
}

EXTENSIONS = {"java": {"team": "north"}, "java-4.1": {}, "librdkafka": {"team": "north", "room": "7"}}


@pytest.fixture(scope="module")
def shared_keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("keys") / "keys.json"
    path.write_bytes(key_set(KEY))
    return path


@pytest.fixture(scope="module")
def kafka_node(shared_keys: Path) -> Iterator[ApacheKafka]:
    """With a listener for tokens that are signed with the keys of a file."""
    here = "listener.name.signed.oauthbearer.sasl"
    properties: dict[str, Setting] = {
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        f"{here}.jaas.config": f"{OAUTH}.OAuthBearerLoginModule required;",
        f"{here}.server.callback.handler.class": f"{OAUTH}.OAuthBearerValidatorCallbackHandler",
        "sasl.oauthbearer.jwks.endpoint.url": shared_keys.as_uri(),
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "sasl.oauthbearer.expected.audience": AUDIENCE,
    }
    allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={shared_keys.as_uri()}"
    listeners = {"SIGNED": "SASL_PLAINTEXT"}
    with ApacheKafka(properties, listeners=listeners, jvm_options=(*TEST_NODE, allowed)) as running:
        yield running


@pytest.fixture(params=["fencepost", pytest.param("kafka", marks=pytest.mark.kafka)])
def servers(request: pytest.FixtureRequest, shared_keys: Path) -> Iterator[str]:
    """Of a broker that takes what KEY has signed."""
    if request.param == "kafka":
        running: ApacheKafka = request.getfixturevalue("kafka_node")
        yield running.address_of("SIGNED")
        return
    with fencepost.Broker(settings(shared_keys.as_uri())) as broker:
        yield broker.bootstrap_servers


@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_identity_provider_is_told_in_the_words_of_others(
    servers: str, dialect: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of Java's configurations and librdkafka's: in programs, and in a file for the commands."""
    with web({}, {"alice": "s3+cret"}, KEY) as address:
        words = {
            "bootstrap.servers": servers,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.oauthbearer.token.endpoint.url": f"{address}/token",
            **DIALECTS[dialect],
        }
        endpoint = AdminConfig.from_dotted(words).token_endpoint()
        assert endpoint is not None and "s3+cret" not in repr(AdminConfig.from_dotted(words))
        given = ClientCredentials(**endpoint._asdict())()
        assert jwt.decode(given.value, options={"verify_signature": False})["scope"] == "orders"
        assert dict(given.extensions) == EXTENSIONS[dialect]
        with fencepost.Admin.from_config(words) as admin:
            assert admin.list_topics() == []
        theirs = librdkafka_settings(AdminConfig.from_dotted(words))
        theirs |= {"bootstrap.servers": servers, "log_level": 0}
        assert confluent_kafka.admin.AdminClient(theirs).list_topics(timeout=30).brokers
        file = tmp_path / "client.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in words.items()))
        with pytest.raises(SystemExit, match=r"^0$"):
            main(["topics", "list", "--command-config", str(file)])
        with pytest.raises(SystemExit, match=r"^1$"):
            main(["topics", "list", "--command-config", str(_changed(file, "s3+cret", "guessed"))])
        error = capsys.readouterr().err
        assert "401" in error and "invalid_client" in error and "guessed" not in error


def _changed(file: Path, old: str, new: str) -> Path:
    file.write_text(file.read_text().replace(old, new))
    return file


def test_a_token_of_somebody_else_is_refused_by_both(servers: str) -> None:
    def connect(token: str) -> fencepost.Admin:
        return fencepost.Admin(
            servers,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="OAUTHBEARER",
            sasl_oauth_token_provider=lambda: token,
        )

    with connect(KEY.token()) as admin:
        assert admin.list_topics() == []
    for wrong in (Key("first").token(), KEY.token(lives_s=-60), KEY.token(aud="mail")):
        with connect(wrong) as admin, pytest.raises(AuthenticationError) as caught:
            admin.list_topics()
        assert caught.value.code == 58


@pytest.mark.parametrize("lives", ["1e999", "-1", "NaN", '"600"', "true", "1e300", "1" + "0" * 400])
def test_a_life_that_is_none_is_told(lives: str) -> None:
    """As an outage, which may pass: only a refusal is an AuthenticationError, which is no OSError."""
    with web({}, {"alice": "s3cret"}, KEY, lives) as address:
        ask = ClientCredentials(f"{address}/token", "alice", "s3cret")
        with pytest.raises(OSError, match=r"expires_in is .* which is no number of seconds"):
            ask()


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


def test_the_providers_of_other_clients_serve_ours(broker: fencepost.Broker) -> None:
    asked = []

    def oauth_cb(config: str) -> tuple[str, float]:
        asked.append(config)
        return KEY.token(), time.time() + 600

    class Provider(kafka.net.sasl.oauth.AbstractTokenProvider):  # type: ignore[misc] # the package has no types
        def token(self) -> str:
            return KEY.token()

    login = {"security.protocol": "sasl_plaintext", "sasl.mechanism": "OAUTHBEARER"}
    for given in ({"oauth_cb": oauth_cb, "sasl.oauthbearer.config": "abc"}, {"sasl_oauth_token_provider": Provider()}):
        settings = {"bootstrap.servers": broker.bootstrap_servers, **login, **given}
        with fencepost.Admin.from_config(settings) as admin:
            assert admin.list_topics() == []
    assert asked == ["abc"]


@pytest.mark.parametrize("log_in", [by_librdkafka, by_aiokafka, by_kafka_python])
def test_other_clients_get_in(log_in: Callable[[str, str], object], broker: fencepost.Broker) -> None:
    log_in(broker.bootstrap_servers, KEY.token())
    assert broker.metrics().counters["failed_logins"] == 0


@pytest.mark.parametrize("log_in", [by_aiokafka])
def test_other_clients_are_kept_out(log_in: Callable[[str, str], object], broker: fencepost.Broker) -> None:
    with pytest.raises(Exception, match="bootstrap"):
        log_in(broker.bootstrap_servers, KEY.token(lives_s=-60))
    assert broker.metrics().counters["failed_logins"] == 1
