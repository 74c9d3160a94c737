"""Client assertions: signed tokens by which a client names itself to an identity provider (RFC 7523, KIP-1258)."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import uuid4

from fencepost.errors import AuthenticationError
from fencepost.extras import require
from fencepost.protocol.json_text import parse_json
from fencepost.sasl_settings import ClientAssertion
from fencepost.small_files import read_small

__all__ = ["ASSERTION_TYPE", "assertion_source"]

ASSERTION_TYPE: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"


def assertion_source(settings: ClientAssertion) -> Callable[[], str]:
    """Return a function that reads or signs an assertion. Files are read each time, because they are replaced.

    Raises:
        ConfigurationError: The extra `oauth` is missing, which signs.
    """
    if settings.file is not None:
        return lambda: _read(settings.file or "").strip()
    require("oauth", "sasl_oauthbearer_assertion_private_key_file")
    return lambda: _signed(settings)


def _read(path: str) -> str:
    try:
        return read_small(Path(path), "ascii")
    except UnicodeDecodeError:
        raise AuthenticationError(f"client assertion: {path} is no text in ASCII") from None
    except ValueError as error:
        raise AuthenticationError(f"client assertion: {path}: {error}") from None


def _signed(settings: ClientAssertion) -> str:
    """Return a new assertion.

    Raises:
        OSError: A file is missing.
        AuthenticationError: There is no usable key, or the template is invalid.
    """
    import jwt
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    of_template = _Template() if settings.template is None else _template(settings.template)
    headers = {**of_template.header, "alg": settings.algorithm, "typ": "JWT"}
    claims = _claims(settings, of_template.payload)
    passphrase = None if settings.passphrase is None else settings.passphrase.encode()
    pem = _read(settings.key_file or "").encode()
    try:
        key = load_pem_private_key(pem, passphrase)
        signed: str = jwt.encode(claims, key, settings.algorithm, headers)  # type: ignore[arg-type] # it refuses other keys
    except (ValueError, TypeError, jwt.PyJWTError) as error:
        raise AuthenticationError(
            f"client assertion: {settings.key_file} has no usable key for {settings.algorithm}: {error}"
        ) from None
    return signed


class _Template(NamedTuple):
    """Header fields and claims of a template file."""

    header: Mapping[str, Any] = {}
    payload: Mapping[str, Any] = {}


def _template(path: str) -> _Template:
    """Return the objects `header` and `payload` in a JSON file; both are optional, and others are ignored.

    Raises:
        OSError: The file is missing.
        AuthenticationError: It has something else, or fields that cannot be signed.
    """
    try:
        found = parse_json(read_small(Path(path), "utf-8-sig"))
        header, payload = ({} if found.get(name) is None else found[name] for name in _Template._fields)
    except (ValueError, AttributeError) as error:
        raise AuthenticationError(f"client assertion: {path} is no JSON object: {error}") from None
    for name, part in (("header", header), ("payload", payload)):
        if not isinstance(part, dict):
            raise AuthenticationError(f"client assertion: {name} in {path} is no object")
    if not isinstance(header.get("kid", ""), str) or header.get("b64") is False:
        raise AuthenticationError(f"client assertion: header in {path}: kid must be text, and b64 must not be false")
    return _Template(header, payload)


def _claims(settings: ClientAssertion, of_template: Mapping[str, Any]) -> dict[str, Any]:
    """Return all claims. As in Java's client, the template replaces settings, and times and ids replace both."""
    named = {"iss": settings.issuer, "sub": settings.subject, "aud": settings.audience}
    now_s = int(time.time())
    of_now: dict[str, Any] = {"iat": now_s, "nbf": now_s - settings.not_before_s, "exp": now_s + settings.lifetime_s}
    if settings.with_id:
        of_now["jti"] = str(uuid4())
    return {**{name: value for name, value in named.items() if value}, **of_template, **of_now}
