"""DescribeDelegationToken, v1-3 (KIP-48): describe tokens. Always refused: see `tokens`."""

from __future__ import annotations

from fencepost.broker.api.handler import Handler
from fencepost.broker.api.security.tokens import why_no_token
from fencepost.broker.connection import Call
from fencepost.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)

__all__ = ["HANDLER"]


def _handle(call: Call, now_ms: int, request: DescribeDelegationTokenRequest) -> DescribeDelegationTokenResponse:
    """Refuse the request."""
    return DescribeDelegationTokenResponse(error_code=why_no_token(call))


HANDLER = Handler(_handle)
