"""Refusal of delegation tokens (KIP-48), which this broker does not support."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fencepost.protocol.codes import ErrorCode

if TYPE_CHECKING:
    from fencepost.broker.connection import Call

__all__ = ["token_refusal"]


def token_refusal(call: Call) -> int:
    """Return the code with which Kafka refuses an unauthenticated client, or any if tokens are disabled."""
    if call.connection.login is None:
        return ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    return ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
