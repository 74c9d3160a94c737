"""The states of a classic group member as the consumer sees them, and all transitions.

UNJOINED    not in the group; the next poll joins
JOINING     JoinGroup is in flight (the broker holds it until all members have joined)
SYNCING     SyncGroup is in flight (the leader sends the assignment)
STABLE      has an assignment; heartbeats run
REBALANCING in the group, and joins again with the next poll; heartbeats run until then
LEFT        left the group, by close or unsubscribe
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from fencepost.errors import UsageError
from fencepost.states import StateTable, illegal


class ClassicMemberState(Enum):
    """See the module's docstring."""

    UNJOINED = auto()
    JOINING = auto()
    SYNCING = auto()
    STABLE = auto()
    REBALANCING = auto()
    LEFT = auto()


class ClassicMemberEvent(Enum):
    """Events of a classic group member."""

    JOIN = auto()  # a poll starts to join
    JOINED = auto()  # the response to JoinGroup has a generation
    SYNCED = auto()  # the response to SyncGroup has an assignment
    REBALANCE = auto()  # the coordinator requires all members to join again (27), or this member wants to
    LOST = auto()  # the coordinator does not know this member any more (22, 25), or a response was lost
    LEAVE = auto()


_S = ClassicMemberState
_E = ClassicMemberEvent


TABLE: Final = StateTable(
    ClassicMemberState,
    ClassicMemberEvent,
    {
        _S.UNJOINED: {
            _E.JOIN: _S.JOINING,
            _E.REBALANCE: _S.UNJOINED,
            _E.LOST: _S.UNJOINED,
            _E.LEAVE: _S.LEFT,
        },
        _S.JOINING: {
            _E.JOINED: _S.SYNCING,
            _E.REBALANCE: _S.UNJOINED,
            _E.LOST: _S.UNJOINED,
            _E.LEAVE: _S.LEFT,
        },
        _S.SYNCING: {
            _E.SYNCED: _S.STABLE,
            _E.REBALANCE: _S.UNJOINED,
            _E.LOST: _S.UNJOINED,
            _E.LEAVE: _S.LEFT,
        },
        _S.STABLE: {
            _E.REBALANCE: _S.REBALANCING,
            _E.LOST: _S.UNJOINED,
            _E.LEAVE: _S.LEFT,
        },
        _S.REBALANCING: {
            _E.JOIN: _S.JOINING,
            _E.REBALANCE: _S.REBALANCING,
            _E.LOST: _S.UNJOINED,
            _E.LEAVE: _S.LEFT,
        },
        _S.LEFT: {
            _E.JOIN: _S.JOINING,  # subscribed again
            _E.REBALANCE: _S.LEFT,  # a late response
            _E.LOST: _S.LEFT,
            _E.LEAVE: _S.LEFT,
        },
    },
    illegal("a group member", UsageError),
)
step: Final = TABLE.step
