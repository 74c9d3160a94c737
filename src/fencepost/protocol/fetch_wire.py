"""Fetch (API key 1), versions 4-18, encoded by hand: fetched records are slices and are never copied.

v4 isolation level; v5 log start offset; v7 sessions (KIP-227); v9 leader epoch; v11 rack; v12 flexible, last fetched
epoch; v13 topic ids instead of names; v15 replica state instead of replica id; v16-18 tagged fields that a consumer
does not need.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from fencepost.protocol.cursor import Buffer, Reader, Writer
from fencepost.protocol.errors import MalformedMessage
from fencepost.protocol.varint import read_unsigned_varint, skip_tagged_fields, write_unsigned_varint
from fencepost.protocol.wire import uuid_of

__all__ = [
    "API_KEY",
    "READ_COMMITTED",
    "READ_UNCOMMITTED",
    "VERSIONS",
    "FetchPartition",
    "FetchPartitionResult",
    "FetchRequest",
    "FetchResponse",
    "FetchTopic",
    "FetchTopicResult",
    "ForgottenTopic",
    "decode_request",
    "decode_response",
    "encode_request",
    "encode_response",
]

API_KEY = 1
VERSIONS = (4, 18)
_FIRST_FLEXIBLE: Final = 12
READ_UNCOMMITTED = 0
READ_COMMITTED = 1


_HEAD_V4 = struct.Struct(">iiiib")
_HEAD_V7 = struct.Struct(">iiiibii")
_HEAD_V15 = struct.Struct(">iiibii")
_INT32 = struct.Struct(">i")
_INT8 = struct.Struct(">b")
_HEAD = struct.Struct(">iii")
_ANSWER_V7 = struct.Struct(">ihi")
_PARTITION_V4 = struct.Struct(">iqi")
_PARTITION_V5 = struct.Struct(">iqqi")
_PARTITION_V9 = struct.Struct(">iiqqi")
_PARTITION_V12 = struct.Struct(">iiqiqi")
_RESULT_V4 = struct.Struct(">ihqq")
_RESULT_V5 = struct.Struct(">ihqqq")
_ABORTED = struct.Struct(">qq")
_EPOCH_END = struct.Struct(">iq")
_REPLICA_STATE = struct.Struct(">iq")
_DIVERGING_TAG, _REPLICA_STATE_TAG = 0, 1
_DIVERGING: Final = bytes((1, _DIVERGING_TAG, _EPOCH_END.size + 1))
"""One tagged field, its number, and its size with the tags in it."""
_ID_BYTES: Final = 16
_NO_REPLICA: Final = _INT32.pack(-1)
_NO_ID: Final = bytes(_ID_BYTES)
_ONE_BYTE: Final = 0x80
"""A varint below it has one byte."""


@dataclass(slots=True)
class FetchPartition:
    """One partition to fetch. current_leader_epoch and last_fetched_epoch are -1 if unknown."""

    partition: int
    fetch_offset: int
    max_bytes: int
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1
    log_start_offset: int = -1


@dataclass(slots=True)
class FetchTopic:
    """The partitions to fetch of one topic, named up to v12 and given by its id from v13 on."""

    topic: str | None
    topic_id: UUID | None
    partitions: list[FetchPartition]


@dataclass(slots=True)
class ForgottenTopic:
    """Partitions that leave a fetch session."""

    topic: str | None
    topic_id: UUID | None
    partitions: list[int]


@dataclass(slots=True)
class FetchRequest:
    """A Fetch request. session_id 0 with session_epoch -1 fetches without a session."""

    max_wait_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 52428800
    isolation_level: int = READ_UNCOMMITTED
    session_id: int = 0
    session_epoch: int = -1
    topics: list[FetchTopic] = field(default_factory=list)
    forgotten: list[ForgottenTopic] = field(default_factory=list)
    rack_id: str = ""
    replica_id: int = -1


@dataclass(slots=True)
class FetchPartitionResult:
    """The result of one partition.

    aborted: (producer id, first offset) of the aborted transactions in the range; None in read_uncommitted responses.
    preferred_read_replica: a broker nearer to the reader's rack (KIP-392), -1 for none.
    diverging: (epoch, end offset) at which the reader's log left the leader's, if the request named the last fetched
    epoch (v12 and later).
    """

    partition: int
    error_code: int = 0
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    aborted: Sequence[tuple[int, int]] | None = None
    records: Buffer = b""
    preferred_read_replica: int = -1
    diverging: tuple[int, int] | None = None


@dataclass(slots=True)
class FetchTopicResult:
    """The results of one topic, named as the request named it."""

    topic: str | None
    topic_id: UUID | None
    partitions: list[FetchPartitionResult]


@dataclass(slots=True)
class FetchResponse:
    """A Fetch response. error_code and session_id describe the fetch session."""

    topics: list[FetchTopicResult] = field(default_factory=list)
    error_code: int = 0
    session_id: int = 0
    throttle_ms: int = 0


def decode_request(body: memoryview, version: int) -> FetchRequest:
    """Decode a request body.

    Raises:
        MalformedMessage: The bytes are not a Fetch request of this version.
    """
    if version >= _FIRST_FLEXIBLE:
        try:
            return _decode_flexible(body, version)
        except (IndexError, struct.error, UnicodeDecodeError) as error:
            raise MalformedMessage(f"a Fetch request is cut short, or a name is not UTF-8: {error}") from error
    reader = Reader(body)
    session_id, session_epoch = 0, -1
    if version >= 7:
        replica_id, wait_ms, min_bytes, max_bytes, isolation, session_id, session_epoch = reader.unpack(_HEAD_V7)
    else:
        replica_id, wait_ms, min_bytes, max_bytes, isolation = reader.unpack(_HEAD_V4)
    topics = [_read_wanted(reader, version) for _ in range(reader.array_length())]
    forgotten = [_read_forgotten(reader) for _ in range(reader.array_length())] if version >= 7 else []
    rack_id = reader.string() if version >= 11 else ""
    return FetchRequest(
        wait_ms, min_bytes, max_bytes, isolation, session_id, session_epoch, topics, forgotten, rack_id, replica_id
    )


def _read_wanted(reader: Reader, version: int) -> FetchTopic:
    """Read a topic before v12."""
    topic = reader.string()
    return FetchTopic(topic, None, [_read_partition(reader, version) for _ in range(reader.array_length())])


def _read_forgotten(reader: Reader) -> ForgottenTopic:
    topic = reader.string()
    return ForgottenTopic(topic, None, [reader.int32() for _ in range(reader.array_length())])


def _read_partition(reader: Reader, version: int) -> FetchPartition:
    leader_epoch = log_start = -1
    if version >= 9:
        number, leader_epoch, offset, log_start, max_bytes = reader.unpack(_PARTITION_V9)
    elif version >= 5:
        number, offset, log_start, max_bytes = reader.unpack(_PARTITION_V5)
    else:
        number, offset, max_bytes = reader.unpack(_PARTITION_V4)
    return FetchPartition(number, offset, max_bytes, leader_epoch, -1, log_start)


def _decode_flexible(data: memoryview, version: int) -> FetchRequest:
    """Decode a body from v12 on, which nearly all consumers send: without a call for each field.

    Raises MalformedMessage, IndexError, struct.error or UnicodeDecodeError for other bytes.
    """
    replica_id = -1
    if version >= 15:
        wait_ms, min_bytes, max_bytes, isolation, session_id, session_epoch = _HEAD_V15.unpack_from(data)
        position = _HEAD_V15.size
    else:
        replica_id, wait_ms, min_bytes, max_bytes, isolation, session_id, session_epoch = _HEAD_V7.unpack_from(data)
        position = _HEAD_V7.size
    topics: list[FetchTopic] = []
    count, position = _count_at(data, position) if data[position] >= _ONE_BYTE else (data[position], position + 1)
    for _ in range(count - 1):
        topic, topic_id, position = _topic_at(data, position, version)
        partitions: list[FetchPartition] = []
        many, position = _count_at(data, position) if data[position] >= _ONE_BYTE else (data[position], position + 1)
        for _ in range(many - 1):
            number, leader_epoch, offset, last_epoch, start, most = _PARTITION_V12.unpack_from(data, position)
            position += _PARTITION_V12.size
            position = skip_tagged_fields(data, position) if data[position] else position + 1
            partitions.append(FetchPartition(number, offset, most, leader_epoch, last_epoch, start))
        position = skip_tagged_fields(data, position) if data[position] else position + 1
        topics.append(FetchTopic(topic, topic_id, partitions))
    forgotten: list[ForgottenTopic] = []
    count, position = _count_at(data, position) if data[position] >= _ONE_BYTE else (data[position], position + 1)
    for _ in range(count - 1):
        topic, topic_id, position = _topic_at(data, position, version)
        many, position = _count_at(data, position)
        end = position + max(0, many - 1) * _INT32.size
        numbers = [number for (number,) in _INT32.iter_unpack(data[position:end])]
        position = skip_tagged_fields(data, end)
        forgotten.append(ForgottenTopic(topic, topic_id, numbers))
    rack_id, position = ("", position + 1) if data[position] == 1 else _string_at(data, position)
    if data[position]:
        state = Reader(data, True, position).tags().get(_REPLICA_STATE_TAG)
        if state is not None and version >= 15:
            replica_id, _ = Reader(state).unpack(_REPLICA_STATE)
    return FetchRequest(
        wait_ms, min_bytes, max_bytes, isolation, session_id, session_epoch, topics, forgotten, rack_id, replica_id
    )


def _count_at(data: memoryview, position: int) -> tuple[int, int]:
    """Return a count + 1, 0 for null, and the position after it. More elements than bytes left are malformed."""
    count, position = read_unsigned_varint(data, position)
    if count - 1 > len(data) - position:
        raise MalformedMessage(f"a count of {count - 1} elements in {len(data) - position} bytes")
    return count, position


def _string_at(data: memoryview, position: int) -> tuple[str, int]:
    """Return a compact string, and the position after it."""
    length, position = read_unsigned_varint(data, position)
    end = position + length - 1
    if not length or end > len(data):
        raise MalformedMessage(f"a string of {length - 1} bytes at byte {position} of {len(data)}")
    return str(data[position:end], "utf-8"), end


def _topic_at(data: memoryview, position: int, version: int) -> tuple[str | None, UUID | None, int]:
    """Return the name and the id of a topic, and the position after it."""
    if version >= 13:
        end = position + _ID_BYTES
        return None, uuid_of(bytes(data[position:end])), end
    name, end = _string_at(data, position)
    return name, None, end


def encode_request(request: FetchRequest, version: int) -> list[Buffer]:
    """Return the request body as buffers."""
    writer = Writer(flexible=version >= _FIRST_FLEXIBLE)
    if version <= 14:
        writer.int32(request.replica_id)
    writer.pack(_HEAD, request.max_wait_ms, request.min_bytes, request.max_bytes)
    writer.pack(_INT8, request.isolation_level)
    if version >= 7:
        writer.int32(request.session_id)
        writer.int32(request.session_epoch)
    writer.array_length(len(request.topics))
    for topic in request.topics:
        _write_topic(writer, version, topic)
        writer.array_length(len(topic.partitions))
        for partition in topic.partitions:
            _write_partition(writer, version, partition)
        writer.tags()
    if version >= 7:
        writer.array_length(len(request.forgotten))
        for gone in request.forgotten:
            _write_topic(writer, version, gone)
            writer.array_length(len(gone.partitions))
            for number in gone.partitions:
                writer.int32(number)
            writer.tags()
    if version >= 11:
        writer.string(request.rack_id)
    writer.tags()
    return writer.buffers()


def _write_topic(writer: Writer, version: int, topic: FetchTopic | ForgottenTopic) -> None:
    if version >= 13:
        writer.uuid(topic.topic_id)
    else:
        writer.string(topic.topic or "")


def _write_partition(writer: Writer, version: int, partition: FetchPartition) -> None:
    if version >= 12:
        writer.pack(
            _PARTITION_V12,
            partition.partition,
            partition.current_leader_epoch,
            partition.fetch_offset,
            partition.last_fetched_epoch,
            partition.log_start_offset,
            partition.max_bytes,
        )
    elif version >= 9:
        tail = (partition.fetch_offset, partition.log_start_offset, partition.max_bytes)
        writer.pack(_PARTITION_V9, partition.partition, partition.current_leader_epoch, *tail)
    elif version >= 5:
        writer.pack(
            _PARTITION_V5, partition.partition, partition.fetch_offset, partition.log_start_offset, partition.max_bytes
        )
    else:
        writer.pack(_PARTITION_V4, partition.partition, partition.fetch_offset, partition.max_bytes)
    writer.tags()


def decode_response(body: memoryview, version: int) -> FetchResponse:
    """Decode a response body. Records are slices of `body`; null records become empty.

    Raises:
        MalformedMessage: The bytes are not a Fetch response of this version.
    """
    reader = Reader(body, flexible=version >= _FIRST_FLEXIBLE)
    response = FetchResponse(throttle_ms=reader.int32())
    if version >= 7:
        response.error_code, response.session_id = reader.int16(), reader.int32()
    for _ in range(reader.array_length()):
        topic, topic_id = (reader.string(), None) if version < 13 else (None, reader.uuid())
        partitions = [_read_result(reader, version) for _ in range(reader.array_length())]
        reader.skip_tags()
        response.topics.append(FetchTopicResult(topic, topic_id, partitions))
    reader.skip_tags()
    return response


def _read_result(reader: Reader, version: int) -> FetchPartitionResult:
    result = FetchPartitionResult(*reader.unpack(_RESULT_V5 if version >= 5 else _RESULT_V4))
    count = reader.array_length()
    if count >= 0:
        aborted = []
        for _ in range(count):
            producer_id, first_offset = reader.unpack(_ABORTED)
            reader.skip_tags()
            aborted.append((producer_id, first_offset))
        result.aborted = aborted
    if version >= 11:
        result.preferred_read_replica = reader.int32()
    records = reader.nullable_bytes()
    result.records = b"" if records is None else records
    ended = reader.tags().get(_DIVERGING_TAG)
    if ended is not None:
        epoch, end_offset = Reader(ended).unpack(_EPOCH_END)
        result.diverging = (epoch, end_offset)
    return result


def encode_response(response: FetchResponse, version: int) -> list[Buffer]:
    """Return the response body as buffers. Records are the given objects, not copies."""
    if version >= _FIRST_FLEXIBLE:
        return _encode_flexible(response, version)
    writer = Writer()
    writer.int32(response.throttle_ms)
    if version >= 7:
        writer.int16(response.error_code)
        writer.int32(response.session_id)
    writer.array_length(len(response.topics))
    for topic in response.topics:
        writer.string(topic.topic or "")
        writer.array_length(len(topic.partitions))
        for result in topic.partitions:
            _write_result(writer, version, result)
    return writer.buffers()


def _write_result(writer: Writer, version: int, result: FetchPartitionResult) -> None:
    """Write a result before v12."""
    head = (result.partition, result.error_code, result.high_watermark, result.last_stable_offset)
    if version >= 5:
        writer.pack(_RESULT_V5, *head, result.log_start_offset)
    else:
        writer.pack(_RESULT_V4, *head)
    if result.aborted is None:
        writer.array_length(-1)
    else:
        writer.array_length(len(result.aborted))
        for producer_id, first_offset in result.aborted:
            writer.pack(_ABORTED, producer_id, first_offset)
    if version >= 11:
        writer.int32(result.preferred_read_replica)
    writer.records(result.records)


def _encode_flexible(response: FetchResponse, version: int) -> list[Buffer]:
    """Return the response body from v12 on, which nearly all consumers read: without a call for each field."""
    done: list[Buffer] = []
    out = bytearray(_ANSWER_V7.pack(response.throttle_ms, response.error_code, response.session_id))
    out += write_unsigned_varint(len(response.topics) + 1)
    for topic in response.topics:
        if version < 13:
            name = (topic.topic or "").encode()
            out += write_unsigned_varint(len(name) + 1)
            out += name
        else:
            out += _NO_ID if topic.topic_id is None else topic.topic_id.bytes
        out += write_unsigned_varint(len(topic.partitions) + 1)
        for result in topic.partitions:
            aborted = result.aborted
            out += _RESULT_V5.pack(
                result.partition,
                result.error_code,
                result.high_watermark,
                result.last_stable_offset,
                result.log_start_offset,
            )
            if aborted:
                out += write_unsigned_varint(len(aborted) + 1)
                for each in aborted:
                    out += _ABORTED.pack(*each) + b"\0"
            else:
                out += b"\0" if aborted is None else b"\1"
            replica = result.preferred_read_replica
            out += _NO_REPLICA if replica == -1 else _INT32.pack(replica)
            records = result.records
            out += write_unsigned_varint(len(records) + 1)
            if records:
                done += (out, records)
                out = bytearray()
            if result.diverging is None:
                out += b"\0"
            else:
                out += _DIVERGING + _EPOCH_END.pack(*result.diverging) + b"\0"
        out += b"\0"
    out += b"\0"
    done.append(out)
    return done
