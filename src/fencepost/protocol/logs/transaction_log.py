"""Encode and decode the records of ``__transaction_state``: ``TransactionLogKey`` v0, ``TransactionLogValue`` v0-1.

Source: transaction-coordinator/src/main/resources/common/message in Apache Kafka. Every key and value starts with an
int16 schema version. Version 0 has fixed-width lengths and no tagged fields; version 1 is flexible. Tags 0-2 are those
of Kafka 4.x. Tag 3 (``NextProducerEpoch``) comes from KIP-939.

Tags from ``OWN_TAGS_FROM`` on carry state that this broker needs after a restart and Kafka does not record. Kafka's
readers skip unknown tags, so Kafka's tools can read these records. Unknown tags are dropped on reading.

Invalid bytes raise `CorruptTransactionRecord`. An unknown schema version raises `UnknownTransactionRecord`: newer
brokers may add kinds of records, which a reader has to recognize and skip.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from functools import lru_cache
from itertools import chain, compress
from operator import attrgetter, ne
from typing import Any, Final, NamedTuple

from fencepost.protocol.cursor import Reader
from fencepost.protocol.errors import MalformedMessage
from fencepost.protocol.varint import write_unsigned_varint

KEY_VERSION: Final = 0
HIGHEST_VALUE_VERSION: Final = 1
OWN_TAGS_FROM: Final = 10_000

_INT8 = struct.Struct(">b")
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_KEY = struct.Struct(">hh")  # version and length of the name
_PRODUCER_ID = struct.Struct(">hq")  # the first fields of a value of either version: version and producer id
_HEAD = struct.Struct(">qhib")
_VERSION_AND_HEAD = struct.Struct(">hqhib")
_TIMES = struct.Struct(">qq")
_FLEXIBLE: Final = 1


class CorruptTransactionRecord(ValueError):
    """The bytes are not a transaction log key or value of the version they claim."""


class UnknownTransactionRecord(ValueError):
    """The record has a schema version that this reader does not know."""


class TransactionLogValue(NamedTuple):
    """The logged state of one transactional id. -1 means "none" for ids, epochs, versions and the start time."""

    producer_id: int
    producer_epoch: int
    transaction_timeout_ms: int
    transaction_status: int
    transaction_partitions: tuple[tuple[str, tuple[int, ...]], ...] | None
    last_update_timestamp_ms: int
    start_timestamp_ms: int
    previous_producer_id: int = -1
    next_producer_id: int = -1
    client_transaction_version: int = 0
    next_producer_epoch: int = -1
    # The fields from here on are tags of our own.
    last_producer_epoch: int = -1
    last_bump_cause: int = 0
    init_producer_id_version: int = -1
    add_partitions_version: int = -1
    next_transaction_timeout_ms: int = -1
    endings: bytes = b""
    """Outcomes of the id's transactions, in the layout of ENDINGS_SINCE and ENDINGS_RUN."""


ENDINGS_TAG: Final = OWN_TAGS_FROM + 5
ENDINGS_SINCE: Final = struct.Struct(">qh")
"""The start of `endings`: producer id and epoch of the first transaction whose outcome is remembered."""
ENDINGS_RUN: Final = struct.Struct(">qhhhhb")
"""The rest of `endings` is any number of runs: producer id, epochs of the first and the last transaction, number of
epochs per transaction, distance between the epochs of two transactions, outcome."""

# tag -> (attribute, layout, default, which is not written)
_TAGS: Final[dict[int, tuple[str, struct.Struct, int]]] = {
    0: ("previous_producer_id", _INT64, -1),
    1: ("next_producer_id", _INT64, -1),
    2: ("client_transaction_version", _INT16, 0),
    3: ("next_producer_epoch", _INT16, -1),
    OWN_TAGS_FROM: ("last_producer_epoch", _INT16, -1),
    OWN_TAGS_FROM + 1: ("last_bump_cause", _INT8, 0),
    OWN_TAGS_FROM + 2: ("init_producer_id_version", _INT16, -1),
    OWN_TAGS_FROM + 3: ("add_partitions_version", _INT16, -1),
    OWN_TAGS_FROM + 4: ("next_transaction_timeout_ms", _INT32, -1),
}

