"""Produce (API key 0), versions 3-13, encoded by hand: record batches are slices and are never copied.

v3 transactional id; v5 log start offset in the response; v8 error message and record errors (KIP-467); v9 flexible; v10
leader hints as tagged fields (never written here, skipped on reading); v12 adds partitions to a transaction implicitly
(KIP-890); v13 topic ids instead of names.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final, NamedTuple, TypeVar
from uuid import UUID

from fencepost.protocol.cursor import Buffer, Reader, Writer
from fencepost.protocol.errors import MalformedMessage
from fencepost.protocol.frame import is_flexible
from fencepost.protocol.varint import read_unsigned_varint, skip_tagged_fields

__all__ = [
    "API_KEY",
    "VERSIONS",
    "ProducePartition",
    "ProducePartitionResult",
    "ProduceRequest",
    "ProduceResponse",
    "RecordError",
    "Results",
    "decode_request",
    "decode_response",
    "encode_request",
    "encode_response",
]

API_KEY = 0
VERSIONS = (3, 13)


_INT32 = struct.Struct(">i")
_RESULT_V2 = struct.Struct(">ihqq")
_RESULT_V5 = struct.Struct(">ihqqq")
_RESULT_V9 = struct.Struct(">ihqqqbbb")
_NO_ERRORS: Final = (1, 0, 0)
"""No record errors, no message, no tags."""


@dataclass(slots=True)
class ProducePartition:
    """The records for one partition. The topic is named up to v12 and given by its id from v13 on."""

    topic: str | None
    topic_id: UUID | None
    partition: int
    records: Buffer


@dataclass(slots=True)
class ProduceRequest:
    """A Produce request. acks is -1 (all), 1, or 0 (no response)."""

    transactional_id: str | None
    acks: int
    timeout_ms: int
    partitions: list[ProducePartition]


class RecordError(NamedTuple):
    """Error of one record of a rejected batch. `batch_index` is the record's position in the batch, from 0."""

    batch_index: int
    message: str | None


@dataclass(slots=True)
class ProducePartitionResult:
    """The result of one partition. base_offset, log_append_time_ms and log_start_offset are -1 if not set."""

    topic: str | None
    topic_id: UUID | None
    partition: int
    error_code: int = 0
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    error_message: str | None = None
    record_errors: tuple[RecordError, ...] = ()


Results = dict[tuple[str, int], ProducePartitionResult]


@dataclass(slots=True)
class ProduceResponse:
    """One result for each partition of the request."""

    partitions: list[ProducePartitionResult] = field(default_factory=list)
    throttle_ms: int = 0

    def by_partition(self, names: Mapping[UUID | None, str]) -> Results:
        """Return the results by (topic, partition). `names` maps topic ids to names, for responses that contain ids."""
        return {
            (
                partition.topic if partition.topic is not None else names.get(partition.topic_id, ""),
                partition.partition,
            ): partition
            for partition in self.partitions
        }


def decode_request(body: memoryview, version: int) -> ProduceRequest:
    """Decode a request body. Records are slices of `body`; null records become empty.

    Raises:
        MalformedMessage: The bytes are not a Produce request of this version.
    """
    reader = Reader(body, is_flexible(API_KEY, version))
    transactional_id = reader.nullable_string()
    acks, timeout_ms = reader.int16(), reader.int32()
    partitions = []
    for topic, topic_id in _read_topics(reader, version):
        count = reader.array_length()
        batches = _flexible_batches(reader, count) if reader.flexible else _fixed_batches(reader, count)
        partitions += [ProducePartition(topic, topic_id, partition, records) for partition, records in batches]
    reader.skip_tags()
    return ProduceRequest(transactional_id, acks, timeout_ms, partitions)


def _fixed_batches(reader: Reader, count: int) -> Iterator[tuple[int, Buffer]]:
    """Yield partition and records of each batch before v9."""
    for _ in range(count):
        yield reader.int32(), reader.nullable_bytes() or b""


