"""A connection's way to its principal: SASL (KIP-43, KIP-152, KIP-368) with the mechanism PLAIN (RFC 4616).

A table says where each event leads, another which requests are answered in each state. Passwords are compared in
constant time, and a name that does not exist takes as long as one that does.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from enum import Enum
from typing import Final

from fencepost.broker.security.listeners import PLAIN, Listener
from fencepost.states import StateTable

__all__ = ["Login", "LoginEvent", "LoginFailed", "LoginState", "plain_user"]

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
        _S.CHOSEN: {_E.ACCEPT: _S.DONE, _E.REFUSE: _S.FAILED},
        _S.RAW: {_E.ACCEPT: _S.DONE, _E.REFUSE: _S.FAILED},
        _S.DONE: {_E.CHOOSE: _S.AGAIN, _E.REFUSE: _S.FAILED},
        _S.AGAIN: {_E.ACCEPT: _S.DONE, _E.REFUSE: _S.FAILED},
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


class LoginFailed(Exception):
    """Why the client was not let in; the text is what it is told."""


class Login:
    """One connection's authentication, on a listener that asks for it."""

    __slots__ = ("_expires_ms", "listener", "principal", "received_bytes", "state")

    def __init__(self, listener: Listener) -> None:
        self.listener = listener
        self.state = LoginState.NEW
        self.principal = ""
        self.received_bytes = 0
        self._expires_ms: int | None = None

    @property
    def done(self) -> bool:
        """Whether the client has been let in."""
        return self.state is LoginState.DONE

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
        return True

    def authenticate(self, now_ms: int, token: bytes) -> int:
        """The client's proof. Returns for how many ms it counts, 0 for ever. Raises LoginFailed."""
        try:
            principal = f"User:{plain_user(self.listener.users, token)}"
            if self.principal not in ("", principal):
                raise LoginFailed("Cannot change principals during re-authentication")
        except LoginFailed:
            self._step(LoginEvent.REFUSE)
            raise
        self._step(LoginEvent.ACCEPT)
        self.principal = principal
        self.received_bytes = 0
        lifetime_ms = self.listener.max_reauth_ms
        self._expires_ms = now_ms + lifetime_ms if lifetime_ms else None
        return lifetime_ms

    def _step(self, event: LoginEvent) -> None:
        self.state = TABLE.step(self.state, event)


def plain_user(users: Mapping[str, str], token: bytes) -> str:
    """The user of a PLAIN message: [authorization id] NUL name NUL password. Raises LoginFailed; texts as Kafka's."""
    parts = token.split(b"\0")
    if len(parts) != 3:
        raise LoginFailed(f"Invalid SASL/{PLAIN} response: expected 3 tokens, got {min(len(parts), 4)}")
    try:
        authorization, name = parts[0].decode(), parts[1].decode()
    except UnicodeDecodeError as error:
        raise LoginFailed("Authentication failed: Invalid username or password") from error
    if not name:
        raise LoginFailed("Authentication failed: username not specified")
    if not parts[2]:
        raise LoginFailed("Authentication failed: password not specified")
    expected = users.get(name)
    same = hmac.compare_digest((expected if expected is not None else name).encode(), parts[2])
    if expected is None or not same:
        raise LoginFailed("Authentication failed: Invalid username or password")
    if authorization not in ("", name):
        raise LoginFailed("Authentication failed: Client requested an authorization id that is different from username")
    return name
