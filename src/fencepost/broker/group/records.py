"""A record of `__consumer_offsets` on its way to or from the log."""

from __future__ import annotations

from dataclasses import dataclass

from fencepost.protocol.offsets_log import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    UnknownKey,
    decode_group_value,
    decode_key,
    decode_offset_value,
    encode_group_value,
    encode_key,
    encode_offset_value,
)

__all__ = ["GroupRecord"]


@dataclass(frozen=True, slots=True)
class GroupRecord:
    """A typed key and value; a value of None is a tombstone.

    With a producer id, the record belongs in a transactional batch of that producer and takes effect with its
    commit marker.
    """

    key: OffsetCommitKey | GroupMetadataKey
    value: OffsetCommitValue | GroupMetadataValue | None
    producer_id: int = -1
    producer_epoch: int = -1

    @property
    def group_id(self) -> str:
        """The group whose partition the record goes to."""
        return self.key.group_id

    @property
    def transactional(self) -> bool:
        """Whether the record waits for a marker."""
        return self.producer_id >= 0

    def encode(self) -> tuple[bytes, bytes | None]:
        """The record's key and value as they go into the log."""
        if self.value is None:
            encoded = None
        elif isinstance(self.value, OffsetCommitValue):
            encoded = encode_offset_value(self.value)
        else:
            encoded = encode_group_value(self.value)
        return encode_key(self.key), encoded

    @classmethod
    def decode(
        cls, key: bytes | memoryview, value: bytes | memoryview | None, producer_id: int = -1, producer_epoch: int = -1
    ) -> GroupRecord | None:
        """The record as it was read from the log; None for a type of record that is not ours (newer group types).

        Give the producer id only if the batch is transactional. Raises MalformedMessage for bytes that are no record.
        """
        typed_key = decode_key(key)
        if isinstance(typed_key, UnknownKey):
            return None
        if value is None:
            return cls(typed_key, None, producer_id, producer_epoch)
        if isinstance(typed_key, OffsetCommitKey):
            return cls(typed_key, decode_offset_value(value), producer_id, producer_epoch)
        return cls(typed_key, decode_group_value(value), producer_id, producer_epoch)
