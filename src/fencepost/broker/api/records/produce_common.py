"""The common form of Produce, read and answered without the general codec.

The native module reads requests of up to a thousand valid batches. Without it, `read_common` reads requests with one
batch, and does not inspect the batch. Both return None for every other form and for malformed bytes, which
`produce_wire` then reads. All of them read equal values from the same request, and write equal bytes for the same
answer.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from fencepost.protocol.records import engine
from fencepost.protocol.records.batch import BatchHeader
from fencepost.protocol.records.check import Checked

__all__ = ["CommonBatch", "CommonProduce", "Taken", "encode_common_answer", "read_common"]

_FIRST_VERSION, _LAST_VERSION = 3, 13
_FIRST_WITH_START, _FIRST_WITH_ERRORS, _FIRST_FLEXIBLE, _FIRST_BY_ID = 5, 8, 9, 13
_ONE_BYTE: Final = 0x80
"""A varint below it has one byte."""
_ID_BYTES: Final = 16

_HEAD = struct.Struct(">hhih")
_SHORT = struct.Struct(">h")
_INT = struct.Struct(">i")
_TWO_INTS = struct.Struct(">ii")
_ACKS = struct.Struct(">hi")
_ANSWER = struct.Struct(">ii")
_RESULT_V2 = struct.Struct(">ihqq")
_RESULT_V5 = struct.Struct(">ihqqq")

_SINGLE: Final = 1
_FLEXIBLE_SINGLE: Final = b"\x02"
_FLEXIBLE_END: Final = b"\x01\x00\x00\x00\x00\x00\x00\x00\x00"
"""No record errors, no message, tags of partition and topic, no throttling, tags."""
_END_V8: Final = b"\x00\x00\x00\x00\xff\xff\x00\x00\x00\x00"
"""No record errors, no message, no throttling."""
_END_V3: Final = b"\x00\x00\x00\x00"


class CommonBatch(NamedTuple):
    """A batch of the request."""

    topic: str | bytes
    """The topic's name up to v12, and the 16 bytes of its id from v13 on."""
    partition: int
    records: memoryview
    """A part of the frame."""
    header: BatchHeader | None
    """None: not read yet."""
    checked: Checked | None
    """Facts about the records of a batch that is sound in itself. None: not inspected yet."""


class CommonProduce(NamedTuple):
    """A Produce request with batches of the common form."""

    version: int
    correlation_id: int
    client_id: str | None
    transactional_id: str | None
    acks: int
    timeout_ms: int
    batches: list[CommonBatch]


_CLASSES: Final = (CommonProduce, CommonBatch, BatchHeader, Checked)

Taken = tuple[str | bytes, int, int, int, int]
"""A batch that was taken: topic, partition, base offset, time of the append in ms (or -1), log start offset."""


def read_common(frame: memoryview) -> CommonProduce | None:
    """Read a request with its header."""
    return engine.native.decode_produce_request(frame, _CLASSES) if engine.is_native else _read_plain(frame)


def _read_plain(frame: memoryview) -> CommonProduce | None:
    """Read a request with one batch."""
    try:
        _, version, correlation_id, length = _HEAD.unpack_from(frame)
        if not _FIRST_VERSION <= version <= _LAST_VERSION:
            return None
        position = _HEAD.size
        client_id = None
        if length >= 0:
            position += length
            client_id = str(frame[_HEAD.size : position], "utf-8")
        body = (_flexible if version >= _FIRST_FLEXIBLE else _fixed)(frame, position, version)
    except (IndexError, struct.error, ValueError):
        return None
    if body is None:
        return None
    transactional_id, acks, timeout_ms, topic, partition, records = body
    batch = CommonBatch(topic, partition, records, None, None)
    return CommonProduce(version, correlation_id, client_id, transactional_id, acks, timeout_ms, [batch])


_Body = tuple[str | None, int, int, str | bytes, int, memoryview]


