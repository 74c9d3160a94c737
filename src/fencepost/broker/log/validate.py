"""Validate clients' batches, before the check of producer state.

It checks length, magic, CRC, counts and flags. The records must parse, match the header's count and have the offsets 0
to n-1. They need keys in a compacted topic, and timestamps near the broker's time. A batch is stored with the topic's
compression, and with the largest timestamp of its records.

The codes are Kafka's (LogValidator, UnifiedLog). Where Kafka fails with -1 on unreadable records, the code here is
INVALID_RECORD, as for all other defects of records.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from fencepost.broker.log.config import LogConfig
from fencepost.broker.log.results import Rejected
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.cursor import Buffer
from fencepost.protocol.errors import CorruptBatch, UnsupportedMagic
from fencepost.protocol.produce_wire import RecordError
from fencepost.protocol.records.batch import (
    CODEC_MASK,
    CODECS,
    CONTROL,
    DELETE_HORIZON,
    HEADER_BYTES,
    LENGTH,
    LENGTH_AT,
    LENGTH_PREFIX_BYTES,
    LOG_APPEND_TIME,
    MAGIC_AT,
    TRANSACTIONAL,
    BatchHeader,
    pack_header,
    parse_header,
    verify_crc,
)
from fencepost.protocol.records.check import Checked, check_records
from fencepost.protocol.records.compression import compress
from fencepost.protocol.records.walk import WalkedRecord, record_sizes, section_of, walk

__all__ = ["Decompress", "Flaw", "admitted", "header_of"]

_LAST_CODEC: Final = len(CODECS) - 1
_SMALLEST_MESSAGE: Final = 14  # size in bytes, of any magic
_RECORD_ERRORS_MAX: Final = 100  # of one batch; a client shows the first few


class Flaw(NamedTuple):
    code: ErrorCode
    message: str
    record_errors: tuple[RecordError, ...] = ()
    shows_log_start: bool = True
    """True if the answer contains the log start offset: not for refusals before the records are checked."""

    def rejected(self, log_start_offset: int) -> Rejected:
        start = log_start_offset if self.shows_log_start else -1
        return Rejected(self.code, start, self.message, self.record_errors)


def header_of(batch: Buffer) -> BatchHeader | Flaw:
    """Return the header of a client's records for one partition, or its flaw."""
    if len(batch) > MAGIC_AT and LENGTH.unpack_from(batch, LENGTH_AT)[0] < _SMALLEST_MESSAGE:
        return Flaw(ErrorCode.CORRUPT_MESSAGE, "the batch's length is less than any header's")
    try:
        return parse_header(batch)
    except UnsupportedMagic as error:
        return Flaw(ErrorCode.INVALID_RECORD, str(error))
    except CorruptBatch as error:
        nothing = len(batch) <= MAGIC_AT
        return Flaw(ErrorCode.INVALID_RECORD if nothing else ErrorCode.CORRUPT_MESSAGE, str(error))


Decompress = Callable[[BatchHeader, memoryview], Buffer]
"""Returns the decompressed records section of a batch. Raises CorruptBatch."""


def admitted(
    batch: Buffer,
    config: LogConfig,
    now_ms: int,
    decompress: Decompress = section_of,
    header: BatchHeader | None = None,
    checked: Checked | None = None,
) -> tuple[BatchHeader, Buffer] | Flaw:
    """Return the header and the stored form of the one batch in `batch`, or the reason for its refusal.

    `header`: the batch's header, if it is already parsed. `checked`: facts about the records of an uncompressed batch
    that is already known to be well-formed. Such a batch is only checked against the topic's settings.
    """
    if header is None:
        parsed = header_of(batch)
        if isinstance(parsed, Flaw):
            return parsed
        header = parsed
    size, whole = len(batch), LENGTH_PREFIX_BYTES + header.batch_length
    if size != whole or whole > config.max_message_bytes:
        return _wrong_size(size, whole, config)
    if checked is None and (flaw := _inspect_header(batch, header)) is not None:
        return flaw
    has_own_times = config.message_timestamp_type == "CreateTime"
    if has_own_times and header.attributes & LOG_APPEND_TIME:
        return Flaw(ErrorCode.INVALID_TIMESTAMP, "a producer must not set the timestamp type LogAppendTime")
    section: Buffer | None = None
    if checked is None:
        inspected = _inspect_records(batch, header, config, decompress)
        if isinstance(inspected, Flaw):
            return inspected
        section, checked = inspected
    if checked.without_key >= 0 and config.compacted:
        what = "a compacted topic takes no record without a key"
        return _flaw(header, batch, section, ErrorCode.INVALID_RECORD, lambda record: record.key is None, what)
    if has_own_times:
        newest = now_ms + config.message_timestamp_after_max_ms
        oldest = now_ms - config.message_timestamp_before_max_ms
        if checked.max_timestamp > newest or (checked.min_timestamp < oldest and checked.min_timestamp != -1):
            return _flaw(
                *(header, batch, section, ErrorCode.INVALID_TIMESTAMP),
                lambda record: record.timestamp != -1 and not oldest <= record.timestamp <= newest,
                f"its timestamp is too far from the broker's time {now_ms}",
            )
    if checked.max_timestamp == header.max_timestamp and config.compression_type == "producer":
        return header, batch
    return _stored_form(header, _section_of(batch, section), checked, batch, config)


