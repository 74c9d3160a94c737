"""UpdateFeatures, v0-2 (KIP-584): change the finalized level of transaction.version.

Other features have one level.

All updates are carried out or none. v1 has upgrade types and validate_only, v2 an answer without results.
"""

from __future__ import annotations

from fencepost.broker.api.handler import Handler
from fencepost.broker.connection import Call
from fencepost.broker.disk.changes import Change
from fencepost.broker.settings.features import InvalidUpdate, Update, updated
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages.update_features import (
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

__all__ = ["HANDLER"]

_UPGRADE = 1


def _handle(call: Call, now_ms: int, request: UpdateFeaturesRequest) -> None:
    """Change the levels. Clients see them in their next ApiVersions."""
    call.change(request, _updated(call, request))


def _updated(call: Call, request: UpdateFeaturesRequest) -> Change[UpdateFeaturesResponse]:
    updates = [
        # v0 has no upgrade types, and Kafka accepts no downgrades in it.
        Update(each.feature, each.max_version_level, _UPGRADE if call.version == 0 else each.upgrade_type)
        for each in request.feature_updates
    ]
    settings = call.core.settings
    try:
        levels = updated(settings.feature_levels(), updates)
    except InvalidUpdate as error:
        return UpdateFeaturesResponse(error_code=ErrorCode.INVALID_UPDATE_VERSION, error_message=str(error))
    if not request.validate_only:
        yield from settings.set_feature_levels(levels)
        call.core.settings_changed(call.core.now.ms)
    results = [UpdatableFeatureResult(feature=each.feature, error_message="NONE") for each in updates]
    return UpdateFeaturesResponse(results=results)


HANDLER = Handler(_handle)
