"""ApiVersions, v0-5: the served APIs, from the table of APIs, and the finalized features.

v3 adds the client's name and the features; it answers with the oldest response header, as every version does. v5 names
the cluster and the node that the client expects (KIP-1242): another one answers 129, so that the client looks for its
brokers anew. An unknown version is answered in v0 with error 35 and the range served, so that the client can retry
(franz-go starts with v5). The finalized level of transaction.version tells clients which transaction protocol to use
(KIP-890); level 0 is represented by leaving the feature out, as in Kafka.
"""

from __future__ import annotations

import re

from fencepost.broker.api.apis import SERVED
from fencepost.broker.api.common import BROKER_ID
from fencepost.broker.api.handler import Handler
from fencepost.broker.connection import Call
from fencepost.broker.settings.features import SUPPORTED
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

__all__ = ["HANDLER"]

_FIRST_WITH_NAMES = 3
_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")  # KIP-511
# librdkafka up to 2.6 compresses only if Produce v0 is listed, and otherwise silently sends uncompressed batches. It
# never sends that version; Apache Kafka lists v0-2 for the same reason and does not serve them either.
_LISTED_FROM = {0: 0}
# Without subscriptions to client metrics clients are not to ask for them: librdkafka logs a line at every start.
_TELEMETRY = frozenset((71, 72))
_NO_NODE = -1


def _handle(call: Call, now_ms: int, request: ApiVersionsRequest | None) -> ApiVersionsResponse:
    """Answer with the table. `request` is None if its version is not served."""
    if request is None:
        own = SERVED[call.api_key]
        only = ApiVersion(api_key=own.key, min_version=own.min_version, max_version=own.max_version)
        return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=(only,))
    names = (request.client_software_name, request.client_software_version)
    if call.version >= _FIRST_WITH_NAMES and not all(map(_NAME.fullmatch, names)):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    code = _wrong_node(call, request)
    if code:
        return ApiVersionsResponse(error_code=code)
    call.connection.software_name, call.connection.software_version = names
    levels = call.core.settings.feature_levels()
    finalized = [
        FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
        for name, level in levels.items()
        if level > 0
    ]
    # v0-3 of the answer cannot express "from 0", so Kafka omits such features in them (KAFKA-17011).
    supported = [
        SupportedFeatureKey(name=name, min_version=low, max_version=high)
        for name, (low, high) in SUPPORTED.items()
        if low > 0 or call.version >= 4
    ]
    return ApiVersionsResponse(
        api_keys=[
            ApiVersion(api_key=a.key, min_version=_LISTED_FROM.get(a.key, a.min_version), max_version=a.max_version)
            for a in SERVED.values()
            if a.key not in _TELEMETRY or call.core.settings.subscriptions
        ],
        supported_features=supported,
        finalized_features_epoch=call.core.settings.features_epoch,
        finalized_features=finalized,
    )


def _wrong_node(call: Call, request: ApiVersionsRequest) -> ErrorCode:
    """Return the error if the client expects another cluster or node, or NONE."""
    if (request.cluster_id is None) != (request.node_id == _NO_NODE):
        return ErrorCode.INVALID_REQUEST
    if request.cluster_id is None:
        return ErrorCode.NONE
    reached = request.cluster_id == call.core.meta.cluster_id and request.node_id == BROKER_ID
    return ErrorCode.NONE if reached else ErrorCode.REBOOTSTRAP_REQUIRED


HANDLER = Handler(_handle)
