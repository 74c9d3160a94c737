"""DescribeUserScramCredentials, v0 (KIP-554): the users with SCRAM credentials, and their mechanisms.

Only stored credentials are listed, not users in a listener's settings. Without names, all users are listed.
"""

from __future__ import annotations

from collections import Counter, defaultdict

from fencepost.broker.api.handler import Handler
from fencepost.broker.connection import Call
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)

__all__ = ["HANDLER"]


def _handle(
    call: Call, now_ms: int, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    """Describe the named users."""
    found: defaultdict[str, list[CredentialInfo]] = defaultdict(list)
    for (user, mechanism), credential in sorted(call.core.credentials.stored.items()):
        found[user].append(CredentialInfo(mechanism=mechanism, iterations=credential.iterations))
    requested = Counter(user.name for user in request.users or ())
    results = [_result(name, found.get(name), requested[name]) for name in requested or found]
    return DescribeUserScramCredentialsResponse(error_message="", results=results)


def _result(name: str, infos: list[CredentialInfo] | None, times: int) -> DescribeUserScramCredentialsResult:
    if times > 1:
        message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
        return DescribeUserScramCredentialsResult(
            user=name, error_code=ErrorCode.DUPLICATE_RESOURCE, error_message=message
        )
    if infos is None:
        message = f"Attempt to describe a user credential that does not exist: {name}"
        return DescribeUserScramCredentialsResult(
            user=name, error_code=ErrorCode.RESOURCE_NOT_FOUND, error_message=message
        )
    return DescribeUserScramCredentialsResult(user=name, error_message="", credential_infos=infos)


HANDLER = Handler(_handle)
