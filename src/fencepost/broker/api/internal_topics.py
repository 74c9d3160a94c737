"""Creation of the internal topic that a request writes to, before its handler runs.

A client looks up its coordinator first, and FindCoordinator creates the topic. For a client that does not, the handler
would have to create it at once, and a slow disk would block all other requests.
"""

from __future__ import annotations

from typing import Any

from fencepost.broker.api.apis import Api
from fencepost.broker.topics.catalogue import TopicCatalogue

__all__ = ["missing_topic"]

_INIT_PRODUCER_ID, _ALTER_SHARE_GROUP_OFFSETS = 22, 91


def missing_topic(topics: TopicCatalogue, api: Api, request: Any) -> str | None:
    """Return the internal topic that the request writes to, if it does not exist yet."""
    if api.writes is None or topics.get(api.writes) is not None:
        return None
    if api.key == _INIT_PRODUCER_ID and request.transactional_id is None:
        return None
    if api.key == _ALTER_SHARE_GROUP_OFFSETS and not request.topics:
        return None
    return api.writes
