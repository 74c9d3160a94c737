"""Decision records on a compacted topic: written by a claim, read by the next Open.

A sink's records are all in one partition, `partition_of(sink)` of the first PARTITIONS; the number is fixed, so the
topic may have more but not fewer. Sinks that share a partition wait for each other's open decisions, which are short.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

import crc32c

from fencepost.broker.internal_records import encode_internal_batch, read_internal_records
from fencepost.client.admin import AdminCore
from fencepost.client.offsets import EARLIEST, LATEST
from fencepost.client.types import TopicPartition
from fencepost.errors import ConfigurationError
from fencepost.protocol.batch import set_producer
from fencepost.spark import names, wire
from fencepost.spark.decision import Decision, Pair, decode_key, decode_value, encode_key, encode_value

__all__ = ["DEFAULT_TOPIC", "PARTITIONS", "DecisionStore", "partition_of"]

DEFAULT_TOPIC: Final = "__fencepost_decisions"
PARTITIONS: Final = 16
TOPIC_CONFIGS: Final = {"cleanup.policy": "compact", "segment.bytes": "16777216", "min.cleanable.dirty.ratio": "0.1"}


def partition_of(sink: str) -> int:
    """Where the sink's records are. Never change this: an Open that reads elsewhere finds nothing decided."""
    return crc32c.crc32c(sink.encode()) % PARTITIONS


@dataclass(slots=True)
class _Seen:
    """What was read so far. Committed records do not change, so the next read goes on from `position`."""

    topic_id: UUID | None
    position: int = 0
    last: dict[tuple[str, str], bytes] = field(default_factory=dict)


class DecisionStore:
    """The decision topic of one cluster."""

    def __init__(self, admin: AdminCore, topic: str = DEFAULT_TOPIC) -> None:
        self._admin = admin
        self._cluster = admin.cluster
        self._topic = topic
        self._seen: dict[int, _Seen] = {}

    async def ensure_topic(self, deadline_ms: int) -> None:
        """Create the topic if it is not there. Raises ConfigurationError when it has too few partitions."""
        left = max(deadline_ms - self._cluster.runtime.now_ms(), 1)
        known = (await self._admin.describe_topics([self._topic], api_timeout_ms=left)).get(self._topic)
        if known is None:
            await self._admin.create_topic(
                self._topic, PARTITIONS, configs=TOPIC_CONFIGS, exist_ok=True, api_timeout_ms=left
            )
            known = (await self._admin.describe_topics([self._topic], api_timeout_ms=left)).get(self._topic)
        if known is None or len(known.partitions) < PARTITIONS:
            found = 0 if known is None else len(known.partitions)
            raise ConfigurationError(f"topic {self._topic!r} has {found} partitions; the sink needs {PARTITIONS}")

    async def read(self, sink: str, deadline_ms: int) -> tuple[Decision, ...]:
        """The last decision of every query of the sink, up to the end offset as it is now.

        Raises CorruptDecisionError, KafkaTimeoutError (an open transaction of another sink holds the end back).
        """
        await self.ensure_topic(deadline_ms)
        partition = partition_of(sink)
        place = TopicPartition(self._topic, partition)
        left = max(deadline_ms - self._cluster.runtime.now_ms(), 1)
        # The end of the log, not the last stable offset: a decision whose marker is on its way has to be waited for.
        end = (await self._admin.list_offsets({place: LATEST}, api_timeout_ms=left))[place].offset
        topic_id = (await self._cluster.topic(self._topic, deadline_ms)).topic_id
        seen = self._seen.get(partition)
        if seen is None or seen.topic_id != topic_id or seen.position > end:
            seen = _Seen(topic_id, await self._beginning(place, left))
        batches = wire.committed_batches(self._cluster, self._topic, partition, seen.position, end, deadline_ms)
        async for header, batch in batches:
            for _, key, value in read_internal_records(header, batch):
                _take(seen.last, key, value)
            seen.position = header.last_offset + 1
        seen.position = max(seen.position, end)
        self._seen[partition] = seen
        # Decoded only here: what another sink's newer release wrote is not ours to understand.
        return tuple(decode_value(value) for (owner, _), value in sorted(seen.last.items()) if owner == sink)

    async def _beginning(self, place: TopicPartition, timeout_ms: int) -> int:
        return (await self._admin.list_offsets({place: EARLIEST}, api_timeout_ms=timeout_ms))[place].offset

    async def write(self, claim: Pair, decision: Decision, deadline_ms: int) -> int:
        """Produce the record in a transaction on S with the claim: 0, or the wire code that refused it.

        The claim's first batch: sequence 0. Raises KafkaTimeoutError.
        """
        record = (encode_key(decision.sink, decision.query_id), encode_value(decision))
        batch = encode_internal_batch([record], self._cluster.runtime.wall_ms())
        set_producer(batch, claim.producer_id, claim.epoch, 0, transactional=True)
        owner = names.sink_id(decision.sink)
        return await wire.produce_batch(
            self._cluster, owner, self._topic, partition_of(decision.sink), batch, deadline_ms
        )


def _take(last: dict[tuple[str, str], bytes], key: bytes, value: bytes | None) -> None:
    owner = decode_key(key)
    if owner is None:
        return
    if value is None:
        last.pop(owner, None)  # an operator's tombstone: the query is over
    else:
        last[owner] = value
