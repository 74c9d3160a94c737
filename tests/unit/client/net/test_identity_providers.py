"""Client assertions (RFC 7523, KIP-1258) and Azure's managed identities, at a server of the tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)

from fencepost.client.azure_imds import AzureImds
from fencepost.client.net.sasl_login import ClientLogin
from fencepost.client.oauth import ClientCredentials
from fencepost.client.sasl import OAuthToken
from fencepost.config import AdminConfig
from fencepost.errors import AuthenticationError, ConfigurationError
from tests.support.identity_provider import Provider, identity_provider

RSA, EC = rsa.generate_private_key(65537, 2048), ec.generate_private_key(ec.SECP256R1())
URL = "https://login.example.com/"
QUERY = "api-version=2018-02-01&resource=https://events.example.com&client_id=abc"
REFUSED = b'{"error": "invalid_client", "error_description": "the assertion has expired"}'


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[Provider]:
    monkeypatch.setattr("fencepost.client.oauth._FIRST_PAUSE_S", 0.001)
    with identity_provider() as running:
        yield running


def written(folder: Path, key: Any, passphrase: bytes | None = None) -> str:
    encryption = NoEncryption() if passphrase is None else BestAvailableEncryption(passphrase)
    path = folder / "key.pem"
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption))
    return str(path)


def config(**settings: Any) -> AdminConfig:
    common = {"bootstrap.servers": "b:1", "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
    short = {name.removeprefix("sasl_oauthbearer_"): value for name, value in settings.items()}
    named = {f"sasl.oauthbearer.{name.replace('_', '.')}": value for name, value in short.items()}
    return AdminConfig.from_dotted({**common, **named})


def token(**settings: Any) -> OAuthToken:
    """The token that a client with these settings gets."""
    login = ClientLogin.of(config(**settings))
    assert login is not None
    assert isinstance(login.token_provider, ClientCredentials | AzureImds)
    return login.token_provider()


# --- client assertions ---


@pytest.mark.parametrize(("key", "algorithm"), [(RSA, "RS256"), (EC, "ES256")])
def test_a_key_signs_the_assertion(provider: Provider, tmp_path: Path, key: Any, algorithm: str) -> None:
    got = token(
        token_endpoint_url=provider.url,
        client_credentials_client_id="orders",
        assertion_private_key_file=written(tmp_path, key),
        assertion_algorithm=algorithm,
        scope="kafka",
    )
    assert got.value == "x.y.z"
    (asked,) = provider.asked
    assert "Authorization" not in asked.headers
    signed = asked.form.pop("client_assertion")
    assert asked.form == {
        "grant_type": "client_credentials",
        "client_assertion_type": "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
        "client_id": "orders",
        "scope": "kafka",
    }
    claims = jwt.decode(signed, key.public_key(), [algorithm], audience=provider.url)
    assert (claims["iss"], claims["sub"]) == ("orders", "orders")
    assert (claims["exp"] - claims["iat"], claims["iat"] - claims["nbf"]) == (300, 60)
    assert "jti" not in claims


def test_claims_can_be_chosen(provider: Provider, tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "sasl_oauthbearer_token_endpoint_url": provider.url,
        "sasl_oauthbearer_assertion_algorithm": "RS256",
        "sasl_oauthbearer_assertion_file": "",
        "sasl_oauthbearer_assertion_private_key_file": written(tmp_path, RSA, b"a secret"),
        "sasl_oauthbearer_assertion_private_key_passphrase": "a secret",
        "sasl_oauthbearer_assertion_claim_iss": "issuer",
        "sasl_oauthbearer_assertion_claim_sub": "subject",
        "sasl_oauthbearer_assertion_claim_aud": "audience",
        "sasl_oauthbearer_assertion_claim_exp_seconds": "30",
        "sasl_oauthbearer_assertion_claim_nbf_seconds": "0",
        "sasl_oauthbearer_assertion_claim_jti_include": "true",
    }
    token(**settings)
    token(**settings)
    signed = [asked.form["client_assertion"] for asked in provider.asked]
    first, second = (jwt.decode(each, RSA.public_key(), ["RS256"], audience="audience") for each in signed)
    assert (first["iss"], first["sub"], first["exp"] - first["nbf"]) == ("issuer", "subject", 30)
    assert first["jti"] != second["jti"]


def test_a_file_is_read_at_each_use_and_comes_before_a_key_and_a_secret(provider: Provider, tmp_path: Path) -> None:
    file = tmp_path / "assertion.jwt"
    login = ClientLogin.of(
        config(
            token_endpoint_url=provider.url,
            client_credentials_client_id="orders",
            client_credentials_client_secret="a secret",  # noqa: S106
            assertion_file=str(file),
            assertion_private_key_file=written(tmp_path, RSA),
        )
    )
    assert login is not None
    assert isinstance(login.token_provider, ClientCredentials)
    for text in ("a.b.c", "d.e.f"):
        file.write_text(f"{text}\n")
        login.token_provider()
    assert [asked.form["client_assertion"] for asked in provider.asked] == ["a.b.c", "d.e.f"]
    file.unlink()
    with pytest.raises(FileNotFoundError):
        login.token_provider()


def test_an_assertion_that_is_refused_is_final(provider: Provider, tmp_path: Path) -> None:
    file = tmp_path / "assertion.jwt"
    file.write_text("expired")
    provider.answers = [(401, REFUSED)]
    with pytest.raises(AuthenticationError, match=r"401 .*: invalid_client: the assertion has expired"):
        token(token_endpoint_url=provider.url, assertion_file=str(file))
    assert len(provider.asked) == 1


@pytest.mark.parametrize(
    ("key", "settings"),
    [
        (RSA, {"assertion_algorithm": "ES256"}),
        (EC, {}),
        (None, {}),
        (RSA, {"assertion_private_key_passphrase": "none is needed"}),
    ],
)
def test_a_key_that_does_not_fit_is_named(provider: Provider, tmp_path: Path, key: Any, settings: Any) -> None:
    path = written(tmp_path, key) if key is not None else str(tmp_path / "none.pem")
    if key is None:
        Path(path).write_text("no key")
    with pytest.raises(AuthenticationError, match=r"client assertion: .*\.pem has no usable key for (RS|ES)256"):
        token(
            token_endpoint_url=provider.url,
            client_credentials_client_id="orders",
            assertion_private_key_file=path,
            **settings,
        )
    assert provider.asked == []


def with_template(provider: Provider, folder: Path, text: str) -> OAuthToken:
    template = folder / "template.json"
    template.write_text(text)
    key = written(folder, RSA)
    return token(token_endpoint_url=provider.url, assertion_private_key_file=key, assertion_template_file=str(template))


def test_a_template_has_claims_and_header_fields(provider: Provider, tmp_path: Path) -> None:
    """It is read for each assertion. Beside it, no setting has to name the client."""
    with_template(provider, tmp_path, '{"header": {"kid": "1"}, "payload": {"iss": "orders", "aud": ["a", "b"]}}')
    with_template(provider, tmp_path, '{"header": null, "payload": {"sub": "others"}}')
    first, second = (asked.form["client_assertion"] for asked in provider.asked)
    assert jwt.get_unverified_header(first) == {"alg": "RS256", "typ": "JWT", "kid": "1"}
    assert jwt.get_unverified_header(second) == {"alg": "RS256", "typ": "JWT"}
    claims = jwt.decode(first, RSA.public_key(), ["RS256"], audience="b")
    assert {name: claims.get(name) for name in ("iss", "sub", "aud")} == {
        "iss": "orders",
        "sub": None,
        "aud": ["a", "b"],
    }
    claims = jwt.decode(second, RSA.public_key(), ["RS256"], audience=provider.url)
    assert (claims.get("iss"), claims["sub"]) == (None, "others")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is no JSON object"),
        ("[]", "is no JSON object"),
        ("{", "is no JSON object"),
        ('{"header": []}', "header in .* is no object"),
        ('{"payload": "sub"}', "payload in .* is no object"),
        ('{"header": {"kid": 1}}', "kid must be text"),
        ('{"header": {"b64": false}}', "b64 must not be false"),
    ],
)
def test_a_template_that_does_not_fit_is_named(provider: Provider, tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(AuthenticationError, match=f"client assertion: .*template.json.*{words}|{words}"):
        with_template(provider, tmp_path, text)
    assert provider.asked == []


def test_settings_that_do_not_fit() -> None:
    with pytest.raises(ConfigurationError, match=r"private_key_file needs .*client_id, .*claim_iss, or"):
        config(token_endpoint_url=URL, assertion_private_key_file="key.pem")
    with pytest.raises(ConfigurationError, match=r"needs .*client_id and ..._secret, or .*assertion_file"):
        config(token_endpoint_url=URL, client_credentials_client_id="orders")
    with pytest.raises(ConfigurationError, match=r"template_file needs .*private_key_file, which signs"):
        config(token_endpoint_url=URL, assertion_template_file="template.json", client_credentials_client_id="orders")
    with pytest.raises(ConfigurationError, match="assertion_algorithm"):
        config(token_endpoint_url=URL, assertion_algorithm="none")
    with pytest.raises(ConfigurationError, match=r"azure_imds needs sasl_oauthbearer_config, such as query="):
        config(metadata_authentication_type="azure_imds")
    with pytest.raises(ConfigurationError, match="https:// is needed outside of this machine's link"):
        AzureImds(QUERY, "http://login.example.com/token")


# --- Azure ---


def azure(provider: Provider) -> OAuthToken:
    return token(
        sasl_oauthbearer_metadata_authentication_type="azure_imds",
        sasl_oauthbearer_config=f"query={QUERY}",
        token_endpoint_url=provider.url,
        extensions="logicalCluster=lkc-1",
    )


def test_the_identity_of_a_machine_of_azure(provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    """The request is that of librdkafka. Azure writes the lifetime as text. No proxy is asked."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    provider.answers = [(200, b'{"access_token": "x.y.z", "expires_in": "3599", "token_type": "Bearer"}')]
    got = azure(provider)
    assert (got.value, dict(got.extensions)) == ("x.y.z", {"logicalCluster": "lkc-1"})
    assert got.expires_at_ms is not None
    (asked,) = provider.asked
    assert asked.path == f"/token?{QUERY}"
    assert asked.headers["Metadata"] == "true"


