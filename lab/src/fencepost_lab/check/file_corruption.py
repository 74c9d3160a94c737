"""Damage to a topic's files while the broker is down: a bit flips, or an older copy replaces the files.

Such records cannot be restored, but their loss must be reported: a read at the offset of an acknowledged record returns
that record or an error (CORRUPT_MESSAGE), never another record and never nothing.

The simulation does no damage after a power loss, or if the disk refused to write a recovery point. After damage, there
is no power loss until the broker has opened the partition. Otherwise the recovery point on disk may be outdated, and
the broker removes damage after it like a torn tail. For the same reason the older copy is never from after a power
loss: the broker may have reused the offsets of an unacknowledged batch that it removed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from random import Random
from typing import Final

from fencepost.broker.log.recovery_points import FILE as RECOVERY_POINTS
from fencepost.client.admin.core import AdminCore
from fencepost.client.consumer.fetch_requests import FetchSettings, fetch_range
from fencepost.client.net.list_offsets import LATEST
from fencepost.client.types import Isolation, TopicPartition
from fencepost.errors import CorruptRecordError
from fencepost_lab.check.disk import MemoryDisk
from fencepost_lab.check.history import Anomaly, SentRecord

__all__ = ["FRAGILE", "FileCorruption", "judge_fragile"]

FRAGILE: Final = TopicPartition("fragile", 0)
"""A partition of a topic whose files are damaged. Clients write to it only without transactions."""
DIRECTORY: Final = f"{FRAGILE.topic}-{FRAGILE.partition}"
BACKED_UP: Final = 0.3
PATIENCE_MS: Final = 60_000


class FileCorruption:
    """Damages the files of `FRAGILE`, whose feeders record their sends.

    The chances are per start of the broker; `corrupted` is called with the kind and the details of a fault.
    """

    def __init__(
        self,
        disk: MemoryDisk,
        chance: Random,
        corrupted: Callable[[str, str], None],
        *,
        flip: float,
        restore: float,
        sent: Callable[[], Iterable[SentRecord]],
    ) -> None:
        self._disk = disk
        self._chance = chance
        self._corrupted = corrupted
        self._flip = flip
        self._restore = restore
        self._sent = sent
        self._acknowledged = 0
        self._acknowledged_at_damage = -1
        self._refused = 0
        self._backup: Mapping[str, bytes] = {}

    def is_met(self) -> bool:
        """Return true if a record was acknowledged since the damage: then the broker has opened the partition."""
        return self._acknowledged_at_damage < sum(write.acknowledged for write in self._sent())

    def corrupt(self, *, killed: bool) -> None:
        """Damage the files by chance before the broker's next start. `killed`: the last stop was not a power loss."""
        before, self._acknowledged = self._acknowledged, sum(write.acknowledged for write in self._sent())
        refused, self._refused = self._refused, self._disk.not_overwritten[RECOVERY_POINTS]
        files = self._disk.tree(DIRECTORY)
        if killed and (not self._backup or self._chance.random() < BACKED_UP):
            self._backup = files
        # In these cases the recovery point may be outdated, or no record was acknowledged since the last start.
        if not killed or self._acknowledged == before or self._refused != refused:
            return
        if self._chance.random() < self._restore:
            self._corrupted("files damaged", f"{DIRECTORY}: an older copy is put back")
            self._disk.put_tree(DIRECTORY, self._backup)
            self._acknowledged_at_damage = self._acknowledged
        elif self._chance.random() < self._flip:
            paths = sorted(path for path, data in files.items() if data)
            path = self._chance.choice([path for path in paths if path.endswith(".log")] or paths)
            position, bit = self._chance.randrange(len(files[path])), self._chance.randrange(8)
            self._corrupted("files damaged", f"{path}: bit {bit} of byte {position} of {len(files[path])} flips")
            self._disk.flip_bit(path, position, bit)
            self._acknowledged_at_damage = self._acknowledged


async def judge_fragile(admin: AdminCore, sent: Iterable[SentRecord]) -> list[Anomaly]:
    """Read every offset of the topic. Find unreported losses and records that no client sent. Raises KafkaError."""
    ends = await admin.list_offsets({FRAGILE: LATEST}, isolation=Isolation.READ_UNCOMMITTED)
    read: dict[int, str] = {}
    reported_offsets: set[int] = set()
    offset, end = 0, ends[FRAGILE].offset
    while offset < end:
        try:
            settings = FetchSettings(isolation=Isolation.READ_COMMITTED)
            async for fetched in fetch_range(admin.cluster, FRAGILE, offset, end, settings, PATIENCE_MS):
                for at, value in zip(fetched.columns.offsets.tolist(), fetched.columns.values(), strict=True):
                    read[at] = (value or b"").decode(errors="replace")
                    offset = at + 1
            offset = end
        except CorruptRecordError:
            reported_offsets.add(offset)
            offset += 1
    values = {write.value for write in sent}
    found = [
        Anomaly(
            "untold_loss",
            f"{write.value} was acknowledged at offset {write.offset}, where {read.get(write.offset)!r} is",
        )
        for write in sent
        if write.acknowledged and write.offset not in reported_offsets and read.get(write.offset) != write.value
    ]
    return found + [Anomaly("foreign", f"{value!r} at {at}") for at, value in read.items() if value not in values]
