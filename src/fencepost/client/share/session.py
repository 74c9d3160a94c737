"""A share session with one broker: the partitions that the broker knows, and acknowledgements to send.

Pure: builds the next request. Locks end with the session (KIP-932, "Share sessions"), by an error or with its
connection. The broker then gives the records to other members, so later acknowledgements of these records fail in the
client. The epoch of a share session counts its requests; 0 begins the session, -1 ends it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple
from uuid import UUID

from fencepost.client.types import AcknowledgeType
from fencepost.errors import KafkaError
from fencepost.protocol.logs.consumer_group_log import TopicIdPartition
from fencepost.protocol.messages import share_acknowledge, share_fetch

INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
LAST_EPOCH: Final = 2**31 - 1
GAP: Final = 0  # the broker returned no record for the offset: compacted away, or a marker


class Run(NamedTuple):
    """Consecutive offsets and their acknowledgements: one type for all, or one for each."""

    first_offset: int
    last_offset: int
    types: list[int]


Acknowledgements = dict[int, int]
"""Acknowledgements of a partition's records: an AcknowledgeType or GAP by offset."""


def runs(acknowledgements: Acknowledgements) -> list[Run]:
    """Return the acknowledgements as in requests: in order, in as few runs as possible."""
    found: list[Run] = []
    for offset in sorted(acknowledgements):
        if found and found[-1].last_offset == offset - 1:
            found[-1].types.append(acknowledgements[offset])
            found[-1] = found[-1]._replace(last_offset=offset)
        else:
            found.append(Run(offset, offset, [acknowledgements[offset]]))
    return [run._replace(types=run.types[:1]) if len(set(run.types)) == 1 else run for run in found]


class ShareReadSession:
    """One session, from its first request to its end. `ended` is the reason of its end, or None."""

    def __init__(self, node: int) -> None:
        self.node = node
        self.ended: KafkaError | None = None
        self.unsent: dict[TopicIdPartition, Acknowledgements] = {}
        self._epoch = INITIAL_EPOCH
        self._partitions: set[TopicIdPartition] = set()

    @property
    def begun(self) -> bool:
        """Return true if the broker knows the session."""
        return self._epoch != INITIAL_EPOCH

    @property
    def is_empty(self) -> bool:
        """Return true if the session has no partitions."""
        return not self._partitions

    @property
    def renews(self) -> bool:
        """Return true if a lock must be renewed. A fetch cannot do that (KIP-1222)."""
        return any(AcknowledgeType.RENEW in acknowledgements.values() for acknowledgements in self.unsent.values())

    def add_acknowledgement(self, partition: TopicIdPartition, offset: int, kind: int) -> None:
        """Store an acknowledgement for the next request."""
        self.unsent.setdefault(partition, {})[offset] = kind

    def take(self) -> dict[TopicIdPartition, Acknowledgements]:
        """Remove and return the acknowledgements, to send them or to report that they cannot be sent."""
        acknowledgements, self.unsent = self.unsent, {}
        return acknowledgements

    def fetch(
        self,
        group_id: str,
        member_id: str,
        wanted: Iterable[TopicIdPartition],
        acknowledgements: Mapping[TopicIdPartition, Acknowledgements],
    ) -> share_fetch.ShareFetchRequest:
        """Return the next ShareFetch without sizes and times."""
        now = set(wanted)
        new, gone = sorted(now - self._partitions), sorted(self._partitions - now)
        self._partitions = now
        topics: dict[UUID, list[share_fetch.FetchPartition]] = defaultdict(list)
        for partition in sorted({*new, *acknowledgements}):
            batches = [
                share_fetch.AcknowledgementBatch(first_offset=run[0], last_offset=run[1], acknowledge_types=run[2])
                for run in runs(acknowledgements.get(partition, {}))
            ]
            topics[partition.topic_id].append(
                share_fetch.FetchPartition(partition_index=partition.partition, acknowledgement_batches=batches)
            )
        forgotten: dict[UUID, list[int]] = defaultdict(list)
        for partition in gone:
            forgotten[partition.topic_id].append(partition.partition)
        return share_fetch.ShareFetchRequest(
            group_id=group_id,
            member_id=member_id,
            share_session_epoch=self._epoch,
            topics=[share_fetch.FetchTopic(topic_id=topic_id, partitions=parts) for topic_id, parts in topics.items()],
            forgotten_topics_data=[
                share_fetch.ForgottenTopic(topic_id=topic_id, partitions=parts) for topic_id, parts in forgotten.items()
            ],
        )

    def acknowledge(
        self,
        group_id: str,
        member_id: str,
        acknowledgements: Mapping[TopicIdPartition, Acknowledgements],
        *,
        last: bool = False,
    ) -> share_acknowledge.ShareAcknowledgeRequest:
        """Return the next ShareAcknowledge. With `last` it ends the session."""
        topics: dict[UUID, list[share_acknowledge.AcknowledgePartition]] = defaultdict(list)
        for partition in sorted(acknowledgements):
            batches = [
                share_acknowledge.AcknowledgementBatch(
                    first_offset=run[0], last_offset=run[1], acknowledge_types=run[2]
                )
                for run in runs(acknowledgements[partition])
            ]
            topics[partition.topic_id].append(
                share_acknowledge.AcknowledgePartition(
                    partition_index=partition.partition, acknowledgement_batches=batches
                )
            )
        return share_acknowledge.ShareAcknowledgeRequest(
            group_id=group_id,
            member_id=member_id,
            share_session_epoch=FINAL_EPOCH if last else self._epoch,
            is_renew_ack=any(AcknowledgeType.RENEW in each.values() for each in acknowledgements.values()),
            topics=[
                share_acknowledge.AcknowledgeTopic(topic_id=topic_id, partitions=parts)
                for topic_id, parts in topics.items()
            ],
        )

    def answered(self) -> None:
        """Advance the epoch after a successful response."""
        self._epoch = 1 if self._epoch == LAST_EPOCH else self._epoch + 1
