"""DeleteAcls, v1-3: remove the bindings that match filters. v2 is flexible, v3 knows users.

The answer lists the removed bindings and is sent once the removal is on disk. Without an authorizer: SECURITY_DISABLED.
"""

from __future__ import annotations

from fencepost.broker.api.handler import Handler
from fencepost.broker.connection import Call
from fencepost.broker.disk.changes import Change
from fencepost.broker.security.acls import Binding, BindingFilter
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)

__all__ = ["HANDLER"]


def _handle(call: Call, now_ms: int, request: DeleteAclsRequest) -> None:
    """Remove the matching bindings. Each filter has its own result."""
    call.change(request, _deleted(call, request))


def _deleted(call: Call, request: DeleteAclsRequest) -> Change[DeleteAclsResponse]:
    rights = call.core.rights
    if not rights.enforced:
        disabled = DeleteAclsFilterResult(
            error_code=ErrorCode.SECURITY_DISABLED, error_message="No Authorizer is configured."
        )
        return DeleteAclsResponse(filter_results=[disabled for _ in request.filters])
    doomed: list[Binding] = []
    results = []
    for wanted in request.filters:
        accepted = _filter(wanted)
        if accepted.unknown:
            message = " ".join(accepted.unknown)
            results.append(DeleteAclsFilterResult(error_code=ErrorCode.INVALID_REQUEST, error_message=message))
            continue
        matching = [binding for binding in rights.store.acls.bindings if accepted.matches(binding)]
        doomed += matching
        results.append(DeleteAclsFilterResult(matching_acls=[_removed(binding) for binding in matching]))
    yield from rights.store.remove(doomed)
    return DeleteAclsResponse(filter_results=results)


def _filter(wanted: DeleteAclsFilter) -> BindingFilter:
    return BindingFilter(
        wanted.resource_type_filter,
        wanted.pattern_type_filter,
        wanted.resource_name_filter,
        wanted.principal_filter,
        wanted.host_filter,
        wanted.operation,
        wanted.permission_type,
    )


def _removed(binding: Binding) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        resource_type=binding.resource_type,
        resource_name=binding.name,
        pattern_type=binding.pattern,
        principal=binding.principal,
        host=binding.host,
        operation=binding.operation,
        permission_type=binding.permission,
    )


HANDLER = Handler(_handle)
