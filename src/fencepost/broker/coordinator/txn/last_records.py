"""What a start takes from the transaction log: of each transactional id the last record, which says all there is to say
of it. The records before it are not even decoded; only what producer ids they gave out is kept."""

from __future__ import annotations

from collections.abc import Iterator

from fencepost.protocol.logs import transaction_log

__all__ = ["LastRecords"]


class LastRecords:
    """Keys and values by their offsets, as they are in the log. `note` them in the log's order."""

    __slots__ = ("_by_key", "highest_producer_id")

    def __init__(self) -> None:
        self._by_key: dict[bytes, tuple[int, bytes | None]] = {}
        self.highest_producer_id = -1
        """Of the records that others followed; -1 where there are none."""

    def __iter__(self) -> Iterator[tuple[int, bytes, bytes | None]]:
        """(offset, key, value) of each id, in the order of the offsets."""
        return ((offset, key, value) for key, (offset, value) in self._by_key.items())

    def note(self, offset: int, key: bytes, value: bytes | None) -> None:
        """Take the place of what there was of the key. Raises the errors of `decode_key` for one that is no key."""
        before = self._by_key.pop(key, None)
        if before is None:
            transaction_log.decode_key(key)
        elif before[1] is not None:
            self.highest_producer_id = max(self.highest_producer_id, transaction_log.producer_id_of(before[1]))
        self._by_key[key] = offset, value
