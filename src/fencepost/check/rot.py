"""What becomes of a topic's files while the broker is down: a bit flips, an older copy is put in their place.

Nobody can give such records back. But they must not be missing in silence: whoever reads at the offset of a record that
was acknowledged gets that record, or an error (CORRUPT_MESSAGE), never another record and never nothing.

Nothing is struck after a loss of power or when the disk refused to note a recovery point, and the power stays until
the damage was met: else the point on the disk may be an older one, and what lies behind it is cut off as a torn tail
would be. Nor is a loss of power's image the older copy: behind what the start after it has cut off, a whole batch may
lie that nobody was told of, at an offset that was given out again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from random import Random
from typing import Final

from fencepost.broker.log.recovery_points import FILE as RECOVERY_POINTS
from fencepost.check.disk import MemoryDisk
from fencepost.check.history import Anomaly, Sent
from fencepost.client.admin.core import AdminCore
from fencepost.client.consumer.fetch_requests import FetchSettings, fetch_range
from fencepost.client.net.list_offsets import LATEST
from fencepost.client.types import Isolation, TopicPartition
from fencepost.errors import CorruptRecordError

__all__ = ["FRAGILE", "Rot", "judge_fragile"]

FRAGILE: Final = TopicPartition("fragile", 0)
"""Of a topic whose files are struck. Only records without a transaction are written to it."""
DIRECTORY: Final = f"{FRAGILE.topic}-{FRAGILE.partition}"
BACKED_UP: Final = 0.3
PATIENCE_MS: Final = 60_000


class Rot:
    """Strikes the files of `FRAGILE`, whose feeders have written down what they sent. The chances are per start of the
    broker; `struck` is told the kind of fault, and where."""

    def __init__(
        self,
        disk: MemoryDisk,
        chance: Random,
        struck: Callable[[str, str], None],
        *,
        flip: float,
        restore: float,
        sent: Callable[[], Iterable[Sent]],
    ) -> None:
        self._disk = disk
        self._chance = chance
        self._struck = struck
        self._flip = flip
        self._restore = restore
        self._sent = sent
        self._acknowledged = 0
        self._acknowledged_at_strike = -1
        self._refused = 0
        self._backup: Mapping[str, bytes] = {}

    def is_met(self) -> bool:
        """Whether the partition was opened since it was struck: a record was acknowledged."""
        return self._acknowledged_at_strike < sum(write.acknowledged for write in self._sent())

    def strike(self, *, killed: bool) -> None:
        """The broker is down, and starts next. `killed`: the power stayed."""
        before, self._acknowledged = self._acknowledged, sum(write.acknowledged for write in self._sent())
        refused, self._refused = self._refused, self._disk.not_overwritten[RECOVERY_POINTS]
        found = self._disk.tree(DIRECTORY)
        if killed and (not self._backup or self._chance.random() < BACKED_UP):
            self._backup = found
        if not killed or self._acknowledged == before or self._refused != refused:  # else the point is of this life
            return
        if self._chance.random() < self._restore:
            self._struck("files damaged", f"{DIRECTORY}: an older copy is put back")
            self._disk.put_tree(DIRECTORY, self._backup)
            self._acknowledged_at_strike = self._acknowledged
        elif self._chance.random() < self._flip:
            paths = sorted(path for path, data in found.items() if data)
            path = self._chance.choice([path for path in paths if path.endswith(".log")] or paths)
            position, bit = self._chance.randrange(len(found[path])), self._chance.randrange(8)
            self._struck("files damaged", f"{path}: bit {bit} of byte {position} of {len(found[path])} flips")
            self._disk.flip_bit(path, position, bit)
            self._acknowledged_at_strike = self._acknowledged


async def judge_fragile(admin: AdminCore, sent: Iterable[Sent]) -> list[Anomaly]:
    """Read every offset of the topic: what is missing and was not told, and what nobody has sent. Raises KafkaError."""
    ends = await admin.list_offsets({FRAGILE: LATEST}, isolation=Isolation.READ_UNCOMMITTED)
    read: dict[int, str] = {}
    told: set[int] = set()
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
            told.add(offset)
            offset += 1
    values = {write.value for write in sent}
    found = [
        Anomaly(
            "untold_loss",
            f"{write.value} was acknowledged at offset {write.offset}, where {read.get(write.offset)!r} is",
        )
        for write in sent
        if write.acknowledged and write.offset not in told and read.get(write.offset) != write.value
    ]
    return found + [Anomaly("foreign", f"{value!r} at {at}") for at, value in read.items() if value not in values]
