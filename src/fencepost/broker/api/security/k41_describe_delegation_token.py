"""DescribeDelegationToken, v1-3 (KIP-48): describe tokens. Always refused: see `tokens`."""

from __future__ import annotations

from fencepost.broker.api.handler import Handler
from fencepost.broker.api.security.tokens import token_refusal
from fencepost.broker.connection import Call
from fencepost.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)

__all__ = ["HANDLER"]


def _handle(call: Call, now_ms: int, request: DescribeDelegationTokenRequest) -> DescribeDelegationTokenResponse:
    """Refuse the request."""
    return DescribeDelegationTokenResponse(error_code=token_refusal(call))


HANDLER = Handler(_handle)
