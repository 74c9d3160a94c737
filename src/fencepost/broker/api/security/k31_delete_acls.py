"""DeleteAcls, v1-3: remove the bindings that match filters. v2 is flexible, v3 knows users.

Answered when that is on disk, with what was removed. Without an authorizer: SECURITY_DISABLED.
"""

from __future__ import annotations

from fencepost.broker.api.handler import Handler
from fencepost.broker.connection import Call
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


def _handle(call: Call, now_ms: int, request: DeleteAclsRequest) -> DeleteAclsResponse:
    """Remove what matches; each filter has its own result."""
    rights = call.core.rights
    if not rights.enforced:
        disabled = DeleteAclsFilterResult(
            error_code=ErrorCode.SECURITY_DISABLED, error_message="No Authorizer is configured."
        )
        return DeleteAclsResponse(filter_results=[disabled for _ in request.filters])
    doomed: list[Binding] = []
    results = []
    for wanted in request.filters:
        matching = _matching(wanted, rights.store.acls.bindings)
        doomed += matching
        results.append(DeleteAclsFilterResult(matching_acls=[_removed(binding) for binding in matching]))
    rights.store.remove(doomed)
    return DeleteAclsResponse(filter_results=results)


def _matching(wanted: DeleteAclsFilter, bindings: tuple[Binding, ...]) -> list[Binding]:
    accepted = BindingFilter(
        wanted.resource_type_filter,
        wanted.pattern_type_filter,
        wanted.resource_name_filter,
        wanted.principal_filter,
        wanted.host_filter,
        wanted.operation,
        wanted.permission_type,
    )
    return [binding for binding in bindings if accepted.matches(binding)]


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