def test_the_address_is_azures_by_default() -> None:
    login = ClientLogin.of(config(metadata_authentication_type="azure_imds", config=f"query={QUERY}"))
    assert login is not None
    assert login.token_provider == AzureImds(QUERY, "http://169.254.169.254/metadata/identity/oauth2/token")


@pytest.mark.parametrize("status", [404, 410, 429, 500, 503])
def test_a_metadata_service_that_is_replaced_is_asked_again(provider: Provider, status: int) -> None:
    provider.answers = [(status, b""), (200, b'{"access_token": "x.y.z"}')]
    assert azure(provider).value == "x.y.z"
    assert len(provider.asked) == 2


@pytest.mark.parametrize("status", [400, 401, 403])
def test_an_identity_that_the_machine_lacks_is_final(provider: Provider, status: int) -> None:
    provider.answers = [(status, b'{"error": "invalid_request", "error_description": "Identity not found"}')]
    with pytest.raises(AuthenticationError, match=r"metadata service .*: invalid_request: Identity not found"):
        azure(provider)
    assert len(provider.asked) == 1


@pytest.mark.parametrize("answer", [b"", b"{", b"[]", b'{"access_token": 1}', b'{"access_token":"a","expires_in":"x"}'])
def test_answers_that_are_none(provider: Provider, answer: bytes) -> None:
    provider.answers = [(200, answer)]
    with pytest.raises(OSError, match="metadata service"):
        azure(provider)


def test_a_slow_or_missing_service_may_come_back(provider: Provider) -> None:
    provider.delay_s = 0.5
    with pytest.raises(TimeoutError):
        AzureImds(QUERY, provider.url, timeout_s=0.05)()
    with pytest.raises(OSError, match="refused"):
        AzureImds(QUERY, "http://127.0.0.1:1/token")()
