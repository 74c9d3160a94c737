"""Authentication of a connection by SASL (KIP-43, KIP-152, KIP-368).

One table defines the transitions between states, another the requests that each state allows. `mechanisms.py` has the
mechanisms.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple

from fencepost.broker.security.credentials import Credentials
from fencepost.broker.security.listeners import Listener
from fencepost.broker.security.mechanisms import LoginFailed, SaslExchange
from fencepost.states import StateTable

__all__ = ["Login", "LoginAnswer", "LoginEvent", "LoginState"]

_HANDSHAKE, _API_VERSIONS, _AUTHENTICATE = 17, 18, 36


class LoginState(Enum):
    """State of a connection's authentication."""

    NEW = "new"
    CHOSEN = "mechanism chosen"
    RAW = "mechanism chosen, tokens come without a request around them"
    DONE = "authenticated"
    AGAIN = "mechanism chosen again, authenticated before"
    FAILED = "failed"


class LoginEvent(Enum):
    """Event in a connection's authentication."""

    CHOOSE = "handshake"
    CHOOSE_RAW = "handshake v0"
    GO_ON = "first of several messages"
    ACCEPT = "right password"
    REFUSE = "wrong password or mechanism"


_S, _E = LoginState, LoginEvent


def _illegal(state: LoginState, event: LoginEvent) -> RuntimeError:
    """Return the error for an event that its state does not allow."""
    return RuntimeError(f"{event.value} in state {state.value!r}")


TABLE: Final = StateTable(
    LoginState,
    LoginEvent,
    {
        _S.NEW: {_E.CHOOSE: _S.CHOSEN, _E.CHOOSE_RAW: _S.RAW, _E.REFUSE: _S.FAILED},
        _S.CHOSEN: {_E.GO_ON: _S.CHOSEN, _E.ACCEPT: _S.DONE, _E.REFUSE: _S.FAILED},
        _S.RAW: {_E.GO_ON: _S.RAW, _E.ACCEPT: _S.DONE, _E.REFUSE: _S.FAILED},
        _S.DONE: {_E.CHOOSE: _S.AGAIN, _E.REFUSE: _S.FAILED},
        _S.AGAIN: {_E.GO_ON: _S.AGAIN, _E.ACCEPT: _S.DONE, _E.REFUSE: _S.FAILED},
    },
    _illegal,
)

# Requests that each state allows. DONE allows all until the authentication expires.
_ANSWERED: Mapping[LoginState, frozenset[int]] = {
    LoginState.NEW: frozenset({_API_VERSIONS, _HANDSHAKE}),
    LoginState.CHOSEN: frozenset({_API_VERSIONS, _AUTHENTICATE}),
    LoginState.RAW: frozenset(),
    LoginState.AGAIN: frozenset({_API_VERSIONS, _AUTHENTICATE}),
    LoginState.FAILED: frozenset(),
}


class LoginAnswer(NamedTuple):
    """Answer to a client's message.

    Attributes:
        message: The mechanism's message.
        principal: The authenticated principal; "" if the exchange continues.
        lifetime_ms: Lifetime of the authentication in ms; 0: unlimited.
        refusal: Reason of the rejection, if this is the last message of a rejected exchange.
    """

    message: bytes
    principal: str = ""
    lifetime_ms: int = 0
    refusal: str = ""


class Login:
    """Authentication of one connection."""

    __slots__ = (
        "_credentials",
        "_exchange",
        "_expires_ms",
        "_mechanism",
        "_refusal",
        "listener",
        "principal",
        "received_bytes",
        "state",
    )

    def __init__(self, listener: Listener, credentials: Credentials) -> None:
        self._credentials = credentials
        self._mechanism = ""
        self._exchange: SaslExchange | None = None
        self._refusal: LoginFailed | None = None
        self.listener = listener
        self.state = LoginState.NEW
        self.principal = ""
        self.received_bytes = 0
        self._expires_ms: int | None = None

    @property
    def done(self) -> bool:
        """True if the client is authenticated."""
        return self.state is LoginState.DONE

    @property
    def claimed_name(self) -> str:
        """The name that the client claimed last and has not proved, or ""."""
        return "" if self._exchange is None else self._exchange.claimed_name

    @property
    def is_for_ever(self) -> bool:
        """True if the client is authenticated without expiry (KIP-368)."""
        return self.done and self._expires_ms is None

    def answers(self, now_ms: int, api_key: int) -> bool:
        """Return true if a request of this API is allowed now. Any other request closes the connection."""
        if self.state is LoginState.DONE:
            expired = self._expires_ms is not None and now_ms > self._expires_ms
            return not expired or api_key in (_API_VERSIONS, _HANDSHAKE)
        return api_key in _ANSWERED[self.state]

    def time_jumped(self, by_ms: int) -> None:
        """Shift the expiry after a forward jump of the clock."""
        if self._expires_ms is not None:
            self._expires_ms += by_ms

    def choose(self, mechanism: str, *, raw: bool) -> bool:
        """Select the mechanism; return false if it is not enabled."""
        if mechanism not in self.listener.mechanisms:
            self._step(LoginEvent.REFUSE)
            return False
        self._step(LoginEvent.CHOOSE_RAW if raw else LoginEvent.CHOOSE)
        self._mechanism = mechanism
        self._exchange = self._credentials.exchange(self.listener, mechanism)
        return True

    def authenticate(self, now_ms: int, token: bytes) -> LoginAnswer:
        """Process the client's next message. Raises LoginFailed."""
        exchange = self._exchange
        if exchange is None:
            raise _illegal(self.state, LoginEvent.ACCEPT)
        try:
            if self._refusal is not None:
                raise self._refusal
            message = exchange.answer(token)
            principal = f"User:{exchange.user}"
            if exchange.user and self.principal not in ("", principal):
                raise LoginFailed("Cannot change principals during re-authentication")
        except LoginFailed as failed:
            if failed.challenge and self._refusal is None:
                self._refusal = failed
                self._step(LoginEvent.GO_ON)
                return LoginAnswer(failed.challenge, refusal=str(failed))
            self._step(LoginEvent.REFUSE)
            raise
        if not exchange.user:
            self._step(LoginEvent.GO_ON)
            return LoginAnswer(message)
        self._step(LoginEvent.ACCEPT)
        self._exchange = None
        self.principal = principal
        self.received_bytes = 0
        lifetime_ms = self.listener.max_reauth_ms[self._mechanism]
        if exchange.lifetime_ms is not None:  # an expired token within the allowed clock skew must be replaced at once
            left_ms = max(exchange.lifetime_ms, 1)
            lifetime_ms = min(lifetime_ms, left_ms) if lifetime_ms else left_ms
        self._expires_ms = now_ms + lifetime_ms if lifetime_ms else None
        return LoginAnswer(message, principal, lifetime_ms)

    def _step(self, event: LoginEvent) -> None:
        self.state = TABLE.step(self.state, event)
