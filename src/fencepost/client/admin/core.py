"""Admin, put together from its parts.

Every call takes `api_timeout_ms`, the patience for the whole call (default: default.api.timeout.ms), and raises
KafkaTimeoutError when it runs out, ClosedError after close, and the error class of a final wire code otherwise.
"""

from __future__ import annotations

from fencepost.client.admin.acls import AdminAcls
from fencepost.client.admin.configs import AdminConfigs
from fencepost.client.admin.groups import AdminGroups
from fencepost.client.admin.logs import AdminLogs
from fencepost.client.admin.placement import AdminPlacement
from fencepost.client.admin.scram import AdminScram
from fencepost.client.admin.topics import AdminTopics
from fencepost.client.admin.transactions import AdminTransactions


class AdminCore(
    AdminTopics, AdminConfigs, AdminLogs, AdminGroups, AdminAcls, AdminScram, AdminPlacement, AdminTransactions
):
    """The async core of `Admin` and `AsyncAdmin`."""
