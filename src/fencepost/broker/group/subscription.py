"""The topics in a consumer's subscription bytes: the only part of the consumer protocol that a coordinator reads."""

from __future__ import annotations

import struct
from collections.abc import Iterable

__all__ = ["CONSUMER_PROTOCOL_TYPE", "subscribed_topics"]

CONSUMER_PROTOCOL_TYPE = "consumer"


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """All topics in the given subscriptions; None if one of them is not readable.

    Every version of ConsumerProtocolSubscription begins as version 0: int16 version, then an array of topic names.
    """
    topics: set[str] = set()
    for subscription in subscriptions:
        found = _topics(subscription)
        if found is None:
            return None
        topics.update(found)
    return frozenset(topics)


def _topics(subscription: bytes) -> list[str] | None:
    try:
        version, count = struct.unpack_from(">hi", subscription)
        if version < 0 or not 0 <= count <= len(subscription):
            return None
        topics = []
        position = 6
        for _ in range(count):
            (size,) = struct.unpack_from(">h", subscription, position)
            position += 2
            if size < 0 or position + size > len(subscription):
                return None
            topics.append(subscription[position : position + size].decode())
            position += size
    except (struct.error, UnicodeDecodeError):
        return None  # the bytes are the client's business; not being able to read them is an answer
    return topics
