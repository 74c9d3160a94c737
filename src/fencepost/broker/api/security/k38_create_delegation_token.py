"""CreateDelegationToken, v1-3 (KIP-48): create a token. v3 for others (KIP-373). Always refused: see `tokens`."""

from __future__ import annotations

from fencepost.broker.api.handler import Handler
from fencepost.broker.api.security.tokens import token_refusal
from fencepost.broker.connection import Call
from fencepost.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)

__all__ = ["HANDLER"]


def _handle(call: Call, now_ms: int, request: CreateDelegationTokenRequest) -> CreateDelegationTokenResponse:
    """Refuse, naming requester and owner. Times are -1."""
    requester_type, _, requester_name = call.connection.principal.partition(":")
    owner_type, owner_name = requester_type, requester_name
    if request.owner_principal_name:
        owner_type, owner_name = request.owner_principal_type or "", request.owner_principal_name
    return CreateDelegationTokenResponse(
        error_code=token_refusal(call),
        principal_type=owner_type,
        principal_name=owner_name,
        token_requester_principal_type=requester_type,
        token_requester_principal_name=requester_name,
        issue_timestamp_ms=-1,
        expiry_timestamp_ms=-1,
        max_timestamp_ms=-1,
    )


HANDLER = Handler(_handle)
