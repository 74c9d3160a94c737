"""Settings that other clients have under another name, or with other values."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from fencepost.foreign_settings.bound import BOUND, check_bound

__all__ = ["ALIASES", "CONVERTED", "codec_of", "own_value", "with_topic_settings"]

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
    "compression_codec": "compression_type",
    "max_in_flight": "max_in_flight_requests_per_connection",
    "receive_message_max_bytes": "max_response_bytes",
    "auto_commit_enable": "enable_auto_commit",
    "dr_cb": "on_delivery",
    "dr_msg_cb": "on_delivery",
    "error_cb": "on_error",
    "stats_cb": "on_statistics",
    # of aiokafka and kafka-python
    "max_batch_size": "batch_size",
    "sasl_plain_username": "sasl_username",
    "sasl_plain_password": "sasl_password",
    "socks5_proxy": "proxy_url",
    "ssl_certfile": "ssl_certificate_location",
    "ssl_keyfile": "ssl_key_location",
    "ssl_password": "ssl_key_password",
    "ssl_ciphers": "ssl_cipher_suites",
}

_FOR_EVER: Final = 2**31 - 1


def _kilobytes(value: Any) -> Any:
    return int(value) * 1024


def _host_name_check(value: Any) -> Any:
    checks = {"true": "https", "false": ""}
    return checks.get(str(value).strip().lower(), value)


# Settings with another name and another unit or form of value.
CONVERTED: Final[Mapping[str, tuple[str, Callable[[Any], Any]]]] = {
    "queue_buffering_max_kbytes": ("buffer_memory", _kilobytes),
    "ssl_check_hostname": ("ssl_endpoint_identification_algorithm", _host_name_check),
}


def _lower(value: Any) -> Any:
    return value.lower() if isinstance(value, str) else value


def _upper(value: Any) -> Any:
    return value.upper() if isinstance(value, str) else value


def _word(words: Mapping[str, Any], value: Any) -> Any:
    """Return the value here of another client's word; other values are returned unchanged."""
    return words.get(value.strip().lower(), value) if isinstance(value, str) else value


def _retries(value: Any) -> Any:
    return _FOR_EVER if value == math.inf else value


def _seconds_of_iteration(value: Any) -> Any:
    return None if value == math.inf else value


def _reset(value: Any) -> Any:
    words = {"smallest": "earliest", "beginning": "earliest", "largest": "latest", "end": "latest", "error": "none"}
    return _word(words, value)


_ASSIGNORS: Final = {
    "RangeAssignor": "range",
    "RoundRobinAssignor": "roundrobin",
    "StickyAssignor": "sticky",
    "CooperativeStickyAssignor": "cooperative-sticky",
}


_JAVA_BYTES: Final = tuple(f"org.apache.kafka.common.serialization.ByteArray{kind}ializer" for kind in ("Ser", "Deser"))


def _assignors(value: Any) -> Any:
    """Return custom assignors, and the names of built-in ones given as names or as classes of Java or Python."""
    given = value.split(",") if isinstance(value, str) else value if isinstance(value, (list, tuple)) else None
    return value if given is None else [_assignor(each) for each in given]


def _assignor(given: Any) -> Any:
    if isinstance(given, str):
        name = given.strip().removeprefix("class ")
        return _ASSIGNORS.get(name.rpartition(".")[2], name) if "." in name else name
    theirs = getattr(given, "name", None)
    is_theirs = theirs in _ASSIGNORS.values() and not hasattr(given, "subscription_user_data")
    return theirs if is_theirs else given


def _serializer(value: Any) -> Any:
    """Return None, that is bytes, for Java's class of byte arrays. Raises ValueError for its other classes."""
    if isinstance(value, str) and value not in _JAVA_BYTES:
        raise ValueError("must be a function, such as str.encode or bytes.decode; without one, it is bytes")
    return None if isinstance(value, str) else value


def _partitioner(value: Any) -> Any:
    """Return the name of the default partitioner of aiokafka and kafka-python, which is Java's."""
    return "murmur2_random" if type(value).__name__ == "DefaultPartitioner" else value


def _provider(value: Any) -> Any:
    """Return the method of a token provider that is an object, as in aiokafka and kafka-python."""
    return value if callable(value) else getattr(value, "token", value)


# Values of other clients, or their spelling, by the setting's name here.
_VALUES: Final[Mapping[str, Callable[[Any], Any]]] = {
    "auto_offset_reset": _reset,
    "compression_type": partial(_word, {"inherit": None}),
    "consumer_timeout_ms": _seconds_of_iteration,
    "delivery_timeout_ms": lambda value: _FOR_EVER if str(value).strip() == "0" else value,
    "group_protocol": _lower,
    "key_deserializer": _serializer,
    "key_serializer": _serializer,
    "interceptors": lambda value: () if value == "" else value,
    "partition_assignment_strategy": _assignors,
    "partitioner": _partitioner,
    "retries": _retries,
    "sasl_mechanism": _upper,
    "sasl_oauth_token_provider": _provider,
    "security_protocol": _upper,
    "share_acquire_mode": _lower,
    "share_acknowledgement_mode": _lower,
    "ssl_endpoint_identification_algorithm": partial(_word, {"none": "", "https": "https"}),
    "ssl_keystore_type": _upper,
    "ssl_truststore_type": _upper,
    "value_deserializer": _serializer,
    "value_serializer": _serializer,
}


def own_value(given: str, value: Any, settings: Mapping[str, Any]) -> tuple[str, Any]:
    """Return name and value of a setting here. The value None means the default.

    Args:
        given: Name in any client, with underscores.
        value: Value as that client takes it.
        settings: All settings, because the meaning of some depends on others.

    Raises:
        TypeError, ValueError: The value cannot be used here; the text says what to do.
    """
    if given in BOUND:
        check_bound(given, value)
        return given, value
    if given == "oauth_cb":
        return "sasl_oauth_token_provider", partial(value, settings.get("sasl_oauthbearer_config") or "")
    name, convert = CONVERTED[given] if given in CONVERTED else (ALIASES.get(given, given), None)
    if convert is not None:
        value = convert(value)
    if name == "compression_level" and str(value).strip() == "-1" and codec_of(settings) != "zstd":
        return name, None  # librdkafka's default; zstd has this level
    return name, _VALUES[name](value) if name in _VALUES else value


def with_topic_settings(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the settings with those that confluent-kafka nests in `default.topic.config`. Raises TypeError."""
    nested = settings.get("default_topic_config")
    if nested is not None and not isinstance(nested, Mapping):
        raise TypeError(f"default_topic_config={nested!r:.80}: must be a dict of settings")
    if "default_topic_config" not in settings:
        return settings
    others = {name: value for name, value in settings.items() if name != "default_topic_config"}
    return {**{name.replace(".", "_"): value for name, value in (nested or {}).items()}, **others}


def codec_of(settings: Mapping[str, Any]) -> object:
    """Return the compression codec of these settings; None if they have none."""
    names = ("compression_type", "compression_codec", "compression")
    return next((settings[name] for name in names if name in settings), None)
