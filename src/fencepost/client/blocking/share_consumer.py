"""The blocking share consumer: a ShareConsumerCore in the I/O thread, with callbacks in the calling thread."""

from __future__ import annotations

from fencepost.client.blocking.base import cluster_for
from fencepost.client.blocking.listening import ListeningClient, alone, changing, plain, polling
from fencepost.client.configured import configured_by
from fencepost.client.share.core import ShareConsumerCore
from fencepost.config import ShareConsumerConfig


class ShareConsumer(ListeningClient[ShareConsumerCore]):
    """A blocking member of a share group (KIP-932), for one thread at a time.

    Any thread may call `wakeup`, `close` and the methods that only read state (assignment, metrics, state, ...).
    """

    _config_type = ShareConsumerConfig

    @configured_by(ShareConsumerConfig)
    def __init__(self, config: ShareConsumerConfig) -> None:
        """Create a share consumer for `bootstrap_servers`: "host:port,...", or a list.

        Settings are keyword arguments with Kafka's names in snake_case.
        """
        super().__init__(lambda call_user: ShareConsumerCore(cluster_for(config), config, call_user))

    poll = polling(ShareConsumerCore.poll, ShareConsumerCore.hand_out, lambda _, shared: shared.records)
    commit = alone(ShareConsumerCore.commit)
    unsubscribe = alone(ShareConsumerCore.unsubscribe)
    subscribe = alone(ShareConsumerCore.subscribe)
    client_instance_id = alone(ShareConsumerCore.client_instance_id)
    acknowledge = changing(ShareConsumerCore.acknowledge)
    commit_async = changing(ShareConsumerCore.commit_async)
    set_acknowledgement_callback = changing(ShareConsumerCore.set_acknowledgement_callback)
    acquisition_lock_timeout_ms = plain(ShareConsumerCore.acquisition_lock_timeout_ms)
    assignment = plain(ShareConsumerCore.assignment)
    subscription = plain(ShareConsumerCore.subscription)
    state = plain(ShareConsumerCore.state)
