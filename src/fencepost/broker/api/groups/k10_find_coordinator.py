"""FindCoordinator, v0-6: the coordinator of a group (type 0) or a transactional id (type 1), which is this broker.

v1 adds the type, v4 several keys; v5 and v6 allow error 120 and share coordinators, which only brokers look up
(INVALID_REQUEST). The first request for a coordinator creates its internal topic.
"""

from __future__ import annotations

from fencepost.broker.api.common import BROKER_ID
from fencepost.broker.api.handler import Handler
from fencepost.broker.connection import Call
from fencepost.broker.disk.changes import Change
from fencepost.broker.security.acls import Operation, ResourceType
from fencepost.broker.security.rights import DENIED
from fencepost.broker.topics.internal import CONSUMER_OFFSETS, TRANSACTION_STATE
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

__all__ = ["HANDLER"]

_TOPICS = {0: CONSUMER_OFFSETS, 1: TRANSACTION_STATE}
_KINDS = {0: ResourceType.GROUP, 1: ResourceType.TRANSACTIONAL_ID}


def _handle(call: Call, now_ms: int, request: FindCoordinatorRequest) -> FindCoordinatorResponse | None:
    """Return this broker. A missing internal topic of the coordinator is created."""
    topic = _TOPICS.get(request.key_type)
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
    if call.core.topics.get(topic) is not None:
        return _found(call, request)
    call.change(request, _created(call, request, topic))
    return None


def _created(call: Call, request: FindCoordinatorRequest, topic: str) -> Change[FindCoordinatorResponse]:
    yield from call.core.topics.create_internal(topic)
    return _found(call, request)


def _found(call: Call, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    host, port = call.core.address(call.connection)
    if call.version < 4:
        return FindCoordinatorResponse(error_message="NONE", node_id=BROKER_ID, host=host, port=port)
    return FindCoordinatorResponse(
        coordinators=[
            Coordinator(key=key, node_id=BROKER_ID, host=host, port=port, error_message="")
            for key in request.coordinator_keys
        ]
    )


def _authorize(call: Call, request: FindCoordinatorRequest) -> FindCoordinatorResponse | None:
    """Refuse groups and transactional ids that the client may not describe, one by one."""
    kind = _KINDS.get(request.key_type)
    if kind is None:
        return None
    if call.version < 4:
        if call.may(Operation.DESCRIBE, kind, request.key):
            return None
        return FindCoordinatorResponse(error_code=DENIED[kind], node_id=-1, port=-1)
    denied = [key for key in request.coordinator_keys if not call.may(Operation.DESCRIBE, kind, key)]
    refused = [Coordinator(key=key, node_id=-1, port=-1, error_code=DENIED[kind], error_message=None) for key in denied]
    if len(denied) == len(request.coordinator_keys):
        return FindCoordinatorResponse(coordinators=refused)
    request.coordinator_keys = [key for key in request.coordinator_keys if key not in denied]

    def finish(response: FindCoordinatorResponse) -> FindCoordinatorResponse:
        response.coordinators = [*response.coordinators, *refused]
        return response

    call.finish = finish
    return None


HANDLER = Handler(_handle, authorize=_authorize)