_TAGGED = attrgetter(*(name for name, _, _ in _TAGS.values()))
"""The values of the tags, in their order."""
_ABSENT: Final = tuple(absent for _, _, absent in _TAGS.values())
_ENDINGS_HEAD: Final = write_unsigned_varint(ENDINGS_TAG)
_FEW_PARTITIONS: Final = 16


def encode_key(transactional_id: str) -> bytes:
    """Encode the key of a transactional id (int16 version 0, int16 length, UTF-8)."""
    name = transactional_id.encode()
    return _KEY.pack(KEY_VERSION, len(name)) + name


def decode_key(data: bytes | memoryview) -> str:
    """Return the transactional id of a key.

    Raises:
        UnknownTransactionRecord: The version is unknown.
        CorruptTransactionRecord: The bytes are not a key.
    """
    reader = Reader(data)
    try:
        version = reader.int16()
        if version != KEY_VERSION:
            raise UnknownTransactionRecord(f"transaction log key of version {version}")
        name = reader.string()
        reader.end()
    except MalformedMessage as error:
        raise CorruptTransactionRecord(f"a transaction log key: {error}") from error
    return name


def encode_value(value: TransactionLogValue, version: int = HIGHEST_VALUE_VERSION) -> bytes:
    """Encode a value. Version 0 has no tagged fields and drops them, as in Kafka.

    Raises:
        UnknownTransactionRecord: The version is unknown.
    """
    if version not in (0, 1):
        raise UnknownTransactionRecord(f"transaction log value of version {version}")
    head = _VERSION_AND_HEAD.pack(
        version,
        value.producer_id,
        value.producer_epoch,
        value.transaction_timeout_ms,
        value.transaction_status,
    )
    times = _TIMES.pack(value.last_update_timestamp_ms, value.start_timestamp_ms)
    if version < _FLEXIBLE:
        return head + _fixed_partitions(value.transaction_partitions) + times
    endings = value.endings
    tags = _tags(_TAGGED(value), 1 if endings else 0)
    written = head + _flexible_partitions(value.transaction_partitions) + times + tags
    return written + _ENDINGS_HEAD + write_unsigned_varint(len(endings)) + endings if endings else written


@lru_cache(256)  # only one of a transaction's three records has new numbers
def _tags(numbers: tuple[int, ...], others: int) -> bytes:
    """Return the number of tags, and those with numbers. `others`: number of tags that follow."""
    present = tuple(map(ne, numbers, _ABSENT))
    layout, heads = _tags_layout(present, others)
    return layout.pack(*heads[0], *chain.from_iterable(zip(heads[1], compress(numbers, present), strict=True)))


@lru_cache(64)  # the records of one broker have few sets of tags
def _tags_layout(present: tuple[bool, ...], others: int) -> tuple[struct.Struct, tuple[list[int], list[bytes]]]:
    """Return the layout of the number of tags and of the present ones, and its values apart from the tags' own.

    `others`: number of tags that follow.
    """
    known = [(tag, layout) for tag, (_, layout, _) in compress(_TAGS.items(), present)]
    heads = [write_unsigned_varint(tag) + write_unsigned_varint(layout.size) for tag, layout in known]
    fields = "".join(f"{len(head)}s{layout.format[1:]}" for head, (_, layout) in zip(heads, known, strict=True))
    return struct.Struct(">B" + fields), ([len(known) + others], heads)


def _flexible_partitions(topics: tuple[tuple[str, tuple[int, ...]], ...] | None) -> bytes:
    if topics is None:
        return b"\0"
    written = write_unsigned_varint(len(topics) + 1)
    for each in topics:
        written += _few_partitions(*each) if len(each[1]) <= _FEW_PARTITIONS else _flexible_topic(*each)
    return written


