"""The records of `__consumer_offsets` as bytes: those of all kinds of groups, and offsets."""

from __future__ import annotations

from typing import Final

from fencepost.broker.coordinator.group.base.records import GroupRecord, LogCodec
from fencepost.broker.coordinator.group.kinds import KINDS
from fencepost.protocol.logs.offsets_log import (
    OffsetCommitKey,
    decode_key,
    decode_offset_value,
    encode_key,
    encode_offset_value,
)

__all__ = ["decode_record", "encode_record"]


def _decode_offset_key(data: bytes | memoryview) -> OffsetCommitKey | None:
    key = decode_key(data)
    return key if isinstance(key, OffsetCommitKey) else None


_OFFSETS: Final = LogCodec(
    (OffsetCommitKey,),
    encode_key,
    _decode_offset_key,
    encode_offset_value,
    lambda _key, data: decode_offset_value(data),
)
_CODECS: Final = (_OFFSETS, *(kind.log for kind in KINDS))  # most records are offsets
_BY_KEY: Final = {key: codec for codec in _CODECS for key in codec.keys}


def encode_record(record: GroupRecord) -> tuple[bytes, bytes | None]:
    """Return the record's key and value as bytes of the log."""
    codec = _BY_KEY[type(record.key)]
    return codec.encode_key(record.key), None if record.value is None else codec.encode_value(record.value)


def decode_record(
    key: bytes | memoryview, value: bytes | memoryview | None, producer_id: int = -1, producer_epoch: int = -1
) -> GroupRecord | None:
    """Decode a record of the log. Return None for a record of an unused type.

    The caller passes the producer id of a transactional batch, and -1 for any other. Raises MalformedMessage for bytes
    that are no record.
    """
    for codec in _CODECS:
        typed_key = codec.decode_key(key)
        if typed_key is not None:
            typed_value = None if value is None else codec.decode_value(typed_key, value)
            return GroupRecord(typed_key, typed_value, producer_id, producer_epoch)
    return None