def _section_of(batch: Buffer, section: Buffer | None) -> Buffer:
    """Return the decompressed records, or those in the batch if none were decompressed."""
    return memoryview(batch)[HEADER_BYTES:] if section is None else section


def _wrong_size(size: int, whole: int, config: LogConfig) -> Flaw:
    """Return the flaw of a batch with `size` bytes, whose header announces `whole`."""
    if whole > size:
        return _refused_whole(ErrorCode.INVALID_RECORD, f"a batch of {whole} bytes, {size} are there")
    if whole > config.max_message_bytes:
        return _too_large(whole, config)
    return _refused_whole(ErrorCode.INVALID_RECORD, "more than one batch")


def _stored_form(
    header: BatchHeader, section: Buffer, checked: Checked, batch: Buffer, config: LogConfig
) -> tuple[BatchHeader, Buffer] | Flaw:
    """Return the batch as stored: unchanged, unless compression.type or the largest timestamp differ."""
    own = header.codec
    codec = own if config.compression_type == "producer" else CODECS.index(config.compression_type)
    newest = checked.max_timestamp
    if codec == own and newest == header.max_timestamp:
        return header, batch
    stored: Buffer = memoryview(batch)[HEADER_BYTES:]
    if codec != own:
        stored = compress(CODECS[codec], section, config.compression_levels.get(CODECS[codec]))
    changed = header._replace(attributes=header.attributes & ~CODEC_MASK | codec, max_timestamp=newest)
    packed = pack_header(changed, stored)
    whole = len(packed) + len(stored)
    if whole > config.max_message_bytes:
        return _too_large(whole, config)
    return parse_header(packed), packed + bytes(stored)


def _too_large(whole: int, config: LogConfig) -> Flaw:
    return _refused_whole(
        ErrorCode.MESSAGE_TOO_LARGE, f"a batch of {whole} bytes, at most {config.max_message_bytes} are allowed"
    )


def _refused_whole(code: ErrorCode, message: str) -> Flaw:
    return Flaw(code, message, shows_log_start=False)


def _inspect_header(batch: Buffer, header: BatchHeader) -> Flaw | None:
    """Return the flaw of a batch apart from its size and its records, or None."""
    if not verify_crc(batch):
        return _refused_whole(ErrorCode.CORRUPT_MESSAGE, "the CRC of the batch is wrong")
    attributes, count = header.attributes, header.record_count
    flaw = None
    if count <= 0 or header.last_offset_delta != count - 1:
        flaw = f"{count} records, last offset delta {header.last_offset_delta}"
    elif header.base_offset != 0:
        flaw = f"base offset {header.base_offset}; a producer sends 0"
    elif attributes & (CONTROL | DELETE_HORIZON):
        flaw = "a control batch, or one with a delete horizon; clients may write neither"
    elif header.producer_id >= 0 and header.base_sequence < 0:
        flaw = f"producer id {header.producer_id} without a sequence"
    elif header.producer_id < 0 and attributes & TRANSACTIONAL:
        flaw = "transactional without a producer id"
    if flaw is not None:
        return Flaw(ErrorCode.INVALID_RECORD, flaw)
    if attributes & CODEC_MASK > _LAST_CODEC:
        return Flaw(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"compression codec {header.codec}")
    return None


def _inspect_records(
    batch: Buffer, header: BatchHeader, config: LogConfig, decompress: Decompress
) -> tuple[Buffer, Checked] | Flaw:
    """Return the decompressed records and facts about them, or their flaw."""
    section: Buffer = memoryview(batch)[HEADER_BYTES:]
    try:
        if header.attributes & CODEC_MASK:
            section = decompress(header, memoryview(batch))
        checked = check_records(section, header.record_count, header.base_timestamp)
    except CorruptBatch as error:
        return Flaw(ErrorCode.INVALID_RECORD, str(error))
    flaw = _inspect_sizes(header, section, config) if header.attributes & CODEC_MASK else None
    return (section, checked) if flaw is None else flaw


def _inspect_sizes(header: BatchHeader, section: Buffer, config: LogConfig) -> Flaw | None:
    """Return the flaw of decompressed records that are too large, or None.

    Kafka counts decompressed bytes. Other batches' records are limited by max.message.bytes.
    """
    most = config.max_decompressed_record_bytes
    if len(section) > most:
        sizes = record_sizes(section, header.record_count)
        large = [number for number, size in enumerate(sizes) if size > most]
        if large:
            what = f"larger than max.decompressed.message.bytes ({most}) when decompressed"
            errors = tuple(RecordError(number, what) for number in large[:_RECORD_ERRORS_MAX])
            return Flaw(ErrorCode.INVALID_RECORD, f"record {large[0]} of the batch: {what}", errors)
    return None


def _flaw(
    header: BatchHeader,
    batch: Buffer,
    section: Buffer | None,
    code: ErrorCode,
    is_wrong: Callable[[WalkedRecord], bool],
    what: str,
) -> Flaw:
    """Return a flaw that names the wrong records, up to a limit."""
    errors = []
    for number, record in enumerate(walk(header, _section_of(batch, section))):
        if is_wrong(record):
            errors.append(RecordError(number, what))
            if len(errors) == _RECORD_ERRORS_MAX:
                break
    first = errors[0].batch_index if errors else 0
    return Flaw(code, f"record {first} of the batch: {what}", tuple(errors))
