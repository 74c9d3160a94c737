"""Decision records on a compacted topic. A claim writes them; the next Open reads them.

All records of a sink are in one partition, `partition_of(sink)`, which is one of the first PARTITIONS. The topic may
have more partitions, but not fewer. Sinks that share a partition wait for each other's open decisions, which are short.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

from fencepost.client.admin.topics import TopicDescription
from fencepost.client.net.list_offsets import EARLIEST, LATEST
from fencepost.client.types import TopicPartition
from fencepost.counted import counted_noun
from fencepost.errors import AuthorizationError, ConfigurationError, error_for
from fencepost.protocol.crc import crc32c
from fencepost.protocol.errors import WireError
from fencepost.protocol.records.batch import set_producer
from fencepost.protocol.records.encoding import encode_pairs
from fencepost.protocol.records.walk import pairs_of
from fencepost.spark.cluster_calls import ClusterCalls
from fencepost.spark.errors import CorruptDecisionError
from fencepost.spark.sink import names, wire
from fencepost.spark.sink.decision import (
    Beginning,
    Decision,
    Pair,
    decode_beginning,
    decode_beginning_key,
    decode_key,
    decode_value,
    encode_beginning,
    encode_key,
    encode_value,
)

__all__ = ["DEFAULT_TOPIC", "PARTITIONS", "DecisionStore", "KnownQuery", "partition_of"]

DEFAULT_TOPIC: Final = "__fencepost_decisions"
PARTITIONS: Final = 16
TOPIC_CONFIGS: Final = {
    "cleanup.policy": "compact",
    "segment.bytes": "16777216",
    "min.cleanable.dirty.ratio": "0.1",
    "message.timestamp.type": "LogAppendTime",  # so that no broker refuses a record because of the writer's clock
}
# The timestamp of decisions. Nothing reads it, and a topic with CreateTime would refuse the time of a fast clock.
NO_TIME_MS: Final = -1

BATCH_BYTES_MOST: Final = 1_000_000  # Kafka's default max.message.bytes is 1,048,588
RECORD_OVERHEAD: Final = 100
MIN_IN_SYNC: Final = "min.insync.replicas"
CLEANUP: Final = "cleanup.policy"

log = logging.getLogger("fencepost.spark")

_Record: TypeAlias = tuple[bytes, bytes | None]


def partition_of(sink: str) -> int:
    """Return the partition of the sink's records. Never change this, or an Open would not find older decisions."""
    return crc32c(sink.encode()) % PARTITIONS


class _Safety(NamedTuple):
    """The topic's settings that protect its records; None: unknown."""

    replicas: int | None = None
    in_sync: int | None = None
    cleanup: str | None = None


@dataclass(slots=True)
class _ReadRecords:
    """The records read so far. Committed records do not change, so the next read continues at `position`."""

    topic_id: UUID | None
    position: int = 0
    last: dict[tuple[str, str], bytes] = field(default_factory=dict)
    decided_with: dict[str, Pair] = field(default_factory=dict)  # the pair of each sink's last record
    # The beginning of each query that the topic knows, in the order of their newest records. None: the topic has a
    # decision of the query but no beginning.
    begun: dict[tuple[str, str], bytes | None] = field(default_factory=dict)


class KnownQuery(NamedTuple):
    """A query of a sink in the topic: its beginning and its last decided batch."""

    query_id: str
    beginning: Beginning | None
    batch_id: int | None

    @property
    def about(self) -> dict[str, str]:
        """The output topic, checkpoint, host and name of the query, if the beginning has them."""
        return {} if self.beginning is None else dict(self.beginning.about)


