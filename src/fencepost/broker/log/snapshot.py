"""Producer snapshots: the state of every producer id at an offset, in Kafka's `<offset>.snapshot` format.

version int16 (1), CRC-32C uint32 of all that follows, entry count int32, then per producer id: producer id int64,
epoch int16, last sequence int32, last offset int64, offset delta int32, timestamp int64, coordinator epoch int32,
first offset of the open transaction int64.

Kafka remembers only the last batch across a restart. Behind its entries, under the same CRC and skipped by its
reader, follows what makes a restart invisible to a producer that repeats an older batch: `FP01`, the place in the log
(base offset of the segment int64, position int64: what lies below it needs no scan), then for each entry, in order:
seen int32, flags int8 (1: shrunk), batch count int8, and per batch first sequence int32, last sequence int32, base
offset int64, last offset int64, timestamp int64.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

from crc32c import crc32c

from fencepost.broker.producers import LAST_BATCHES, LastBatch, ProducerState

__all__ = ["CorruptSnapshot", "Place", "decode_snapshot", "encode_snapshot"]

_HEAD = struct.Struct(">hI")
_COUNT = struct.Struct(">i")
_ENTRY = struct.Struct(">qhiqiqiq")
_EXTRA = struct.Struct(">ibb")
_PLACE = struct.Struct(">qq")
_BATCH = struct.Struct(">iiqqq")
_VERSION = 1
_EXTRA_MAGIC = b"FP01"
_SHRUNK = 1


class Place(NamedTuple):
    """Where in the log a snapshot was taken: the base offset of a segment and a position (bytes) in it."""

    segment: int
    position: int


class CorruptSnapshot(Exception):
    """The bytes are not a snapshot; an older one, or a scan of the log, must do."""


def encode_snapshot(states: Iterable[ProducerState], place: Place) -> bytes:
    entries, extras = [], [_EXTRA_MAGIC, _PLACE.pack(*place)]
    for state in states:
        entries.append(
            _ENTRY.pack(
                state.producer_id,
                state.epoch,
                state.last_sequence,
                state.last_offset,
                state.last_offset_delta,
                state.last_timestamp_ms,
                state.coordinator_epoch,
                state.txn_first_offset,
            )
        )
        extras.append(_EXTRA.pack(state.seen, _SHRUNK if state.shrunk else 0, len(state.batches)))
        extras.extend(_BATCH.pack(*batch) for batch in state.batches)
    body = _COUNT.pack(len(entries)) + b"".join(entries) + b"".join(extras)
    return _HEAD.pack(_VERSION, crc32c(body)) + body


def decode_snapshot(data: bytes) -> tuple[list[ProducerState], Place | None]:
    """Also reads a snapshot that Apache Kafka wrote, which does not say its place. Raises CorruptSnapshot."""
    place = None
    try:
        version, crc = _HEAD.unpack_from(data)
        if version != _VERSION:
            raise CorruptSnapshot(f"snapshot version {version}")
        if crc != crc32c(memoryview(data)[_HEAD.size :]):
            raise CorruptSnapshot("the CRC is not that of the bytes")
        (count,) = _COUNT.unpack_from(data, _HEAD.size)
        position = _HEAD.size + _COUNT.size
        if not 0 <= count <= (len(data) - position) // _ENTRY.size:
            raise CorruptSnapshot(f"{count} entries in {len(data)} bytes")
        states = [_decode_entry(data, position + i * _ENTRY.size) for i in range(count)]
        position += count * _ENTRY.size
        if data[position : position + len(_EXTRA_MAGIC)] == _EXTRA_MAGIC:
            position += len(_EXTRA_MAGIC)
            place = Place(*_PLACE.unpack_from(data, position))
            _decode_extras(data, position + _PLACE.size, states)
    except struct.error as error:
        raise CorruptSnapshot(str(error)) from error
    return states, place


def _decode_entry(data: bytes, position: int) -> ProducerState:
    producer_id, epoch, sequence, offset, delta, timestamp, coordinator_epoch, first = _ENTRY.unpack_from(
        data, position
    )
    state = ProducerState(producer_id, epoch)
    state.last_sequence, state.last_offset, state.last_offset_delta = sequence, offset, delta
    state.last_timestamp_ms, state.coordinator_epoch, state.txn_first_offset = timestamp, coordinator_epoch, first
    if offset >= 0 and sequence >= 0:
        first_sequence = (sequence - delta) % 2**31
        state.batches = [LastBatch(first_sequence, sequence, offset - delta, offset, timestamp)]
        state.seen = delta + 1
    return state


def _decode_extras(data: bytes, position: int, states: list[ProducerState]) -> None:
    for state in states:
        seen, flags, count = _EXTRA.unpack_from(data, position)
        if not 0 <= count <= LAST_BATCHES:
            raise CorruptSnapshot(f"{count} batches of producer id {state.producer_id}")
        position += _EXTRA.size
        state.seen = seen
        state.shrunk = bool(flags & _SHRUNK)
        state.batches = [LastBatch(*_BATCH.unpack_from(data, position + i * _BATCH.size)) for i in range(count)]
        position += count * _BATCH.size
