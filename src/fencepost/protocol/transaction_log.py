"""Records of the internal topic ``__transaction_state``: ``TransactionLogKey`` v0, ``TransactionLogValue`` v0-1.

Layout (transaction-coordinator/src/main/resources/common/message in Apache Kafka): every key and value starts with an
int16 schema version. Version 0 has fixed-width lengths and no tagged fields; version 1 is flexible. Tags 0-2 are those
of Kafka 4.x, tag 3 (``NextProducerEpoch``) is the one KIP-939 adds. What Kafka does not record but a restart of this
broker must not forget travels in tags from ``OWN_TAGS_FROM`` on: Kafka's readers keep unknown tags aside, so its tools
read these records as their own. Unknown tags met here are dropped.

Bytes that do not fit raise `CorruptTransactionRecord`; a schema version other than the known ones raises
`UnknownTransactionRecord` (Kafka: newer brokers may add record kinds, which a reader has to recognise and skip).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

KEY_VERSION: Final = 0
HIGHEST_VALUE_VERSION: Final = 1
OWN_TAGS_FROM: Final = 10_000

_INT8 = struct.Struct(">b")
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_MAX_PARTITIONS: Final = 1_000_000


class CorruptTransactionRecord(ValueError):
    """The bytes are not a transaction log key or value of the version they claim."""


class UnknownTransactionRecord(ValueError):
    """The record has a schema version this reader does not know."""


@dataclass(frozen=True, slots=True)
class TransactionLogValue:
    """One transactional id's state as it is logged; -1 means "none" for ids, epochs, versions and start time."""

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
    # From here on: tags of our own.
    last_producer_epoch: int = -1
    last_bump_cause: int = 0
    init_producer_id_version: int = -1
    add_partitions_version: int = -1
    next_transaction_timeout_ms: int = -1


# tag -> (attribute, layout, value that is not written)
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


def encode_key(transactional_id: str) -> bytes:
    """Key bytes of a transactional id (int16 version 0, int16 length, UTF-8)."""
    name = transactional_id.encode()
    return _INT16.pack(KEY_VERSION) + _INT16.pack(len(name)) + name


def decode_key(data: bytes | memoryview) -> str:
    """The transactional id of a key. Raises `UnknownTransactionRecord`, `CorruptTransactionRecord`."""
    reader = _Reader(data)
    version = reader.number(_INT16)
    if version != KEY_VERSION:
        raise UnknownTransactionRecord(f"transaction log key of version {version}")
    name = reader.text(reader.number(_INT16))
    reader.finish()
    return name


def encode_value(value: TransactionLogValue, version: int = HIGHEST_VALUE_VERSION) -> bytes:
    """Value bytes. Version 0 cannot carry the tagged fields and drops them, as Kafka's does."""
    if version not in (0, 1):
        raise UnknownTransactionRecord(f"transaction log value of version {version}")
    flexible = version >= 1
    out = bytearray()
    out += _INT16.pack(version)
    out += _INT64.pack(value.producer_id)
    out += _INT16.pack(value.producer_epoch)
    out += _INT32.pack(value.transaction_timeout_ms)
    out += _INT8.pack(value.transaction_status)
    _write_partitions(out, value.transaction_partitions, flexible)
    out += _INT64.pack(value.last_update_timestamp_ms)
    out += _INT64.pack(value.start_timestamp_ms)
    if flexible:
        _write_tags(out, value)
    return bytes(out)


def decode_value(data: bytes | memoryview) -> TransactionLogValue:
    """A value of version 0 or 1. Raises `UnknownTransactionRecord`, `CorruptTransactionRecord`."""
    reader = _Reader(data)
    version = reader.number(_INT16)
    if version not in (0, 1):
        raise UnknownTransactionRecord(f"transaction log value of version {version}")
    flexible = version >= 1
    producer_id = reader.number(_INT64)
    producer_epoch = reader.number(_INT16)
    timeout_ms = reader.number(_INT32)
    status = reader.number(_INT8)
    partitions = _read_partitions(reader, flexible)
    last_update_ms = reader.number(_INT64)
    start_ms = reader.number(_INT64)
    tags = _read_tags(reader) if flexible else {}
    reader.finish()
    return TransactionLogValue(
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transaction_timeout_ms=timeout_ms,
        transaction_status=status,
        transaction_partitions=partitions,
        last_update_timestamp_ms=last_update_ms,
        start_timestamp_ms=start_ms,
        **tags,
    )


