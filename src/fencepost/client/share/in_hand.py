"""Acquired records that the application has not acknowledged. Pure.

Implicitly, what a poll gave counts as processed when the next poll or commit comes; explicitly, the application says so
record by record, and has to before it polls again. A record whose lock is renewed stays in hand until it is answered.
"""

from __future__ import annotations

from typing import NamedTuple

from fencepost.client.records import SharedRecord
from fencepost.client.share.session import SharePlace, ShareReadSession
from fencepost.client.types import AcknowledgeType, TopicPartition
from fencepost.errors import UsageError


class _Held(NamedTuple):
    session: ShareReadSession
    place: SharePlace
    delivery_count: int
    renewed: bool = False


class InHand:
    """By partition and offset."""

    def __init__(self) -> None:
        self._held: dict[tuple[TopicPartition, int], _Held] = {}

    def __len__(self) -> int:
        return len(self._held)

    def hand_out(self, record: SharedRecord, place: SharePlace, session: ShareReadSession) -> None:
        """The application has it from now on."""
        key = TopicPartition(record.topic, record.partition), record.offset
        self._held[key] = _Held(session, place, record.delivery_count)

    def answer(self, record: SharedRecord, kind: AcknowledgeType) -> ShareReadSession:
        """The application has said what became of it; the session that says it on. Raises UsageError."""
        key = TopicPartition(record.topic, record.partition), record.offset
        held = self._held.get(key)
        if held is None or held.delivery_count != record.delivery_count:
            raise UsageError(
                f"{record.topic}-{record.partition} offset {record.offset} is not in hand: "
                "it was acknowledged already, or an earlier poll gave it and its lock is over"
            )
        held.session.say(held.place, record.offset, kind)
        if kind is AcknowledgeType.RENEW:
            self._held[key] = held._replace(renewed=True)
        else:
            del self._held[key]
        return held.session

    def accept_all(self) -> list[ShareReadSession]:
        """Everything was processed; the sessions that say so."""
        sessions = {}
        for (_, offset), held in self._held.items():
            held.session.say(held.place, offset, AcknowledgeType.ACCEPT)
            sessions[id(held.session)] = held.session
        self._held.clear()
        return list(sessions.values())

    def unanswered(self) -> list[tuple[TopicPartition, int]]:
        """Return the records to acknowledge before the next poll. Records with lost locks are dropped."""
        for key, held in list(self._held.items()):
            if held.session.ended is not None and not held.renewed:
                del self._held[key]
        return [key for key, held in self._held.items() if not held.renewed]

    def clear(self) -> None:
        """Nothing is in hand any more: the sessions end."""
        self._held.clear()
