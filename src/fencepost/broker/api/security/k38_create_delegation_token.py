"""CreateDelegationToken, v1-3 (KIP-48): give a token. v3 for others (KIP-373). Always refused: see `tokens`."""

from __future__ import annotations

from fencepost.broker.api.handler import Handler
from fencepost.broker.api.security.tokens import why_no_token
from fencepost.broker.connection import Call
from fencepost.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)

__all__ = ["HANDLER"]


def _handle(call: Call, now_ms: int, request: CreateDelegationTokenRequest) -> CreateDelegationTokenResponse:
    """Refuse, and say whom."""
    kind, _, name = call.connection.principal.partition(":")
    return CreateDelegationTokenResponse(
        error_code=why_no_token(call),
        principal_type=kind,
        principal_name=name,
        token_requester_principal_type=kind,
        token_requester_principal_name=name,
    )


HANDLER = Handler(_handle)
