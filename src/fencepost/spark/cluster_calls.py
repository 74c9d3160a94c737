"""Requests of the source and the sink to brokers."""

from __future__ import annotations

from collections.abc import Mapping

from fencepost.client.admin.configs import AdminConfigs
from fencepost.client.admin.topics import AdminTopics
from fencepost.client.admin.transactions import AdminTransactions
from fencepost.client.net.list_offsets import list_offsets
from fencepost.client.types import Isolation, OffsetAt, TopicPartition

__all__ = ["ClusterCalls"]


class ClusterCalls(AdminTopics, AdminConfigs, AdminTransactions):
    """The part of AdminCore that source and sink need. Spark starts Python processes often, so imports must be few."""

    async def offsets_of_all(
        self, wanted: Mapping[TopicPartition, int], isolation: Isolation
    ) -> dict[TopicPartition, OffsetAt]:
        """Return the offsets like `list_offsets`. Raises the error of the first partition that fails."""
        return await list_offsets(self.cluster, wanted, isolation, self._deadline(None))