def _flexible(frame: memoryview, position: int, version: int) -> _Body | None:
    """Read the body from v9 on. Raises IndexError, struct.error or ValueError where it is cut short or wrong."""
    if frame[position]:  # tags of the header
        return None
    transactional_id = None
    if length := frame[position + 1]:
        if length >= _ONE_BYTE:
            return None
        transactional_id = str(frame[position + 2 : position + 1 + length], "utf-8")
        position += length - 1
    acks, timeout_ms = _ACKS.unpack_from(frame, position + 2)
    position += 2 + _ACKS.size
    if frame[position] != 2:  # one topic
        return None
    topic: str | bytes
    if version < _FIRST_BY_ID:
        length = frame[position + 1]
        if not 0 < length < _ONE_BYTE:
            return None
        topic = str(frame[position + 2 : position + 1 + length], "utf-8")
        position += 1 + length
    else:
        position += 1 + _ID_BYTES
        topic = bytes(frame[position - _ID_BYTES : position])
    if frame[position] != 2:  # one partition
        return None
    (partition,) = _INT.unpack_from(frame, position + 1)
    position += 1 + _INT.size
    byte = frame[position]
    position += 1
    size, shift = byte & 0x7F, 7
    while byte >= _ONE_BYTE:
        if shift > 28:
            return None
        byte = frame[position]
        position += 1
        size |= (byte & 0x7F) << shift
        shift += 7
    end = position + size - 1
    # Behind the records: tags of the partition, the topic and the request.
    if size < 1 or end + 3 != len(frame) or frame[end] or frame[end + 1] or frame[end + 2]:
        return None
    return transactional_id, acks, timeout_ms, topic, partition, frame[position:end]


def _fixed(frame: memoryview, position: int, version: int) -> _Body | None:
    """Read the body of a request up to v8."""
    transactional_id = None
    (length,) = _SHORT.unpack_from(frame, position)
    position += _SHORT.size
    if length >= 0:
        position += length
        transactional_id = str(frame[position - length : position], "utf-8")
    acks, timeout_ms = _ACKS.unpack_from(frame, position)
    position += _ACKS.size
    topics, length = _INT.unpack_from(frame, position)[0], _SHORT.unpack_from(frame, position + _INT.size)[0]
    if topics != _SINGLE or length < 0:
        return None
    position += _INT.size + _SHORT.size + length
    topic = str(frame[position - length : position], "utf-8")
    (partitions,) = _INT.unpack_from(frame, position)
    partition, size = _TWO_INTS.unpack_from(frame, position + _INT.size)
    position += _INT.size + _TWO_INTS.size
    if partitions != _SINGLE or size < 0 or position + size != len(frame):
        return None
    return transactional_id, acks, timeout_ms, topic, partition, frame[position:]


def encode_common_answer(request: CommonProduce, results: list[Taken]) -> bytes:
    """Return the response frame to a request whose batches were all taken, with a result for each."""
    if engine.is_native:
        return engine.native.encode_produce_response(request.version, request.correlation_id, results)
    (result,) = results  # `_read_plain` reads no other requests
    return _answer_plain(request.version, request.correlation_id, *result)


def _answer_plain(
    version: int,
    correlation_id: int,
    topic: str | bytes,
    partition: int,
    base_offset: int,
    log_append_time_ms: int,
    log_start_offset: int,
) -> bytes:
    name = topic.encode() if isinstance(topic, str) else topic
    if version >= _FIRST_FLEXIBLE:
        named = bytes((len(name) + 1,)) + name if isinstance(topic, str) else name
        result = _RESULT_V5.pack(partition, 0, base_offset, log_append_time_ms, log_start_offset)
        parts = (b"\x00", _FLEXIBLE_SINGLE, named, _FLEXIBLE_SINGLE, result, _FLEXIBLE_END)
    else:
        if version >= _FIRST_WITH_START:
            result = _RESULT_V5.pack(partition, 0, base_offset, log_append_time_ms, log_start_offset)
        else:
            result = _RESULT_V2.pack(partition, 0, base_offset, log_append_time_ms)
        end = _END_V8 if version >= _FIRST_WITH_ERRORS else _END_V3
        parts = (_INT.pack(_SINGLE), _SHORT.pack(len(name)), name, _INT.pack(_SINGLE), result, end)
    body = b"".join(parts)
    return _ANSWER.pack(len(body) + 4, correlation_id) + body
