"""`Admin` (blocking) and `AsyncAdmin`: the methods are those of AdminCore."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self, Unpack

from fencepost.client.admin import AdminCore
from fencepost.client.assembly import cluster_for
from fencepost.client.asyncio_runtime import AsyncioRuntime
from fencepost.client.blocking_base import BlockingClient, blocking
from fencepost.config import AdminConfig, CommonSettings


class AsyncAdmin(AdminCore):
    """Admin calls for asyncio. Make it inside a running loop; `await close()` or `async with`."""

    def __init__(self, bootstrap_servers: str | Sequence[str], **settings: Unpack[CommonSettings]) -> None:
        self._open(AdminConfig.make({"bootstrap_servers": bootstrap_servers, **settings}))

    @classmethod
    def from_config(cls, settings: Mapping[str, Any]) -> Self:
        """From Kafka's dotted names."""
        self = cls.__new__(cls)
        self._open(AdminConfig.from_dotted(settings))
        return self

    def _open(self, config: AdminConfig) -> None:
        AdminCore.__init__(self, cluster_for(AsyncioRuntime(), config), config.default_api_timeout_ms)

    async def close(self) -> None:
        """Close the connections."""
        self.cluster.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()


def _core(config: AdminConfig) -> AdminCore:
    return AdminCore(cluster_for(AsyncioRuntime(), config), config.default_api_timeout_ms)


class Admin(BlockingClient[AdminCore]):
    """Blocking admin calls; may be shared between threads."""

    def __init__(self, bootstrap_servers: str | Sequence[str], **settings: Unpack[CommonSettings]) -> None:
        config = AdminConfig.make({"bootstrap_servers": bootstrap_servers, **settings})
        super().__init__(lambda: _core(config))

    @classmethod
    def from_config(cls, settings: Mapping[str, Any]) -> Self:
        """From Kafka's dotted names."""
        config = AdminConfig.from_dotted(settings)
        self = cls.__new__(cls)
        BlockingClient.__init__(self, lambda: _core(config))
        return self

    create_topic = blocking(AdminCore.create_topic)
    delete_topic = blocking(AdminCore.delete_topic)
    create_partitions = blocking(AdminCore.create_partitions)
    list_topics = blocking(AdminCore.list_topics)
    describe_topics = blocking(AdminCore.describe_topics)
    describe_cluster = blocking(AdminCore.describe_cluster)
    partitions_of = blocking(AdminCore.partitions_of)
    list_offsets = blocking(AdminCore.list_offsets)
    delete_records = blocking(AdminCore.delete_records)
    describe_configs = blocking(AdminCore.describe_configs)
    alter_configs = blocking(AdminCore.alter_configs)
    list_groups = blocking(AdminCore.list_groups)
    describe_group = blocking(AdminCore.describe_group)
    group_offsets = blocking(AdminCore.group_offsets)
    delete_group = blocking(AdminCore.delete_group)
    init_producer_id = blocking(AdminCore.init_producer_id)
    end_transaction = blocking(AdminCore.end_transaction)
    complete = blocking(AdminCore.complete)
    list_transactions = blocking(AdminCore.list_transactions)
    describe_transactions = blocking(AdminCore.describe_transactions)
    describe_producers = blocking(AdminCore.describe_producers)
    write_abort_marker = blocking(AdminCore.write_abort_marker)
    features = blocking(AdminCore.features)
    api_versions = blocking(AdminCore.api_versions)

    def close(self) -> None:
        """Close the connections. May be called again."""
        self._io.check_process()
        if not self._closed:
            self._closed = True
            self._io.call_soon(self._core.cluster.close)
