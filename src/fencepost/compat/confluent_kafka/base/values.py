"""Message, TopicPartition and the small values of confluent-kafka."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import NoneType
from typing import Any, Final

from fencepost.arguments import brief_repr
from fencepost.client.types import OffsetAndMetadata
from fencepost.client.types import TopicPartition as OurTopicPartition
from fencepost.compat.confluent_kafka.base.errors import KafkaError, local_error

OFFSET_BEGINNING: Final = -2
OFFSET_END: Final = -1
OFFSET_STORED: Final = -1000
OFFSET_INVALID: Final = -1001
TIMESTAMP_NOT_AVAILABLE: Final = 0
TIMESTAMP_CREATE_TIME: Final = 1
TIMESTAMP_LOG_APPEND_TIME: Final = 2

HeaderList = Sequence[tuple[str, bytes | str | None]]


class TopicPartition:
    """A partition, with an offset, its metadata and an error. Equality and order compare only topic and partition.

    `partition` and `offset` can be set.
    """

    __slots__ = ("_error", "_leader_epoch", "_metadata", "_offset", "_partition", "_topic")

    def __init__(
        self,
        topic: str,
        partition: int = -1,
        offset: int = OFFSET_INVALID,
        metadata: str | None = None,
        leader_epoch: int | None = None,
    ) -> None:
        """Create a partition.

        Args:
            topic: The topic.
            partition: The partition.
            offset: An offset, or one of the OFFSET_ constants.
            metadata: The application's text at a committed offset.
            leader_epoch: Leader epoch of the record before the offset.

        Raises:
            TypeError: A value has a wrong type.
            OverflowError: A number has more bits than Kafka's.
        """
        if not isinstance(topic, str):
            raise TypeError(f"topic must be a str, not {type(topic).__name__}")
        if not isinstance(metadata, (str, NoneType)):
            raise TypeError(f"metadata must be a str, not {type(metadata).__name__}")
        self._topic = topic
        self.partition = partition
        self.offset = offset
        self._metadata = metadata
        epoch = -1 if leader_epoch is None else integer("leader_epoch", leader_epoch, 32)
        self._leader_epoch = epoch if epoch >= 0 else None
        self._error: KafkaError | None = None

    @property
    def topic(self) -> str:
        """The topic."""
        return self._topic

    @property
    def partition(self) -> int:
        """The partition."""
        return self._partition

    @partition.setter
    def partition(self, value: int) -> None:
        self._partition = integer("partition", value, 32)

    @property
    def offset(self) -> int:
        """The offset, or one of the OFFSET_ constants."""
        return self._offset

    @offset.setter
    def offset(self, value: int) -> None:
        self._offset = integer("offset", value, 64)

    @property
    def metadata(self) -> str | None:
        """The application's text at a committed offset."""
        return self._metadata

    @property
    def leader_epoch(self) -> int | None:
        """Leader epoch of the record before the offset."""
        return self._leader_epoch

    @property
    def error(self) -> KafkaError | None:
        """The error of this partition in a result."""
        return self._error

    def with_error(self, error: KafkaError | None) -> TopicPartition:
        """Set the error, and return this object."""
        self._error = error
        return self

    def __repr__(self) -> str:
        return (
            f"TopicPartition{{topic={self.topic},partition={self.partition},offset={self.offset},"
            f"leader_epoch={self.leader_epoch},error={self.error}}}"
        )

    def __hash__(self) -> int:
        return hash((self.topic, self.partition))

    def __eq__(self, other: object) -> bool:
        return (
            topic_partition_of(self) == topic_partition_of(other)
            if isinstance(other, TopicPartition)
            else NotImplemented
        )

    def __lt__(self, other: object) -> bool:
        return (
            topic_partition_of(self) < topic_partition_of(other)
            if isinstance(other, TopicPartition)
            else NotImplemented
        )

    def __le__(self, other: object) -> bool:
        return (
            topic_partition_of(self) <= topic_partition_of(other)
            if isinstance(other, TopicPartition)
            else NotImplemented
        )

    def __gt__(self, other: object) -> bool:
        return (
            topic_partition_of(self) > topic_partition_of(other)
            if isinstance(other, TopicPartition)
            else NotImplemented
        )

    def __ge__(self, other: object) -> bool:
        return (
            topic_partition_of(self) >= topic_partition_of(other)
            if isinstance(other, TopicPartition)
            else NotImplemented
        )


