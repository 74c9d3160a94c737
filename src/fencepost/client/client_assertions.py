"""Client assertions: signed tokens by which a client names itself to an identity provider (RFC 7523, KIP-1258)."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from fencepost.errors import AuthenticationError
from fencepost.extras import require
from fencepost.sasl_settings import ClientAssertion

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
        return Path(path).read_text(encoding="ascii")
    except UnicodeDecodeError:
        raise AuthenticationError(f"client assertion: {path} is no text in ASCII") from None


def _signed(settings: ClientAssertion) -> str:
    """Return a new assertion. Raises OSError without the key's file, AuthenticationError if it has no usable key."""
    import jwt
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    now_s = int(time.time())
    claims: dict[str, Any] = {
        "iss": settings.issuer,
        "sub": settings.subject,
        "aud": settings.audience,
        "iat": now_s,
        "nbf": now_s - settings.not_before_s,
        "exp": now_s + settings.lives_s,
    }
    if settings.with_id:
        claims["jti"] = str(uuid4())
    passphrase = None if settings.passphrase is None else settings.passphrase.encode()
    pem = _read(settings.key_file or "").encode()
    try:
        key = load_pem_private_key(pem, passphrase)
        signed: str = jwt.encode(claims, key, settings.algorithm)  # type: ignore[arg-type] # it refuses other keys
    except (ValueError, TypeError, jwt.PyJWTError) as error:
        raise AuthenticationError(
            f"client assertion: {settings.key_file} has no usable key for {settings.algorithm}: {error}"
        ) from None
    return signed
