"""Producer snapshots: the state of every producer id at an offset, in Kafka's `<offset>.snapshot` format.

version int16 (1), CRC-32C uint32 of all that follows, entry count int32, then per producer id: producer id int64, epoch
int16, last sequence int32, last offset int64, offset delta int32, timestamp int64, coordinator epoch int32, first
offset of the open transaction int64.

Kafka keeps only the last batch across a restart. After its entries, under the same CRC and skipped by its reader,
follows the data for recognizing older duplicates: `FP01`, the position in the log (base offset of the segment int64,
position int64: bytes below it need no scan), then for each entry, in order: seen int32, flags int8 (1: shrunk), batch
count int8, and per batch first sequence int32, last sequence int32, base offset int64, last offset int64, timestamp
int64. At the end follow `FP02` and all segments, so that missing or damaged ones are detected: count int32; for each
base offset int64, entries of its index of aborted transactions int32, CRC-32C of those entries uint32, largest
timestamp int64.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from fencepost.broker.log.producers.idempotence import LAST_BATCHES, LastBatch, ProducerState, pack_ended, unpack_ended
from fencepost.protocol.crc import crc32c

__all__ = ["CorruptSnapshot", "LogPosition", "SegmentSeal", "decode_snapshot", "encode_snapshot"]

_HEAD = struct.Struct(">hI")
_COUNT = struct.Struct(">i")
_ENTRY = struct.Struct(">qhiqiqiq")
_EXTRA = struct.Struct(">ibb")
_POSITION = struct.Struct(">qq")
_BATCH = struct.Struct(">iiqqq")
_VERSION = 1
_EXTRA_MAGIC = b"FP01"
_SEGMENTS_MAGIC = b"FP02"
_SEGMENT = struct.Struct(">qiIq")
_SHRUNK = 1
_NO_EXTRA = _EXTRA.pack(0, 0, 0)
NOTHING: Mapping[int, bytes] = MappingProxyType({})


class SegmentSeal(NamedTuple):
    """A segment, and a seal of its index of aborted transactions (-1 entries: unknown)."""

    base_offset: int
    aborted: int
    crc: int
    timestamp: int
    """Largest timestamp, -1 if unknown."""


class LogPosition(NamedTuple):
    """Position of a snapshot in the log: the base offset of a segment and a position (bytes) in it."""

    segment: int
    position: int
    segments: tuple[SegmentSeal, ...] = ()
    """All segments of the log; empty if unknown."""


class CorruptSnapshot(Exception):
    """The bytes are not a valid snapshot. An older one, or a scan of the log, replaces it."""


def encode_snapshot(
    states: Iterable[ProducerState], log_position: LogPosition, ended: Mapping[int, bytes] = NOTHING
) -> bytes:
    """Encode a snapshot. `ended`: packed states by producer id, see `pack_ended`."""
    entries, extras = [], [_EXTRA_MAGIC, _POSITION.pack(log_position.segment, log_position.position)]
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
    for producer_id, packed in ended.items():
        epoch, coordinator_epoch, timestamp_ms = unpack_ended(packed)
        entries.append(_ENTRY.pack(producer_id, epoch, -1, -1, 0, timestamp_ms, coordinator_epoch, -1))
    extras.append(_NO_EXTRA * len(ended))
    extras += [_SEGMENTS_MAGIC, _COUNT.pack(len(log_position.segments))]
    extras += [_SEGMENT.pack(*segment) for segment in log_position.segments]
    body = _COUNT.pack(len(entries)) + b"".join(entries) + b"".join(extras)
    return _HEAD.pack(_VERSION, crc32c(body)) + body


class DecodedSnapshot(NamedTuple):
    """A decoded snapshot."""

    states: list[ProducerState]
    ended: dict[int, bytes]
    """Packed states by producer id, see `pack_ended`."""
    position: LogPosition | None
    """None in a snapshot written by Apache Kafka."""


def decode_snapshot(data: bytes) -> DecodedSnapshot:
    """Decode a snapshot, also one written by Apache Kafka. Raises CorruptSnapshot."""
    log_position = None
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
        behind = position + count * _ENTRY.size
        entries = _ENTRY.iter_unpack(memoryview(data)[position:behind])
        has_extras = data[behind : behind + len(_EXTRA_MAGIC)] == _EXTRA_MAGIC
        position = behind + len(_EXTRA_MAGIC)
        if has_extras:
            log_position = LogPosition(*_POSITION.unpack_from(data, position))
            position += _POSITION.size
        states, ended = [], {}
        for entry in entries:
            producer_id, epoch, sequence, offset, _, timestamp_ms, coordinator_epoch, first_offset = entry
            is_bare = not has_extras or data[position : position + _EXTRA.size] == _NO_EXTRA
            if sequence == offset == first_offset == -1 and is_bare:
                ended[producer_id] = pack_ended(epoch, coordinator_epoch, timestamp_ms)
                position += _EXTRA.size
                continue
            state = _decode_entry(entry)
            if has_extras:
                position = _decode_extra(data, position, state)
            states.append(state)
        if log_position is not None:
            log_position = log_position._replace(segments=_decode_segments(data, position))
    except struct.error as error:
        raise CorruptSnapshot(str(error)) from error
    return DecodedSnapshot(states, ended, log_position)


def _decode_entry(entry: tuple[int, ...]) -> ProducerState:
    producer_id, epoch, sequence, offset, delta, timestamp, coordinator_epoch, first = entry
    state = ProducerState(producer_id, epoch)
    state.last_sequence, state.last_offset, state.last_offset_delta = sequence, offset, delta
    state.last_timestamp_ms, state.coordinator_epoch, state.txn_first_offset = timestamp, coordinator_epoch, first
    if sequence >= 0:
        first_sequence = (sequence - delta) % 2**31
        state.batches = [LastBatch(first_sequence, sequence, offset - delta, offset, timestamp)]
        state.seen = delta + 1
    return state


def _decode_segments(data: bytes, position: int) -> tuple[SegmentSeal, ...]:
    if data[position : position + len(_SEGMENTS_MAGIC)] != _SEGMENTS_MAGIC:
        return ()
    position += len(_SEGMENTS_MAGIC)
    (count,) = _COUNT.unpack_from(data, position)
    position += _COUNT.size
    if count * _SEGMENT.size != len(data) - position:
        raise CorruptSnapshot(f"{count} segments in {len(data) - position} bytes")
    return tuple(SegmentSeal(*each) for each in _SEGMENT.iter_unpack(data[position:]))


def _decode_extra(data: bytes, position: int, state: ProducerState) -> int:
    """Decode the extra data of a state. Return the position after it."""
    seen, flags, count = _EXTRA.unpack_from(data, position)
    if not 0 <= count <= LAST_BATCHES:
        raise CorruptSnapshot(f"{count} batches of producer id {state.producer_id}")
    position += _EXTRA.size
    state.seen = seen
    state.shrunk = bool(flags & _SHRUNK)
    state.batches = [LastBatch(*_BATCH.unpack_from(data, position + i * _BATCH.size)) for i in range(count)]
    return position + len(state.batches) * _BATCH.size