def integer(name: str, value: object, bits: int) -> int:
    """Return a number that fits into so many bits. Raises TypeError and OverflowError."""
    if not isinstance(value, int):
        raise TypeError(f"{name} must be int, not {type(value).__name__}")
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise OverflowError(f"{name}={value} has more than {bits} bits")
    return int(value)


def topic_partition_of(partition: TopicPartition) -> OurTopicPartition:
    """Return the partition as Fencepost's own type."""
    return OurTopicPartition(partition.topic, partition.partition)


def checked_partitions(partitions: object) -> list[TopicPartition]:
    """Return a list of partitions. Raises TypeError for anything else."""
    if not isinstance(partitions, list):
        raise TypeError(f"requires list of TopicPartition, not {type(partitions).__name__}")
    return [checked_partition(each) for each in partitions]


def checked_partition(partition: object) -> TopicPartition:
    """Return a partition. Raises TypeError for anything else."""
    if not isinstance(partition, TopicPartition):
        raise TypeError(f"expected TopicPartition, not {type(partition).__name__}")
    return partition


def distinct_partitions(what: str, partitions: object) -> list[TopicPartition]:
    """Return a list of partitions. Raises TypeError, and KafkaException if one is named twice."""
    found = checked_partitions(partitions)
    if len({topic_partition_of(each) for each in found}) != len(found):
        raise local_error("_INVALID_ARG", f"{what}: a partition is named twice")
    return found


def position_to_commit(partition: TopicPartition) -> OffsetAndMetadata:
    """Return the position of a partition with an absolute offset as Fencepost's own type."""
    epoch = -1 if partition.leader_epoch is None else partition.leader_epoch
    return OffsetAndMetadata(partition.offset, partition.metadata or "", epoch)


def committed_partition(partition: tuple[str, int], at: OffsetAndMetadata | None) -> TopicPartition:
    """Return a partition with its committed offset; OFFSET_INVALID if it has none."""
    if at is None:
        return TopicPartition(*partition)
    return TopicPartition(*partition, at.offset, at.metadata, at.leader_epoch)


