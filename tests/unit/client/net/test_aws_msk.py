"""Tokens for Amazon MSK: signed as AWS says (Signature Version 4 in a query string), sent as OAUTHBEARER."""

from __future__ import annotations

import base64
import hashlib
import hmac
import importlib.util
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlencode, urlsplit

import pytest

from fencepost.client.aws_msk import MskIam, region_of
from fencepost.client.net.connection import BrokerConnection
from fencepost.client.net.sasl_login import ClientLogin
from fencepost.config import AdminConfig
from fencepost.errors import AuthenticationError, ConfigurationError
from fencepost.extras import require
from fencepost.protocol.messages.sasl_authenticate import SaslAuthenticateResponse
from fencepost.protocol.messages.sasl_handshake import SaslHandshakeResponse
from tests.unit.client.scripted import OFFERED, ScriptedBroker, World, run

KEY, SECRET = "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"  # of AWS's own documentation
BROKERS = (
    "b-1.orders.abc123.c2.kafka.eu-west-1.amazonaws.com:9098,b-2.orders.abc123.c2.kafka.eu-west-1.amazonaws.com:9098"
)
# As Amazon documents them for Java's client.
JAVAS = {
    "bootstrap.servers": BROKERS,
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "AWS_MSK_IAM",
    "sasl.jaas.config": "software.amazon.msk.auth.iam.IAMLoginModule required;",
    "sasl.client.callback.handler.class": "software.amazon.msk.auth.iam.IAMClientCallbackHandler",
}
needs_the_extra = pytest.mark.skipif(
    importlib.util.find_spec("aws_msk_iam_sasl_signer") is None, reason="the extra msk is not installed"
)


@pytest.fixture(autouse=True)
def nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Without credentials of whoever runs the tests, and without a look for those of a machine at AWS."""
    for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN", "PROFILE", "REGION", "DEFAULT_REGION"):
        monkeypatch.delenv(f"AWS_{name}", raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    return tmp_path


@pytest.fixture
def somebody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)


def provider_of(settings: dict[str, Any]) -> Any:
    login = ClientLogin.of(AdminConfig.from_dotted(settings))
    assert login is not None
    assert login.mechanism == "OAUTHBEARER"
    return login.token_provider


def signed(token: str) -> dict[str, str]:
    """Verify the token's signature by AWS's documentation. Return its parameters and host."""
    url = urlsplit(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode())
    asked = {name: values[0] for name, values in parse_qs(url.query).items()}
    covered = {name: value for name, value in asked.items() if name not in ("X-Amz-Signature", "User-Agent")}
    query = urlencode(sorted(covered.items()), quote_via=quote, safe="-_.~")
    scope = asked["X-Amz-Credential"].partition("/")[2]
    request = f"GET\n/\n{query}\nhost:{url.hostname}\n\nhost\n{hashlib.sha256(b'').hexdigest()}"
    text = f"AWS4-HMAC-SHA256\n{asked['X-Amz-Date']}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
    key = f"AWS4{SECRET}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    assert asked["X-Amz-Signature"] == hmac.new(key, text.encode(), "sha256").hexdigest()
    return asked | {"host": str(url.hostname)}


@needs_the_extra
@pytest.mark.usefixtures("somebody")
def test_javas_settings_log_in_with_a_signed_token() -> None:
    login = ClientLogin.of(AdminConfig.from_dotted(JAVAS))
    config = AdminConfig(bootstrap_servers="broker", request_timeout_ms=1000)

    async def body(world: World) -> None:
        (await BrokerConnection.connect(world.runtime, "broker", 9092, config, login)).close()

    broker = ScriptedBroker()
    broker.offered = {**OFFERED, 17: (0, 1), 36: (0, 2)}
    broker.scripts[17].append(lambda _, __: SaslHandshakeResponse(mechanisms=["OAUTHBEARER"]))
    broker.scripts[36].append(lambda _, __: SaslAuthenticateResponse())
    run(body, broker)
    assert [asked.mechanism for asked in broker.asked(17)] == ["OAUTHBEARER"]
    said = bytes(broker.asked(36)[0].auth_bytes).decode()
    assert said.startswith("n,,\x01auth=Bearer ")
    asked = signed(said.removeprefix("n,,\x01auth=Bearer ").rstrip("\x01"))
    assert asked["host"] == "kafka.eu-west-1.amazonaws.com"
    assert asked["Action"] == "kafka-cluster:Connect"
    assert asked["X-Amz-Credential"].split("/")[0] == KEY
    assert asked["X-Amz-Credential"].split("/")[2:] == ["eu-west-1", "kafka-cluster", "aws4_request"]
    assert asked["X-Amz-Expires"] == "900"


@needs_the_extra
@pytest.mark.usefixtures("somebody")
def test_another_secret_is_another_signature(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")
    with pytest.raises(AssertionError):
        signed(provider_of(JAVAS)().value)


@needs_the_extra
@pytest.mark.usefixtures("somebody")
def test_temporary_credentials_come_with_their_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """The session's token is signed as a part of the query: roles, containers and instances have such credentials."""
    session = "IQoJb3JpZ2luX2VjEXAMPLE//+/=="
    monkeypatch.setenv("AWS_SESSION_TOKEN", session)
    token = provider_of(JAVAS)()
    assert signed(token.value)["X-Amz-Security-Token"] == session
    assert session not in repr(token)


