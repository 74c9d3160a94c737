"""DescribeClientQuotas, v0-1 (KIP-546): the quotas of users, client ids and addresses that match a filter."""

from __future__ import annotations

from fencepost.broker.api.handler import Handler
from fencepost.broker.connection import Call
from fencepost.broker.settings.client_quotas import Filter, InvalidQuota, UnknownEntityType, check_filters, matches
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)

__all__ = ["HANDLER"]


def _handle(call: Call, now_ms: int, request: DescribeClientQuotasRequest) -> DescribeClientQuotasResponse:
    """Describe the matching quotas."""
    filters = [Filter(wanted.entity_type, wanted.match_type, wanted.match) for wanted in request.components]
    try:
        check_filters(filters)
    except UnknownEntityType as error:
        return _refuse(call, ErrorCode.UNSUPPORTED_VERSION, str(error))
    except InvalidQuota as error:
        return _refuse(call, ErrorCode.INVALID_REQUEST, str(error))
    return DescribeClientQuotasResponse(
        error_message="",
        entries=[
            EntryData(
                entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
                values=[ValueData(key=key, value=value) for key, value in sorted(values.items())],
            )
            for entity, values in call.core.settings.quotas.items()
            if matches(entity, filters, strict=request.strict)
        ],
    )


def _refuse(call: Call, code: int, message: str | None = None) -> DescribeClientQuotasResponse:
    return DescribeClientQuotasResponse(error_code=code, error_message=message, entries=None)


HANDLER = Handler(_handle, refuse=_refuse)
