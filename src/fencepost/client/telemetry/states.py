"""States of a client that pushes its metrics (KIP-714), and all transitions. They are those of Java's clients.

SUBSCRIPTION_NEEDED          requests the subscription when the wait is over
SUBSCRIPTION_IN_PROGRESS     GetTelemetrySubscriptions is in flight
PUSH_NEEDED                  pushes when the wait is over
PUSH_IN_PROGRESS             PushTelemetry is in flight
TERMINATING_PUSH_NEEDED      closes, and pushes for the last time
TERMINATING_PUSH_IN_PROGRESS the last PushTelemetry is in flight
TERMINATED                   sends no more requests
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from fencepost.errors import UsageError
from fencepost.states import StateTable, illegal

__all__ = ["TABLE", "TelemetryEvent", "TelemetryState"]


class TelemetryState(Enum):
    """See the module's docstring."""

    SUBSCRIPTION_NEEDED = auto()
    SUBSCRIPTION_IN_PROGRESS = auto()
    PUSH_NEEDED = auto()
    PUSH_IN_PROGRESS = auto()
    TERMINATING_PUSH_NEEDED = auto()
    TERMINATING_PUSH_IN_PROGRESS = auto()
    TERMINATED = auto()


class TelemetryEvent(Enum):
    """Events of a client that pushes its metrics."""

    ASK = auto()
    SUBSCRIBED = auto()  # the broker wants metrics
    NOTHING_WANTED = auto()
    PUSH = auto()
    PUSHED = auto()
    FAILED = auto()  # an error that may pass, or no response
    REFUSED = auto()  # an error that ends telemetry
    CLOSE = auto()


_S = TelemetryState
_E = TelemetryEvent


TABLE: Final = StateTable(
    TelemetryState,
    TelemetryEvent,
    {
        _S.SUBSCRIPTION_NEEDED: {
            _E.ASK: _S.SUBSCRIPTION_IN_PROGRESS,
            _E.CLOSE: _S.TERMINATED,
        },
        _S.SUBSCRIPTION_IN_PROGRESS: {
            _E.SUBSCRIBED: _S.PUSH_NEEDED,
            _E.NOTHING_WANTED: _S.SUBSCRIPTION_NEEDED,
            _E.FAILED: _S.SUBSCRIPTION_NEEDED,
            _E.REFUSED: _S.TERMINATED,
            _E.CLOSE: _S.TERMINATED,
        },
        _S.PUSH_NEEDED: {
            _E.PUSH: _S.PUSH_IN_PROGRESS,
            _E.CLOSE: _S.TERMINATING_PUSH_NEEDED,
        },
        _S.PUSH_IN_PROGRESS: {
            _E.PUSHED: _S.PUSH_NEEDED,
            _E.FAILED: _S.SUBSCRIPTION_NEEDED,  # the subscription may have changed
            _E.REFUSED: _S.TERMINATED,
            _E.CLOSE: _S.TERMINATING_PUSH_NEEDED,
        },
        _S.TERMINATING_PUSH_NEEDED: {
            _E.PUSH: _S.TERMINATING_PUSH_IN_PROGRESS,
            _E.CLOSE: _S.TERMINATED,  # no connection, or no time
        },
        _S.TERMINATING_PUSH_IN_PROGRESS: {
            _E.PUSHED: _S.TERMINATED,
            _E.FAILED: _S.TERMINATED,
            _E.REFUSED: _S.TERMINATED,
            _E.CLOSE: _S.TERMINATED,
        },
        _S.TERMINATED: {
            _E.CLOSE: _S.TERMINATED,
        },
    },
    illegal("telemetry", UsageError),
)
