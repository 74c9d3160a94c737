"""Settings of other clients with values that this client cannot honour: the possible values, and what to do instead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

__all__ = ["BOUND", "check_bound"]

_OAUTH: Final = "org.apache.kafka.common.security.oauthbearer"
_JAVA_LOGIN: Final = "sasl_oauth_token_provider in a program"
_CONTEXT: Final = "an ssl_context in a program"
_ASSERTION: Final = "sasl_oauthbearer_assertion_private_key_file and the claims, or sasl_oauthbearer_assertion_file"
_TRUST: Final = "SSL_CERT_FILE in the environment, which names trusted certificates for the token endpoint"

# By name: the values that this client honours, and what to use instead of others. Nothing and "" are always possible.
BOUND: Final[Mapping[str, tuple[tuple[str, ...], str]]] = {
    "bootstrap_controllers": ((), "bootstrap_servers; brokers forward to the controller"),
    "consume_cb": ((), "poll()"),
    "default_offset_commit_callback": ((), "on_commit of a ConsumerInterceptor"),
    "default_topic_conf": ((), "the settings without a topic configuration"),
    "delivery_report_only_error": (("false",), "on_delivery(error, metadata), which returns if error is None"),
    "enable_gapless_guarantee": (("false",), "a transaction, which has all of its records or none"),
    "enable_sasl_oauthbearer_unsecure_jwt": (("false",), "sasl_oauth_token_provider"),
    "exclude_internal_topics": (("true",), "the names of internal topics in subscribe()"),
    "group_protocol_type": (("consumer",), "leave it out"),
    "https_ca_location": ((), _TRUST),
    "https_ca_pem": ((), _TRUST),
    "interceptor_classes": ((), "interceptors, with objects of Python"),
    "metadata_recovery_strategy": (("rebootstrap",), "leave it out"),
    "metric_reporters": (("org.apache.kafka.common.metrics.JmxReporter",), "metrics(), Prometheus or OpenTelemetry"),
    "msg_order_cmp": ((), "leave it out; the records of a partition keep their order"),
    "oauthbearer_token_refresh_cb": ((), "oauth_cb"),
    "offset_commit_cb": ((), "on_commit of a ConsumerInterceptor"),
    "offset_store_method": (("broker",), "seek() to your own offsets"),
    "on_commit": ((), "on_commit of a ConsumerInterceptor"),
    "partitioner_cb": ((), "partitioner, with a function of (topic, key, value, partitions)"),
    "partitioner_class": (
        ("org.apache.kafka.clients.producer.internals.DefaultPartitioner",),
        "partitioner, with a name or a function of (topic, key, value, partitions)",
    ),
    "partitioner_rack_aware": (("false",), "a partitioner function"),
    "plugin_library_paths": ((), "interceptors, with objects of Python"),
    "queuing_strategy": (("fifo",), "leave it out; the records of a partition keep their order"),
    "rebalance_cb": ((), "a listener in subscribe()"),
    "sasl_client_callback_handler_class": (
        ("software.amazon.msk.auth.iam.IAMClientCallbackHandler",),
        _JAVA_LOGIN,
    ),
    "sasl_kerberos_name": ((), "sasl_kerberos_principal"),
    "sasl_login_callback_handler_class": (
        (f"{_OAUTH}.OAuthBearerLoginCallbackHandler", f"{_OAUTH}.secured.OAuthBearerLoginCallbackHandler"),
        _JAVA_LOGIN,
    ),
    "sasl_login_class": ((), _JAVA_LOGIN),
    "sasl_oauthbearer_assertion_jwt_template_file": ((), "sasl_oauthbearer_assertion_template_file"),
    "sasl_oauthbearer_assertion_private_key_pem": ((), _ASSERTION),
    "sasl_oauthbearer_grant_type": (("client_credentials",), _JAVA_LOGIN),
    "sasl_oauthbearer_jwt_retriever_class": (
        (f"{_OAUTH}.ClientCredentialsJwtRetriever", f"{_OAUTH}.DefaultJwtRetriever"),
        _JAVA_LOGIN,
    ),
    "sasl_oauthbearer_method": (("oidc", "default"), _JAVA_LOGIN),
    "security_providers": ((), _CONTEXT),
    "ssl_ca": ((), "ssl_truststore_location or ssl_truststore_certificates"),
    "ssl_ca_certificate_stores": (("Root",), "ssl_truststore_location"),
    "ssl_certificate": ((), "ssl_certificate_location or ssl_keystore_certificate_chain"),
    "ssl_certificate_verify_cb": ((), _CONTEXT),
    "ssl_crl_location": ((), _CONTEXT),
    "ssl_crlfile": ((), _CONTEXT),
    "ssl_curves_list": ((), _CONTEXT),
    "ssl_engine_factory_class": ((), _CONTEXT),
    "ssl_engine_id": (("dynamic",), _CONTEXT),
    "ssl_engine_location": ((), _CONTEXT),
    "ssl_key": ((), "ssl_key_location or ssl_keystore_key"),
    "ssl_provider": ((), _CONTEXT),
    "ssl_providers": ((), _CONTEXT),
    "ssl_sigalgs_list": ((), _CONTEXT),
    "topic_blacklist": ((), "a pattern in subscribe() that leaves these topics out"),
}


def check_bound(given: str, value: Any) -> None:
    """Raise ValueError, which says what to use instead, for a value of a bound setting that is not possible here."""
    possible, instead = BOUND[given]
    if value is None or value in ("", []) or str(value).lower() in map(str.lower, possible):
        return
    ways = f"only {' or '.join(possible)} is possible here" if possible else "not possible here"
    raise ValueError(f"{ways}; instead: {instead}")