class DecisionStore:
    """The decision topic of one cluster."""

    def __init__(self, admin: ClusterCalls, topic: str = DEFAULT_TOPIC, output: str | None = None) -> None:
        """Make a store. `output` is the topic of the decided rows, whose replication the decision topic should have."""
        self._admin = admin
        self._cluster = admin.cluster
        self._topic = topic
        self._output = output
        self._is_checked = False
        self._read_so_far: dict[int, _ReadRecords] = {}

    async def ensure_topic(self, deadline_ms: int) -> None:
        """Create the topic if it does not exist, replicated like the output, and check it once.

        Raises ConfigurationError if it has too few partitions, or deletes old records. Warns if it has fewer replicas
        than the output.
        """
        left = max(deadline_ms - self._cluster.runtime.now_ms(), 1)
        known = (await self._admin.describe_topics([self._topic], api_timeout_ms=left)).get(self._topic)
        if known is None:
            wanted = await self._safety(self._output, left)
            configs = dict(TOPIC_CONFIGS)
            if wanted.in_sync is not None:
                configs[MIN_IN_SYNC] = str(wanted.in_sync)
            await self._admin.create_topic(
                self._topic, PARTITIONS, wanted.replicas or -1, configs=configs, exist_ok=True, api_timeout_ms=left
            )
            known = (await self._admin.describe_topics([self._topic], api_timeout_ms=left)).get(self._topic)
        self._check_partitions(known)
        if not self._is_checked:
            self._check(await self._safety(self._topic, left), await self._safety(self._output, left))
            self._is_checked = True

    def _check_partitions(self, known: TopicDescription | None) -> None:
        found = 0 if known is None else len(known.partitions)
        if found < PARTITIONS:
            raise ConfigurationError(
                f"topic {self._topic!r} has {counted_noun(found, 'partition')}; the sink needs {PARTITIONS}"
            )

    async def _safety(self, topic: str | None, timeout_ms: int) -> _Safety:
        """Return those of a topic's settings that the client is allowed to read."""
        if topic is None:
            return _Safety()
        found = (await self._admin.describe_topics([topic], api_timeout_ms=timeout_ms)).get(topic)
        if found is None:
            return _Safety()
        replicas = min((len(partition.replicas) for partition in found.partitions.values()), default=0) or None
        try:
            settings = await self._admin.describe_configs(topic, api_timeout_ms=timeout_ms)
        except AuthorizationError as error:
            log.info("topic %r: its settings cannot be read: %s", topic, error)
            return _Safety(replicas)
        in_sync = settings.get(MIN_IN_SYNC)
        return _Safety(replicas, int(in_sync) if in_sync else None, settings.get(CLEANUP))

    def _check(self, own: _Safety, output: _Safety) -> None:
        if own.cleanup is not None and own.cleanup != "compact":
            raise ConfigurationError(
                f"topic {self._topic!r} has {CLEANUP}={own.cleanup}; set it to compact: a deleted decision leaves its "
                "batch half written, or writes it twice"
            )
        weaker = [
            f"{name} {ours} and not {theirs}"
            for name, ours, theirs in (
                ("replication factor", own.replicas, output.replicas),
                (MIN_IN_SYNC, own.in_sync, output.in_sync),
            )
            if ours is not None and theirs is not None and ours < theirs
        ]
        if weaker:
            log.warning(
                "topic %r is replicated less than topic %r, whose batches it decides: %s",
                self._topic,
                self._output,
                ", ".join(weaker),
            )

    async def is_there(self, deadline_ms: int) -> bool:
        """Return true if the topic exists. The call does not create it.

        Raises ConfigurationError if the topic has too few partitions.
        """
        left = max(deadline_ms - self._cluster.runtime.now_ms(), 1)
        known = (await self._admin.describe_topics([self._topic], api_timeout_ms=left)).get(self._topic)
        if known is not None:
            self._check_partitions(known)
        return known is not None

    async def read(self, sink: str, deadline_ms: int) -> tuple[Decision, ...]:
        """Return the last decision of every query of the sink, up to the present end offset.

        Raises CorruptDecisionError, CorruptRecordError, and KafkaTimeoutError, for example because an open transaction
        of another sink holds the last stable offset back.
        """
        await self.ensure_topic(deadline_ms)
        read_records = await self._catch_up(partition_of(sink), deadline_ms)
        # Decoded only here: a newer release of another sink may write another version.
        return tuple(decode_value(value) for (owner, _), value in sorted(read_records.last.items()) if owner == sink)

    async def queries(self, sink: str, deadline_ms: int) -> tuple[KnownQuery, ...]:
        """Return the sink's queries, those with the newest records last. Does not create the topic; raises as `read`.

        A query whose decision was forgotten is included.
        """
        if not await self.is_there(deadline_ms):
            return ()
        read_records = await self._catch_up(partition_of(sink), deadline_ms)
        return tuple(
            KnownQuery(
                query_id,
                None if value is None else decode_beginning(sink, query_id, value),
                decode_value(read_records.last[sink, query_id]).batch_id
                if (sink, query_id) in read_records.last
                else None,
            )
            for (owner, query_id), value in read_records.begun.items()
            if owner == sink
        )

    def knows(self, sink: str, query_id: str) -> bool:
        """Return true if the last read found the query, and it was not released."""
        read_records = self._read_so_far.get(partition_of(sink))
        if read_records is None or (sink, query_id) not in read_records.begun:
            return False
        value = read_records.begun[sink, query_id]
        return value is None or not decode_beginning(sink, query_id, value).is_released

    async def begin(self, beginning: Beginning, deadline_ms: int) -> None:
        """Write the query's beginning, so that `queries` returns it in every process. Raises KafkaError."""
        await self.ensure_topic(deadline_ms)
        partition = partition_of(beginning.sink)
        batch = encode_pairs([encode_beginning(beginning)], NO_TIME_MS)
        code = await wire.produce_batch(self._cluster, None, self._topic, partition, batch, deadline_ms)
        if code != 0:
            raise error_for(code, f"write to {self._topic}-{partition} that sink {beginning.sink!r} has a new query")

    async def has_decided(self, sink: str, claim: Pair, deadline_ms: int) -> bool:
        """Return true if the sink's last record, below the present end offset, came with this claim."""
        await self.ensure_topic(deadline_ms)
        return (await self._catch_up(partition_of(sink), deadline_ms)).decided_with.get(sink) == claim

    async def read_query(self, query_id: str, deadline_ms: int) -> tuple[Decision, ...]:
        """Return the last decision of this query in every sink. Reads the whole topic; raises as `read`."""
        await self.ensure_topic(deadline_ms)
        found: list[bytes] = []
        for partition in range(PARTITIONS):
            read_records = await self._catch_up(partition, deadline_ms)
            found += [value for (_, query), value in sorted(read_records.last.items()) if query == query_id]
        return tuple(map(decode_value, found))

    async def sinks(self, deadline_ms: int) -> list[str]:
        """Return the sinks that have decided a batch or whose queries have begun.

        Reads the whole topic, which must exist.
        """
        found: set[str] = set()
        for partition in range(PARTITIONS):
            read_records = await self._catch_up(partition, deadline_ms)
            found.update(sink for sink, _ in (*read_records.last, *read_records.begun))
        return sorted(found)

    async def _catch_up(self, partition: int, deadline_ms: int) -> _ReadRecords:
        """Read a partition up to its present end."""
        topic_partition = TopicPartition(self._topic, partition)
        left = max(deadline_ms - self._cluster.runtime.now_ms(), 1)
        # Up to the end of the log, not the last stable offset: a decision without its marker must be waited for.
        end = (await self._admin.list_offsets({topic_partition: LATEST}, api_timeout_ms=left))[topic_partition].offset
        topic_id = (await self._cluster.topic(self._topic, deadline_ms)).topic_id
        read_records = self._read_so_far.get(partition)
        if read_records is None or read_records.topic_id != topic_id or read_records.position > end:
            read_records = _ReadRecords(topic_id, await self._beginning(topic_partition, left))
        batches = wire.batches(self._cluster, self._topic, partition, read_records.position, end, deadline_ms)
        async for header, batch in batches:
            try:
                records = list(pairs_of(header, batch))
            except WireError as error:
                where = f"{self._topic}-{partition} at offset {header.base_offset}"
                raise CorruptDecisionError(f"{where}: the records cannot be read: {error}") from error
            for _, key, value in records:
                owner = _take(read_records, key, value)
                if owner is not None:
                    read_records.decided_with[owner] = Pair(header.producer_id, header.producer_epoch)
            read_records.position = header.last_offset + 1
        read_records.position = max(read_records.position, end)
        self._read_so_far[partition] = read_records
        return read_records

    async def _beginning(self, partition: TopicPartition, timeout_ms: int) -> int:
        return (await self._admin.list_offsets({partition: EARLIEST}, api_timeout_ms=timeout_ms))[partition].offset

    async def write(
        self,
        claim: Pair,
        decision: Decision,
        deadline_ms: int,
        others: Sequence[Decision] = (),
        *,
        verified: bool = False,
    ) -> int:
        """Produce the record in a transaction on the sink's own id with the claim.

        Returns 0, or the error code of the refusal. The batch also carries as many of `others`, decisions of the same
        sink, as fit. It is the claim's first batch, with sequence 0. `verified` as for `produce_batch`. Raises
        KafkaTimeoutError, UnsupportedVersionError.
        """
        records: list[_Record] = [_record(decision)]
        size = len(records[0][1] or b"")
        for record in map(_record, others):
            size += len(record[0]) + len(record[1] or b"") + RECORD_OVERHEAD
            if size > BATCH_BYTES_MOST:
                break  # the next decision writes the rest
            records.append(record)
        return await self._produce(claim, decision.sink, records, deadline_ms, verified)

    async def forget(self, claim: Pair, sink: str, query_id: str, deadline_ms: int, *, verified: bool = False) -> int:
        """Write the tombstone of the query's decision, and the query's beginning, so that the query stays known.

        Returns and raises as `write`.
        """
        read_records = self._read_so_far.get(partition_of(sink))
        known = None if read_records is None else read_records.begun.get((sink, query_id))
        key, value = encode_beginning(Beginning(sink, query_id, 0))
        records: list[_Record] = [(encode_key(sink, query_id), None), (key, known or value)]
        return await self._produce(claim, sink, records, deadline_ms, verified)

    async def _produce(self, claim: Pair, sink: str, records: list[_Record], deadline_ms: int, verified: bool) -> int:
        batch = encode_pairs(records, NO_TIME_MS)
        set_producer(batch, claim.producer_id, claim.epoch, 0, transactional=True)
        owner, partition = names.sink_id(sink), partition_of(sink)
        return await wire.produce_batch(
            self._cluster, owner, self._topic, partition, batch, deadline_ms, verified=verified
        )


def _record(decision: Decision) -> _Record:
    return encode_key(decision.sink, decision.query_id), encode_value(decision)


def _take(read_records: _ReadRecords, key: bytes, value: bytes | None) -> str | None:
    """Add a record to `read_records`. Return the sink if it is a decision."""
    begins = decode_beginning_key(key)
    if begins is not None:
        read_records.begun.pop(begins, None)
        read_records.begun[begins] = value
        return None
    owner = decode_key(key)
    if owner is None:
        return None
    beginning = read_records.begun.pop(owner, None)
    if value is None:
        read_records.last.pop(owner, None)  # an operator's tombstone
    else:
        read_records.last[owner] = value
    if value is not None or beginning is not None:
        read_records.begun[owner] = beginning
    return owner[0]
