"""The states of a KIP-848 group member as the consumer sees them. The coordinator assigns in responses to heartbeats.

UNJOINED      not in the group; the next heartbeat joins, with epoch 0
JOINING       that heartbeat is in flight
RECONCILING   has a target other than what it owns: revokes, looks up topic ids, takes new partitions
ACKNOWLEDGING has reached the target; the next heartbeat acknowledges it
STABLE        owns the partitions that the coordinator assigned
FENCED        the coordinator does not know the member any more (25, 110); the application is informed first
LEFT          left the group, by close or unsubscribe
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from fencepost.errors import UsageError
from fencepost.states import StateTable, illegal


class ConsumerMemberState(Enum):
    """See the module's docstring."""

    UNJOINED = auto()
    JOINING = auto()
    RECONCILING = auto()
    ACKNOWLEDGING = auto()
    STABLE = auto()
    FENCED = auto()
    LEFT = auto()


class ConsumerMemberEvent(Enum):
    """Events of a consumer group member (KIP-848)."""

    JOIN = auto()  # a heartbeat with epoch 0 is sent
    ANSWERED = auto()  # a response without a new target
    TARGET = auto()  # a response with a target assignment
    RECONCILED = auto()  # the owned partitions equal the target
    FENCE = auto()  # the membership ended: by the coordinator (25, 110), or by this member (no poll)
    LOSS_REPORTED = auto()  # the application was informed that all partitions are lost
    LEAVE = auto()


_S = ConsumerMemberState
_E = ConsumerMemberEvent


TABLE: Final = StateTable(
    ConsumerMemberState,
    ConsumerMemberEvent,
    {
        _S.UNJOINED: {
            _E.JOIN: _S.JOINING,
            _E.FENCE: _S.UNJOINED,
            _E.LOSS_REPORTED: _S.UNJOINED,
            _E.LEAVE: _S.LEFT,
        },
        _S.JOINING: {
            _E.JOIN: _S.JOINING,  # the response was lost
            _E.ANSWERED: _S.STABLE,
            _E.TARGET: _S.RECONCILING,
            _E.FENCE: _S.UNJOINED,
            _E.LEAVE: _S.LEFT,
        },
        _S.RECONCILING: {
            _E.ANSWERED: _S.RECONCILING,
            _E.TARGET: _S.RECONCILING,
            _E.RECONCILED: _S.ACKNOWLEDGING,
            _E.FENCE: _S.FENCED,
            _E.LEAVE: _S.LEFT,
        },
        _S.ACKNOWLEDGING: {
            _E.ANSWERED: _S.STABLE,
            _E.TARGET: _S.RECONCILING,
            _E.FENCE: _S.FENCED,
            _E.LEAVE: _S.LEFT,
        },
        _S.STABLE: {
            _E.ANSWERED: _S.STABLE,
            _E.TARGET: _S.RECONCILING,
            _E.FENCE: _S.FENCED,
            _E.LEAVE: _S.LEFT,
        },
        _S.FENCED: {
            _E.ANSWERED: _S.FENCED,  # a late response
            _E.TARGET: _S.FENCED,
            _E.RECONCILED: _S.FENCED,
            _E.FENCE: _S.FENCED,
            _E.LOSS_REPORTED: _S.UNJOINED,
            _E.LEAVE: _S.LEFT,
        },
        _S.LEFT: {
            _E.ANSWERED: _S.LEFT,
            _E.TARGET: _S.LEFT,
            _E.RECONCILED: _S.LEFT,
            _E.FENCE: _S.LEFT,
            _E.LOSS_REPORTED: _S.LEFT,
            _E.LEAVE: _S.LEFT,
        },
    },
    illegal("a group member", UsageError),
)
step: Final = TABLE.step
