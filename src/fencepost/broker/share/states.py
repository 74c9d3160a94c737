"""States of a record in a share group (KIP-932) and the transitions between them.

Source: `RecordState` and `InFlightState` of Apache Kafka 4.3.1. A record without a state is available.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from fencepost.states import StateTable

__all__ = ["RECORD_TABLE", "TERMINAL", "IllegalRecordStep", "RecordEvent", "RecordState", "record_step"]


class RecordState(IntEnum):
    """State of a record. The numbers are stored, except ACQUIRED: a restarted broker has no locks."""

    AVAILABLE = 0  # can be delivered to a member
    ACQUIRED = 1  # locked by a member until the lock expires
    ACKNOWLEDGED = 2  # processed
    ARCHIVED = 4  # not to be delivered: rejected, delivered too often, or no longer in the log


class RecordEvent(IntEnum):
    """Event of a record."""

    HANDED_OUT = 0
    ACCEPTED = 1  # the member has processed it
    RELEASED = 2  # the member releases it, or the lock expired
    REJECTED = 3  # the member rejects it
    EXHAUSTED = 4  # it was released at its delivery limit
    RENEWED = 5  # the member needs more time (KIP-1222)
    MISSING = 6  # the log has no such record to deliver: compacted, a marker, or aborted


class IllegalRecordStep(RuntimeError):
    """The table has no such transition: a bug of the broker, never of a client."""


_S, _E = RecordState, RecordEvent

RECORD_TABLE: Final = StateTable(
    RecordState,
    RecordEvent,
    {
        _S.AVAILABLE: {
            _E.HANDED_OUT: _S.ACQUIRED,
            _E.MISSING: _S.ARCHIVED,
        },
        _S.ACQUIRED: {
            _E.ACCEPTED: _S.ACKNOWLEDGED,
            _E.RELEASED: _S.AVAILABLE,
            _E.REJECTED: _S.ARCHIVED,
            _E.EXHAUSTED: _S.ARCHIVED,
            _E.RENEWED: _S.ACQUIRED,
            _E.MISSING: _S.ARCHIVED,
        },
        # These states are final; such records leave with the start of the window.
        _S.ACKNOWLEDGED: {},
        _S.ARCHIVED: {},
    },
    lambda state, event: IllegalRecordStep(f"{event.name} of a record that is {state.name}"),
)
record_step: Final = RECORD_TABLE.step
TERMINAL: Final = (RecordState.ACKNOWLEDGED, RecordState.ARCHIVED)
