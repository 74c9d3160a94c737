"""The configuration dict of confluent-kafka: its callbacks, its own settings, and librdkafka's defaults."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from fencepost.arguments import brief_repr, whole_number
from fencepost.common_config import own_name
from fencepost.compat.confluent_kafka.base.errors import KafkaException, error_of, local_error
from fencepost.config import AdminConfig, CommonConfig, ConsumerConfig, ProducerConfig
from fencepost.errors import ConfigurationError, UsageError
from fencepost.setting import typed

__all__ = ["DEFAULTS", "Given", "given", "given_milliseconds", "milliseconds"]

T = TypeVar("T")

# librdkafka's defaults that differ from Fencepost's and that a program could notice.
_COMMON: Final[Mapping[str, Any]] = {
    "client_id": "rdkafka",
    "topic_metadata_propagation_max_ms": 30_000,
    "request_timeout_ms": 60_000,
}
DEFAULTS: Final[Mapping[type[CommonConfig], Mapping[str, Any]]] = {
    AdminConfig: _COMMON,
    ProducerConfig: {
        **_COMMON,
        "enable_idempotence": False,
        "partitioner": "consistent_random",
        "delivery_timeout_ms": 300_000,
        "max_request_size": 1_000_000,
    },
    ConsumerConfig: {**_COMMON, "enable_auto_commit": True},
}
_HEARTBEAT_MS: Final = 3_000  # shorter with a short session timeout, because librdkafka accepts any interval
_UNLIMITED: Final = 2**62  # bytes; `Reports` checks the limits of librdkafka's queue
_REFUSED: Final = {
    "consume_cb": "call poll()",
    "rebalance_cb": "pass on_assign, on_revoke and on_lost to subscribe()",
    "offset_commit_cb": "the name is on_commit",
}


@dataclass(slots=True)
class Given:
    """The settings of a client.

    Attributes:
        config: The configuration for Fencepost's client.
        on_delivery: Called for records without a callback of their own.
        on_commit: Called after commits.
        error_cb: Called for errors that no call raises at once.
        stats_cb: Called with statistics.
        partition_eof: True to report the end of a partition as an event.
        store_offsets: True if poll() stores the offset of each record that it returns.
        most_records: Limit of the producer's queue in records; 0: no limit.
        most_bytes: Limit of the producer's queue in bytes.
    """

    config: dict[str, Any]
    on_delivery: Callable[..., Any] | None = None
    on_commit: Callable[..., Any] | None = None
    error_cb: Callable[..., Any] | None = None
    stats_cb: Callable[..., Any] | None = None
    partition_eof: bool = False
    store_offsets: bool = True
    most_records: int = 100_000
    most_bytes: int = 1_048_576 * 1024


def given(role: type[CommonConfig], arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> Given:
    """Parse the arguments of a client's constructor.

    Raises:
        TypeError: The arguments have no configuration dict.
        ValueError: A consumer has no group.id.
        KafkaException: A setting is unknown or invalid.
        UsageError: A setting is not possible here.
    """
    if len(arguments) > 1 or (arguments and not isinstance(arguments[0], Mapping)) or not (arguments or keywords):
        raise TypeError("expected configuration dict")
    settings = {**(arguments[0] if arguments else {}), **keywords}
    for name in settings:
        if not isinstance(name, str):
            raise local_error("_INVALID_ARG", f"the name of a setting is a str, not {brief_repr(name)}")
    nested = settings.pop("default.topic.config", None)
    settings |= nested or {}  # as in librdkafka, these settings take precedence
    by_name = {str(name).replace(".", "_"): (name, value) for name, value in settings.items()}
    if role is ConsumerConfig and not by_name.get("group_id", ("", None))[1]:
        raise ValueError("Failed to create consumer: group.id must be set")
    for name, instead in _REFUSED.items():
        if by_name.pop(name, (name, None))[1] is not None:
            raise UsageError(f"fencepost.compat.confluent_kafka: setting {name}: {instead}")
    if not callable(by_name.get("throttle_cb", ("", print))[1]):
        raise ValueError("expected callable for throttle_cb")
    take = _RemainingSettings(by_name)
    try:
        result = Given(
            {},
            on_delivery=take.function("on_delivery") or take.function("dr_msg_cb") or take.function("dr_cb"),
            on_commit=take.function("on_commit"),
            error_cb=take.function("error_cb"),
            stats_cb=take.function("stats_cb"),
            partition_eof=take.value("enable_partition_eof", bool, False),
            store_offsets=take.value("enable_auto_offset_store", bool, True),
            most_records=take.value("queue_buffering_max_messages", int, 100_000),
            most_bytes=take.value("queue_buffering_max_kbytes", int, 1_048_576) * 1024,
        )
        result.config = _complete(role, dict(by_name.values()))
    except ConfigurationError as error:
        raise KafkaException(error_of(error)) from error
    return result


class _RemainingSettings:
    """A dict of settings by names with underscores, from which settings are removed one by one."""

    def __init__(self, found: dict[str, tuple[str, Any]]) -> None:
        self._found = found

    def function(self, name: str) -> Callable[..., Any] | None:
        """Remove and return a callback. Raises TypeError if it is not callable."""
        _, value = self._found.pop(name, (name, None))
        if value is None:
            return None
        if not callable(value):
            raise TypeError(f"expected callable for {name}")
        function: Callable[..., Any] = value
        return function

    def value(self, name: str, kind: type[T], default: T) -> T:
        """Remove and return a value of a type. Raises ConfigurationError."""
        given_name, value = self._found.pop(name, (name, None))
        if value is None:
            return default
        try:
            converted: T = typed(value, kind)
        except ValueError as error:
            raise ConfigurationError(f"{given_name}={brief_repr(value)}: {error}") from error
        return converted


def _complete(role: type[CommonConfig], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return all settings for Fencepost's client, with librdkafka's defaults."""
    named = {name.replace(".", "_"): value for name, value in settings.items()}
    said = {own_name(name) for name in named}
    added = {name: value for name, value in DEFAULTS[role].items() if name not in said}
    if "transactional_id" in said:
        added.pop("enable_idempotence", None)
    if role is ProducerConfig:
        added["buffer_memory"] = _UNLIMITED
    if role is AdminConfig and "socket_timeout_ms" in named:
        added["default_api_timeout_ms"] = named["socket_timeout_ms"]  # librdkafka's time limit of admin calls
    if role is ConsumerConfig:
        added["enable_auto_offset_store"] = False
        session_ms = whole_number(str(named.get("session_timeout_ms", "")))
        if session_ms is not None and "heartbeat_interval_ms" not in said:
            added["heartbeat_interval_ms"] = min(_HEARTBEAT_MS, max(session_ms // 3, 1))
    dotted = {name.replace("_", "."): value for name, value in added.items()}  # suggestions have their spelling
    return vars(role.from_dotted({**settings, **dotted}))


def milliseconds(timeout: float | None) -> int | None:
    """Return a timeout in seconds as ms; None for no limit. Raises TypeError."""
    return None if timeout is None else given_milliseconds(timeout)


def given_milliseconds(timeout: float) -> int | None:
    """Return a timeout in seconds as ms; None for no limit, which is negative. Raises TypeError, also for None."""
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)):
        raise TypeError(f"timeout: must be a number of seconds, not {type(timeout).__name__}")
    return None if timeout < 0 else round(timeout * 1000)