def _flexible_batches(reader: Reader, count: int) -> Iterator[tuple[int, Buffer]]:
    """Yield partition and records of each batch from v9 on, without a call for each field."""
    data, position = reader.data, reader.position
    try:
        for _ in range(count):
            (partition,) = _INT32.unpack_from(data, position)
            length, position = read_unsigned_varint(data, position + _INT32.size)
            end = position + length - 1 if length else position
            yield partition, data[position:end]
            position = skip_tagged_fields(data, end) if data[end] else end + 1
    except (IndexError, struct.error) as error:
        raise MalformedMessage(f"a Produce request is cut short at byte {position}") from error
    reader.position = position


def encode_request(request: ProduceRequest, version: int) -> list[Buffer]:
    """Return the request body as buffers. Partitions of the same topic must be adjacent to share one topic entry."""
    writer = Writer(is_flexible(API_KEY, version))
    writer.string(request.transactional_id)
    writer.int16(request.acks)
    writer.int32(request.timeout_ms)
    for partition in _write_topics(writer, version, request.partitions):
        writer.int32(partition.partition)
        writer.records(partition.records)
        writer.tags()
    writer.tags()
    return writer.buffers()


def decode_response(body: memoryview, version: int) -> ProduceResponse:
    """Decode a response body.

    Raises:
        MalformedMessage: The bytes are not a Produce response of this version.
    """
    reader = Reader(body, is_flexible(API_KEY, version))
    results = []
    for topic, topic_id in _read_topics(reader, version):
        for _ in range(reader.array_length()):
            result = ProducePartitionResult(topic, topic_id, *reader.unpack(_RESULT_V5 if version >= 5 else _RESULT_V2))
            if version >= 8:
                result.record_errors = tuple(_read_record_error(reader) for _ in range(reader.array_length()))
                result.error_message = reader.nullable_string()
            reader.skip_tags()
            results.append(result)
    throttle_ms = reader.int32()
    reader.skip_tags()
    return ProduceResponse(results, throttle_ms)


def _read_record_error(reader: Reader) -> RecordError:
    error = RecordError(reader.int32(), reader.nullable_string())
    reader.skip_tags()
    return error


def encode_response(response: ProduceResponse, version: int) -> list[Buffer]:
    """Return the response body as buffers. Results of the same topic must be adjacent to share one topic entry."""
    flexible = is_flexible(API_KEY, version)
    writer = Writer(flexible)
    for result in _write_topics(writer, version, response.partitions):
        head = (result.partition, result.error_code, result.base_offset, result.log_append_time_ms)
        if flexible and not result.record_errors and result.error_message is None:  # nearly always
            writer.pack(_RESULT_V9, *head, result.log_start_offset, *_NO_ERRORS)
            continue
        if version >= 5:
            writer.pack(_RESULT_V5, *head, result.log_start_offset)
        else:
            writer.pack(_RESULT_V2, *head)
        if version >= 8:
            writer.array_length(len(result.record_errors))
            for error in result.record_errors:
                writer.int32(error.batch_index)
                writer.string(error.message)
                writer.tags()
            writer.string(result.error_message)
        writer.tags()
    writer.int32(response.throttle_ms)
    writer.tags()
    return writer.buffers()


def _read_topics(reader: Reader, version: int) -> Iterator[tuple[str | None, UUID | None]]:
    """Yield each topic's (name, id). The caller must read the topic's partitions before it asks for the next topic."""
    for _ in range(reader.array_length()):
        yield (reader.string(), None) if version < 13 else (None, reader.uuid())
        reader.skip_tags()


_Entry = TypeVar("_Entry", ProducePartition, ProducePartitionResult)


def _topic_of(partition: ProducePartition | ProducePartitionResult) -> tuple[str | None, UUID | None]:
    return partition.topic, partition.topic_id


def _write_topics(writer: Writer, version: int, partitions: Sequence[_Entry]) -> Iterator[_Entry]:
    """Write the topic entries, and yield each partition for the caller to write."""
    topics = [partitions] if len(partitions) == 1 else [list(group) for _, group in groupby(partitions, _topic_of)]
    writer.array_length(len(topics))
    for members in topics:
        if version >= 13:
            writer.uuid(members[0].topic_id)
        else:
            writer.string(members[0].topic or "")
        writer.array_length(len(members))
        yield from members
        writer.tags()
