"""Tokens for OAUTHBEARER from an identity provider: the client credentials grant (RFC 6749, section 4.4; KIP-768)."""

from __future__ import annotations

import base64
import ipaddress
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote_plus, urlencode, urlsplit

from fencepost.client.outages import is_refusal
from fencepost.client.sasl import OAuthToken
from fencepost.errors import AuthenticationError, ConfigurationError
from fencepost.protocol.json_text import parse_json

__all__ = ["ClientCredentials"]

_TRIES: Final = 3
_FIRST_PAUSE_S: Final = 0.2
_MOST_BYTES: Final = 1 << 20
_LONGEST_LIFE_S: Final = 2**31


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
    extensions: Mapping[str, str] = field(default_factory=dict)  # told to the broker with each token (KIP-342)
    urlencode: bool = True  # id and secret, as RFC 6749 (2.3.1) has it; other clients of Kafka do so only when asked

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme != "https" and not (parts.scheme == "http" and _is_here(parts.hostname or "")):
            raise ConfigurationError(f"token endpoint {self.url!r}: https:// is needed, the secret goes there")

    def __call__(self) -> OAuthToken:
        """A new token. Raises AuthenticationError for a refusal, OSError for everything that may pass."""
        for attempt in range(1, _TRIES + 1):
            try:
                return self._token(self._ask())
            except urllib.error.HTTPError as error:
                words = f"token endpoint {self.url}: {_refusal(error)}"
                if is_refusal(error.code):
                    raise AuthenticationError(words) from None
                failure = OSError(words)
            except OSError as error:
                failure = error
            if attempt < _TRIES:
                time.sleep(_FIRST_PAUSE_S * 2 ** (attempt - 1))
        raise failure

    def _ask(self) -> bytes:
        form = {"grant_type": "client_credentials"} | ({} if self.scope is None else {"scope": self.scope})
        encode = quote_plus if self.urlencode else str
        who = base64.b64encode(f"{encode(self.client_id)}:{encode(self.client_secret)}".encode()).decode()
        request = urllib.request.Request(  # noqa: S310 (its kind was looked at)
            self.url, urlencode(form).encode(), {"Authorization": f"Basic {who}", "Accept": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=self.timeout_s) as answer:  # noqa: S310
            text: bytes = answer.read(_MOST_BYTES)
        return text

    def _token(self, text: bytes) -> OAuthToken:
        try:
            told = parse_json(text)
            value, lives_s = told["access_token"], told.get("expires_in")
        except (ValueError, KeyError, TypeError, AttributeError):
            raise OSError(f"token endpoint {self.url}: the answer holds no access_token") from None
        if not isinstance(value, str):
            raise OSError(f"token endpoint {self.url}: the access_token is no text")
        if lives_s is None:
            return OAuthToken(value, None, self.extensions)
        if type(lives_s) not in (int, float) or not 0 <= lives_s <= _LONGEST_LIFE_S:  # JSON has 1e999, and true
            told = f"expires_in is {lives_s!r:.40}, which is no number of seconds"
            raise OSError(f"token endpoint {self.url}: {told}")
        return OAuthToken(value, int((time.time() + lives_s) * 1000), self.extensions)


def _is_here(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _refusal(error: urllib.error.HTTPError) -> str:
    """Status and the provider's own words (RFC 6749, section 5.2)."""
    try:
        told = parse_json(error.read(_MOST_BYTES))
        words = [str(told[name]) for name in ("error", "error_description") if name in told]
    except (ValueError, TypeError, OSError):
        words = []
    return ": ".join([f"{error.code} {error.reason}", *words])
