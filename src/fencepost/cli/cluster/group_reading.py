"""Read a topic as a member of a group, and commit only what has been written."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from fencepost.cli.cluster.unread import UnreadPartitions
from fencepost.cli.cluster_settings import PATIENCE_MS
from fencepost.client.blocking import Consumer
from fencepost.client.records import Fetched
from fencepost.client.types import OffsetAndMetadata, RebalanceListener, TopicPartition
from fencepost.errors import KafkaTimeoutError

__all__ = ["POLL_MS", "ReadingMember"]

POLL_MS: Final = 1000
LOOK_MS: Final = 100  # short, so that reaching the end is noticed soon
QUIET_S: Final = int(PATIENCE_MS) // 1000


class ReadingMember(RebalanceListener):
    """A group member that delivers at least once: after a crash between writing and committing, records repeat."""

    def __init__(self, consumer: Consumer, topic: str, unread: UnreadPartitions) -> None:
        """Subscribe to the topic. Partitions that are not read to the end are added to `unread`."""
        self._consumer = consumer
        self._unread = unread
        self._has_joined = False
        self._taken: Mapping[TopicPartition, OffsetAndMetadata] = {}
        consumer.subscribe([topic], self)

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self._has_joined = True

    def read(self, *, follow: bool, most: int | None, commits: bool) -> Iterator[Fetched]:
        """Yield records up to the end of the assigned partitions, or `most` records; with `follow` forever.

        When the caller requests the next piece, it has written the pieces before. With `commits`, their offsets are
        then committed; otherwise the caller calls `commit`. Without `follow` the reading ends when nothing has come for
        QUIET_S, as when a leader does not answer.
        """
        left, read_at = most, time.monotonic()
        while left is None or left > 0:
            for piece in self._consumer.poll_columns(POLL_MS if follow else LOOK_MS, left):
                left = None if left is None else left - len(piece.columns)
                yield piece
                read_at = time.monotonic()
            positions = self._consumer.positions()
            if positions != self._taken:
                self._taken = positions
                if commits:
                    self.commit()
            if follow or not self._has_joined:
                read_at = time.monotonic()
                continue
            # None: the end is not known yet.
            behind = [partition for partition in self._consumer.assignment() if self._consumer.lag(partition) != 0]
            if not behind:
                return
            if time.monotonic() - read_at > QUIET_S:
                reason = KafkaTimeoutError(f"its end was not reached: no records in {QUIET_S} s")
                self._unread.add(dict.fromkeys(behind, reason))
                return

    def commit(self) -> None:
        """Commit the positions of the partitions that are still assigned to this member. Raises KafkaError."""
        assigned = set(self._consumer.assignment())
        self._consumer.commit({partition: at for partition, at in self._taken.items() if partition in assigned})
