"""The admin core, composed of its parts.

Every call has `api_timeout_ms`, the time limit of the whole call (default: default.api.timeout.ms). Every call raises
KafkaTimeoutError at the limit, ClosedError after close, and otherwise the class of a final error code.
"""

from __future__ import annotations

from fencepost.client.admin.acls import AdminAcls
from fencepost.client.admin.configs import AdminConfigs
from fencepost.client.admin.elections import AdminElections
from fencepost.client.admin.group_descriptions import AdminGroupDescriptions
from fencepost.client.admin.groups import AdminGroups
from fencepost.client.admin.hanging import AdminHanging
from fencepost.client.admin.logs import AdminLogs
from fencepost.client.admin.placement import AdminPlacement
from fencepost.client.admin.quotas import AdminQuotas
from fencepost.client.admin.scram import AdminScram
from fencepost.client.admin.share_offsets import AdminShareOffsets
from fencepost.client.admin.tokens import AdminTokens


class AdminCore(
    AdminHanging,
    AdminConfigs,
    AdminLogs,
    AdminGroups,
    AdminGroupDescriptions,
    AdminShareOffsets,
    AdminAcls,
    AdminScram,
    AdminPlacement,
    AdminQuotas,
    AdminTokens,
    AdminElections,
):
    """The async core of `Admin` and `AsyncAdmin`."""
