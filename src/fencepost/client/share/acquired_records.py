"""Acquired records that the application has not acknowledged. Pure.

With implicit acknowledgement the next poll or commit accepts the records of the last poll. With explicit
acknowledgement the application must acknowledge each record before it polls again. Until the next poll or commit sends
an acknowledgement, another one of the same record replaces it, as in the Java client. A record whose lock is renewed
stays in hand until it is acknowledged.
"""

from __future__ import annotations

from typing import NamedTuple

from fencepost.client.records import SharedRecord
from fencepost.client.share.session import ShareReadSession
from fencepost.client.types import AcknowledgeType, TopicPartition
from fencepost.errors import UsageError
from fencepost.protocol.logs.consumer_group_log import TopicIdPartition


class _Held(NamedTuple):
    session: ShareReadSession
    partition: TopicIdPartition
    delivery_count: int
    renewed: bool = False
    acknowledged: bool = False


class AcquiredRecords:
    """Records in hand, by partition and offset."""

    def __init__(self) -> None:
        self._held: dict[tuple[TopicPartition, int], _Held] = {}

    def __len__(self) -> int:
        return sum(not held.acknowledged for held in list(self._held.values()))  # other threads may ask

    def hand_out(self, record: SharedRecord, partition: TopicIdPartition, session: ShareReadSession) -> None:
        """Add a record that a poll has returned to the application."""
        key = TopicPartition(record.topic, record.partition), record.offset
        self._held[key] = _Held(session, partition, record.delivery_count)

    def acknowledge(self, record: SharedRecord, kind: AcknowledgeType) -> ShareReadSession:
        """Record the application's acknowledgement; return the session that will send it.

        Raises:
            UsageError: The record is not in hand.
        """
        key = TopicPartition(record.topic, record.partition), record.offset
        held = self._held.get(key)
        is_reported = held is not None and held.acknowledged and held.session.ended is not None
        if held is None or held.delivery_count != record.delivery_count or is_reported:
            raise UsageError(
                f"{record.topic}-{record.partition} offset {record.offset} is not in hand: "
                "its acknowledgement was sent, or an earlier poll gave it and its lock is over"
            )
        held.session.add_acknowledgement(held.partition, record.offset, kind)
        renews = kind is AcknowledgeType.RENEW
        self._held[key] = held._replace(renewed=renews, acknowledged=not renews)
        return held.session

    def settle(self) -> None:
        """Remove the acknowledged records, because their acknowledgements are sent now."""
        self._held = {key: held for key, held in self._held.items() if not held.acknowledged}

    def accept_all(self) -> list[ShareReadSession]:
        """Accept all records; return the sessions that will send it."""
        sessions = {}
        for (_, offset), held in self._held.items():
            held.session.add_acknowledgement(held.partition, offset, AcknowledgeType.ACCEPT)
            sessions[id(held.session)] = held.session
        self._held.clear()
        return list(sessions.values())

    def unanswered(self) -> list[tuple[TopicPartition, int]]:
        """Return the records to acknowledge before the next poll. Records with lost locks are dropped."""
        for key, held in list(self._held.items()):
            if held.session.ended is not None and not held.renewed:
                del self._held[key]
        return [key for key, held in self._held.items() if not held.renewed and not held.acknowledged]

    def clear(self) -> None:
        """Remove all records, because the sessions end."""
        self._held.clear()
