"""The last record of each transactional id, collected from the transaction log at a start.

The last record has the complete state, so earlier ones are not decoded, except for the producer ids in them.
"""

from __future__ import annotations

from collections.abc import Iterator

from fencepost.protocol.logs import transaction_log

__all__ = ["LastRecords"]


class LastRecords:
    """Keys and values by offset, in the bytes of the log. Call `note` in the order of the log."""

    __slots__ = ("_by_key", "highest_producer_id")

    def __init__(self) -> None:
        self._by_key: dict[bytes, tuple[int, bytes | None]] = {}
        self.highest_producer_id = -1
        """Highest producer id in the replaced records; -1 if there are none."""

    def __iter__(self) -> Iterator[tuple[int, bytes, bytes | None]]:
        """Iterate over (offset, key, value) of each id, in the order of the offsets."""
        return ((offset, key, value) for key, (offset, value) in self._by_key.items())

    def note(self, offset: int, key: bytes, value: bytes | None) -> None:
        """Store a record, replacing an earlier one of the key. Raises the errors of `decode_key` for an invalid key."""
        before = self._by_key.pop(key, None)
        if before is None:
            transaction_log.decode_key(key)
        elif before[1] is not None:
            self.highest_producer_id = max(self.highest_producer_id, transaction_log.producer_id_of(before[1]))
        self._by_key[key] = offset, value
