"""The choice of a consumer's group protocol."""

from __future__ import annotations

from fencepost.client.group.classic import ClassicMember
from fencepost.client.group.consumer_protocol import ConsumerProtocolMember
from fencepost.client.group.member import Listener, Member
from fencepost.client.metrics import ConsumerMetrics
from fencepost.client.net.cluster import Cluster
from fencepost.config import ConsumerConfig


def member_for(cluster: Cluster, config: ConsumerConfig, listener: Listener, metrics: ConsumerMetrics) -> Member:
    """Return the membership for the setting group_protocol. Raises ConfigurationError."""
    kind = ConsumerProtocolMember if config.group_protocol == "consumer" else ClassicMember
    return kind(cluster, config, listener, metrics)
