"""The meaning of an error code for the request that received it, in one table.

`action(api_key, code)` is defined for any code. PROBE means that the transaction may have timed out. The producer then
sends InitProducerId(producer id, epoch), whose response distinguishes a timeout from fencing (KIP-360/588).
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from fencepost.errors import KafkaError, KafkaTimeoutError
from fencepost.protocol.codes import ErrorCode as E
from fencepost.protocol.codes import retriable

PRODUCE: Final = 0
FETCH: Final = 1
LIST_OFFSETS: Final = 2
METADATA: Final = 3
OFFSET_COMMIT: Final = 8
OFFSET_FETCH: Final = 9
FIND_COORDINATOR: Final = 10
INIT_PRODUCER_ID: Final = 22
ADD_PARTITIONS_TO_TXN: Final = 24
ADD_OFFSETS_TO_TXN: Final = 25
END_TXN: Final = 26
TXN_OFFSET_COMMIT: Final = 28


class Action(IntEnum):
    """The next step of the client."""

    OK = 0  # no error, or a code which shows that the work is done
    RETRY = 1  # the same broker, after a back-off
    REFRESH_LEADER = 2  # refresh the metadata, then retry
    REFRESH_COORDINATOR = 3  # FindCoordinator, then retry
    PROBE = 4  # the transaction may have timed out: InitProducerId(producer id, epoch) shows it
    ABORT = 5  # this transaction is over, the producer continues
    SEQUENCE = 6  # broker and client disagree about sequences: offsets distinguish data loss from retention
    SPLIT = 7  # too large: halve the batch, or reject a single record
    REJECT = 8  # this item only; a retry cannot succeed
    FATAL = 9  # the client has failed permanently


RETRIABLE: Final = frozenset({Action.RETRY, Action.REFRESH_LEADER, Action.REFRESH_COORDINATOR})

OUTLAST_ABSENCE: Final = frozenset({PRODUCE, FETCH, METADATA, ADD_PARTITIONS_TO_TXN, TXN_OFFSET_COMMIT})
"""Requests that are repeated until their deadline for a missing topic. Others: `topic_metadata_propagation_max_ms`."""

# For every request.
COMMON: Final[dict[int, Action]] = {
    E.NONE: Action.OK,
    E.UNKNOWN_TOPIC_OR_PARTITION: Action.REFRESH_LEADER,
    E.LEADER_NOT_AVAILABLE: Action.REFRESH_LEADER,
    E.NOT_LEADER_OR_FOLLOWER: Action.REFRESH_LEADER,
    E.REPLICA_NOT_AVAILABLE: Action.REFRESH_LEADER,
    E.KAFKA_STORAGE_ERROR: Action.REFRESH_LEADER,
    E.LISTENER_NOT_FOUND: Action.REFRESH_LEADER,
    E.FENCED_LEADER_EPOCH: Action.REFRESH_LEADER,
    E.UNKNOWN_LEADER_EPOCH: Action.REFRESH_LEADER,
    E.OFFSET_NOT_AVAILABLE: Action.REFRESH_LEADER,
    E.UNKNOWN_TOPIC_ID: Action.REFRESH_LEADER,
    E.INCONSISTENT_TOPIC_ID: Action.REFRESH_LEADER,
    E.NOT_CONTROLLER: Action.REFRESH_LEADER,
    E.COORDINATOR_NOT_AVAILABLE: Action.REFRESH_COORDINATOR,
    E.NOT_COORDINATOR: Action.REFRESH_COORDINATOR,
    E.COORDINATOR_LOAD_IN_PROGRESS: Action.RETRY,
    E.CONCURRENT_TRANSACTIONS: Action.RETRY,
    E.TOPIC_AUTHORIZATION_FAILED: Action.REJECT,
    E.GROUP_AUTHORIZATION_FAILED: Action.REJECT,
    E.CLUSTER_AUTHORIZATION_FAILED: Action.FATAL,
    E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Action.FATAL,
    E.UNSUPPORTED_VERSION: Action.FATAL,
    E.INVALID_PRODUCER_ID_MAPPING: Action.FATAL,
}

_TRANSACTIONAL: Final[dict[int, Action]] = {
    E.INVALID_PRODUCER_EPOCH: Action.PROBE,
    E.PRODUCER_FENCED: Action.PROBE,
    E.INVALID_TXN_STATE: Action.PROBE,
    E.UNKNOWN_PRODUCER_ID: Action.PROBE,
    E.TRANSACTION_ABORTABLE: Action.PROBE,
}

SPECIFIC: Final[dict[int, dict[int, Action]]] = {
    PRODUCE: {
        E.CORRUPT_MESSAGE: Action.RETRY,
        E.DUPLICATE_SEQUENCE_NUMBER: Action.OK,
        E.OUT_OF_ORDER_SEQUENCE_NUMBER: Action.SEQUENCE,
        E.UNKNOWN_PRODUCER_ID: Action.SEQUENCE,
        E.MESSAGE_TOO_LARGE: Action.SPLIT,
        E.INVALID_PRODUCER_EPOCH: Action.PROBE,
        E.PRODUCER_FENCED: Action.PROBE,  # an old partition leader returns this instead of 47
        E.INVALID_TXN_STATE: Action.PROBE,
        E.TRANSACTION_ABORTABLE: Action.PROBE,
        E.INVALID_PRODUCER_ID_MAPPING: Action.PROBE,
    },
    FETCH: {E.CORRUPT_MESSAGE: Action.REJECT},  # the broker's data is damaged: a retry cannot succeed
    INIT_PRODUCER_ID: {
        E.INVALID_PRODUCER_EPOCH: Action.FATAL,
        E.PRODUCER_FENCED: Action.FATAL,
        E.TRANSACTION_ABORTABLE: Action.RETRY,
    },
    ADD_PARTITIONS_TO_TXN: {**_TRANSACTIONAL, E.OPERATION_NOT_ATTEMPTED: Action.ABORT},
    ADD_OFFSETS_TO_TXN: dict(_TRANSACTIONAL),
    TXN_OFFSET_COMMIT: {
        **_TRANSACTIONAL,
        E.ILLEGAL_GENERATION: Action.ABORT,
        E.UNKNOWN_MEMBER_ID: Action.ABORT,
        E.FENCED_INSTANCE_ID: Action.ABORT,
        E.REBALANCE_IN_PROGRESS: Action.ABORT,
        E.STALE_MEMBER_EPOCH: Action.ABORT,
    },
    END_TXN: dict(_TRANSACTIONAL),
    OFFSET_FETCH: {E.UNSTABLE_OFFSET_COMMIT: Action.RETRY},
    OFFSET_COMMIT: {E.REBALANCE_IN_PROGRESS: Action.REJECT},
}


def action(api_key: int, code: int) -> Action:
    """Return the client's next step after `code` in a response of `api_key`."""
    specific = SPECIFIC.get(api_key)
    if specific is not None and code in specific:
        return specific[code]
    if code in COMMON:
        return COMMON[code]
    return Action.RETRY if retriable(code) else Action.REJECT


def backoff_ms(attempt: int, jitter: float, *, first_ms: float = 20, most_ms: float = 1_000) -> float:
    """Return the exponential back-off for the n-th retry (from 0). `jitter` in [0, 1) spreads it over +-20 %."""
    base: float = min(most_ms, first_ms * 2 ** min(attempt, 20))
    return base * (0.8 + 0.4 * jitter)


def first_cause(error: KafkaError) -> KafkaError:
    """Return the error that a timeout reports, so that a message names it once."""
    while isinstance(error, KafkaTimeoutError) and isinstance(error.__cause__, KafkaError):
        error = error.__cause__
    return error
