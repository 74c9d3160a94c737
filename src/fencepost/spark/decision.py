"""The decision record: the one durable fact that a micro-batch's transactions are to be committed.

A decision is there or it is not; it has no other states. It is written by one transaction on the sink's own id S, under
a key made of sink and query id, so that a compacted topic keeps the last decision of each query. Before a later one
replaces it, Open has finished it, so the last one is enough.

Value, version 1 (big endian)::

    magic "FPD" | version u8 | crc32c u32 of all that follows | batch id i64 | sink | query id | count u32 | winners
    sink, query id: length u16, UTF-8     winner: 16 unique bytes of the transactional id, producer id i64, epoch i16

The sink's name is in every winner's transactional id, so a winner is 26 bytes and 30,000 fit in Kafka's default 1 MiB.
Key: magic "FPK" | 1 | sink | query id. The key never changes form: compaction compares its bytes.
A new version adds its reader to `_READERS` and keeps the older ones.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import crc32c

from fencepost.spark import names
from fencepost.spark.errors import CorruptDecisionError, SinkContradictionError

__all__ = [
    "MAX_QUERY_ID_BYTES",
    "MAX_WINNERS",
    "Decision",
    "Pair",
    "Winner",
    "decode_key",
    "decode_value",
    "encode_key",
    "encode_value",
]

MAX_WINNERS: Final = 30_000
MAX_QUERY_ID_BYTES: Final = 1000
VERSION: Final = 1

_VALUE_MAGIC: Final = b"FPD"
_KEY_MAGIC: Final = b"FPK\x01"
_HEAD: Final = struct.Struct(">3sBI")
_BATCH: Final = struct.Struct(">q")
_LENGTH: Final = struct.Struct(">H")
_COUNT: Final = struct.Struct(">I")
_WINNER: Final = struct.Struct(f">{names.UNIQUE_BYTES}sqh")
_MAX_EPOCH: Final = 2**15 - 1


@dataclass(frozen=True, slots=True, order=True)
class Pair:
    """(producer id, epoch): what EndTxn must carry."""

    producer_id: int
    epoch: int

    def __str__(self) -> str:
        return f"{self.producer_id}:{self.epoch}"


@dataclass(frozen=True, slots=True)
class Winner:
    """A transaction to commit, and the pair that commits it."""

    transactional_id: str
    pair: Pair


@dataclass(frozen=True, slots=True)
class Decision:
    """Batch `batch_id` of query `query_id` of `sink` consists of exactly these transactions."""

    sink: str
    query_id: str
    batch_id: int
    winners: tuple[Winner, ...]


def encode_key(sink: str, query_id: str) -> bytes:
    """The record key of the sink's query."""
    return _KEY_MAGIC + _text(sink, names.MAX_SINK_BYTES) + _text(query_id, MAX_QUERY_ID_BYTES)


def decode_key(key: bytes) -> tuple[str, str] | None:
    """(sink, query id), or None for a key of another kind."""
    if not key.startswith(_KEY_MAGIC):
        return None
    reader = _Reader(key, len(_KEY_MAGIC))
    sink, query_id = reader.text(), reader.text()
    reader.end()
    return sink, query_id


def encode_value(decision: Decision) -> bytes:
    """The record value. SinkContradictionError when the decision breaks a limit or names what is not the sink's."""
    if len(decision.winners) > MAX_WINNERS:
        raise SinkContradictionError(
            f"a decision names at most {MAX_WINNERS} transactions, not {len(decision.winners)}"
        )
    if not 0 <= decision.batch_id < 2**63:
        raise SinkContradictionError(f"batch id {decision.batch_id} cannot be")
    body = bytearray(_BATCH.pack(decision.batch_id))
    body += _text(decision.sink, names.MAX_SINK_BYTES)
    body += _text(decision.query_id, MAX_QUERY_ID_BYTES)
    body += _COUNT.pack(len(decision.winners))
    seen: set[bytes] = set()
    for winner in decision.winners:
        name = names.parse(winner.transactional_id)
        if not isinstance(name, names.TaskId) or name.sink != decision.sink:
            raise SinkContradictionError(f"{winner.transactional_id!r} is not a task id of sink {decision.sink!r}")
        if name.unique in seen:
            raise SinkContradictionError(f"{winner.transactional_id!r} is named twice")
        seen.add(name.unique)
        _check_pair(winner.pair)
        body += _WINNER.pack(name.unique, winner.pair.producer_id, winner.pair.epoch)
    return _HEAD.pack(_VALUE_MAGIC, VERSION, crc32c.crc32c(bytes(body))) + bytes(body)


def decode_value(value: bytes) -> Decision:
    """What `encode_value` of this or an older version wrote. CorruptDecisionError for anything else."""
    if len(value) < _HEAD.size:
        raise CorruptDecisionError(f"a decision of {len(value)} bytes is too short")
    magic, version, checksum = _HEAD.unpack_from(value)
    if magic != _VALUE_MAGIC:
        raise CorruptDecisionError(f"a decision begins with {_VALUE_MAGIC!r}, not {magic!r}")
    reader = _READERS.get(version)
    if reader is None:
        raise CorruptDecisionError(
            f"a decision of version {version} was written by a newer release; this one reads up to {VERSION}"
        )
    body = value[_HEAD.size :]
    if crc32c.crc32c(body) != checksum:
        raise CorruptDecisionError("a decision's checksum does not fit its bytes")
    return reader(body)


def _read_v1(body: bytes) -> Decision:
    reader = _Reader(body, 0)
    (batch_id,) = reader.unpack(_BATCH)
    sink, query_id = reader.text(), reader.text()
    (count,) = reader.unpack(_COUNT)
    if count > MAX_WINNERS:
        raise CorruptDecisionError(f"a decision names {count} transactions; the limit is {MAX_WINNERS}")
    winners = []
    for _ in range(count):
        unique, producer_id, epoch = reader.unpack(_WINNER)
        winners.append(Winner(names.task_id(sink, unique), Pair(producer_id, epoch)))
    reader.end()
    return Decision(sink, query_id, batch_id, tuple(winners))


_READERS: Final[dict[int, Callable[[bytes], Decision]]] = {1: _read_v1}


def _check_pair(pair: Pair) -> None:
    if not (0 <= pair.producer_id < 2**63 and 0 <= pair.epoch <= _MAX_EPOCH):
        raise SinkContradictionError(f"{pair} is not a producer id and epoch")


def _text(text: str, limit: int) -> bytes:
    raw = text.encode()
    if not 1 <= len(raw) <= limit:
        raise SinkContradictionError(f"{text[:80]!r} has {len(raw)} bytes; allowed are 1 to {limit}")
    return _LENGTH.pack(len(raw)) + raw


class _Reader:
    def __init__(self, data: bytes, position: int) -> None:
        self._data = data
        self._position = position

    def unpack(self, shape: struct.Struct) -> tuple[Any, ...]:
        end = self._position + shape.size
        if end > len(self._data):
            raise CorruptDecisionError("a decision ends too early")
        values = shape.unpack_from(self._data, self._position)
        self._position = end
        return values

    def text(self) -> str:
        (length,) = self.unpack(_LENGTH)
        raw = self._data[self._position : self._position + length]
        if len(raw) != length:
            raise CorruptDecisionError("a decision ends too early")
        self._position += length
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            raise CorruptDecisionError("a decision's text is not UTF-8") from error

    def end(self) -> None:
        if self._position != len(self._data):
            raise CorruptDecisionError(f"{len(self._data) - self._position} bytes follow a decision")