def _write_partitions(out: bytearray, topics: tuple[tuple[str, tuple[int, ...]], ...] | None, flexible: bool) -> None:
    if topics is None:
        out += b"\x00" if flexible else _INT32.pack(-1)
        return
    write_length: Callable[[int], bytes] = _compact_length if flexible else _INT32.pack
    out += write_length(len(topics))
    for topic, partitions in topics:
        name = topic.encode()
        out += (_compact_length(len(name)) if flexible else _INT16.pack(len(name))) + name
        out += write_length(len(partitions))
        for partition in partitions:
            out += _INT32.pack(partition)
        if flexible:
            out += b"\x00"


def _read_partitions(reader: _Reader, flexible: bool) -> tuple[tuple[str, tuple[int, ...]], ...] | None:
    count = reader.compact_length() if flexible else reader.number(_INT32)
    if count < 0:
        return None
    reader.check_count(count)
    topics: list[tuple[str, tuple[int, ...]]] = []
    for _ in range(count):
        name = reader.text(reader.compact_length() if flexible else reader.number(_INT16))
        partition_count = reader.compact_length() if flexible else reader.number(_INT32)
        reader.check_count(partition_count)
        topics.append((name, tuple(reader.number(_INT32) for _ in range(partition_count))))
        if flexible:
            reader.skip_tags()
    return tuple(topics)


def _write_tags(out: bytearray, value: TransactionLogValue) -> None:
    present: list[tuple[int, bytes]] = []
    for tag, (name, layout, absent) in _TAGS.items():
        number: int = getattr(value, name)
        if number != absent:
            present.append((tag, layout.pack(number)))
    out += _unsigned_varint(len(present))
    for tag, data in present:
        out += _unsigned_varint(tag) + _unsigned_varint(len(data)) + data


def _read_tags(reader: _Reader) -> dict[str, int]:
    fields: dict[str, int] = {}
    for _ in range(reader.varint()):
        tag = reader.varint()
        size = reader.varint()
        data = reader.take(size)
        known = _TAGS.get(tag)
        if known is None:
            continue
        name, layout, _absent = known
        if size != layout.size:
            raise CorruptTransactionRecord(f"tag {tag} has {size} bytes instead of {layout.size}")
        (fields[name],) = layout.unpack(data)
    return fields


def _unsigned_varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _compact_length(length: int) -> bytes:
    return _unsigned_varint(length + 1)


class _Reader:
    """A position in the bytes; every read checks that they are there."""

    __slots__ = ("_data", "_position")

    def __init__(self, data: bytes | memoryview) -> None:
        self._data = bytes(data)
        self._position = 0

    def take(self, size: int) -> bytes:
        end = self._position + size
        if size < 0 or end > len(self._data):
            raise CorruptTransactionRecord(f"{size} bytes wanted at {self._position} of {len(self._data)}")
        taken = self._data[self._position : end]
        self._position = end
        return taken

    def number(self, layout: struct.Struct) -> int:
        (number,) = layout.unpack(self.take(layout.size))
        return int(number)

    def text(self, size: int) -> str:
        try:
            return self.take(size).decode()
        except UnicodeDecodeError as error:
            raise CorruptTransactionRecord("a name is not UTF-8") from error

    def varint(self) -> int:
        number = shift = 0
        while True:
            (byte,) = self.take(1)
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
            shift += 7
            if shift > 28:
                raise CorruptTransactionRecord("varint longer than five bytes")

    def compact_length(self) -> int:
        return self.varint() - 1

    def check_count(self, count: int) -> None:
        left = len(self._data) - self._position
        if not 0 <= count <= min(left, _MAX_PARTITIONS):
            raise CorruptTransactionRecord(f"{count} elements announced with {left} bytes left")

    def skip_tags(self) -> None:
        for _ in range(self.varint()):
            self.varint()
            self.take(self.varint())

    def finish(self) -> None:
        if self._position != len(self._data):
            raise CorruptTransactionRecord(f"{len(self._data) - self._position} bytes left over")
