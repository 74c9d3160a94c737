"""What a coordinator reads of its members' subscriptions and assignments: bytes that are the clients' business, so that
not being able to read them is an answer."""

from __future__ import annotations

from collections.abc import Iterable

from fencepost.protocol import consumer_protocol
from fencepost.protocol.consumer_protocol import Subscription
from fencepost.protocol.errors import MalformedMessage

__all__ = ["read_assignment", "read_subscription", "subscribed_topics"]


def read_subscription(data: bytes) -> Subscription | None:
    """The subscription; None for bytes that are none."""
    try:
        return consumer_protocol.decode_subscription(data)
    except MalformedMessage:
        return None  # which is the answer


def read_assignment(data: bytes) -> tuple[tuple[str, int], ...] | None:
    """(topic, partition) of an assignment; None for bytes that are none. No bytes are an empty assignment."""
    try:
        return tuple(consumer_protocol.decode_assignment(data))
    except MalformedMessage:
        return None  # as above


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """All topics in the given subscriptions; None if one of them is not readable."""
    topics: set[str] = set()
    for data in subscriptions:
        subscription = read_subscription(data)
        if subscription is None or subscription.version < 0:
            return None
        topics.update(subscription.topics)
    return frozenset(topics)
