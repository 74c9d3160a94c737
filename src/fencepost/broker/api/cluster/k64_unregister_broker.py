"""UnregisterBroker, v0 (KIP-631): remove a broker. This broker is the only one and cannot be removed."""

from __future__ import annotations

from fencepost.broker.api.common import BROKER_ID
from fencepost.broker.api.handler import Handler
from fencepost.broker.connection import Call
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse

__all__ = ["HANDLER"]


def _handle(call: Call, now_ms: int, request: UnregisterBrokerRequest) -> UnregisterBrokerResponse:
    """Refuse the request."""
    if request.broker_id == BROKER_ID:
        message = f"Broker ID {BROKER_ID} is the only one."
        return UnregisterBrokerResponse(error_code=ErrorCode.INVALID_REQUEST, error_message=message)
    message = f"Broker ID {request.broker_id} is not currently registered"
    return UnregisterBrokerResponse(error_code=ErrorCode.BROKER_ID_NOT_REGISTERED, error_message=message)


HANDLER = Handler(_handle)
