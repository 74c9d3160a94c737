"""A token provider that fails: an outage is waited out for as long as the call may last, a refusal is final."""

from __future__ import annotations

import asyncio
import base64
import tempfile
import threading
import urllib.error
import urllib.request
from email.message import Message
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import pytest

import fencepost
from fencepost.client import sasl
from fencepost.client.net.asyncio_runtime import AsyncioRuntime
from fencepost.client.net.connection import BrokerConnection
from fencepost.client.net.sasl_login import ClientLogin, failure_of_provider
from fencepost.client.oauth import ClientCredentials
from fencepost.config import AdminConfig
from fencepost.errors import AuthenticationError, DisconnectedError, KafkaTimeoutError
from fencepost.protocol.messages.sasl_authenticate import SaslAuthenticateResponse
from fencepost.protocol.messages.sasl_handshake import SaslHandshakeResponse
from tests.support.tokens import AUDIENCE, ISSUER, Key, key_set, web
from tests.unit.client.scripted import OFFERED, ScriptedBroker, World, run

KEY = Key("first")
CONFIG = AdminConfig(bootstrap_servers="broker", request_timeout_ms=1000)
WAIT_S = 30


def broker_with_sasl() -> ScriptedBroker:
    broker = ScriptedBroker()
    broker.offered = {**OFFERED, 17: (0, 1), 36: (0, 2)}
    broker.scripts[17] += [lambda _, __: SaslHandshakeResponse(mechanisms=["OAUTHBEARER"])] * 200
    broker.scripts[36] += [lambda _, __: SaslAuthenticateResponse()] * 200
    return broker


class Provider:
    """Fails `times` times, then gives tokens."""

    def __init__(self, times: int, error: Exception) -> None:
        self.times = times
        self.error = error
        self.asked = 0

    def __call__(self) -> sasl.OAuthToken:
        self.asked += 1
        if self.asked <= self.times:
            raise self.error
        return sasl.OAuthToken("token")


def settings(provider: Any) -> dict[str, Any]:
    return {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_provider": provider,
    }


def http_error(status: int) -> urllib.error.HTTPError:
    error = urllib.error.HTTPError("https://issuer.example.com", status, "told so", Message(), None)
    error.close()  # from Python 3.14 on an answer that is left open is a ResourceWarning
    return error


class OfRequests(OSError):
    """As requests' HTTPError and httpx's HTTPStatusError carry it."""

    def __init__(self, status: int) -> None:
        self.response = SimpleNamespace(status_code=status)


class OfAiohttp(Exception):
    def __init__(self, status: int) -> None:
        self.status = status


class OfBotocore(Exception):
    def __init__(self, status: int) -> None:
        self.response = {"ResponseMetadata": {"HTTPStatusCode": status}}


