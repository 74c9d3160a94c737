"""The share consumer for asyncio: a ShareConsumerCore in the running event loop."""

from __future__ import annotations

from fencepost.client.aio.base import in_loop
from fencepost.client.aio.holding import HeldClient, changing, holding
from fencepost.client.configured import configured_by
from fencepost.client.net.asyncio_runtime import runtime_for
from fencepost.client.net.cluster import Cluster
from fencepost.client.share.core import ShareConsumerCore
from fencepost.config import ShareConsumerConfig


class AsyncShareConsumer(HeldClient[ShareConsumerCore]):
    """A member of a share group (KIP-932) for asyncio, for one task at a time. Create it in a running loop.

    Any task may call `wakeup`, `close` and the methods that only read state (assignment, metrics, state, ...).
    """

    _config_type = ShareConsumerConfig

    @configured_by(ShareConsumerConfig)
    def __init__(self, config: ShareConsumerConfig) -> None:
        """Create a share consumer for `bootstrap_servers`: "host:port,...", or a list.

        Settings are keyword arguments with Kafka's names in snake_case.
        """
        runtime = runtime_for(config)
        super().__init__(runtime, ShareConsumerCore(Cluster(runtime, config), config))

    poll = holding(ShareConsumerCore.poll)
    commit = holding(ShareConsumerCore.commit)
    unsubscribe = holding(ShareConsumerCore.unsubscribe)
    subscribe = holding(ShareConsumerCore.subscribe)
    client_instance_id = holding(ShareConsumerCore.client_instance_id)
    acknowledge = changing(ShareConsumerCore.acknowledge)
    commit_async = changing(ShareConsumerCore.commit_async)
    set_acknowledgement_callback = changing(ShareConsumerCore.set_acknowledgement_callback)
    acquisition_lock_timeout_ms = in_loop(ShareConsumerCore.acquisition_lock_timeout_ms)
    assignment = in_loop(ShareConsumerCore.assignment)
    subscription = in_loop(ShareConsumerCore.subscription)
    state = in_loop(ShareConsumerCore.state)
