"""Small types of the clients' arguments and results."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import Any, NamedTuple, TypeVar

from fencepost.arguments import Int32OrMinusOne
from fencepost.topic_partition import TopicPartition

__all__ = [
    "AcknowledgeType",
    "GroupMetadata",
    "Isolation",
    "K",
    "OffsetAndMetadata",
    "OffsetAt",
    "OffsetSpec",
    "RebalanceListener",
    "RecordMetadata",
    "TimestampType",
    "TopicPartition",
    "listener_method",
    "numbers_by_topic",
]


K = TypeVar("K", bound=tuple[str, int])  # a TopicPartition or a plain pair; the key type of a Mapping is invariant


def numbers_by_topic(partitions: Iterable[tuple[str, int]]) -> dict[str, list[int]]:
    """Return the numbers of the partitions by topic, in the order given."""
    topics: defaultdict[str, list[int]] = defaultdict(list)
    for topic, number in partitions:
        topics[topic].append(number)
    return topics


class Isolation(IntEnum):
    """Isolation level of a reader: all records up to the high watermark, or committed records only."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class OffsetSpec(IntEnum):
    """A position in a partition that is not a timestamp, for `list_offsets`."""

    LATEST = -1  # the end: the high watermark, or with read_committed the last stable offset
    EARLIEST = -2
    MAX_TIMESTAMP = -3  # the record with the highest timestamp (KIP-734)
    EARLIEST_LOCAL = -4  # the first record on the broker's own disks, for topics with remote storage (KIP-405)
    LATEST_TIERED = -5  # the last record in remote storage (KIP-1005); offset -1 if there is none


class TimestampType(IntEnum):
    """Source of a record's timestamp: the producer or the broker."""

    NONE = -1
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class AcknowledgeType(IntEnum):
    """Acknowledgement of a record by a member of a share group (KIP-932)."""

    ACCEPT = 1  # the record was processed
    RELEASE = 2  # deliver the record again
    REJECT = 3  # the record cannot be processed; do not deliver it again
    RENEW = 4  # restart the lock, because processing takes longer (KIP-1222)


class RecordMetadata(NamedTuple):
    """Position of a produced record.

    `offset` is -1 if the broker did not report it (acks=0, or a duplicate, code 46).

    `latency_ms` is the time from `send` to the response, retries included. With acks=0 it ends when the record is
    written to the connection. The producer reads its clock once for the records that it collects together, at the
    first of them. So the latency of a later one is too high, by about `linger_ms` at most.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    latency_ms: int = -1


class OffsetAndMetadata(NamedTuple):
    """A position to commit: the offset of the next record to read."""

    offset: int
    metadata: str = ""
    leader_epoch: Int32OrMinusOne = -1


class OffsetAt(NamedTuple):
    """A result of list_offsets. `offset` is -1 if there is no record at or after the timestamp."""

    offset: int
    timestamp_ms: int = -1
    leader_epoch: int = -1


class GroupMetadata(NamedTuple):
    """A group member's identity, for send_offsets_to_transaction (KIP-447).

    Only a group id: `GroupMetadata("group")`.
    """

    group_id: str
    generation_id: Int32OrMinusOne = -1
    member_id: str = ""
    group_instance_id: str | None = None


class RebalanceListener:
    """Callbacks for rebalances. Override those that you need.

    With Consumer they run in the polling thread during poll. With AsyncConsumer they may be coroutine functions.
    """

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> Any:
        """Handle partitions that are about to be given up. This is the last moment to commit."""

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> Any:
        """Handle partitions that were assigned."""

    def on_partitions_lost(self, partitions: list[TopicPartition]) -> Any:
        """Handle partitions that other members already own. A commit would fail."""


def listener_method(listener: RebalanceListener | None, kind: str) -> Callable[[list[TopicPartition]], Any] | None:
    """Return the listener's method for "assigned", "revoked" or "lost", or None."""
    found: Callable[[list[TopicPartition]], Any] | None = getattr(listener, f"on_partitions_{kind}", None)
    return found
