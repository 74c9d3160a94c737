"""RenewDelegationToken, v1-2 (KIP-48): extend the lifetime of a token. Always refused: see `tokens`."""

from __future__ import annotations

from fencepost.broker.api.handler import Handler
from fencepost.broker.api.security.tokens import token_refusal
from fencepost.broker.connection import Call
from fencepost.protocol.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)

__all__ = ["HANDLER"]


def _handle(call: Call, now_ms: int, request: RenewDelegationTokenRequest) -> RenewDelegationTokenResponse:
    """Refuse the request."""
    return RenewDelegationTokenResponse(error_code=token_refusal(call), expiry_timestamp_ms=-1)


HANDLER = Handler(_handle)
