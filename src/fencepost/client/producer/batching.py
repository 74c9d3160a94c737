"""Makes batches from chunks: chooses partitions for all records of a chunk, then encodes each partition's records."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from operator import index
from typing import Final, cast

from fencepost.client.calling import SlowCalls
from fencepost.client.producer.chunks import Batch, Chunk, PartitionChoice
from fencepost.client.producer.partitioner import UNDECIDED, Sticky, by_key, split
from fencepost.config import ProducerConfig
from fencepost.errors import KafkaError, RecordRejectedError
from fencepost.protocol.records.batch import parse_header
from fencepost.protocol.records.encoding import encode_batch, encode_rows

Partitioner = Callable[[str, bytes | None, bytes | None, int], int | None]

REFUSED: Final = -2


class BatchLimits:
    """The largest encoded batch of each topic in bytes, as learned from refusals.

    Reading a topic's `max.message.bytes` requires a permission. Therefore the limit follows from refused batches.
    Kafka's own producer does the same: it corrects its estimate of a topic's compression when it splits a batch
    (KIP-126).
    """

    def __init__(self) -> None:
        self._most: dict[str, int] = {}

    def refused(self, batch: Batch) -> None:
        """Record a batch that was too large. The limit becomes half of its size."""
        self._most[batch.topic] = min(len(batch.data) // 2, self._most.get(batch.topic, len(batch.data)))

    def parts(self, batch: Batch) -> int:
        """Return the number of parts into which to cut a batch before it is sent. A single record cannot be cut."""
        most = self._most.get(batch.topic)
        return 1 if most is None else min(-(-len(batch.data) // most), batch.count)


class Router:
    """Makes a chunk's batches. Pure, except for the random choice of sticky partitions and the updates of `limits`."""

    def __init__(self, config: ProducerConfig, sticky: Sticky, limits: BatchLimits, slow: SlowCalls) -> None:
        self._config = config
        self._key_choice = by_key(config.partitioner, ignore_keys=config.partitioner_ignore_keys)
        self._sticky = sticky
        self._limits = limits
        self._slow = slow

    def needs_partitioner(self, chunk: Chunk, partitions: int) -> bool:
        """Return true if `ask` must come before `route`, because the application's partitioner has not chosen yet."""
        if not callable(self._config.partitioner) or chunk.table is not None:
            return False
        return chunk.choice is None or chunk.choice.partitions != partitions

    @staticmethod
    def highest_partition(chunk: Chunk) -> int:
        """Return the highest partition number that a record of the chunk requests; UNDECIDED if none does."""
        if chunk.table is None:
            return max(chunk.partitions.values(), default=UNDECIDED) if chunk.partitions else UNDECIDED
        from fencepost.client.producer.arrow_input import highest_partition

        return highest_partition(chunk.table)

    def route(self, chunk: Chunk, partitions: int, available: Sequence[int], deadline_ms: int) -> None:
        """Fill `chunk.batches`. `available` are the partitions with a leader (all partitions if none has a leader).

        A record whose partition does not exist gets a batch of its own with an `error`. If the chunk cannot be encoded,
        `chunk.error` is set instead.
        """
        try:
            if chunk.table is not None:
                self._route_table(chunk, partitions, available, deadline_ms)
            else:
                self._route_lists(chunk, partitions, available, deadline_ms)
        except KafkaError as error:
            chunk.error = error
        except (ValueError, TypeError, OverflowError) as error:
            rejected = RecordRejectedError(f"records for {chunk.topic!r} cannot be encoded: {error}")
            rejected.__cause__ = error
            chunk.error = rejected
        if chunk.error is not None:
            chunk.batches = []
            chunk.left = 0
        else:
            chunk.batches = [part for batch in chunk.batches for part in self._fitting(batch)]
            chunk.index_batches()
        chunk.release()

    def _route_lists(self, chunk: Chunk, partitions: int, available: Sequence[int], deadline_ms: int) -> None:
        refused: dict[int, KafkaError] = {}
        requested = chunk.partitions
        if callable(self._config.partitioner):
            if self.needs_partitioner(chunk, partitions):
                self.ask(chunk, partitions)
            if chunk.choice is not None:
                requested, refused = chunk.choice.chosen, dict(chunk.choice.refused)
        chosen = self._choose(chunk, partitions, available, requested, refused)
        if isinstance(chosen, int):
            data = self._encode(chunk, None)
            chunk.batches = [Batch(chunk, chunk.topic, chosen, data, chunk.count, None, deadline_ms)]
            return
        rows_of = split(chosen)
        rows_of.pop(REFUSED, None)
        batches = [_refusal(chunk, row, error, deadline_ms) for row, error in refused.items()]
        for partition, indexes in sorted(rows_of.items()):
            whole = len(indexes) == chunk.count
            data = self._encode(chunk, None if whole else indexes)
            batches.append(
                Batch(chunk, chunk.topic, partition, data, len(indexes), None if whole else indexes, deadline_ms)
            )
        chunk.batches = batches

    def _choose(
        self,
        chunk: Chunk,
        partitions: int,
        available: Sequence[int],
        requested: Mapping[int, int] | None,
        refused: dict[int, KafkaError],
    ) -> int | list[int]:
        """Return one partition for all records, or a list with each record's.

        Holes and records in `refused` get REFUSED.
        """
        native, choice = chunk.native, self._key_choice
        is_simple = not refused and requested is None
        if is_simple and native is not None and (choice is None or choice.is_native):
            if choice is None or not native.has_keys:
                return self._sticky.choose(chunk.topic, chunk.bytes, available)
            return 0 if partitions == 1 else self._decided(chunk, native.partitions(partitions), available)
        keys = self._keys(chunk)
        if not refused and requested is None and not chunk.holes:
            if keys is None:
                return self._sticky.choose(chunk.topic, chunk.bytes, available)
            if partitions == 1:
                return 0
            if None not in keys:
                return self._decided(chunk, self._by_key(cast(list[bytes], keys), partitions), available)
        chosen = [UNDECIDED] * chunk.count
        for row, partition in (requested or {}).items():
            if 0 <= partition < partitions:
                chosen[row] = partition
            else:
                refused[row] = RecordRejectedError(f"partition {partition} of {chunk.topic!r}, which has {partitions}")
        for row in (*refused, *chunk.holes):
            chosen[row] = REFUSED
        if keys is not None:
            rows = [row for row, key in enumerate(keys) if key is not None and chosen[row] == UNDECIDED]
            named = self._by_key([key for row in rows if (key := keys[row]) is not None], partitions)
            for row, partition in zip(rows, named, strict=True):
                chosen[row] = partition
        return self._decided(chunk, chosen, available)

    def _decided(self, chunk: Chunk, chosen: list[int], available: Sequence[int]) -> list[int]:
        if UNDECIDED not in chosen:
            return chosen
        sticky = self._sticky.choose(chunk.topic, chunk.bytes, available)
        return [sticky if partition == UNDECIDED else partition for partition in chosen]

    def _keys(self, chunk: Chunk) -> list[bytes | None] | None:
        """Return the keys that determine partitions, or None."""
        if self._key_choice is None:
            return None
        keys = chunk.keys
        if chunk.native is not None and chunk.native.has_keys:
            keys = chunk.native.keys()
        if self._key_choice.hashes_none:
            return [key or b"" for key in keys] if keys else [b""] * chunk.count
        return keys or None

    def _by_key(self, keys: Sequence[bytes], partitions: int) -> list[int]:
        return [UNDECIDED] * len(keys) if self._key_choice is None else self._key_choice.partitions(keys, partitions)

    def ask(self, chunk: Chunk, partitions: int) -> None:
        """Set `chunk.choice`: call the application's partitioner for records without a requested partition."""
        partitioner, slow = cast(Partitioner, self._config.partitioner), self._slow
        chosen, refused = dict(chunk.partitions or {}), dict[int, KafkaError]()
        begun_ms = slow.now_ms()
        for row, value in enumerate(chunk.values):
            if row in chosen or row in chunk.holes:
                continue
            slow.running = ("partitioner", partitioner, begun_ms)
            try:
                key = chunk.keys[row] if chunk.keys else None
                partition = partitioner(chunk.topic, key, value, partitions)
                if partition is not None:
                    chosen[row] = index(partition)
            except BaseException as error:  # noqa: BLE001 (it becomes the record's result)
                rejected = RecordRejectedError(f"the partitioner failed on a record for {chunk.topic!r}: {error!r}")
                rejected.__cause__ = error
                refused[row] = rejected
            now_ms = slow.now_ms()
            slow.record_call("partitioner", partitioner, now_ms - begun_ms)
            begun_ms = now_ms
        slow.running = None
        chunk.choice = PartitionChoice(partitions, chosen or None, refused)

    def _encode(self, chunk: Chunk, rows: list[int] | None) -> bytearray:
        """Encode a batch of these rows (None: all) without producer id and checksum, which the sender adds."""
        timestamps: int | Sequence[int] = chunk.timestamp_ms
        wanted = range(chunk.count) if rows is None else rows
        if chunk.timestamps is not None:
            timestamps = [chunk.timestamps.get(row, chunk.timestamp_ms) for row in wanted]
        headers = None
        if chunk.headers is not None:
            headers = [chunk.headers.get(row) for row in wanted]
        compression, level = self._config.compression_type, self._config.compression_level
        if chunk.native is not None:
            return encode_rows(chunk.native, rows, len(wanted), timestamps, headers, compression, level, sealed=False)
        keys: Sequence[bytes | None] | None = chunk.keys or None
        values: Sequence[bytes | None] = chunk.values
        if rows is not None:
            values = [values[row] for row in rows]
            keys = [keys[row] for row in rows] if keys is not None else None
        return encode_batch(
            keys=keys,
            values=values,
            timestamps=timestamps,
            headers=headers,
            compression=compression,
            level=level,
            sealed=False,
        )

    def _route_table(self, chunk: Chunk, partitions: int, available: Sequence[int], deadline_ms: int) -> None:
        from fencepost.client.producer.arrow_input import Target, encode_table

        target = Target(chunk.topic, partitions, available, chunk.timestamp_ms)
        chunk.batches = [
            Batch(chunk, chunk.topic, partition, data, parse_header(data).record_count, None, deadline_ms)
            for partition, data in encode_table(chunk.table, target, self._sticky, self._config)
        ]

    def split(self, batch: Batch) -> list[Batch]:
        """Halve a batch that the broker finds too large. The halves take its place in order."""
        self._limits.refused(batch)
        halves = self._cut(batch, 2)
        for half in halves:
            half.attempts = 1  # so that they are sent one at a time
        return halves

    def _fitting(self, batch: Batch) -> list[Batch]:
        """Return the batch, cut into as many parts as the topic's limit requires."""
        parts = 1 if batch.error is not None else self._limits.parts(batch)
        return [batch] if parts == 1 else self._cut(batch, parts)

    def _cut(self, batch: Batch, parts: int) -> list[Batch]:
        from fencepost.protocol.records.decoding import decode_batches

        # The checksum is added when the batch is sent.
        columns = decode_batches(batch.data, skip_control=False, check_crc=False)
        rows = list(range(batch.count)) if batch.rows is None else batch.rows
        cuts = [batch.count * part // parts for part in range(parts + 1)]
        return [
            Batch(
                batch.chunk,
                batch.topic,
                batch.partition,
                encode_batch(
                    columns.select(slice(start, stop)),
                    compression=self._config.compression_type,
                    level=self._config.compression_level,
                    sealed=False,
                ),
                stop - start,
                rows[start:stop],
                batch.deadline_ms,
            )
            for start, stop in pairwise(cuts)
        ]


def _refusal(chunk: Chunk, row: int, error: KafkaError, deadline_ms: int) -> Batch:
    """Return a placeholder batch with one refused record. It is not sent."""
    batch = Batch(chunk, chunk.topic, UNDECIDED, bytearray(), 1, [row], deadline_ms)
    batch.error = error
    return batch
