"""Answers to a producer whose transaction timed out, by client generation: rule R1 of docs/observed.md as data.

On a timeout the coordinator bumps the epoch and aborts. If the old epoch sends another request, the answer must let
*that* client recover without closing. The codes were tested with real clients (C10 to C18). The version of the request
identifies the generation. If it is ambiguous, the versions of the id's earlier requests decide.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.transactions import FIRST_ENLISTING_PRODUCE


class Generation(Enum):
    A = "InitProducerId v0-2: cannot bump an epoch"
    B = "InitProducerId v3 with AddPartitionsToTxn and EndTxn v0-1 (Java 2.5-2.6)"
    L = "InitProducerId v4+ with AddPartitionsToTxn and EndTxn v0-1 (librdkafka)"
    C = "AddPartitionsToTxn v2-3, EndTxn v2-4 (Java 2.7-3.9, franz-go and sarama below transaction.version 2)"
    D = "Produce v12+, TxnOffsetCommit v5+, EndTxn v5+ (Java 4.x, franz-go, fencepost)"


class TimeoutAnswers(NamedTuple):
    """Error codes. ``FENCED`` stands for 47 or 90 by the request's version, as Kafka answers a fenced producer."""

    add: int
    """AddPartitionsToTxn, AddOffsetsToTxn."""
    offsets: int
    """TxnOffsetCommit. 0 means: answer success and store nothing."""
    end_commit: int
    end_abort: int
    produce: int
    produce_log_start_offset: int


FENCED: Final = -2
_EPOCH: Final = int(ErrorCode.INVALID_PRODUCER_EPOCH)
_UNKNOWN: Final = int(ErrorCode.UNKNOWN_PRODUCER_ID)
_ABORTABLE: Final = int(ErrorCode.TRANSACTION_ABORTABLE)
_OK: Final = int(ErrorCode.NONE)

TIMED_OUT: Final[dict[Generation, TimeoutAnswers]] = {
    Generation.A: TimeoutAnswers(FENCED, _EPOCH, FENCED, FENCED, _EPOCH, -1),
    Generation.B: TimeoutAnswers(_UNKNOWN, _OK, _UNKNOWN, _OK, _ABORTABLE, -1),
    Generation.L: TimeoutAnswers(_UNKNOWN, _OK, _UNKNOWN, _UNKNOWN, _UNKNOWN, -2),
    Generation.C: TimeoutAnswers(_UNKNOWN, _OK, _UNKNOWN, _OK, _EPOCH, -1),
    Generation.D: TimeoutAnswers(_ABORTABLE, _ABORTABLE, _ABORTABLE, _OK, _ABORTABLE, -1),
}

KAFKA_PYTHON: Final = "kafka-python"
"""Software name of a client of generation C that aborts after 59 but never bumps, and would repeat that forever."""

FIRST_IMPLICIT_OFFSETS: Final = 5
FIRST_BUMPING_END: Final = 5


def of_add(api_version: int, init_version: int) -> Generation:
    """Return the generation of an AddPartitionsToTxn or AddOffsetsToTxn request.

    All versions of both are older than D.
    """
    return _by_old_request(api_version <= 1, init_version)


def of_end(api_version: int, init_version: int) -> Generation:
    if api_version >= FIRST_BUMPING_END:
        return Generation.D
    return _by_old_request(api_version <= 1, init_version)


def of_offsets(api_version: int, init_version: int, add_version: int) -> Generation:
    if api_version >= FIRST_IMPLICIT_OFFSETS:
        return Generation.D
    return _by_old_request(0 <= add_version <= 1, init_version)


def of_produce(api_version: int, init_version: int, add_version: int) -> Generation:
    """Return the generation of a Produce request. Versions below 12 are ambiguous, so earlier requests decide."""
    if api_version >= FIRST_ENLISTING_PRODUCE:
        return Generation.D
    return _by_old_request(0 <= add_version <= 1, init_version)


def _by_old_request(is_v0_or_v1: bool, init_version: int) -> Generation:
    if 0 <= init_version <= 2:
        return Generation.A
    if not is_v0_or_v1:
        return Generation.C
    if init_version < 0:
        return Generation.A
    return Generation.B if init_version == 3 else Generation.L


def fenced_code(api_version: int, first_with_90: int) -> int:
    """Return Kafka's code for a fenced producer: 47 in old versions of a request, PRODUCER_FENCED (90) in new ones."""
    code = ErrorCode.PRODUCER_FENCED if api_version >= first_with_90 else ErrorCode.INVALID_PRODUCER_EPOCH
    return int(code)
