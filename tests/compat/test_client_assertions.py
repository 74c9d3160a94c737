"""Java's client (4.4.0) and ours ask an identity provider in the same words, for the same settings."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import jwt
import pytest

from fencepost.client.net.sasl_login import ClientLogin
from fencepost.client.oauth import ClientCredentials
from fencepost.config import AdminConfig
from tests.support.identity_provider import AdoptionArguments, identity_provider
from tests.support.java_programs import compile_java, java_program
from tests.unit.client.net.test_identity_providers import RSA, written

SOURCE = Path(__file__).with_name("java_tokens") / "RetrieveToken.java"
ALLOWED = "-Dorg.apache.kafka.sasl.oauthbearer.allowed"
COMMON = {"bootstrap.servers": "b:1", "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
CLAIMS = {f"assertion.claim.{name}": name for name in ("iss", "sub", "aud")}


TEMPLATE = {
    "header": {"kid": "f829d41b", "alg": "none", "x": 1},
    "payload": {"iss": "of the file", "sub": None, "exp": 1, "groups": ["a", {"b": 2.5}], "admin": False},
    "comment": "not a part of the token",
}


def words(asked: AdoptionArguments) -> tuple[str | None, dict[str, str], dict[str, Any], dict[str, Any]]:
    """The request, with header and claims of its assertion. Signatures are left out, and times are spans."""
    form = dict(asked.form)
    assertion = form.pop("client_assertion", "")
    if not assertion:
        return asked.headers.get("Authorization"), form, {}, {}
    claims: dict[str, Any] = jwt.decode(assertion, options={"verify_signature": False})
    spans: dict[str, Any] = {name: claims[name] - claims["iat"] for name in ("exp", "nbf", "iat") if name in claims}
    random = {"jti": ""} if "jti" in claims else {}
    return asked.headers.get("Authorization"), form, jwt.get_unverified_header(assertion), {**claims, **spans, **random}


@pytest.mark.java
@pytest.mark.parametrize(
    "settings",
    [
        {"assertion.file": "FILE"},
        {"assertion.file": "FILE", "client.credentials.client.id": "orders", "scope": "kafka"},
        {"assertion.private.key.file": "KEY", **CLAIMS},
        {"assertion.private.key.file": "KEY", **CLAIMS, "client.credentials.client.id": "orders", "scope": "kafka"},
        {"assertion.private.key.file": "KEY", **CLAIMS, "assertion.claim.jti.include": "true"},
        {"client.credentials.client.id": "orders", "client.credentials.client.secret": "a secret"},
        {"assertion.private.key.file": "KEY", **CLAIMS, "assertion.template.file": "TEMPLATE"},
        {"assertion.private.key.file": "KEY", **CLAIMS, "assertion.template.file": "EMPTY"},
        {
            "assertion.private.key.file": "KEY",
            "assertion.template.file": "TEMPLATE",
            "assertion.claim.iss": "replaced",
            "assertion.claim.aud": "aud",
            "assertion.claim.exp.seconds": "30",
        },
        {"assertion.file": "FILE", "assertion.template.file": "TEMPLATE"},
    ],
)
def test_a_request(settings: dict[str, str], tmp_path: Path) -> None:
    compile_java([SOURCE], tmp_path)
    files = {"KEY": written(tmp_path, RSA), "FILE": str(tmp_path / "assertion.jwt")}
    files |= {name: str(tmp_path / f"{name}.json") for name in ("TEMPLATE", "EMPTY")}
    Path(files["TEMPLATE"]).write_text(json.dumps(TEMPLATE))
    Path(files["EMPTY"]).write_text("{}")
    Path(files["FILE"]).write_text(jwt.encode({"sub": "orders", "iat": 0, "exp": 2**31}, RSA, "RS256"))
    with identity_provider() as provider:
        named = {f"sasl.oauthbearer.{name}": files.get(value, value) for name, value in settings.items()}
        named["sasl.oauthbearer.token.endpoint.url"] = provider.url
        options = [f"{ALLOWED}.urls={provider.url}", f"{ALLOWED}.files={','.join(files.values())}"]
        arguments = [f"{name}={value}" for name, value in named.items()]
        program = java_program("RetrieveToken", *arguments, folder=tmp_path, options=options)
        run = subprocess.run(program, capture_output=True, text=True, timeout=120, check=False)
        assert "> x.y.z" in run.stdout, run.stderr
        login = ClientLogin.of(AdminConfig.from_dotted({**COMMON, **named}))
        assert login is not None
        assert isinstance(login.token_provider, ClientCredentials)
        login.token_provider()
    javas, ours = map(words, provider.asked)
    assert ours == javas
