"""Tokens for OAUTHBEARER from an identity provider: the client credentials grant (RFC 6749, section 4.4; KIP-768)."""

from __future__ import annotations

import base64
import ipaddress
import json
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote_plus, urlencode, urlsplit

from fencepost.client.sasl import OAuthToken
from fencepost.errors import AuthenticationError, ConfigurationError

__all__ = ["ClientCredentials"]

_TRIES: Final = 3
_FIRST_PAUSE_S: Final = 0.2
_MOST_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class ClientCredentials:
    """A `sasl_oauth_token_provider`: asks the token endpoint at `url` for a token whenever one is needed.

    The secret goes out over https only, or to this machine; another address is a ConfigurationError.
    """

    url: str
    client_id: str
    client_secret: str = field(repr=False)
    scope: str | None = None
    timeout_s: float = 10.0

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme != "https" and not (parts.scheme == "http" and _is_here(parts.hostname or "")):
            raise ConfigurationError(f"token endpoint {self.url!r}: https:// is needed, the secret goes there")

    def __call__(self) -> OAuthToken:
        """A new token. Raises AuthenticationError for a refusal, OSError when nobody answers."""
        for attempt in range(1, _TRIES + 1):
            try:
                return self._token(self._ask())
            except urllib.error.HTTPError as error:
                if error.code < 500 or attempt == _TRIES:
                    raise AuthenticationError(f"token endpoint {self.url}: {_refusal(error)}") from None
            except OSError:
                if attempt == _TRIES:
                    raise
            time.sleep(_FIRST_PAUSE_S * 2 ** (attempt - 1))
        raise AuthenticationError(f"token endpoint {self.url}: no answer")

    def _ask(self) -> bytes:
        form = {"grant_type": "client_credentials"} | ({} if self.scope is None else {"scope": self.scope})
        who = base64.b64encode(f"{quote_plus(self.client_id)}:{quote_plus(self.client_secret)}".encode()).decode()
        request = urllib.request.Request(  # noqa: S310 (its kind was looked at)
            self.url, urlencode(form).encode(), {"Authorization": f"Basic {who}", "Accept": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=self.timeout_s) as answer:  # noqa: S310
            text: bytes = answer.read(_MOST_BYTES)
        return text

    def _token(self, text: bytes) -> OAuthToken:
        try:
            told = json.loads(text)
            value, lives_s = told["access_token"], told.get("expires_in")
        except (ValueError, KeyError, TypeError, AttributeError):
            raise AuthenticationError(f"token endpoint {self.url}: the answer holds no access_token") from None
        if not isinstance(value, str):
            raise AuthenticationError(f"token endpoint {self.url}: the access_token is no text")
        now_ms = int(time.time() * 1000)
        return OAuthToken(value, now_ms + int(lives_s * 1000) if isinstance(lives_s, (int, float)) else None)


def _is_here(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _refusal(error: urllib.error.HTTPError) -> str:
    """Status and the provider's own words (RFC 6749, section 5.2)."""
    try:
        told = json.loads(error.read(_MOST_BYTES))
        words = [str(told[name]) for name in ("error", "error_description") if name in told]
    except (ValueError, TypeError, OSError):
        words = []
    return ": ".join([f"{error.code} {error.reason}", *words])
