"""CreateAcls, v1-3: add bindings. v2 is flexible, v3 knows users.

An existing binding is a success.

The bindings take effect, and the answer is sent, once they are on disk. Without an authorizer: SECURITY_DISABLED.
"""

from __future__ import annotations

from fencepost.broker.api.handler import Handler
from fencepost.broker.connection import Call
from fencepost.broker.disk.changes import Change
from fencepost.broker.security.acls import Binding, invalid_binding
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages.create_acls import (
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)

__all__ = ["HANDLER"]


def _handle(call: Call, now_ms: int, request: CreateAclsRequest) -> None:
    """Add the valid bindings. Each has its own result."""
    call.change(request, _created(call, request))


def _created(call: Call, request: CreateAclsRequest) -> Change[CreateAclsResponse]:
    rights = call.core.rights
    valid, results = [], []
    for creation in request.creations:
        binding = Binding(
            creation.resource_type,
            creation.resource_pattern_type,
            creation.resource_name,
            creation.principal,
            creation.host,
            creation.operation,
            creation.permission_type,
        )
        why = invalid_binding(binding)
        if not rights.enforced:
            result = AclCreationResult(
                error_code=ErrorCode.SECURITY_DISABLED, error_message="No Authorizer is configured."
            )
        elif why is not None:
            result = AclCreationResult(error_code=ErrorCode.INVALID_REQUEST, error_message=why)
        else:
            valid.append(binding)
            result = AclCreationResult(error_message="")
        results.append(result)
    yield from rights.store.add(valid)
    return CreateAclsResponse(results=results)


HANDLER = Handler(_handle)