@needs_the_extra
def test_a_profile_has_its_own_credentials_and_region(nobody: Path) -> None:
    (nobody / "credentials").write_text(f"[orders]\naws_access_key_id={KEY}\naws_secret_access_key={SECRET}\n")
    (nobody / "config").write_text("[profile orders]\nregion=ap-south-1\n")
    jaas = 'software.amazon.msk.auth.iam.IAMLoginModule required awsProfileName="orders";'
    token = provider_of({**JAVAS, "bootstrap.servers": "kafka.example.com:9098", "sasl.jaas.config": jaas})()
    assert signed(token.value)["X-Amz-Credential"].split("/")[2] == "ap-south-1"
    assert token.expires_at_ms is not None
    assert token.value not in repr(token)


@needs_the_extra
def test_without_credentials_it_says_so() -> None:
    with pytest.raises(OSError, match="no AWS credentials"):
        provider_of(JAVAS)()


@needs_the_extra
@pytest.mark.usefixtures("somebody")
def test_without_a_region_it_says_so() -> None:
    with pytest.raises(AuthenticationError, match="set AWS_REGION"):
        provider_of({**JAVAS, "bootstrap.servers": "kafka.example.com:9098"})()


def test_without_the_extra_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fencepost.extras.find_spec", lambda _: None)
    require.cache_clear()
    with pytest.raises(ConfigurationError, match=r"AWS_MSK_IAM needs .* pip install 'fencepost\[msk]'"):
        ClientLogin.of(AdminConfig.from_dotted(JAVAS))
    require.cache_clear()


@needs_the_extra
def test_a_profile_and_a_role_are_one_too_many() -> None:
    with pytest.raises(ConfigurationError, match="not both"):
        MskIam("eu-west-1", profile="a", role_arn="arn:aws:iam::1:role/b")


@pytest.mark.parametrize(
    ("servers", "region"),
    [
        (BROKERS, "eu-west-1"),
        (BROKERS.split(","), "eu-west-1"),
        ("boot-x1.c3.kafka-serverless.us-east-1.amazonaws.com:9098", "us-east-1"),
        ("b-1-public.orders.abc123.c2.kafka.us-gov-west-1.amazonaws.com:9198", "us-gov-west-1"),
        ("b-1.orders.abc123.c2.kafka.cn-north-1.amazonaws.com.cn:9098", "cn-north-1"),
        ("kafka.example.com:9098", None),
        ("b-1.kafka.eu-west-1.amazonaws.com.example.org:9098", None),
    ],
)
def test_the_region_is_in_the_brokers_names(servers: str | list[str], region: str | None) -> None:
    assert region_of(servers) == region


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"security.protocol": "SASL_PLAINTEXT"}, "needs security_protocol=SASL_SSL"),
        ({"sasl.username": "alice"}, "sasl_username has no effect"),
        ({"sasl.oauth.token.provider": str}, "sasl_oauth_token_provider has no effect"),
        (
            {"sasl.jaas.config": 'x required awsRoleExternalId="7";'},
            "awsRoleExternalId is not possible here; awsProfileName, awsRoleArn, awsRoleSessionName are",
        ),
        ({"sasl.client.callback.handler.class": "com.example.Mine"}, "only software.amazon.*IAMClientCallbackHandler"),
    ],
)
def test_settings_that_cannot_work(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        AdminConfig.from_dotted({**JAVAS, **settings})
