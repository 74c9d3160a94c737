"""SASL mechanisms as pure generators, which yield the client's messages and receive the server's.

A generator returns after success, otherwise it raises AuthenticationError. PLAIN is RFC 4616. SCRAM is RFC 5802 and
7677, in which the server also proves that it knows the password. OAUTHBEARER is RFC 7628 with Kafka's extensions
(KIP-342). GSSAPI is RFC 4752 with a given security context. Names and passwords are UTF-8 without SASLprep, as in
Kafka.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Awaitable, Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from fencepost.arguments import brief_repr, whole_number
from fencepost.errors import AuthenticationError, ConfigurationError
from fencepost.protocol.json_text import parse_json
from fencepost.protocol.scram import FEWEST_ITERATIONS, MOST_ITERATIONS, SCRAM_HASHES

# Yields the client's messages and receives the server's.
Conversation = Generator[bytes, bytes, None]

OAUTH_SEPARATOR: Final = "\x01"
NO_SECURITY_LAYER: Final = 1  # RFC 4752, 3.3: its bit in the mask of layers; Kafka supports no other


@dataclass(frozen=True, slots=True)
class OAuthToken:
    """A bearer token. It is reused until shortly before `expires_at_ms` (ms since 1970; None: unknown)."""

    value: str = field(repr=False)
    expires_at_ms: int | None = None
    extensions: Mapping[str, str] = field(default_factory=dict)

    def is_valid_at(self, now_ms: int) -> bool:
        """Return true if the token has a known expiry, which is later than `now_ms`."""
        return self.expires_at_ms is not None and now_ms < self.expires_at_ms


def token_of(given: object) -> object:
    """Return the OAuthToken for text, or for the tuple of confluent-kafka's `oauth_cb`; other values unchanged.

    The tuple has the token, its expiry in seconds since 1970, and perhaps a principal, which the broker reads from the
    token, and a dict of SASL extensions.
    """
    if isinstance(given, str):
        return OAuthToken(given)
    if isinstance(given, tuple) and len(given) >= 2 and isinstance(given[0], str):
        token, expires_at_s, *more = given
        return OAuthToken(token, round(float(expires_at_s) * 1000), dict(more[1]) if len(more) > 1 and more[1] else {})
    return given


# Type of `sasl_oauth_token_provider`: a function that may block and runs in a thread, or a coroutine function.
TokenProvider = Callable[[], "OAuthToken | str | Awaitable[OAuthToken | str]"]


class SecurityContext(Protocol):
    """The initiator's side of a GSS-API context (RFC 2743). Its calls may block.

    They raise AuthenticationError, or KafkaTimeoutError if no ticket is available now.
    """

    @property
    def complete(self) -> bool: ...

    def step(self, token: bytes | None) -> bytes | None:
        """Return the next message (None or b"": nothing) after the server's token; the first call gets None."""
        ...

    def wrap(self, message: bytes) -> bytes:
        """Return the message with integrity protection, not encrypted."""
        ...

    def unwrap(self, message: bytes) -> bytes: ...


def plain(username: str, password: str) -> Conversation:
    """Run PLAIN (RFC 4616), which sends the password; only for encrypted or local connections."""
    if "\0" in username or "\0" in password:
        raise ConfigurationError("SASL PLAIN: user name and password must not hold NUL")
    yield f"\0{username}\0{password}".encode()


def scram(mechanism: str, username: str, password: str, nonce: str) -> Conversation:
    """Run SCRAM (RFC 5802) without channel binding. `nonce` is fresh, unpredictable, printable and has no comma."""
    algorithm = SCRAM_HASHES[mechanism]
    name = username.replace("=", "=3D").replace(",", "=2C")
    first = f"n={name},r={nonce}"
    server_first = _text(mechanism, (yield f"n,,{first}".encode()))
    attributes = _attributes(mechanism, server_first)
    server_nonce = attributes.get("r", "")
    if not server_nonce.startswith(nonce) or len(server_nonce) == len(nonce):
        raise AuthenticationError(f"{mechanism}: the server's nonce does not begin with the client's")
    asked = attributes.get("i", "")
    iterations = whole_number(asked) or 0
    if not FEWEST_ITERATIONS <= iterations <= MOST_ITERATIONS:
        raise AuthenticationError(
            f"{mechanism}: the server asks for {brief_repr(asked)} iterations, accepted are "
            f"{FEWEST_ITERATIONS} to {MOST_ITERATIONS}"
        )
    salted = hashlib.pbkdf2_hmac(algorithm, password.encode(), _base64(mechanism, attributes.get("s", "")), iterations)
    client_key = hmac.digest(salted, b"Client Key", algorithm)
    without_proof = f"c=biws,r={server_nonce}"
    everything = f"{first},{server_first},{without_proof}".encode()
    signature = hmac.digest(hashlib.new(algorithm, client_key).digest(), everything, algorithm)
    proof = bytes(byte ^ other for byte, other in zip(client_key, signature, strict=True))
    server_final = _text(mechanism, (yield f"{without_proof},p={base64.b64encode(proof).decode()}".encode()))
    attributes = _attributes(mechanism, server_final)
    if "e" in attributes:
        raise AuthenticationError(f"{mechanism}: the server says {attributes['e']!r}", code=58)
    expected = hmac.digest(hmac.digest(salted, b"Server Key", algorithm), everything, algorithm)
    if not hmac.compare_digest(_base64(mechanism, attributes.get("v", "")), expected):
        raise AuthenticationError(f"{mechanism}: the server could not prove that it knows the password")