@pytest.mark.parametrize(
    ("token", "words"),
    [
        (sasl.OAuthToken(b"token"), "an OAuthToken whose value is bytes, not str"),  # type: ignore[arg-type]
        (sasl.OAuthToken(sasl.OAuthToken("token")), "whose value is OAuthToken, not str"),  # type: ignore[arg-type]
        (sasl.OAuthToken("token", "soon"), "whose expires_at_ms is str, not a number"),  # type: ignore[arg-type]
        (b"token", "bytes, not an OAuthToken"),
        (None, "NoneType, not an OAuthToken"),
    ],
)
def test_a_token_of_a_wrong_type_is_named(token: object, words: str) -> None:
    config = {"listeners": "SASL_PLAINTEXT://127.0.0.1:0", "sasl.enabled.mechanisms": "OAUTHBEARER"}
    with tempfile.TemporaryDirectory() as folder:
        keys = Path(folder, "keys.json")
        keys.write_bytes(key_set(KEY))
        with (
            fencepost.Broker({**config, "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri()}) as broker,
            fencepost.Admin(broker.bootstrap_servers, **settings(lambda: token)) as admin,
            pytest.raises(AuthenticationError, match=f"sasl_oauth_token_provider gave .*{words}"),
        ):
            admin.list_topics()


@pytest.mark.parametrize("ending", [SystemExit, KeyboardInterrupt])
def test_a_coroutine_that_wants_to_end_the_program_ends_no_loop(ending: type[BaseException]) -> None:
    """The blocking client awaits it in a loop of its own, which later coroutines need."""
    asked = 0

    async def provider() -> str:
        nonlocal asked
        asked += 1
        if asked == 1:
            raise ending
        return KEY.token()

    with tempfile.TemporaryDirectory() as folder:
        keys = Path(folder, "keys.json")
        keys.write_bytes(key_set(KEY))
        config: dict[str, str | int | bool] = {
            "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        }
        with (
            fencepost.Broker(config) as broker,
            fencepost.Admin(broker.bootstrap_servers, **settings(provider)) as admin,
        ):
            assert admin.list_topics(api_timeout_ms=WAIT_S * 1000) == []
    assert asked == 2


@pytest.mark.parametrize("make_error", [http_error, OfRequests, OfAiohttp, OfBotocore])
@pytest.mark.parametrize("status", [400, 401, 403, 404, 408, 425, 429, 500, 502, 503, 504])
def test_only_a_4xx_is_a_refusal(make_error: Any, status: int) -> None:
    error = make_error(status)
    failure = failure_of_provider(error)
    assert failure.__cause__ is error
    is_final = status < 500 and status not in (408, 425, 429)
    assert isinstance(failure, AuthenticationError if is_final else DisconnectedError)


@pytest.mark.parametrize("error", [OSError("down"), TimeoutError(), ConnectionError(), KeyError("x"), Exception("?")])
def test_whatever_else_a_provider_raises_may_pass(error: Exception) -> None:
    assert isinstance(failure_of_provider(error), DisconnectedError)


def test_a_producer_waits_for_its_identity_provider() -> None:
    """And delivers in the end, in order, what it was given meanwhile."""
    provider = Provider(20, OSError("identity provider is down"))

    async def body(world: World) -> None:
        producer = world.producer(**settings(provider))
        sent = [producer.append("t", b"%d" % number) for number in range(5)]
        assert [(await world.outcome(delivery)).offset for delivery in sent] == [0, 1, 2, 3, 4]
        await producer.close()

    run(body, broker_with_sasl())
    assert provider.asked > 20


def test_a_transactional_producer_waits_for_its_identity_provider() -> None:
    provider = Provider(20, OSError("identity provider is down"))

    async def body(world: World) -> None:
        producer = world.producer(transactional_id="x", **settings(provider))
        await producer.init_transactions()
        producer.begin_transaction()
        producer.append("t", b"v")
        await producer.commit_transaction()
        await producer.close()
        assert provider.asked > 20

    run(body, broker_with_sasl())


def test_what_was_not_delivered_names_the_provider() -> None:
    provider = Provider(10_000, OSError("identity provider is down"))

    async def body(world: World) -> None:
        begun_ms = world.runtime.now_ms()
        producer = world.producer(
            delivery_timeout_ms=20_000, request_timeout_ms=10_000, max_block_ms=60_000, **settings(provider)
        )
        failed = await world.outcome(producer.append("t", b"v"))
        assert "identity provider is down" in str(failed)
        assert 20_000 <= world.runtime.now_ms() - begun_ms < 25_000
        assert producer.sender.fatal is None
        await producer.close()

    run(body, broker_with_sasl())


def test_a_refusal_ends_the_producer_at_once() -> None:
    provider = Provider(10_000, http_error(401))

    async def body(world: World) -> None:
        begun_ms = world.runtime.now_ms()
        producer = world.producer(**settings(provider))
        failed = await world.outcome(producer.append("t", b"v"))
        assert isinstance(failed.__cause__, AuthenticationError)
        assert world.runtime.now_ms() - begun_ms < 5_000
        await producer.close()

    run(body, broker_with_sasl())


def test_an_old_token_serves_for_as_long_as_it_lives() -> None:
    async def body(world: World) -> None:
        asked: list[int] = []

        def provider() -> sasl.OAuthToken:
            asked.append(1)
            if len(asked) > 1:
                raise OSError("identity provider is down")
            return sasl.OAuthToken("first", world.runtime.wall_ms() + 10_000)

        login = ClientLogin("OAUTHBEARER", token_provider=provider)
        (await BrokerConnection.connect(world.runtime, "broker", 9092, CONFIG, login)).close()
        await world.runtime.sleep_ms(9_000)  # of its life 80 % are over
        (await BrokerConnection.connect(world.runtime, "broker", 9092, CONFIG, login)).close()
        await world.runtime.sleep_ms(1_000)
        with pytest.raises(DisconnectedError, match="identity provider is down"):
            await BrokerConnection.connect(world.runtime, "broker", 9092, CONFIG, login)
        assert len(asked) == 3

    run(body, broker_with_sasl())


def test_a_provider_that_hangs_is_asked_once() -> None:
    """However many connections want a token, and how often they try."""
    release = threading.Event()
    asked: list[int] = []

    def provider() -> str:
        asked.append(1)
        release.wait(WAIT_S)
        return "token"

    async def main() -> None:
        login = ClientLogin("OAUTHBEARER", token_provider=provider)
        runtime = AsyncioRuntime()
        for _ in range(3):
            with pytest.raises(KafkaTimeoutError, match="no token within request_timeout_ms=50"):
                await login.conversation(runtime, "broker", 50)
        waiting = asyncio.gather(*(login.conversation(runtime, "broker", WAIT_S * 1000) for _ in range(3)))
        release.set()
        await waiting

    asyncio.run(main())
    assert len(asked) == 1


@pytest.mark.parametrize("is_coroutine", [False, True])
def test_a_provider_that_blocks_stalls_its_own_client_only(is_coroutine: bool, tmp_path: Path) -> None:
    (tmp_path / "keys.json").write_bytes(key_set(KEY))
    asked, release = threading.Event(), threading.Event()

    def blocks() -> str:
        asked.set()
        assert release.wait(WAIT_S)
        return KEY.token()

    async def coroutine() -> str:
        return blocks()

    own = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": (tmp_path / "keys.json").as_uri(),
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "sasl.oauthbearer.expected.audience": AUDIENCE,
    }
    provider = coroutine if is_coroutine else blocks
    with (
        fencepost.Broker() as other,
        fencepost.Broker(own) as broker,
        fencepost.Producer(broker.bootstrap_servers, **settings(provider)) as producer,
        fencepost.Admin(other.bootstrap_servers) as admin,
    ):
        sent = producer.send("t", b"v")
        assert asked.wait(WAIT_S)
        assert admin.list_topics() == []
        release.set()
        assert sent.result(WAIT_S).offset == 0


@pytest.mark.parametrize("status", [500, 503, 408, 429])
def test_client_credentials_tell_an_outage_from_a_refusal(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def answers(*_: object, **__: object) -> None:
        asked.append(1)
        raise http_error(status)

    monkeypatch.setattr("urllib.request.urlopen", answers)
    monkeypatch.setattr("time.sleep", lambda _: None)
    with pytest.raises(OSError, match=f"{status} told so"):
        ClientCredentials("https://issuer.example.com/token", "alice", "secret")()
    assert len(asked) == 3
    with web({}, {"alice": "s3cret"}, KEY) as address:
        monkeypatch.undo()
        with pytest.raises(AuthenticationError, match=r"401 .*invalid_client"):
            ClientCredentials(f"{address}/token", "alice", "guessed")()


@pytest.mark.parametrize(("urlencode", "who"), [(True, "a%3Ab:s+%26"), (False, "a:b:s &")])
def test_id_and_secret_are_encoded_if_asked(urlencode: bool, who: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """RFC 6749, 2.3.1: as in a form. Kafka's client does so only with sasl.oauthbearer.header.urlencode."""
    asked: list[str] = []

    def answers(request: urllib.request.Request, **_: object) -> None:
        asked.append(request.headers["Authorization"])
        raise http_error(401)

    monkeypatch.setattr("urllib.request.urlopen", answers)
    config = AdminConfig(
        bootstrap_servers="broker",
        security_protocol="SASL_SSL",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauthbearer_token_endpoint_url="https://issuer.example.com/token",  # noqa: S106
        sasl_oauthbearer_client_credentials_client_id="a:b",
        sasl_oauthbearer_client_credentials_client_secret="s &",  # noqa: S106
        sasl_oauthbearer_header_urlencode=urlencode,
    )
    endpoint = config.token_endpoint()
    assert endpoint is not None
    with pytest.raises(AuthenticationError):
        ClientCredentials(**endpoint._asdict())()
    assert [base64.b64decode(each.removeprefix("Basic ")).decode() for each in asked] == [who]


def test_an_answer_without_a_token_may_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page that says that the provider is being worked on comes with status 200, too."""

    class Page:
        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None: ...

        def read(self, _: int) -> bytes:
            return b"<html>under maintenance</html>"

    monkeypatch.setattr("urllib.request.urlopen", lambda *_, **__: Page())
    monkeypatch.setattr("time.sleep", lambda _: None)
    with pytest.raises(OSError, match="no access_token"):
        ClientCredentials("https://issuer.example.com/token", "alice", "secret")()
