"""Tokens for OAUTHBEARER from an identity provider: the client credentials grant (RFC 6749, section 4.4; KIP-768)."""

from __future__ import annotations

import base64
import ipaddress
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar
from urllib.parse import quote_plus, urlencode, urlsplit

from fencepost.arguments import brief_repr, is_loopback
from fencepost.client.client_assertions import ASSERTION_TYPE, assertion_source
from fencepost.client.outages import is_refusal
from fencepost.client.sasl import OAuthToken
from fencepost.errors import AuthenticationError, ConfigurationError
from fencepost.protocol.json_text import parse_json
from fencepost.sasl_settings import TokenEndpoint

__all__ = ["MOST_BYTES", "ClientCredentials", "ask_repeatedly", "is_near", "need_https", "provider_of", "token_in"]

T = TypeVar("T")

_TRIES: Final = 3
_FIRST_PAUSE_S: Final = 0.2
MOST_BYTES: Final = 1 << 20
_LONGEST_LIFE_S: Final = 2**31
_MOST_DIGITS: Final = 12


@dataclass(frozen=True, slots=True)
class ClientCredentials:
    """A `sasl_oauth_token_provider`: asks the token endpoint at `url` for a token whenever one is needed.

    The secret goes out over https only, or to this machine; another address is a ConfigurationError.
    """

    url: str
    client_id: str | None
    client_secret: str | None = field(repr=False)
    scope: str | None = None
    timeout_s: float = 10.0
    extensions: Mapping[str, str] = field(default_factory=dict)  # told to the broker with each token (KIP-342)
    urlencode: bool = True  # id and secret, as RFC 6749 (2.3.1) has it; other clients of Kafka do so only when asked
    assertion: Callable[[], str] | None = None  # returns a client assertion (RFC 7523), which replaces the secret

    def __post_init__(self) -> None:
        need_https("token endpoint", self.url, is_loopback, ", the secret goes there")

    def __call__(self) -> OAuthToken:
        """Return a new token. Raises AuthenticationError for a refusal, OSError for an error that may pass."""
        where = f"token endpoint {self.url}"
        return token_in(where, ask_repeatedly(where, self._ask, lambda status: not is_refusal(status)), self.extensions)

    def _ask(self) -> bytes:
        form = {"grant_type": "client_credentials"} | ({} if self.scope is None else {"scope": self.scope})
        headers = {"Accept": "application/json"}
        if self.assertion is not None:
            form |= {"client_assertion_type": ASSERTION_TYPE, "client_assertion": self.assertion()}
            form |= {} if self.client_id is None else {"client_id": self.client_id}
        else:
            encode = quote_plus if self.urlencode else str
            pair = f"{encode(self.client_id or '')}:{encode(self.client_secret or '')}"
            headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        request = urllib.request.Request(self.url, urlencode(form).encode(), headers)  # noqa: S310 (looked at)
        with urllib.request.urlopen(request, timeout=self.timeout_s) as answer:  # noqa: S310
            text: bytes = answer.read(MOST_BYTES)
        return text


def provider_of(endpoint: TokenEndpoint) -> ClientCredentials:
    """Return the provider for these settings. Raises ConfigurationError."""
    assertion = None if endpoint.assertion is None else assertion_source(endpoint.assertion)
    return ClientCredentials(
        endpoint.url,
        endpoint.client_id,
        endpoint.client_secret,
        endpoint.scope,
        extensions=endpoint.extensions,
        urlencode=endpoint.urlencode,
        assertion=assertion,
    )


def ask_repeatedly(where: str, ask: Callable[[], T], may_pass: Callable[[int], bool]) -> T:
    """Return the result of `ask`, which may fail for a moment.

    Args:
        where: The server, for messages.
        ask: Asks it.
        may_pass: Returns true for an HTTP status after which the same question may succeed.

    Raises:
        AuthenticationError: The server refuses.
        OSError: It failed each time.
    """
    for attempt in range(1, _TRIES + 1):
        try:
            return ask()
        except urllib.error.HTTPError as error:
            words = f"{where}: {_refusal(error)}"
            if not may_pass(error.code):
                raise AuthenticationError(words) from None
            failure = OSError(words)
        except OSError as error:
            failure = error
        if attempt < _TRIES:
            time.sleep(_FIRST_PAUSE_S * 2 ** (attempt - 1))
    raise failure


def token_in(where: str, text: bytes, extensions: Mapping[str, str], *, lifetime_is_text: bool = False) -> OAuthToken:
    """Return the token in an answer (RFC 6749, section 5.1). Azure writes `expires_in` as text. Raises OSError."""
    try:
        fields = parse_json(text)
        value, lifetime_s = fields["access_token"], fields.get("expires_in")
    except (ValueError, KeyError, TypeError, AttributeError):
        raise OSError(f"{where}: the answer holds no access_token") from None
    if not isinstance(value, str):
        raise OSError(f"{where}: the access_token is no text")
    if lifetime_s is None:
        return OAuthToken(value, None, extensions)
    if (
        lifetime_is_text
        and isinstance(lifetime_s, str)
        and lifetime_s.isascii()
        and lifetime_s.isdecimal()
        and len(lifetime_s) < _MOST_DIGITS
    ):
        lifetime_s = int(lifetime_s)
    if type(lifetime_s) not in (int, float) or not 0 <= lifetime_s <= _LONGEST_LIFE_S:  # JSON has 1e999, and true
        raise OSError(f"{where}: expires_in is {brief_repr(lifetime_s)}, which is no number of seconds")
    return OAuthToken(value, int((time.time() + lifetime_s) * 1000), extensions)


def need_https(operation: str, url: str, may_be_plain: Callable[[str], bool], reason: str) -> None:
    """Raise ConfigurationError for an address that is neither https, nor http to a host that may have it."""
    parts = urlsplit(url)
    if parts.scheme != "https" and not (parts.scheme == "http" and may_be_plain(parts.hostname or "")):
        raise ConfigurationError(f"{operation} {url!r}: https:// is needed{reason}")


def is_near(host: str) -> bool:
    """Return true for this machine, and for addresses that only its own link has."""
    try:
        return is_loopback(host) or ipaddress.ip_address(host).is_link_local
    except ValueError:
        return False


def _refusal(error: urllib.error.HTTPError) -> str:
    """Return the status and the provider's own words (RFC 6749, section 5.2). Closes the answer."""
    try:
        with error:
            fields = parse_json(error.read(MOST_BYTES))
        words = [str(fields[name]) for name in ("error", "error_description") if name in fields]
    except (ValueError, TypeError, OSError):
        words = []
    return ": ".join([f"{error.code} {error.reason}", *words])