def oauthbearer(token: OAuthToken) -> Conversation:
    """Run OAUTHBEARER (RFC 7628).

    A refusal is JSON, which the client acknowledges before the server reports the error.
    """
    for key, value in token.extensions.items():
        if key == "auth" or not re.fullmatch(r"[A-Za-z]+", key) or not re.fullmatch(r"[\x20-\x7e\t\r\n]*", value):
            raise ConfigurationError(f"OAUTHBEARER: {key!r} is not a valid extension name, or its value is invalid")
    if not re.fullmatch(r"[\x21-\x7e]+", token.value):
        raise ConfigurationError("OAUTHBEARER: the token provider returned no token, or a token with blanks")
    pairs = [f"auth=Bearer {token.value}", *(f"{key}={value}" for key, value in token.extensions.items())]
    challenge = yield ("n,," + "".join(f"{OAUTH_SEPARATOR}{pair}" for pair in pairs) + OAUTH_SEPARATOR * 2).encode()
    if not challenge:
        return
    yield OAUTH_SEPARATOR.encode()
    raise AuthenticationError(f"OAUTHBEARER: the server refused the token: {_refusal(challenge)}", code=58)


def gssapi(context: SecurityContext) -> Conversation:
    """Run GSSAPI (RFC 4752, section 3.1): tokens until the context is complete, then the choice of security layers.

    No authorization identity is sent: the server uses that of the ticket.
    """
    token = context.step(None)
    while not context.complete:
        if not token:
            raise AuthenticationError("GSSAPI: the context waits for the server before anything was said")
        answer = yield token
        if not answer:
            raise AuthenticationError("GSSAPI: the server ended before the context stood")
        token = context.step(answer)
    layers = context.unwrap((yield token or b""))
    if len(layers) != 4:
        raise AuthenticationError(f"GSSAPI: the server's choice of security layers has {len(layers)} bytes, not 4")
    if not layers[0] & NO_SECURITY_LAYER:
        raise AuthenticationError(
            "GSSAPI: the server insists on a security layer; Kafka's protocol has none, TLS serves"
        )
    yield context.wrap(bytes([NO_SECURITY_LAYER, 0, 0, 0]))


def _refusal(challenge: bytes) -> str:
    try:
        fields = parse_json(challenge)
    except ValueError:
        return repr(challenge[:200])
    return ", ".join(f"{key} {value}" for key, value in fields.items()) if isinstance(fields, dict) else repr(fields)


def _text(mechanism: str, message: bytes) -> str:
    try:
        return str(message, "utf-8")
    except UnicodeDecodeError as error:
        raise AuthenticationError(f"{mechanism}: the server's message is not text") from error


def _attributes(mechanism: str, message: str) -> dict[str, str]:
    """Parse "r=...,s=...,i=4096" into a dict. An unknown mandatory extension ("m=") must be rejected."""
    pairs = [attribute.partition("=") for attribute in message.split(",")]
    if any(len(name) != 1 or not equals for name, equals, _ in pairs) or pairs[0][0] == "m":
        raise AuthenticationError(f"{mechanism}: cannot read the server's message {message[:100]!r}")
    return {name: value for name, _, value in pairs}


def _base64(mechanism: str, text: str) -> bytes:
    try:
        decoded = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise AuthenticationError(f"{mechanism}: the server sent bad base64") from error
    if not decoded:
        raise AuthenticationError(f"{mechanism}: the server left out its salt or its proof")
    return decoded
