"""ExpireDelegationToken, v1-2 (KIP-48): end a token. Always refused: see `tokens`."""

from __future__ import annotations

from fencepost.broker.api.handler import Handler
from fencepost.broker.api.security.tokens import token_refusal
from fencepost.broker.connection import Call
from fencepost.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)

__all__ = ["HANDLER"]


def _handle(call: Call, now_ms: int, request: ExpireDelegationTokenRequest) -> ExpireDelegationTokenResponse:
    """Refuse the request."""
    return ExpireDelegationTokenResponse(error_code=token_refusal(call), expiry_timestamp_ms=-1)


HANDLER = Handler(_handle)
