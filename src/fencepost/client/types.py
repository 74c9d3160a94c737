"""The small values that the client takes and gives."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple, TypeVar


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int


K = TypeVar("K", bound=tuple[str, int])  # a TopicPartition, or a plain pair; a Mapping's keys are invariant


class Isolation(IntEnum):
    """What a reader sees: everything up to the high watermark, or only what is committed."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class OffsetSpec(IntEnum):
    """A place in a partition that is no timestamp, for `list_offsets`."""

    LATEST = -1  # the end: high watermark, or the last stable offset under read_committed
    EARLIEST = -2
    MAX_TIMESTAMP = -3  # the record with the highest timestamp (KIP-734)


class TimestampType(IntEnum):
    """Who set a record's timestamp."""

    NONE = -1
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class AcknowledgeType(IntEnum):
    """What a member of a share group says of a record that it was handed out (KIP-932)."""

    ACCEPT = 1  # it was processed
    RELEASE = 2  # it may be handed out again
    REJECT = 3  # nobody can process it
    RENEW = 4  # more time is needed (KIP-1222): the lock begins anew


class RecordMetadata(NamedTuple):
    """Where a produced record is. `offset` is -1 when the broker did not say (acks=0, or a duplicate, code 46)."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


class OffsetAndMetadata(NamedTuple):
    """A position to commit: the offset of the next record to read."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


class OffsetAt(NamedTuple):
    """An answer of list_offsets. `offset` is -1 when no record is at or after the timestamp asked for."""

    offset: int
    timestamp_ms: int = -1
    leader_epoch: int = -1


class GroupMetadata(NamedTuple):
    """Who commits offsets, for send_offsets_to_transaction (KIP-447). A bare group id: `GroupMetadata("group")`."""

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
