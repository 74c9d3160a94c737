"""Parsing of the subscriptions and assignments that clients send as opaque bytes. Unreadable bytes are no error."""

from __future__ import annotations

from collections.abc import Iterable

from fencepost.protocol import consumer_protocol
from fencepost.protocol.consumer_protocol import JoinSubscription
from fencepost.protocol.errors import MalformedMessage

__all__ = ["read_assignment", "read_subscription", "subscribed_topics"]


def read_subscription(data: bytes) -> JoinSubscription | None:
    """Return the subscription; None if the bytes cannot be read."""
    try:
        return consumer_protocol.decode_subscription(data)
    except MalformedMessage:
        return None  # unreadable bytes give None


def read_assignment(data: bytes) -> tuple[tuple[str, int], ...] | None:
    """Return (topic, partition) of an assignment; None if the bytes cannot be read.

    Empty bytes are an empty assignment.
    """
    try:
        return tuple(consumer_protocol.decode_assignment(data)[0])
    except MalformedMessage:
        return None  # unreadable bytes give None


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """Return all topics of the subscriptions; None if one of them cannot be read."""
    topics: set[str] = set()
    for data in subscriptions:
        subscription = read_subscription(data)
        if subscription is None or subscription.version < 0:
            return None
        topics.update(subscription.topics)
    return frozenset(topics)
