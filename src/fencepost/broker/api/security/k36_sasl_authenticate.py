"""SaslAuthenticate, v0-2: the client authenticates. v1 has the session's lifetime (KIP-368), v2 is flexible.

A failed authentication is answered with SASL_AUTHENTICATION_FAILED and Kafka's message, after
`connection.failed.authentication.delay.ms`, and the connection is closed.
"""

from __future__ import annotations

from fencepost.broker.api.handler import Handler
from fencepost.broker.connection import Call
from fencepost.broker.security.mechanisms import LoginFailed
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse

__all__ = ["HANDLER"]


def _handle(call: Call, now_ms: int, request: SaslAuthenticateRequest) -> SaslAuthenticateResponse | None:
    """Authenticate the client or refuse it."""
    login = call.connection.login
    if login is None or login.done:
        message = "SaslAuthenticate request received after successful authentication"
        return SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=message)
    try:
        answer = login.authenticate(now_ms, bytes(request.auth_bytes))
    except LoginFailed as failed:
        if not failed.challenge:  # the challenge has reported it otherwise
            call.core.login_failed(call.connection, str(failed))
        refused = SaslAuthenticateResponse(error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=str(failed))
        call.reply_and_close(refused)
        return None
    if answer.refusal:
        call.core.login_failed(call.connection, answer.refusal)
    if answer.principal:
        call.connection.principal = answer.principal
    return SaslAuthenticateResponse(auth_bytes=answer.message, session_lifetime_ms=answer.lifetime_ms)


HANDLER = Handler(_handle)
