"""The share consumer for asyncio: a ShareConsumerCore in the running event loop."""

from __future__ import annotations

from fencepost.arguments import Milliseconds, checked
from fencepost.client.aio.base import AsyncClient, in_loop
from fencepost.client.configured import configured_by
from fencepost.client.net.asyncio_runtime import runtime_for
from fencepost.client.net.cluster import Cluster
from fencepost.client.net.open_clients import CLOSE_MS
from fencepost.client.share.core import ShareConsumerCore
from fencepost.config import ShareConsumerConfig


class AsyncShareConsumer(AsyncClient[ShareConsumerCore]):
    """A member of a share group (KIP-932) for asyncio: make it inside a running loop."""

    _config_type = ShareConsumerConfig

    @configured_by(ShareConsumerConfig)
    def __init__(self, config: ShareConsumerConfig) -> None:
        """`bootstrap_servers`: "host:port,...", or a list of these; the settings are Kafka's, in snake_case."""
        runtime = runtime_for(config)
        super().__init__(runtime, ShareConsumerCore(Cluster(runtime, config), config))

    poll = in_loop(ShareConsumerCore.poll)
    commit = in_loop(ShareConsumerCore.commit)
    unsubscribe = in_loop(ShareConsumerCore.unsubscribe)
    subscribe = in_loop(ShareConsumerCore.subscribe)
    acknowledge = in_loop(ShareConsumerCore.acknowledge)
    commit_async = in_loop(ShareConsumerCore.commit_async)
    set_acknowledgement_callback = in_loop(ShareConsumerCore.set_acknowledgement_callback)
    acquisition_lock_timeout_ms = in_loop(ShareConsumerCore.acquisition_lock_timeout_ms)
    assignment = in_loop(ShareConsumerCore.assignment)
    subscription = in_loop(ShareConsumerCore.subscription)
    metrics = in_loop(ShareConsumerCore.metrics)
    state = in_loop(ShareConsumerCore.state)
    wakeup = in_loop(ShareConsumerCore.wakeup)

    @checked
    async def close(self, timeout_ms: Milliseconds | None = CLOSE_MS) -> None:
        """As ShareConsumer.close."""
        await self._end(lambda core: core.close(timeout_ms))
