"""SaslHandshake, v0-1: the client chooses a SASL mechanism.

After v0 the mechanism's tokens come as bare frames, after v1 in SaslAuthenticate. The answer to an unknown mechanism
lists the known ones, and the connection is closed. The answer is ILLEGAL_SASL_STATE on a listener without SASL, and for
an authenticated client that need not authenticate again (KIP-368).
"""

from __future__ import annotations

from fencepost.broker.api.handler import Handler
from fencepost.broker.connection import Call
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

__all__ = ["HANDLER"]


def _handle(call: Call, now_ms: int, request: SaslHandshakeRequest) -> SaslHandshakeResponse | None:
    """Accept the mechanism or refuse it."""
    login = call.connection.login
    raw = call.version == 0
    if login is None or login.is_for_ever or (login.done and raw):
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    mechanisms = login.listener.mechanisms
    if login.choose(request.mechanism, raw=raw):
        return SaslHandshakeResponse(mechanisms=mechanisms)
    refused = SaslHandshakeResponse(error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=mechanisms)
    call.reply_and_close(refused)
    return None


HANDLER = Handler(_handle)
