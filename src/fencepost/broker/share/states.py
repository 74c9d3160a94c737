"""The states of a record as a share group sees it (KIP-932), and every step between them.

Source: `RecordState` and `InFlightState` of Apache Kafka 4.3.1. A record that is in no state yet is available.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from fencepost.states import StateTable

__all__ = ["RECORD_TABLE", "TERMINAL", "IllegalRecordStep", "RecordEvent", "RecordState", "record_step"]


class RecordState(IntEnum):
    """Stored under these numbers; ACQUIRED never is: a broker that starts anew knows of no locks."""

    AVAILABLE = 0  # may be handed to a member
    ACQUIRED = 1  # a member has it, for as long as its lock lasts
    ACKNOWLEDGED = 2  # processed
    ARCHIVED = 4  # given up: rejected, delivered too often, or not in the log any more


class RecordEvent(IntEnum):
    """What can happen to a record."""

    HANDED_OUT = 0
    ACCEPTED = 1  # its member has processed it
    RELEASED = 2  # its member gives it back, or the lock ran out
    REJECTED = 3  # its member says that nobody can process it
    EXHAUSTED = 4  # it comes back and was delivered as often as it may be
    RENEWED = 5  # its member needs more time (KIP-1222)
    MISSING = 6  # the log has nothing to hand out there: compacted away, a marker, or aborted


class IllegalRecordStep(RuntimeError):
    """The table has no such step: a defect of the broker, never of a client."""


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
        # What is done is done; it leaves with the start of the window.
        _S.ACKNOWLEDGED: {},
        _S.ARCHIVED: {},
    },
    lambda state, event: IllegalRecordStep(f"{event.name} of a record that is {state.name}"),
)
record_step: Final = RECORD_TABLE.step
TERMINAL: Final = (RecordState.ACKNOWLEDGED, RecordState.ARCHIVED)
