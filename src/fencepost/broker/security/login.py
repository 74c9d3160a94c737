"""A connection's way to its principal: SASL (KIP-43, KIP-152, KIP-368).

A table says where each event leads, another which requests are answered in each state; what the mechanisms say is in
`mechanisms.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple

from fencepost.broker.security.credentials import Credentials
from fencepost.broker.security.listeners import Listener
from fencepost.broker.security.mechanisms import Exchange, LoginFailed
from fencepost.states import StateTable

__all__ = ["Login", "LoginAnswer", "LoginEvent", "LoginState"]

_HANDSHAKE, _API_VERSIONS, _AUTHENTICATE = 17, 18, 36


class LoginState(Enum):
    """How far a connection has come."""

    NEW = "new"
    CHOSEN = "mechanism chosen"
    RAW = "mechanism chosen, tokens come without a request around them"
    DONE = "authenticated"
    AGAIN = "mechanism chosen again, authenticated before"
    FAILED = "failed"


class LoginEvent(Enum):
    """What can happen to it."""

    CHOOSE = "handshake"
    CHOOSE_RAW = "handshake v0"
    GO_ON = "first of several messages"
    ACCEPT = "right password"
    REFUSE = "wrong password or mechanism"


_S, _E = LoginState, LoginEvent


def _illegal(state: LoginState, event: LoginEvent) -> RuntimeError:
    """The request that causes the event is not answered in that state."""
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

# Which requests are answered; DONE answers all while the authentication lasts.
_ANSWERED: Mapping[LoginState, frozenset[int]] = {
    LoginState.NEW: frozenset({_API_VERSIONS, _HANDSHAKE}),
    LoginState.CHOSEN: frozenset({_API_VERSIONS, _AUTHENTICATE}),
    LoginState.RAW: frozenset(),
    LoginState.AGAIN: frozenset({_API_VERSIONS, _AUTHENTICATE}),
    LoginState.FAILED: frozenset(),
}


class LoginAnswer(NamedTuple):
    """What the client is told: the mechanism's message, and for how many ms the login counts, 0 for ever. `principal`:
    who it is, empty while more is to be said. `refusal`: why this is the last that its mechanism says to it."""

    message: bytes
    principal: str = ""
    lifetime_ms: int = 0
    refusal: str = ""


class Login:
    """One connection's authentication, on a listener that asks for it."""

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
        self._exchange: Exchange | None = None
        self._refusal: LoginFailed | None = None
        self.listener = listener
        self.state = LoginState.NEW
        self.principal = ""
        self.received_bytes = 0
        self._expires_ms: int | None = None

    @property
    def done(self) -> bool:
        """Whether the client has been let in."""
        return self.state is LoginState.DONE

    @property
    def tried(self) -> str:
        """The name that the client has given last, and has not proved; empty where there is none."""
        return "" if self._exchange is None else self._exchange.tried

    @property
    def is_for_ever(self) -> bool:
        """Whether the client has been let in and need not come again (KIP-368)."""
        return self.done and self._expires_ms is None

    def answers(self, now_ms: int, api_key: int) -> bool:
        """Whether a request of that API is answered now. Others end the connection."""
        if self.state is LoginState.DONE:
            expired = self._expires_ms is not None and now_ms > self._expires_ms
            return not expired or api_key in (_API_VERSIONS, _HANDSHAKE)
        return api_key in _ANSWERED[self.state]

    def choose(self, mechanism: str, *, raw: bool) -> bool:
        """The client names its mechanism; False when it is not served."""
        if mechanism not in self.listener.mechanisms:
            self._step(LoginEvent.REFUSE)
            return False
        self._step(LoginEvent.CHOOSE_RAW if raw else LoginEvent.CHOOSE)
        self._mechanism = mechanism
        self._exchange = self._credentials.exchange(self.listener, mechanism)
        return True

    def authenticate(self, now_ms: int, token: bytes) -> LoginAnswer:
        """The client's next message. Raises LoginFailed."""
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
        if exchange.until_ms is not None:  # a token that clocks apart let in is to be replaced at once
            left_ms = max(exchange.until_ms - now_ms, 1)
            lifetime_ms = min(lifetime_ms, left_ms) if lifetime_ms else left_ms
        self._expires_ms = now_ms + lifetime_ms if lifetime_ms else None
        return LoginAnswer(message, principal, lifetime_ms)

    def _step(self, event: LoginEvent) -> None:
        self.state = TABLE.step(self.state, event)
