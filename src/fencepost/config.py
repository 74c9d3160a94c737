"""Client settings: Kafka's names in snake_case as keyword arguments, or dotted as in Kafka's properties files.

    Producer(bootstrap_servers="localhost:9092", linger_ms=20)
    Producer.from_config({"bootstrap.servers": "localhost:9092", "linger.ms": "20"})

An unknown name, or a value of the wrong type or out of range, raises a ConfigurationError that names the setting. Times
are milliseconds, sizes bytes. Each field is one row: `setting.py` has its parts.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final

from fencepost.arguments import MAX_INT32, brief_repr
from fencepost.common_config import LEVELS, CommonConfig
from fencepost.errors import ConfigurationError
from fencepost.foreign_settings import spelling
from fencepost.protocol.records.compression import MAX_DECOMPRESSED_BYTES
from fencepost.protocol.wire import MOST_STRING_BYTES
from fencepost.setting import setting, settings_class

__all__ = ["AdminConfig", "CommonConfig", "ConsumerConfig", "ProducerConfig", "ShareConsumerConfig"]


PARTITIONERS: Final = (
    "murmur2_random",
    "murmur2",
    "consistent_random",
    "consistent",
    "fnv1a_random",
    "fnv1a",
    "random",
)
_ASSIGNOR_METHODS: Final = ("assign", "subscription_user_data", "on_assignment")


class _Default(int):
    """A default value that differs by type from the same number given by the caller."""


DEFAULT_TRANSACTION_TIMEOUT_MS: Final = _Default(60_000)


@settings_class
class AdminConfig(CommonConfig):
    """Settings of an admin client."""


@settings_class
class ProducerConfig(CommonConfig):
    """Settings of a producer: idempotent by default, transactional with a transactional id."""

    role: ClassVar[str] = "producers"

    acks: int | str = setting(
        -1,
        '"all" or -1, 1, 0: replicas that have a record when it counts as sent.',
        low=None,
        choices=(-1, 0, 1),
        also=("request_required_acks",),
    )
    allow_auto_create_topics: bool = setting(True, "Requests create missing topics, if the brokers do that.")
    linger_ms: float = setting(
        5.0, "Maximum wait of a record for more records in its batch.", also=("queue_buffering_max_ms",)
    )
    batch_size: int = setting(262_144, "Bytes of keys and values at which a batch is closed.", also=("max_batch_size",))
    buffer_memory: int = setting(
        67_108_864, "Limit for the bytes of records that are not acknowledged.", also=("queue_buffering_max_kbytes",)
    )
    max_block_ms: int = setting(60_000, "Maximum wait of send() for buffer space or metadata.")
    delivery_timeout_ms: int = setting(
        120_000,
        "Maximum time from send() to the acknowledgement, retries included.",
        also=("message_timeout_ms",),
        reads=spelling.delivery_time,
    )
    max_request_size: int = setting(
        1_048_576, "Size limit in bytes of a batch, and so of a record.", low=1, also=("message_max_bytes",)
    )
    max_in_flight_requests_per_connection: int = setting(
        5, "Requests to one broker without an answer; 1 to 5 keeps the order.", also=("max_in_flight",)
    )
    compression_type: str = setting(
        "none",
        "Codec of batches.",
        choices=("none", "gzip", "snappy", "lz4", "zstd"),
        also=("compression", "compression_codec"),
        reads=spelling.codec,
    )
    compression_level: int | None = setting(None, "Level of the codec; none: its default.", low=None)
    enable_idempotence: bool = setting(True, "The brokers drop duplicates of retries and keep the order.")
    transactional_id: str | None = setting(
        None, "Name of the producer across restarts; allows transactions.", most_bytes=MOST_STRING_BYTES
    )
    transaction_timeout_ms: int = setting(
        DEFAULT_TRANSACTION_TIMEOUT_MS, "Time after which the coordinator aborts a transaction.", low=1, high=MAX_INT32
    )
    two_phase_commit: bool = setting(
        False,
        "Transactions have no timeout, because another system decides them (KIP-939).",
        also=("transaction_two_phase_commit_enable",),
    )
    retries: int = setting(
        2_147_483_647,
        "Limit of attempts; delivery_timeout_ms limits them as well.",
        also=("message_send_max_retries",),
        reads=spelling.retries,
    )
    # "murmur2_random" hashes keys like Java, "consistent_random" like librdkafka, "fnv1a_random" like Sarama. Without
    # "_random" all records without a key go to one partition. "random" ignores keys. A function takes (topic, key,
    # value, number of partitions) and returns a partition, or None for the default choice.
    partitioner: str | Callable[[str, bytes | None, bytes | None, int], int | None] = setting(
        "murmur2_random",
        "Choice of partitions: a name, or a function of (topic, key, value, number of partitions).",
        reads=spelling.partitioner,
    )
    partitioner_ignore_keys: bool = setting(False, "Records with a key are distributed as those without.")
    partitioner_adaptive_partitioning_enable: bool = setting(
        True, "Records without a key prefer partitions with few waiting batches (KIP-794)."
    )
    key_serializer: Callable[..., Any] | None = setting(
        None, "Function of the key, or of the key and a fencepost.schemas.Context.", reads=spelling.serializer
    )
    value_serializer: Callable[..., Any] | None = setting(
        None, "Function of the value, or of the value and a fencepost.schemas.Context.", reads=spelling.serializer
    )
    on_delivery: Callable[..., Any] | None = setting(
        None, "on_delivery(error, metadata), called for records sent without their own.", also=("dr_cb", "dr_msg_cb")
    )
    interceptors: Sequence[Any] = setting(
        (), "Objects of fencepost.client.interceptors.ProducerInterceptor (KIP-42).", reads=spelling.interceptors
    )

    @property
    def required_acks(self) -> int:
        """`acks` as sent on the wire."""
        return int(self.acks)

    def check(self) -> None:
        super().check()
        _check_interceptors(self.interceptors, "on_send")
        _check_partitioner(self.partitioner)
        if self.compression_level is not None:
            lowest, highest = LEVELS.get(self.compression_type, (0, 0))
            if not lowest <= self.compression_level <= highest or self.compression_type not in LEVELS:
                allowed = f"{lowest} to {highest}" if self.compression_type in LEVELS else "none is possible"
                codec = self.compression_type
                raise ConfigurationError(f"compression_level={self.compression_level} of {codec}: {allowed}")
        if self.enable_idempotence and self.retries < 1:
            raise ConfigurationError("retries=0 needs enable_idempotence=False")
        if self.transactional_id is not None and (self.acks != -1 or not self.enable_idempotence):
            raise ConfigurationError("a transactional producer needs acks=all and enable_idempotence=True")
        if self.transactional_id == "":
            raise ConfigurationError("transactional_id is empty")
        if self.two_phase_commit and self.transactional_id is None:
            raise ConfigurationError("two_phase_commit needs a transactional_id")
        if self.two_phase_commit and not isinstance(self.transaction_timeout_ms, _Default):
            raise ConfigurationError(
                f"transaction_timeout_ms={self.transaction_timeout_ms} and two_phase_commit=True exclude each other: a "
                "two-phase transaction has no timeout; leave transaction_timeout_ms out"
            )
        if self.enable_idempotence and self.acks != -1:
            raise ConfigurationError(f"acks={self.acks} needs enable_idempotence=False")
        in_flight = self.max_in_flight_requests_per_connection
        if in_flight < 1 or (self.enable_idempotence and in_flight > 5):
            raise ConfigurationError(
                f"max_in_flight_requests_per_connection={in_flight}: 1 to 5 keeps the order with idempotence; "
                "more needs enable_idempotence=False"
            )
        if self.delivery_timeout_ms < self.linger_ms:
            raise ConfigurationError("delivery_timeout_ms must not be below linger_ms")


@settings_class
class _FetchingConfig(CommonConfig):
    """Settings of clients that fetch records."""

    group_id: str | None = setting(None, "Name of the group.", most_bytes=MOST_STRING_BYTES)
    fetch_min_bytes: int = setting(1, "The broker answers a fetch when it has so many bytes.", high=MAX_INT32)
    fetch_max_wait_ms: int = setting(
        500, "The broker answers a fetch after this time at the latest.", high=MAX_INT32, also=("fetch_wait_max_ms",)
    )
    fetch_max_bytes: int = setting(52_428_800, "Size limit of the answer to a fetch.", high=MAX_INT32)
    max_decompressed_bytes: int = setting(
        MAX_DECOMPRESSED_BYTES,
        "Limit for the decompressed bytes of one batch; records that wait for poll() may take about as much.",
        low=1,
    )
    max_poll_records: int = setting(10_000, "Most records that poll() returns.", low=1, high=MAX_INT32)
    max_poll_interval_ms: int = setting(
        300_000, "A member without a poll() for this time leaves its group.", low=1, high=MAX_INT32
    )
    check_crcs: bool = setting(True, "Check the checksum of each batch.")
    client_rack: str = setting(
        "", "Rack of the client, for the nearest replica (KIP-392).", most_bytes=MOST_STRING_BYTES
    )


@settings_class
class ConsumerConfig(_FetchingConfig):
    """Settings of a consumer. By default it reads committed records only, and commits offsets only when asked."""

    role: ClassVar[str] = "consumers"

    group_instance_id: str | None = setting(
        None, "Name of a static member: it keeps its partitions over a restart (KIP-345).", most_bytes=MOST_STRING_BYTES
    )
    auto_offset_reset: str = setting(
        "latest",
        "Start of a partition without an offset: earliest, latest, by_duration:..., none.",
        reads=spelling.reset_word,
    )
    enable_auto_commit: bool = setting(
        False, "Commit the positions of earlier polls from time to time.", also=("auto_commit_enable",)
    )
    auto_commit_interval_ms: int = setting(5_000, "Time between two automatic commits.")
    enable_auto_offset_store: bool = setting(
        True, "False: commits without positions take only those of store_offsets()."
    )
    isolation_level: str = setting(
        "read_committed", "Records that are read.", choices=("read_committed", "read_uncommitted")
    )
    max_partition_fetch_bytes: int = setting(
        4_194_304,
        "Size limit of one partition in the answer to a fetch.",
        high=MAX_INT32,
        also=("fetch_message_max_bytes",),
    )
    session_timeout_ms: int = setting(
        45_000, "A member without a heartbeat for this time leaves its group (classic groups).", high=MAX_INT32
    )
    heartbeat_interval_ms: int = setting(3_000, "Time between two heartbeats (classic groups).", low=1, high=MAX_INT32)
    partition_assignment_strategy: Sequence[str | Any] = setting(
        ("range", "roundrobin"),
        "Names or objects of fencepost.PartitionAssignor, best first.",
        reads=spelling.assignors,
    )
    group_protocol: str = setting(
        "classic",
        "consumer: the broker assigns partitions and sets the session timeout (KIP-848).",
        choices=("classic", "consumer"),
        reads=spelling.lower,
    )
    group_remote_assignor: str | None = setting(
        None, "Broker's assignor with group_protocol=consumer: uniform or range; none: its default."
    )
    key_deserializer: Callable[..., Any] | None = setting(
        None, "Function of the bytes, or of the bytes and a fencepost.schemas.Context.", reads=spelling.serializer
    )
    value_deserializer: Callable[..., Any] | None = setting(
        None, "Function of the bytes, or of the bytes and a fencepost.schemas.Context.", reads=spelling.serializer
    )
    consumer_timeout_ms: int | None = setting(
        None, "A blocking iteration ends after this time without a record; none: never.", reads=spelling.iteration_time
    )
    interceptors: Sequence[Any] = setting(
        (), "Objects of fencepost.client.interceptors.ConsumerInterceptor (KIP-42).", reads=spelling.interceptors
    )

    def check(self) -> None:
        super().check()
        _check_interceptors(self.interceptors, "on_consume")
        if self.group_id == "":
            raise ConfigurationError("group_id is empty; leave it out for a consumer without a group")
        if self.group_id is None and (self.enable_auto_commit or self.group_instance_id is not None):
            raise ConfigurationError("enable_auto_commit and group_instance_id need a group_id")
        _check_assignors(self.partition_assignment_strategy, self.group_protocol)
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise ConfigurationError("heartbeat_interval_ms must be below session_timeout_ms")


@settings_class
class ShareConsumerConfig(_FetchingConfig):
    """Settings of a share group's member (KIP-932).

    Start offset, isolation level and delivery limit are configurations of the group.
    """

    role: ClassVar[str] = "share consumers"
    takes_other_roles: ClassVar[bool] = False  # the group has the settings that a share consumer lacks

    max_poll_records: int = setting(500, "Most records that poll() returns.", low=1, high=MAX_INT32)
    share_acknowledgement_mode: str = setting(
        "implicit",
        "explicit: the application acknowledges every record.",
        choices=("implicit", "explicit"),
        reads=spelling.lower,
    )
    share_acquire_mode: str = setting(
        "batch_optimized",
        "record_limit: at most max_poll_records are locked at once (KIP-1206).",
        choices=("batch_optimized", "record_limit"),
        reads=spelling.lower,
    )

    def check(self) -> None:
        super().check()
        if not self.group_id:
            raise ConfigurationError("a share consumer needs a group_id")


def _check_assignors(strategies: Sequence[Any], group_protocol: str) -> None:
    """Raise ConfigurationError for a custom assignor that is no PartitionAssignor, or that would have no effect."""
    for given in strategies:
        if isinstance(given, str):
            continue
        if isinstance(given, type) or not all(callable(getattr(given, method, None)) for method in _ASSIGNOR_METHODS):
            raise ConfigurationError(
                f"partition_assignment_strategy: {brief_repr(given)} is no name and no object of a class derived from "
                "fencepost.PartitionAssignor"
            )
        if group_protocol == "consumer":
            raise ConfigurationError(
                f"partition_assignment_strategy: {brief_repr(given)} has no effect with group_protocol='consumer', "
                "where the broker assigns; see group_remote_assignor"
            )


def _check_interceptors(interceptors: Sequence[Any], method: str) -> None:
    """Raise ConfigurationError for an interceptor that lacks the method."""
    for interceptor in interceptors:
        if not callable(getattr(interceptor, method, None)):
            raise ConfigurationError(
                f"interceptors={brief_repr(interceptors)}: {brief_repr(interceptor)} has no method {method}"
            )


def _check_partitioner(partitioner: str | Callable[..., object]) -> None:
    """Raise ConfigurationError for an unknown name, or a function with the parameters of another client's."""
    if isinstance(partitioner, str):
        if partitioner not in PARTITIONERS:
            raise ConfigurationError(
                f"partitioner={brief_repr(partitioner)}: one of {', '.join(PARTITIONERS)}, or a function"
            )
        return
    try:
        inspect.signature(partitioner).bind("topic", b"key", b"value", 1)
    except TypeError as error:
        raise ConfigurationError(
            f"partitioner={brief_repr(partitioner)}: it is called with (topic, key, value, number of partitions): "
            f"{error}"
        ) from None
    except ValueError:
        return  # a function without a readable signature
