"""What makes a client's batch acceptable before any producer state is asked: length, magic, CRC, counts, flags,
timestamps.

The codes are Kafka's (LogValidator, UnifiedLog). Only the header is looked at.
"""

from __future__ import annotations

from typing import NamedTuple

from crc32c import crc32c

from fencepost.broker.files import Buffer
from fencepost.broker.log.config import LogConfig
from fencepost.broker.log.records import records_of
from fencepost.protocol.batch import CODECS, BatchHeader, parse_header
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.errors import CorruptBatch, UnsupportedMagic

__all__ = ["Flaw", "inspect"]

_CRC_FROM = 21
_LOG_APPEND_TIME, _CONTROL_OR_HORIZON, _TRANSACTIONAL = 0x08, 0x60, 0x10


class Flaw(NamedTuple):
    code: ErrorCode
    message: str


def inspect(batch: Buffer, config: LogConfig, now_ms: int) -> BatchHeader | Flaw:
    """The header of the one batch in `batch`, or what is wrong with it."""
    size = len(batch)
    if size == 0:
        return Flaw(ErrorCode.INVALID_RECORD, "no batch")
    try:
        header = parse_header(batch)
    except UnsupportedMagic as error:
        return Flaw(ErrorCode.INVALID_RECORD, str(error))
    except CorruptBatch as error:
        return Flaw(ErrorCode.CORRUPT_MESSAGE, str(error))
    whole = 12 + header.batch_length
    if whole > size:
        return Flaw(ErrorCode.INVALID_RECORD, f"a batch of {whole} bytes, {size} are there")
    if whole > config.max_message_bytes:
        return Flaw(
            ErrorCode.MESSAGE_TOO_LARGE, f"a batch of {whole} bytes, at most {config.max_message_bytes} are allowed"
        )
    if whole < size:
        return Flaw(ErrorCode.INVALID_RECORD, "more than one batch")
    if crc32c(memoryview(batch)[_CRC_FROM:]) != header.crc:
        return Flaw(ErrorCode.CORRUPT_MESSAGE, "the CRC of the batch is wrong")
    return _inspect_header(header, config, now_ms) or (config.compacted and _inspect_keys(header, batch)) or header


def _inspect_keys(header: BatchHeader, batch: Buffer) -> Flaw | None:
    """A compacted topic takes no record without a key: the next round would remove it."""
    try:
        for number, record in enumerate(records_of(header, memoryview(batch))):
            if record.key is None:
                return Flaw(ErrorCode.INVALID_RECORD, f"a compacted topic takes no record without a key ({number})")
    except CorruptBatch as error:
        return Flaw(ErrorCode.INVALID_RECORD, str(error))
    return None


def _inspect_header(header: BatchHeader, config: LogConfig, now_ms: int) -> Flaw | None:
    attributes, count = header.attributes, header.record_count
    flaw = None
    if count <= 0 or header.last_offset_delta != count - 1:
        flaw = f"{count} records, last offset delta {header.last_offset_delta}"
    elif header.base_offset != 0:
        flaw = f"base offset {header.base_offset}; a producer sends 0"
    elif attributes & _CONTROL_OR_HORIZON:
        flaw = "a control batch, or one with a delete horizon; clients may write neither"
    elif header.producer_id >= 0 and header.base_sequence < 0:
        flaw = f"producer id {header.producer_id} without a sequence"
    elif header.producer_id < 0 and attributes & _TRANSACTIONAL:
        flaw = "transactional without a producer id"
    if flaw is not None:
        return Flaw(ErrorCode.INVALID_RECORD, flaw)
    if header.codec >= len(CODECS):
        return Flaw(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"compression codec {header.codec}")
    if config.message_timestamp_type == "CreateTime":
        return _inspect_timestamps(header, config, now_ms)
    return None


def _inspect_timestamps(header: BatchHeader, config: LogConfig, now_ms: int) -> Flaw | None:
    if header.attributes & _LOG_APPEND_TIME:
        return Flaw(ErrorCode.INVALID_TIMESTAMP, "a producer must not set the timestamp type LogAppendTime")
    if header.max_timestamp >= 0 and (
        header.max_timestamp - now_ms > config.message_timestamp_after_max_ms
        or now_ms - header.base_timestamp > config.message_timestamp_before_max_ms
    ):
        return Flaw(
            ErrorCode.INVALID_TIMESTAMP,
            f"timestamps {header.base_timestamp}..{header.max_timestamp} are too far from the broker's time {now_ms}",
        )
    return None
