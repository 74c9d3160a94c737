"""Settings of the Java client, librdkafka, aiokafka and kafka-python, and their equivalents here."""

from __future__ import annotations

from typing import Final

# Names of other clients that differ from ours.
ALIASES: Final[dict[str, str]] = {
    "transaction_two_phase_commit_enable": "two_phase_commit",
    "fetch_wait_max_ms": "fetch_max_wait_ms",
    "compression": "compression_type",
    "sasl_mechanisms": "sasl_mechanism",
    "ssl_ca_location": "ssl_truststore_location",
    "ssl_cafile": "ssl_truststore_location",
    "ssl_ca_pem": "ssl_truststore_certificates",
    "ssl_certificate_pem": "ssl_keystore_certificate_chain",
    "ssl_key_pem": "ssl_keystore_key",
    "enable_ssl_certificate_verification": "ssl_verify",
    # of librdkafka
    "metadata_broker_list": "bootstrap_servers",
    "socket_timeout_ms": "request_timeout_ms",
    "queue_buffering_max_ms": "linger_ms",
    "message_max_bytes": "max_request_size",
    "message_timeout_ms": "delivery_timeout_ms",
    "message_send_max_retries": "retries",
    "request_required_acks": "acks",
    "fetch_message_max_bytes": "max_partition_fetch_bytes",
    "sasl_oauthbearer_client_id": "sasl_oauthbearer_client_credentials_client_id",
    "sasl_oauthbearer_client_secret": "sasl_oauthbearer_client_credentials_client_secret",
    # of aiokafka and kafka-python
    "sasl_plain_username": "sasl_username",
    "sasl_plain_password": "sasl_password",
    "ssl_certfile": "ssl_certificate_location",
    "ssl_keyfile": "ssl_key_location",
    "ssl_password": "ssl_key_password",
    "ssl_ciphers": "ssl_cipher_suites",
}

# Settings of other clients without effect here, with what to use instead. They are accepted with a warning, so that
# configurations need no change.
FOREIGN: Final[dict[str, str]] = {
    "debug": "the logger fencepost.client at DEBUG",
    "log_level": "the level of the logger fencepost",
    "error_cb": "errors are raised, and logged by fencepost.client",
    "throttle_cb": "metrics() counts it",
    "stats_cb": "metrics()",
    "statistics_interval_ms": "metrics()",
    "enable_partition_eof": "Consumer.lag()",
    "enable_auto_offset_store": "commit(...) of what is done",
    "api_version": "asked of each broker",
    "api_version_request": "asked of each broker",
    "broker_version_fallback": "asked of each broker",
    "queue_buffering_max_messages": "buffer_memory",
    "queue_buffering_max_kbytes": "buffer_memory, in bytes",
    "batch_num_messages": "batch_size",
    "topic_metadata_refresh_interval_ms": "metadata_max_age_ms",
}
FOREIGN.update(
    dict.fromkeys(
        (
            "broker_address_family",
            "broker_address_ttl",
            "client_dns_lookup",
            "log_cb",
            "log_connection_close",
            "logger",
            "queued_max_messages_kbytes",
            "queued_min_messages",
            "socket_keepalive_enable",
            "socket_max_fails",
            "socket_nagle_disable",
            "socket_receive_buffer_bytes",
            "socket_send_buffer_bytes",
        ),
        "",
    )
)
FOREIGN.update(
    dict.fromkeys(
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
        "a token is asked for anew after 80 % of its life, three times at most, for 10 s each",
    )
)

FOREIGN.update(
    dict.fromkeys(
        (
            "sasl_kerberos_kinit_cmd",
            "sasl_kerberos_min_time_before_relogin",
            "sasl_kerberos_ticket_renew_jitter",
            "sasl_kerberos_ticket_renew_window_factor",
        ),
        "the Kerberos library asks for tickets when they are needed; a ticket cache is for kinit to renew",
    )
)

# Settings of other clients that select one of several implementations. Only the values supported here are accepted.
_OAUTH: Final = "org.apache.kafka.common.security.oauthbearer"
ONE_WAY: Final[dict[str, tuple[str, ...]]] = {
    "sasl_client_callback_handler_class": ("software.amazon.msk.auth.iam.IAMClientCallbackHandler",),
    "sasl_login_callback_handler_class": (
        f"{_OAUTH}.OAuthBearerLoginCallbackHandler",
        f"{_OAUTH}.secured.OAuthBearerLoginCallbackHandler",
    ),
    "sasl_login_class": (),
    "sasl_oauthbearer_grant_type": ("client_credentials",),
    "sasl_oauthbearer_jwt_retriever_class": (
        f"{_OAUTH}.ClientCredentialsJwtRetriever",
        f"{_OAUTH}.DefaultJwtRetriever",
    ),
    "sasl_oauthbearer_method": ("oidc", "default"),
}
