"""How far each partition's log is known to be synced: `recovery-points.fencepost`, beside the partitions' directories.

Damage below that point was promised to somebody, so the next start tells of it and cuts nothing; what lies behind is
a torn tail. The point also says that a partition has records, should its directory or its last segments be gone.

A partition has two places of 64 bytes, which are written in turns, so that one whole place is always there: CRC-32C
uint32 of the next 36 bytes, topic id (16 bytes), partition int32, turn int64, offset int64; the rest is zero.
A point is written over the older one, without a sync of its own, after every sync of its log: what it says is true by
then, and an older one that a power loss leaves is true as well. Only where a start finds damage below it, it is synced:
an older one would let the next start cut what this one told of. The places are taken before a partition's first append,
so that a disk that is full by the time of the sync can note it.
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
_PLACE_BYTES = 64
_PAIR_BYTES = 2 * _PLACE_BYTES

_log = logging.getLogger("fencepost.broker.recovery")


class _Place(NamedTuple):
    topic_id: UUID
    partition: int
    turn: int
    offset: int


class RecoveryPoint:
    """One partition's point."""

    __slots__ = ("_owner", "_pair", "_turn", "offset", "partition", "topic_id")

    def __init__(self, owner: RecoveryPoints, topic_id: UUID, partition: int) -> None:
        self._owner = owner
        self._pair = -1
        self._turn = 0
        self.topic_id = topic_id
        self.partition = partition
        self.offset = -1
        """All below it was synced; -1 when nothing is known."""

    def found(self, pair: int, turn: int, offset: int) -> None:
        """Take over what is on disk."""
        self._pair, self._turn, self.offset = pair, turn, offset

    def take_places(self) -> None:
        """Have the room that a later `move` needs. Raises OSError."""
        if self._pair < 0:
            self._pair = self._owner.take()

    def move(self, offset: int) -> None:
        """All below `offset` is synced. A disk that refuses to note it leaves the older point, which is true too."""
        if offset <= self.offset:
            return
        turn = self._turn + 1
        body = _BODY.pack(self.topic_id.bytes, self.partition, turn, offset)
        try:
            self.take_places()
            self._owner.write(self._pair, turn % 2, _CRC.pack(crc32c(body)) + body)
        except OSError as error:
            self._owner.failed(error)
            return
        self._turn, self.offset = turn, offset

    def sync(self) -> None:
        """Let no loss of power bring an older point back. Raises OSError."""
        for file in self._owner.files():
            file.sync()

    def release(self) -> int:
        """Forget the places; returns their pair, -1 when there was none."""
        pair, self._pair, self.offset = self._pair, -1, -1
        return pair


class RecoveryPoints:
    """All partitions' points."""

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
        """Read the file; a new directory gets one. `expected`: it must be there, and is told when it is not. Raises
        OSError."""
        if expected and not self._files.exists(FILE):
            _log.error(
                "%s is missing: damage in logs cannot be told from a torn tail until they are synced again", FILE
            )
        self._file = self._files.open(FILE)
        data = self._file.read(0, self._file.size())
        self._pairs = -(-len(data) // _PAIR_BYTES)
        unreadable = 0
        for pair in range(self._pairs):
            whole = data[pair * _PAIR_BYTES : (pair + 1) * _PAIR_BYTES]
            places = [_decode(whole[:_PLACE_BYTES]), _decode(whole[_PLACE_BYTES:])]
            newest = max((place for place in places if place is not None), key=lambda place: place.turn, default=None)
            unreadable += newest is None and any(whole)
            if newest is None:
                self._free.append(pair)
                continue
            point = self.of(newest.topic_id, newest.partition)
            if newest.offset > point.offset:
                point.found(pair, newest.turn, newest.offset)
        if unreadable:
            _log.error("%s: %s of %s places are damaged", FILE, unreadable, self._pairs)

    def of(self, topic_id: UUID, partition: int) -> RecoveryPoint:
        """The partition's point."""
        key = topic_id, partition
        point = self._points.get(key)
        if point is None:
            point = self._points[key] = RecoveryPoint(self, topic_id, partition)
        return point

    def forget(self, topic_ids: Collection[UUID]) -> None:
        """These topics are gone: others may have their places."""
        for key in [key for key in self._points if key[0] in topic_ids]:
            pair = self._points.pop(key).release()
            if pair >= 0:
                try:
                    self._write(pair * _PAIR_BYTES, bytes(_PAIR_BYTES))
                except OSError as error:
                    self.failed(error)
                self._free.append(pair)

    def take(self) -> int:
        """A pair of empty places. Raises OSError."""
        pair = self._free[-1] if self._free else self._pairs
        self._write(pair * _PAIR_BYTES, bytes(_PAIR_BYTES))
        if self._free:
            self._free.pop()
        else:
            self._pairs += 1
        return pair

    def write(self, pair: int, which: int, data: bytes) -> None:
        """Write one place of a pair. Raises OSError."""
        self._write(pair * _PAIR_BYTES + which * _PLACE_BYTES, data)

    def files(self) -> list[File]:
        """What to sync now and then, and before the end."""
        return [] if self._file is None else [self._file]

    def failed(self, error: OSError) -> None:
        """Tell, once, that points cannot be written."""
        if not self._has_failed:
            self._has_failed = True
            _log.warning("%s cannot be written, older points stay: %s", FILE, error)

    def close(self) -> None:
        """Release the file."""
        if self._file is not None:
            self._file.close()

    def _write(self, position: int, data: bytes) -> None:
        if self._file is not None:
            self._file.write_at(position, data)


def _decode(data: bytes) -> _Place | None:
    body = data[_CRC.size : _CRC.size + _BODY.size]
    if len(body) < _BODY.size or not any(body) or _CRC.unpack_from(data)[0] != crc32c(body):
        return None
    topic_id, partition, turn, offset = _BODY.unpack(body)
    return _Place(UUID(bytes=topic_id), partition, turn, offset)
