"""Recovery points: the synced end of each partition's log, in `recovery-points.fencepost` beside their directories.

Records below that point were acknowledged, so a start reports damage there and cuts nothing. Damage after it is a torn
tail. The point also shows that a partition has records if its directory or its last segments are missing.

A partition has two slots of 64 bytes, which are written in turns, so that one slot is always whole: CRC-32C uint32 of
the next 36 bytes, topic id (16 bytes), partition int32, turn int64, offset int64; the rest is zero. After every sync of
its log a point is written over the older one, without a sync of its own. It is true by then, and an older one that a
power loss restores is true as well. Only a start that finds damage below it syncs it: with an older one, the next start
would cut the reported damage. The slots are allocated before a partition's first append, so that the point can be
written to a full disk.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Collection, Iterator
from typing import NamedTuple
from uuid import UUID

from fencepost.broker.disk.files import File, Files
from fencepost.protocol.crc import crc32c

__all__ = ["FILE", "RecoveryPoint", "RecoveryPoints"]

FILE = "recovery-points.fencepost"
_CRC = struct.Struct(">I")
_BODY = struct.Struct(">16siqq")
_SLOT_BYTES = 64
_PAIR_BYTES = 2 * _SLOT_BYTES

_log = logging.getLogger("fencepost.broker.recovery")


class _Slot(NamedTuple):
    topic_id: UUID
    partition: int
    turn: int
    offset: int


class RecoveryPoint:
    """The recovery point of one partition."""

    __slots__ = ("_owner", "_pair", "_turn", "has_slots", "offset", "partition", "topic_id")

    def __init__(self, owner: RecoveryPoints, topic_id: UUID, partition: int) -> None:
        self._owner = owner
        self._pair = -1
        self.has_slots = False
        """Slots are allocated."""
        self._turn = 0
        self.topic_id = topic_id
        self.partition = partition
        self.offset = -1
        """Everything below it was synced; -1 if unknown."""

    def found(self, pair: int, turn: int, offset: int) -> None:
        """Load the point from disk."""
        self._pair, self._turn, self.offset = pair, turn, offset
        self.has_slots = True

    def reserve_slots(self) -> None:
        """Allocate the slots for a later `move`, unless `has_slots`. Raises OSError."""
        if not self.has_slots:
            self._pair = self._owner.take()
            self.has_slots = True

    def move(self, offset: int) -> None:
        """Note that everything below `offset` is synced.

        If the disk refuses, the older point remains, which is true as well.
        """
        if offset <= self.offset:
            return
        turn = self._turn + 1
        body = _BODY.pack(self.topic_id.bytes, self.partition, turn, offset)
        try:
            self.reserve_slots()
            self._owner.write(self._pair, turn % 2, _CRC.pack(crc32c(body)) + body)
        except OSError as error:
            self._owner.failed(error)
            return
        self._turn, self.offset = turn, offset

    def sync(self) -> None:
        """Sync the point, so that a power loss cannot restore an older one. Raises OSError."""
        for file in self._owner.files():
            file.sync()

    def release(self) -> int:
        """Release the slots. Return their pair, -1 if there was none."""
        pair, self._pair, self.offset = self._pair, -1, -1
        self.has_slots = False
        return pair


class RecoveryPoints:
    """The recovery points of all partitions."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._file: File | None = None
        self._points: dict[tuple[UUID, int], RecoveryPoint] = {}
        self._free: list[int] = []
        self._pairs = 0
        self._has_failed = False

    def __iter__(self) -> Iterator[RecoveryPoint]:
        return iter(self._points.values())

    def load(self, *, expected: bool) -> None:
        """Read the file, or create it in a new directory.

        Raises OSError.

        `expected`: the file should exist, and an error is logged if it does not.
        """
        if expected and not self._files.exists(FILE):
            _log.error("%s is missing: damage in a log is treated as a torn tail until its next sync", FILE)
        self._file = self._files.open(FILE)
        data = self._file.read(0, self._file.size())
        self._pairs = -(-len(data) // _PAIR_BYTES)
        unreadable = 0
        for pair in range(self._pairs):
            whole = data[pair * _PAIR_BYTES : (pair + 1) * _PAIR_BYTES]
            slots = [_decode(whole[:_SLOT_BYTES]), _decode(whole[_SLOT_BYTES:])]
            newest = max((slot for slot in slots if slot is not None), key=lambda slot: slot.turn, default=None)
            unreadable += newest is None and any(whole)
            if newest is None:
                self._free.append(pair)
                continue
            point = self.of(newest.topic_id, newest.partition)
            if newest.offset > point.offset:
                point.found(pair, newest.turn, newest.offset)
        if unreadable:
            _log.error("%s: %s of %s pairs of slots are damaged", FILE, unreadable, self._pairs)

    def of(self, topic_id: UUID, partition: int) -> RecoveryPoint:
        """Return the partition's point."""
        key = topic_id, partition
        point = self._points.get(key)
        if point is None:
            point = self._points[key] = RecoveryPoint(self, topic_id, partition)
        return point

    def forget(self, topic_ids: Collection[UUID]) -> None:
        """Release the slots of deleted topics."""
        for key in [key for key in self._points if key[0] in topic_ids]:
            pair = self._points.pop(key).release()
            if pair >= 0:
                try:
                    self._write(pair * _PAIR_BYTES, bytes(_PAIR_BYTES))
                except OSError as error:
                    self.failed(error)
                self._free.append(pair)

    def take(self) -> int:
        """Allocate a pair of empty slots. Raises OSError."""
        pair = self._free[-1] if self._free else self._pairs
        self._write(pair * _PAIR_BYTES, bytes(_PAIR_BYTES))
        if self._free:
            self._free.pop()
        else:
            self._pairs += 1
        return pair

    def write(self, pair: int, which: int, data: bytes) -> None:
        """Write one slot of a pair. Raises OSError."""
        self._write(pair * _PAIR_BYTES + which * _SLOT_BYTES, data)

    def files(self) -> list[File]:
        """Return the files to sync periodically, and at the end."""
        return [] if self._file is None else [self._file]

    def failed(self, error: OSError) -> None:
        """Log, once, that points cannot be written."""
        if not self._has_failed:
            self._has_failed = True
            _log.warning("%s cannot be written, older points stay: %s", FILE, error)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()

    def _write(self, position: int, data: bytes) -> None:
        if self._file is not None:
            self._file.write_at(position, data)


def _decode(data: bytes) -> _Slot | None:
    body = data[_CRC.size : _CRC.size + _BODY.size]
    if len(body) < _BODY.size or not any(body) or _CRC.unpack_from(data)[0] != crc32c(body):
        return None
    topic_id, partition, turn, offset = _BODY.unpack(body)
    return _Slot(UUID(bytes=topic_id), partition, turn, offset)