def _flexible_topic(topic: str, partitions: tuple[int, ...]) -> bytes:
    name, count = topic.encode(), len(partitions)
    head = write_unsigned_varint(len(name) + 1) + name + write_unsigned_varint(count + 1)
    return head + struct.pack(f">{count}ix", *partitions)


_few_partitions = lru_cache(256)(_flexible_topic)  # most transactions of an id have the same few


def _fixed_partitions(topics: tuple[tuple[str, tuple[int, ...]], ...] | None) -> bytes:
    if topics is None:
        return _INT32.pack(-1)
    written = _INT32.pack(len(topics))
    for topic, partitions in topics:
        name, count = topic.encode(), len(partitions)
        written += _INT16.pack(len(name)) + name + struct.pack(f">i{count}i", count, *partitions)
    return written


def decode_value(data: bytes | memoryview) -> TransactionLogValue:
    """Decode a value of version 0 or 1.

    Raises:
        UnknownTransactionRecord: The version is unknown.
        CorruptTransactionRecord: The bytes are not a value.
    """
    try:
        return _read_value(Reader(data))
    except MalformedMessage as error:
        raise CorruptTransactionRecord(f"a transaction log value: {error}") from error


def producer_id_of(data: bytes) -> int:
    """Return the producer id of a value without decoding the rest; -1 if the bytes are too short."""
    return int(_PRODUCER_ID.unpack_from(data)[1]) if len(data) >= _PRODUCER_ID.size else -1


def _read_value(reader: Reader) -> TransactionLogValue:
    version = reader.int16()
    if version not in (0, 1):
        raise UnknownTransactionRecord(f"transaction log value of version {version}")
    reader.flexible = version >= _FLEXIBLE
    producer_id, epoch, timeout_ms, status = reader.unpack(_HEAD)
    partitions = _read_partitions(reader)
    updated_ms, started_ms = reader.unpack(_TIMES)
    tags = reader.tags()
    tagged: dict[str, Any] = _numbers(tags)
    reader.end()
    tagged["endings"] = _endings(bytes(tags.get(ENDINGS_TAG, b"")))
    return TransactionLogValue(producer_id, epoch, timeout_ms, status, partitions, updated_ms, started_ms, **tagged)


def _read_partitions(reader: Reader) -> tuple[tuple[str, tuple[int, ...]], ...] | None:
    count = reader.array_length()
    if count < 0:
        return None
    topics: list[tuple[str, tuple[int, ...]]] = []
    for _ in range(count):
        topics.append((reader.string(), tuple(reader.int32s())))
        reader.skip_tags()
    return tuple(topics)


def _endings(data: bytes) -> bytes:
    """Return `data` if it has the layout of endings.

    Raises:
        MalformedMessage: The length or the order of the epochs is wrong.
    """
    if data:
        left = len(data) - ENDINGS_SINCE.size
        if left < 0 or left % ENDINGS_RUN.size:
            raise MalformedMessage(f"tag {ENDINGS_TAG} has {len(data)} bytes")
        runs = ENDINGS_RUN.iter_unpack(data[ENDINGS_SINCE.size :])
        if any(last < first or not 0 < width <= step for _, first, last, width, step, _ in runs):
            raise MalformedMessage(f"tag {ENDINGS_TAG} has epochs in the wrong order")
    return data


def _numbers(tags: Mapping[int, memoryview]) -> dict[str, int]:
    """Return the values of the known tags by attribute name."""
    fields: dict[str, int] = {}
    for tag, data in tags.items():
        known = _TAGS.get(tag)
        if known is None:
            continue
        name, layout, _absent = known
        if len(data) != layout.size:
            raise MalformedMessage(f"tag {tag} has {len(data)} bytes instead of {layout.size}")
        (fields[name],) = layout.unpack(data)
    return fields
