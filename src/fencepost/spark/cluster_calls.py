"""Requests of the source and the sink to brokers."""

from __future__ import annotations

from fencepost.client.admin.configs import AdminConfigs
from fencepost.client.admin.topics import AdminTopics
from fencepost.client.admin.transactions import AdminTransactions

__all__ = ["ClusterCalls"]


class ClusterCalls(AdminTopics, AdminConfigs, AdminTransactions):
    """Not all of AdminCore: Spark starts Python processes for every batch, and each would import the rest, too."""
