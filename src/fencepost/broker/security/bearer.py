"""OAUTHBEARER in the broker (RFC 7628, KIP-255): signed tokens (JWT, RFC 7519), verified with keys (JWKS, RFC 7517).

The code is pure: keys and times are parameters. As in Kafka, a rejected token is answered with
{"status":"invalid_token"}, and with the reason after the client has acknowledged that. Tokens are not stored, and no
reason contains one.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeGuard

from fencepost.broker.security.mechanisms import LoginFailed
from fencepost.broker.settings.values import BrokerConfig
from fencepost.counted import duration_words
from fencepost.protocol.json_text import parse_json
from fencepost.values import Value

if TYPE_CHECKING:
    import jwt

__all__ = ["BearerExchange", "Keys", "TokenRules", "UnusableKeys"]

_FIRST = re.compile(
    rb"n,(?:a=([^,\x00]*))?,\x01((?:[A-Za-z]+=[\x20-\x7e\t\r\n]*\x01)*)\x01",
)
_BEARER = re.compile(r"[Bb]earer +([A-Za-z0-9._~+/-]+=*)")
_INVALID_TOKEN: Final = b'{"status":"invalid_token"}'
# Asymmetric algorithms only: with a shared secret the broker itself could sign tokens.
_ALGORITHMS: Final = frozenset("RS256 RS384 RS512 PS256 PS384 PS512 ES256 ES384 ES512 EdDSA".split())
_MOST_SHOWN: Final = 60
_END_OF_TIME_S: Final = 1e12


class UnusableKeys(Exception):
    """The text does not contain keys to verify tokens."""


class Keys:
    """The current public keys. `missing` is called if a token names an unknown key, which may be new."""

    def __init__(self) -> None:
        self._keys: list[jwt.PyJWK] = []
        self.missing: Callable[[], None] = lambda: None

    def replace(self, text: bytes) -> None:
        """Replace all keys. Raises UnusableKeys."""
        import jwt

        try:
            found = jwt.PyJWKSet.from_dict(parse_json(text.decode())).keys
        except (jwt.PyJWTError, ValueError, AttributeError, TypeError) as error:
            raise UnusableKeys(f"not a JSON Web Key Set: {error}") from error
        keys = [key for key in found if key.algorithm_name in _ALGORITHMS and _is_for_signatures(key)]
        if not keys:
            raise UnusableKeys("the set contains no public key for signatures")
        self._keys = keys

    def named(self, name: str | None) -> jwt.PyJWK:
        """Return the key with this id; without an id, the only key. Raises LoginFailed."""
        found = [key for key in self._keys if name is None or key.key_id == name]
        if len(found) == 1:
            return found[0]
        self.missing()
        if name is None:
            raise LoginFailed("Authentication failed: the token does not name its signing key (kid)")
        shown = repr(name[:_MOST_SHOWN])
        raise LoginFailed(f"Authentication failed: the token is signed with key {shown}, which is not accepted")


def _is_for_signatures(key: jwt.PyJWK) -> bool:
    """Return true if the key is for signatures, or does not state its use (RFC 7517, sections 4.2 and 4.3)."""
    operations = key._jwk_data.get("key_ops")
    if key.public_key_use not in (None, "sig"):
        return False
    return operations is None or (isinstance(operations, list) and "verify" in operations)


class TokenRules(Value):
    """Requirements for a token apart from its signature."""

    issuer: str | None
    audience: tuple[str, ...]
    """The token must have one of these; empty: no requirement."""
    skew_s: int
    subject_claim: str

    @classmethod
    def of(cls, config: BrokerConfig) -> TokenRules:
        """Return the rules of the settings."""
        audience = config.text("sasl.oauthbearer.expected.audience").split(",")
        return cls(
            config.value("sasl.oauthbearer.expected.issuer"),
            tuple(part.strip() for part in audience if part.strip()),
            config.number("sasl.oauthbearer.clock.skew.seconds"),
            config.text("sasl.oauthbearer.sub.claim.name"),
        )


class BearerExchange:
    """A SASL exchange of one message, the token. After a rejection the client sends one more, to acknowledge it."""

    def __init__(self, keys: Keys, rules: TokenRules, now_ms: Callable[[], int]) -> None:
        self._keys = keys
        self._rules = rules
        self._now_ms = now_ms
        self.user = self.claimed_name = ""
        self.lifetime_ms: int | None = None

    def answer(self, message: bytes) -> bytes:
        """Return an empty answer to a valid message. Raises LoginFailed."""
        match = _FIRST.fullmatch(message)
        pairs = dict(part.split("=", 1) for part in match[2].decode().split("\x01")[:-1]) if match is not None else {}
        bearer = _BEARER.fullmatch(pairs.get("auth", ""))
        if match is None or bearer is None:
            raise LoginFailed("Authentication failed: not an OAUTHBEARER message with a bearer token")
        try:
            user, lifetime_ms = self._checked(bearer[1])
        except LoginFailed as refusal:
            raise LoginFailed(str(refusal), _INVALID_TOKEN) from refusal
        if (match[1] or b"").decode(errors="replace") not in ("", user):
            raise LoginFailed(
                "Authentication failed: Client requested an authorization id that is not the token's user"
            )
        self.user, self.lifetime_ms = user, lifetime_ms
        return b""

    def _checked(self, token: str) -> tuple[str, int]:
        """Return the user, and the time in ms until the token expires. Raises LoginFailed."""
        import jwt

        try:
            key = self._keys.named(jwt.get_unverified_header(token).get("kid"))
            claims = parse_json(jwt.PyJWS().decode(token, key, algorithms=[key.algorithm_name]))
        except jwt.InvalidSignatureError as error:
            raise LoginFailed("Authentication failed: the token's signature is wrong") from error
        except jwt.InvalidAlgorithmError as error:
            raise LoginFailed(
                "Authentication failed: the token is signed in another way than its key is for"
            ) from error
        except (jwt.PyJWTError, ValueError, RecursionError) as error:
            raise LoginFailed("Authentication failed: the token is not a signed JWT") from error
        if not isinstance(claims, dict):
            raise LoginFailed("Authentication failed: the token is not a signed JWT")
        return self._judged(claims)

    def _judged(self, claims: dict[str, Any]) -> tuple[str, int]:
        now_s, skew_s = self._now_ms() / 1000, self._rules.skew_s
        ends, begins, user = claims.get("exp"), claims.get("nbf", 0), claims.get(self._rules.subject_claim)
        audience = claims.get("aud", [])
        named = audience if isinstance(audience, list) else [audience]
        if not _is_time(ends) or not _is_time(begins):
            raise LoginFailed("Authentication failed: the token does not say until when it counts (exp)")
        if ends + skew_s <= now_s:
            raise LoginFailed(f"Authentication failed: the token expired {duration_words((now_s - ends) * 1000)} ago")
        if begins - skew_s > now_s:
            raise LoginFailed(
                f"Authentication failed: the token counts only in {duration_words((begins - now_s) * 1000)} (nbf)"
            )
        if self._rules.issuer is not None and claims.get("iss") != self._rules.issuer:
            raise LoginFailed("Authentication failed: the token is from another issuer")
        if self._rules.audience and not set(self._rules.audience).intersection(map(str, named)):
            raise LoginFailed("Authentication failed: the token is for another audience")
        if not isinstance(user, str) or not user.strip():
            raise LoginFailed(f"Authentication failed: the token names no user ({self._rules.subject_claim})")
        return user, int((ends - now_s) * 1000)


def _is_time(claim: object) -> TypeGuard[float]:
    """Return true for a valid NumericDate (RFC 7519, section 2). JSON numbers may be infinite here."""
    return isinstance(claim, (int, float)) and abs(claim) < _END_OF_TIME_S
