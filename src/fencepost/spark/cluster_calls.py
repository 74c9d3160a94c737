"""Requests of the source and the sink to brokers."""

from __future__ import annotations

from fencepost.client.admin.configs import AdminConfigs
from fencepost.client.admin.topics import AdminTopics
from fencepost.client.admin.transactions import AdminTransactions

__all__ = ["ClusterCalls"]


class ClusterCalls(AdminTopics, AdminConfigs, AdminTransactions):
    """The part of AdminCore that source and sink need. Spark starts Python processes often, so imports must be few."""
