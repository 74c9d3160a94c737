"""Delegation tokens (KIP-48): there are none here, and who asks for one is told so."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fencepost.protocol.codes import ErrorCode

if TYPE_CHECKING:
    from fencepost.broker.connection import Call

__all__ = ["why_no_token"]


def why_no_token(call: Call) -> int:
    """What Kafka says without `delegation.token.secret.key`; to somebody who has not said who he is, as always."""
    if call.connection.login is None:
        return ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    return ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
