"""From a configuration to a cluster view: what the shells share."""

from __future__ import annotations

from fencepost.client.cluster import Cluster, ClusterConfig, parse_bootstrap
from fencepost.client.connection import ConnectionConfig
from fencepost.client.runtime import Runtime
from fencepost.client.sasl_login import Login
from fencepost.config import CommonConfig


def cluster_for(runtime: Runtime, config: CommonConfig) -> Cluster:
    """A cluster view with no connection yet. Raises ConfigurationError for a bad bootstrap address."""
    from fencepost import __version__

    connection = ConnectionConfig(
        client_id=config.client_id,
        software_version=__version__,
        connect_timeout_ms=config.socket_connection_setup_timeout_ms,
        request_timeout_ms=config.request_timeout_ms,
        max_response_bytes=config.max_response_bytes,
        login=_login_for(config),
    )
    return Cluster(
        runtime,
        ClusterConfig(
            bootstrap=parse_bootstrap(config.bootstrap_servers),
            connection=connection,
            reconnect_backoff_ms=config.reconnect_backoff_ms,
            reconnect_backoff_max_ms=config.reconnect_backoff_max_ms,
            retry_backoff_ms=config.retry_backoff_ms,
            retry_backoff_max_ms=config.retry_backoff_max_ms,
            metadata_max_age_ms=config.metadata_max_age_ms,
            allow_auto_topic_creation=config.allow_auto_create_topics,
        ),
    )


def _login_for(config: CommonConfig) -> Login | None:
    if not config.security_protocol.startswith("SASL_"):
        return None
    username, password = config.credentials()
    return Login(config.sasl_mechanism, username, password, config.sasl_oauth_token_provider)