class Message:
    """A record, or an error or event of a consumer. Methods return its values."""

    __slots__ = (
        "_delivery_count",
        "_error",
        "_headers",
        "_key",
        "_latency",
        "_leader_epoch",
        "_offset",
        "_partition",
        "_timestamp",
        "_topic",
        "_value",
    )

    def __init__(
        self,
        topic: str | None = None,
        partition: int | None = None,
        offset: int | None = None,
        key: Any = None,
        value: Any = None,
        headers: Any = None,
        error: KafkaError | None = None,
        timestamp: tuple[int, int] | None = None,
        latency: float | None = None,
        leader_epoch: int | None = None,
        delivery_count: int | None = None,
    ) -> None:
        """Create a message.

        Args:
            topic: The topic.
            partition: The partition.
            offset: The offset.
            key: The key.
            value: The value.
            headers: Pairs of name and bytes.
            error: The error or event, if the message is not a record.
            timestamp: One of the TIMESTAMP_ constants, and ms since 1970.
            latency: Seconds from produce() to the acknowledgement.
            leader_epoch: Epoch of the leader that wrote the record.
            delivery_count: Number of deliveries by a share group.
        """
        self._topic, self._partition, self._offset = topic, _known(partition), _known(offset)
        self._key, self._value, self._headers = key, value, headers
        self._error = error
        self._timestamp = (TIMESTAMP_NOT_AVAILABLE, 0) if timestamp is None else timestamp
        self._latency = None if latency is None or latency < 0 else latency
        self._leader_epoch = _known(leader_epoch)
        self._delivery_count = None if delivery_count is None or delivery_count < 1 else delivery_count

    def topic(self) -> str | None:
        """Return the topic."""
        return self._topic

    def partition(self) -> int | None:
        """Return the partition."""
        return self._partition

    def offset(self) -> int | None:
        """Return the offset."""
        return self._offset

    def key(self) -> Any:
        """Return the key."""
        return self._key

    def value(self) -> Any:
        """Return the value. An error or event has its text here."""
        return self._value

    def deserialized_key(self) -> Any:
        """Return the key, as `key` does."""
        return self._key

    def deserialized_value(self) -> Any:
        """Return the value, as `value` does."""
        return self._value

    def headers(self) -> Any:
        """Return the headers, or None if there are none."""
        return self._headers

    def error(self) -> KafkaError | None:
        """Return None for a record, else the error or event."""
        return self._error

    def timestamp(self) -> tuple[int, int]:
        """Return the type of the timestamp, and ms since 1970."""
        return self._timestamp

    def latency(self) -> float | None:
        """Return the seconds from produce() to the acknowledgement; None for other messages."""
        return self._latency

    def leader_epoch(self) -> int | None:
        """Return the epoch of the leader that wrote the record, or None."""
        return self._leader_epoch

    def delivery_count(self) -> int | None:
        """Return the number of deliveries by a share group; None for other messages."""
        return self._delivery_count

    def set_topic(self, topic: str | None) -> None:
        """Replace the topic."""
        self._topic = topic

    def set_key(self, key: Any) -> None:
        """Replace the key."""
        self._key = key

    def set_value(self, value: Any) -> None:
        """Replace the value."""
        self._value = value

    def set_headers(self, headers: Any) -> None:
        """Replace the headers."""
        self._headers = headers

    def set_error(self, error: Any) -> None:
        """Replace the error."""
        self._error = error

    def __len__(self) -> int:
        return 0 if self._value is None else len(self._value)

    def __reduce__(self) -> tuple[Any, ...]:
        return Message, self._fields()

    def _fields(self) -> tuple[Any, ...]:
        """Return the arguments that make the same message."""
        where = (self._topic, self._partition, self._offset)
        what = (self._key, self._value, self._headers, self._error, self._timestamp)
        return *where, *what, self._latency, self._leader_epoch, self._delivery_count

    def __eq__(self, other: object) -> bool:
        return self._fields() == other._fields() if isinstance(other, Message) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # as in confluent-kafka: the setters change what is compared


def _known(number: int | None) -> int | None:
    """Return a number of a message; None if it is negative."""
    return None if number is None or number < 0 else number


def header_pairs(headers: Mapping[str, Any] | HeaderList | None) -> list[tuple[str, bytes | None]] | None:
    """Return headers as a list of pairs for Fencepost's client. Raises TypeError for other types."""
    if headers is None:
        return None
    if isinstance(headers, Mapping):
        given: list[Any] = list(headers.items())
    elif isinstance(headers, list):
        given = headers
    else:
        raise TypeError(f"headers must be a dict or a list of pairs, not {type(headers).__name__}")
    return [_header(each) for each in given]


def _header(pair: Any) -> tuple[str, bytes | None]:
    if not isinstance(pair, tuple) or len(pair) != 2 or not isinstance(pair[0], str):
        raise TypeError(f"a header is a tuple of a name and a value, not {brief_repr(pair)}")
    return pair[0], as_bytes("header value", pair[1])


def as_bytes(what: str, value: Any) -> bytes | None:
    """Return the bytes of a key, value or header; text is encoded as UTF-8. Raises TypeError."""
    if value is None or value.__class__ is bytes:
        found: bytes | None = value
        return found
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise TypeError(f"{what}: a bytes-like object or a str is required, not {type(value).__name__!r}")
