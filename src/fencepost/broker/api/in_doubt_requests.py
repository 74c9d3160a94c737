"""Refusal of requests that depend on damaged records of an internal topic. See `coordinator/corruption_guard.py`."""

from __future__ import annotations

import logging
from typing import Any

from fencepost.broker.api.apis import Api, CoordinatorTopic
from fencepost.broker.api.error_responses import refusal
from fencepost.broker.coordinator.corruption_guard import CorruptionGuard
from fencepost.protocol.codes import ErrorCode

__all__ = ["InDoubtRequests"]

_log = logging.getLogger("fencepost.broker.recovery")


class InDoubtRequests:
    """Refuses doubtful requests of one broker. Each name is logged once per API."""

    def __init__(self, doubts: CorruptionGuard) -> None:
        self._doubts = doubts
        self._logged: set[tuple[int, str]] = set()

    def refuse(self, api: Api, request: Any) -> Any:
        """Return the refusal of a request whose answer is in doubt, or None.

        The code is UNKNOWN_SERVER_ERROR, which no client retries forever.
        """
        if api.relies_on is CoordinatorTopic.OFFSETS:
            groups = [request.group_id, *(group.group_id for group in request.groups)]
            doubtful = [name for name in groups if name and self._doubts.of_group(name)]
        elif api.relies_on is CoordinatorTopic.TRANSACTIONS:
            doubtful = [name for name in _transactional_ids(request) if self._doubts.of_transaction(name)]
        else:
            return None
        if not doubtful:
            return None
        for name in doubtful:
            if (api.key, name) not in self._logged:
                self._logged.add((api.key, name))
                _log.error(
                    "API %s of %r is refused: its records in the internal topic are damaged; see fencepost repair",
                    api.key,
                    name,
                )
        return refusal(request, ErrorCode.UNKNOWN_SERVER_ERROR)


def _transactional_ids(request: Any) -> list[str]:
    own = getattr(request, "transactional_id", None) or getattr(request, "v3_and_below_transactional_id", None)
    several = [transaction.transactional_id for transaction in getattr(request, "transactions", ())]
    return [name for name in (own, *several, *getattr(request, "transactional_ids", ())) if name]
