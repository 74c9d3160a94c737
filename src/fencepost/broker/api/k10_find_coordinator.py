"""FindCoordinator, v0-6: which broker looks after a group (type 0) or a transactional id (type 1). It is always this
one.

v1 adds the type, v4 asks for several keys at once; v5 and v6 allow error 120 and share groups, which are not served
(INVALID_REQUEST). The internal topic behind the coordinator is created with the first question for it.
"""

from __future__ import annotations

from fencepost.broker.api.common import BROKER_ID
from fencepost.broker.connection import Call
from fencepost.broker.topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

__all__ = ["handle"]

_TOPICS = {0: CONSUMER_OFFSETS, 1: TRANSACTION_STATE}


def handle(call: Call, now_ms: int, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    """Name this broker."""
    topic = _TOPICS.get(request.key_type)
    host, port = call.core.address(call.connection)
    if topic is None:
        message = f"coordinator type {request.key_type} is not served"
        if call.version < 4:
            return FindCoordinatorResponse(
                error_code=ErrorCode.INVALID_REQUEST, error_message=message, node_id=-1, port=-1
            )
        return FindCoordinatorResponse(
            coordinators=[
                Coordinator(key=key, node_id=-1, port=-1, error_code=ErrorCode.INVALID_REQUEST, error_message=message)
                for key in request.coordinator_keys
            ]
        )
    call.core.topics.internal(topic)
    if call.version < 4:
        return FindCoordinatorResponse(node_id=BROKER_ID, host=host, port=port)
    return FindCoordinatorResponse(
        coordinators=[Coordinator(key=key, node_id=BROKER_ID, host=host, port=port) for key in request.coordinator_keys]
    )
