"""DescribeAcls, v1-3: the bindings that match a filter, grouped by resource. v2 is flexible, v3 knows users.

Without an authorizer: SECURITY_DISABLED.
"""

from __future__ import annotations

from fencepost.broker.api.handler import Handler
from fencepost.broker.connection import Call
from fencepost.broker.security.acls import Binding, BindingFilter
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)

__all__ = ["HANDLER"]

_UNKNOWN = 0
"""The code for a value that the client itself did not understand. Other unknown codes match nothing."""


def _handle(call: Call, now_ms: int, request: DescribeAclsRequest) -> DescribeAclsResponse:
    """Describe the matching bindings."""
    rights = call.core.rights
    if not rights.enforced:
        message = "No Authorizer is configured."
        return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=message)
    binding_filter = BindingFilter(
        request.resource_type_filter,
        request.pattern_type_filter,
        request.resource_name_filter,
        request.principal_filter,
        request.host_filter,
        request.operation,
        request.permission_type,
    )
    if _UNKNOWN in (
        binding_filter.resource_type,
        binding_filter.pattern,
        binding_filter.operation,
        binding_filter.permission,
    ):
        return DescribeAclsResponse(error_code=ErrorCode.INVALID_REQUEST, error_message="Unknown elements in filter.")
    by_resource: dict[tuple[int, int, str], list[Binding]] = {}
    for binding in rights.store.acls.bindings:
        if binding_filter.matches(binding):
            by_resource.setdefault((binding.resource_type, binding.pattern, binding.name), []).append(binding)
    return DescribeAclsResponse(
        error_message="",
        resources=[
            DescribeAclsResource(
                resource_type=resource_type,
                resource_name=name,
                pattern_type=pattern,
                acls=[
                    AclDescription(
                        principal=binding.principal,
                        host=binding.host,
                        operation=binding.operation,
                        permission_type=binding.permission,
                    )
                    for binding in bindings
                ],
            )
            for (resource_type, pattern, name), bindings in by_resource.items()
        ],
    )


HANDLER = Handler(_handle)
