"""Settings of other clients that have no effect here. They are accepted with a warning that names the replacement."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["WITHOUT_EFFECT"]

_METRICS: Final = "metrics()"
_ASKED: Final = "asked of each broker"
_TOKENS: Final = "a token is asked for anew after 80 % of its life, three times at most, for 10 s each"
_TICKETS: Final = "the Kerberos library asks for tickets when they are needed; a ticket cache is for kinit to renew"
_VALIDATION: Final = "the broker validates tokens"
_TIME: Final = "default_api_timeout_ms"
_NODELAY: Final = "the client sets TCP_NODELAY, and the system the sizes of buffers"

# Replacement by name; "" if none is needed.
WITHOUT_EFFECT: Final[Mapping[str, str]] = {
    "debug": "the logger fencepost.client at DEBUG",
    "log_level": "the level of the logger fencepost",
    "throttle_cb": "metrics() counts it",
    "enable_partition_eof": "Consumer.lag()",
    "queue_buffering_max_messages": "buffer_memory",
    "batch_num_messages": "batch_size",
    "topic_metadata_refresh_interval_ms": "metadata_max_age_ms",
    "rebalance_timeout_ms": "max_poll_interval_ms",
    "coordinator_query_interval_ms": "metadata_max_age_ms",
    "metadata_max_idle_ms": "metadata_max_age_ms",
    "socket_connection_setup_timeout_max_ms": "socket_connection_setup_timeout_ms",
    "sticky_partitioning_linger_ms": "batch_size, after which records without a key change partition",
    "partitioner_availability_timeout_ms": "partitioner_adaptive_partitioning_enable",
    "fetch_error_backoff_ms": "retry_backoff_ms",
    "fetch_queue_backoff_ms": "max_poll_records",
    "loop": "the running event loop",
    "ssl_protocol": "ssl_enabled_protocols",
    **dict.fromkeys(
        (
            "metric_group_prefix",
            "metrics_enabled",
            "metrics_num_samples",
            "metrics_recording_level",
            "metrics_sample_window_ms",
        ),
        _METRICS,
    ),
    **dict.fromkeys(
        (
            "api_version",
            "api_version_fallback_ms",
            "api_version_request",
            "api_version_request_timeout_ms",
            "broker_version_fallback",
        ),
        _ASKED,
    ),
    **dict.fromkeys(("bootstrap_resolve_timeout_ms", "bootstrap_timeout_ms", "socket_blocking_max_ms"), _TIME),
    **dict.fromkeys(
        (
            "receive_buffer_bytes",
            "send_buffer_bytes",
            "socket_nagle_disable",
            "socket_options",
            "socket_receive_buffer_bytes",
            "socket_send_buffer_bytes",
        ),
        _NODELAY,
    ),
    **dict.fromkeys(
        (
            "sasl_login_connect_timeout_ms",
            "sasl_login_read_timeout_ms",
            "sasl_login_refresh_buffer_seconds",
            "sasl_login_refresh_min_period_seconds",
            "sasl_login_refresh_window_factor",
            "sasl_login_refresh_window_jitter",
            "sasl_login_retry_backoff_max_ms",
            "sasl_login_retry_backoff_ms",
        ),
        _TOKENS,
    ),
    **dict.fromkeys(
        (
            "sasl_kerberos_kinit_cmd",
            "sasl_kerberos_min_time_before_relogin",
            "sasl_kerberos_ticket_renew_jitter",
            "sasl_kerberos_ticket_renew_window_factor",
        ),
        _TICKETS,
    ),
    **dict.fromkeys(
        (
            "sasl_oauthbearer_allow_unverified_audience",
            "sasl_oauthbearer_allow_unverified_issuer",
            "sasl_oauthbearer_clock_skew_seconds",
            "sasl_oauthbearer_expected_audience",
            "sasl_oauthbearer_expected_issuer",
            "sasl_oauthbearer_jwks_endpoint_refresh_ms",
            "sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms",
            "sasl_oauthbearer_jwks_endpoint_retry_backoff_ms",
            "sasl_oauthbearer_jwks_endpoint_url",
            "sasl_oauthbearer_jwt_validator_class",
            "sasl_oauthbearer_scope_claim_name",
            "sasl_oauthbearer_sub_claim_name",
        ),
        _VALIDATION,
    ),
    **dict.fromkeys(
        (
            "background_event_cb",
            "broker_address_family",
            "broker_address_ttl",
            "buffer_memory_allocation_strategy",
            "builtin_features",
            "client_dns_lookup",
            "closesocket_cb",
            "connect_cb",
            "consume_callback_max_messages",
            "enable_incremental_fetch_sessions",
            "enable_random_seed",
            "enabled_events",
            "internal_termination_signal",
            "internal_throw_on_fetch_stable_offset_unsupported",
            "kafka_client",
            "log_cb",
            "log_connection_close",
            "log_queue",
            "log_thread_name",
            "logger",
            "message_copy_max_bytes",
            "metadata_cluster_check_enable",
            "metadata_recovery_rebootstrap_trigger_ms",
            "offset_store_path",
            "offset_store_sync_interval_ms",
            "opaque",
            "open_cb",
            "produce_offset_report",
            "queue_buffering_backpressure_threshold",
            "queued_max_messages_kbytes",
            "queued_min_messages",
            "reconnect_backoff_jitter_ms",
            "resolve_cb",
            "selector",
            "socket_cb",
            "socket_keepalive_enable",
            "socket_max_fails",
            "ssl_engine_callback_data",
            "ssl_keymanager_algorithm",
            "ssl_secure_random_implementation",
            "ssl_trustmanager_algorithm",
            "topic_metadata_refresh_fast_cnt",
            "topic_metadata_refresh_fast_interval_ms",
            "topic_metadata_refresh_sparse",
        ),
        "",
    ),
}
