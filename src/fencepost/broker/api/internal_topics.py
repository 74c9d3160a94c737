"""The internal topics that a request writes to, so that they are created before its handler runs.

A client asks for its coordinator first, and FindCoordinator creates the topic. For a client that does not ask, the
handler would have to create it at once, and a slow disk would hold up everybody.
"""

from __future__ import annotations

from typing import Any

from fencepost.broker.topics.catalogue import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE, TopicCatalogue

__all__ = ["missing_topics"]

_INIT_PRODUCER_ID, _ALTER_SHARE_GROUP_OFFSETS = 22, 91
_WRITTEN_BY = {
    8: (CONSUMER_OFFSETS,),  # OffsetCommit
    11: (CONSUMER_OFFSETS,),  # JoinGroup
    _INIT_PRODUCER_ID: (TRANSACTION_STATE,),
    28: (CONSUMER_OFFSETS,),  # TxnOffsetCommit
    68: (CONSUMER_OFFSETS,),  # ConsumerGroupHeartbeat
    76: (CONSUMER_OFFSETS,),  # ShareGroupHeartbeat
    78: (SHARE_GROUP_STATE,),  # ShareFetch
    88: (CONSUMER_OFFSETS,),  # StreamsGroupHeartbeat
    _ALTER_SHARE_GROUP_OFFSETS: (SHARE_GROUP_STATE,),
}


def missing_topics(topics: TopicCatalogue, key: int, request: Any) -> list[str]:
    """Return the internal topics that the request writes to and that do not exist yet."""
    if key == _INIT_PRODUCER_ID and request.transactional_id is None:
        return []
    if key == _ALTER_SHARE_GROUP_OFFSETS and not request.topics:
        return []
    return [name for name in _WRITTEN_BY.get(key, ()) if topics.get(name) is None]
