"""SASL mechanisms in the broker: PLAIN (RFC 4616) and SCRAM (RFC 5802, RFC 7677). `bearer.py` has OAUTHBEARER.

An exchange takes the client's messages one after the other, and has the user at its end. The code is pure: credentials
and nonces are parameters. Passwords and proofs are compared in constant time. An unknown name takes as many steps, and
as long, as a known one. Error texts are Kafka's.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, Protocol

from fencepost.protocol.scram import SCRAM_HASHES

__all__ = [
    "OAUTHBEARER",
    "PLAIN",
    "LoginFailed",
    "PlainExchange",
    "SaslExchange",
    "ScramExchange",
    "ScramVerifier",
    "scram_credential",
]

PLAIN: Final = "PLAIN"
OAUTHBEARER: Final = "OAUTHBEARER"

_CLIENT_FIRST = re.compile(r"(n,(?:a=([^,]*))?,)(n=([^,]+),r=([\x21-\x2b\x2d-\x7e]+)(,.*)?)", re.DOTALL)
_CLIENT_FINAL = re.compile(r"(c=([^,]*),r=([\x21-\x2b\x2d-\x7e]+)(?:,.*)?),p=([^,]*)", re.DOTALL)
_ESCAPED = {"=2C": ",", "=3D": "="}
_OTHER_USER = "Authentication failed: Client requested an authorization id that is different from username"


class LoginFailed(Exception):
    """Authentication failed; the text is sent to the client.

    `challenge` is a message of the mechanism to send first.
    """

    def __init__(self, reason: str, challenge: bytes = b"") -> None:
        super().__init__(reason)
        self.challenge = challenge


class SaslExchange(Protocol):
    """An exchange of a SASL mechanism.

    Attributes:
        user: The authenticated user; "" before.
        claimed_name: The name that the client claimed, if the mechanism has names.
        lifetime_ms: Time in ms until the credentials expire, not above 0 if they have just expired; None: never.
    """

    user: str
    claimed_name: str
    lifetime_ms: int | None

    def answer(self, message: bytes) -> bytes:
        """Return the answer to the client's next message. Raises LoginFailed."""


class PlainExchange:
    """PLAIN: one message with the password. `users` maps names to passwords."""

    def __init__(self, users: Mapping[str, str]) -> None:
        self._users = users
        self.user = self.claimed_name = ""
        self.lifetime_ms: int | None = None

    def answer(self, message: bytes) -> bytes:
        """Process [authorization id] NUL name NUL password. Raises LoginFailed."""
        parts = message.split(b"\0")
        if len(parts) != 3:
            raise LoginFailed(f"Invalid SASL/{PLAIN} response: expected 3 tokens, got {min(len(parts), 4)}")
        try:
            authorization, name = parts[0].decode(), parts[1].decode()
        except UnicodeDecodeError as error:
            raise LoginFailed("Authentication failed: Invalid username or password") from error
        self.claimed_name = name
        if not name:
            raise LoginFailed("Authentication failed: username not specified")
        if not parts[2]:
            raise LoginFailed("Authentication failed: password not specified")
        expected = self._users.get(name)
        same = hmac.compare_digest((expected if expected is not None else name).encode(), parts[2])
        if expected is None or not same:
            raise LoginFailed("Authentication failed: Invalid username or password")
        if authorization not in ("", name):
            raise LoginFailed(_OTHER_USER)
        self.user = name
        return b""


class ScramVerifier(NamedTuple):
    """Data to verify a proof, from which no proof can be made. `known` is false for a user that does not exist."""

    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes
    known: bool = True


def scram_credential(mechanism: str, salted_password: bytes, salt: bytes, iterations: int) -> ScramVerifier:
    """Return the credential of a salted password (PBKDF2)."""
    algorithm = SCRAM_HASHES[mechanism]
    client_key = hmac.digest(salted_password, b"Client Key", algorithm)
    stored_key = hashlib.new(algorithm, client_key).digest()
    return ScramVerifier(salt, iterations, stored_key, hmac.digest(salted_password, b"Server Key", algorithm))


class ScramExchange:
    """SCRAM without channel binding: two messages of the client, each with an answer.

    Kafka ends the exchange at once for an unknown name. This one continues to the proof, and its error is the same as
    for a wrong password.

    Args:
        mechanism: Name of the mechanism.
        credential_of: Returns a user's credential, and a random one for an unknown name.
        nonce: Fresh, unpredictable, printable, without commas.
    """

    def __init__(self, mechanism: str, credential_of: Callable[[str], ScramVerifier], nonce: str) -> None:
        self._mechanism = mechanism
        self._credential_of = credential_of
        self._nonce = nonce
        self.claimed_name = ""
        self._credential: ScramVerifier | None = None
        self._gs2_header = self._said = ""
        self.user = ""
        self.lifetime_ms: int | None = None

    def answer(self, message: bytes) -> bytes:
        """Return the server-first, then the server-final message. Raises LoginFailed."""
        try:
            text = message.decode()
        except UnicodeDecodeError as error:
            raise self._refusal() from error
        if self._credential is None:
            return self._first(text)
        return self._final(text, self._credential)

    def _first(self, text: str) -> bytes:
        match = _CLIENT_FIRST.fullmatch(text)
        if match is None:
            raise self._refusal()
        self._gs2_header, authorization, bare, name, nonce, extensions = match.groups()
        # A delegation token's id would be sent as the name; delegation tokens are not supported.
        if re.sub("=2C|=3D", "", name).count("=") or ",tokenauth=true" in (extensions or ""):
            raise self._refusal()
        self.claimed_name, authorization = _unescaped(name), _unescaped(authorization or "")
        if authorization not in ("", self.claimed_name):
            raise LoginFailed(_OTHER_USER)
        credential = self._credential = self._credential_of(self.claimed_name)
        self._nonce = nonce + self._nonce
        salt = base64.b64encode(credential.salt).decode()
        answer = f"r={self._nonce},s={salt},i={credential.iterations}"
        self._said = f"{bare},{answer}"
        return answer.encode()

    def _final(self, text: str, credential: ScramVerifier) -> bytes:
        match = _CLIENT_FINAL.fullmatch(text)
        if match is None:
            raise self._refusal()
        without_proof, binding, nonce, encoded = match.groups()
        try:
            proof = base64.b64decode(encoded, validate=True)
        except (binascii.Error, ValueError) as error:
            raise self._refusal() from error
        algorithm = SCRAM_HASHES[self._mechanism]
        everything = f"{self._said},{without_proof}".encode()
        signature = hmac.digest(credential.stored_key, everything, algorithm)
        fits = len(proof) == len(signature)
        client_key = bytes(left ^ right for left, right in zip(proof, signature, strict=fits))
        proved = hmac.compare_digest(hashlib.new(algorithm, client_key).digest(), credential.stored_key)
        bound = binding == base64.b64encode(self._gs2_header.encode()).decode()
        if not (fits and proved and bound and nonce == self._nonce and credential.known):
            raise self._refusal()
        self.user = self.claimed_name
        verifier = hmac.digest(credential.server_key, everything, algorithm)
        return f"v={base64.b64encode(verifier).decode()}".encode()

    def _refusal(self) -> LoginFailed:
        what = "Authentication failed during authentication due to invalid credentials with SASL mechanism"
        return LoginFailed(f"{what} {self._mechanism}")


def _unescaped(name: str) -> str:
    return re.sub("=2C|=3D", lambda found: _ESCAPED[found[0]], name)
