"""A record of `__consumer_offsets`, to be written or as read."""

from __future__ import annotations

from fencepost.protocol.logs.consumer_group_log import (
    ConsumerGroupLogKey,
    ConsumerGroupLogValue,
    decode_consumer_group_key,
    decode_consumer_group_value,
    encode_consumer_group_key,
    encode_consumer_group_value,
)
from fencepost.protocol.logs.offsets_log import (
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
from fencepost.protocol.logs.share_group_log import (
    ShareGroupLogKey,
    ShareGroupLogValue,
    decode_share_group_key,
    decode_share_group_value,
    encode_share_group_key,
    encode_share_group_value,
)
from fencepost.protocol.logs.streams_group_log import (
    StreamsGroupLogKey,
    StreamsGroupLogValue,
    decode_streams_group_key,
    decode_streams_group_value,
    encode_streams_group_key,
    encode_streams_group_value,
)
from fencepost.values import Value

__all__ = ["GroupRecord"]


class GroupRecord(Value):
    """A typed key and value; a value of None is a tombstone.

    With a producer id, the record belongs in a transactional batch of that producer and takes effect with its
    commit marker.
    """

    key: OffsetCommitKey | GroupMetadataKey | ConsumerGroupLogKey | ShareGroupLogKey | StreamsGroupLogKey
    value: (
        OffsetCommitValue
        | GroupMetadataValue
        | ConsumerGroupLogValue
        | ShareGroupLogValue
        | StreamsGroupLogValue
        | None
    )
    producer_id: int = -1
    producer_epoch: int = -1

    @property
    def group_id(self) -> str:
        """The group in whose partition the record is stored."""
        return self.key.group_id

    @property
    def transactional(self) -> bool:
        """True if a marker decides about the record."""
        return self.producer_id >= 0

    def encode(self) -> tuple[bytes, bytes | None]:
        """Return the record's key and value as bytes of the log."""
        key, value = self.key, self.value
        if isinstance(key, OffsetCommitKey | GroupMetadataKey):
            encoded_key = encode_key(key)
        elif isinstance(key, ShareGroupLogKey):
            encoded_key = encode_share_group_key(key)
        elif isinstance(key, StreamsGroupLogKey):
            encoded_key = encode_streams_group_key(key)
        else:
            encoded_key = encode_consumer_group_key(key)
        if value is None:
            return encoded_key, None
        if isinstance(value, OffsetCommitValue):
            return encoded_key, encode_offset_value(value)
        if isinstance(value, GroupMetadataValue):
            return encoded_key, encode_group_value(value)
        if isinstance(value, ShareGroupLogValue):
            return encoded_key, encode_share_group_value(value)
        if isinstance(value, StreamsGroupLogValue):
            return encoded_key, encode_streams_group_value(value)
        return encoded_key, encode_consumer_group_value(value)

    @classmethod
    def decode(
        cls, key: bytes | memoryview, value: bytes | memoryview | None, producer_id: int = -1, producer_epoch: int = -1
    ) -> GroupRecord | None:
        """Decode a record of the log; None for one of an unused type.

        Give the producer id only if the batch is transactional. Raises MalformedMessage for bytes that are no record.
        """
        typed_key = decode_key(key)
        if isinstance(typed_key, UnknownKey):
            share_key = decode_share_group_key(key)
            if share_key is not None:
                return cls(share_key, None if value is None else decode_share_group_value(share_key, value))
            streams_key = decode_streams_group_key(key)
            if streams_key is not None:
                return cls(streams_key, None if value is None else decode_streams_group_value(streams_key, value))
            newer_key = decode_consumer_group_key(key)
            if newer_key is None:
                return None
            return cls(newer_key, None if value is None else decode_consumer_group_value(newer_key, value))
        if value is None:
            return cls(typed_key, None, producer_id, producer_epoch)
        if isinstance(typed_key, OffsetCommitKey):
            return cls(typed_key, decode_offset_value(value), producer_id, producer_epoch)
        return cls(typed_key, decode_group_value(value), producer_id, producer_epoch)
