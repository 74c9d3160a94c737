"""All producer states of one partition, with open transactions and fences, and their bound of the stable offset."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from types import MappingProxyType

from fencepost.broker.log.aborted import Aborted
from fencepost.broker.log.producers.idempotence import (
    BatchFacts,
    ProducerRefusal,
    ProducerState,
    RepeatedBatch,
    apply_batch,
    apply_marker,
    check_batch,
    check_marker,
    ended_of,
    has_ended,
    pack_ended,
    shrink,
    unpack_ended,
)
from fencepost.broker.log.producers.snapshot import LogPosition, decode_snapshot, encode_snapshot
from fencepost.protocol.records.batch import BatchHeader
from fencepost.protocol.records.markers import Marker

__all__ = ["ProducerTable"]

_new = tuple.__new__


class ProducerTable:
    """The producer states of a partition. Only the partition's log changes them."""

    __slots__ = ("_ended", "_fences", "_open", "_states", "awaited", "earlier_below", "undurable")

    def __init__(self) -> None:
        self._states: dict[int, ProducerState] = {}
        self._ended: dict[int, bytes] = {}  # packed states with only an epoch left
        self._open: OrderedDict[int, int] = OrderedDict()  # producer id -> first offset, ascending by offset
        self.undurable: list[tuple[int, int]] = []
        """(Offset of the marker, first offset) of the transactions whose marker is not below the high watermark yet."""
        self._fences: dict[int, int] = {}
        self.earlier_below = 0
        """Producer ids below this one were allocated before this topic replaced a deleted one of the same name."""
        self.awaited: dict[int, tuple[int, int]] = {}
        """The (epoch, sequence) that must come first, by producer id; it was refused while there was no topic."""

    def __len__(self) -> int:
        return len(self._states) + len(self._ended)

    def __iter__(self) -> Iterator[ProducerState]:
        return chain(self._states.values(), (ended_of(*item) for item in self._ended.items()))

    def get(self, producer_id: int) -> ProducerState | None:
        state = self._states.get(producer_id)
        if state is None and producer_id in self._ended:
            return ended_of(producer_id, self._ended[producer_id])
        return state

    def draft(self, producer_id: int) -> ProducerState | None:
        """Return a copy of the producer's state, or None if it has none or only an epoch. See `keep`."""
        state = self._states.get(producer_id)
        return None if state is None else state.copy()

    def keep(self, drafts: Mapping[int, ProducerState]) -> None:
        """Replace the states by drafts that were changed for appended batches, none of them transactional."""
        self._states.update(drafts)
        for producer_id in drafts if self.awaited else ():
            self.awaited.pop(producer_id, None)

    def _known(self, producer_id: int, found: ProducerState | None = None) -> ProducerState:
        """Return a state that may be changed. `found`: the result of `get`, if known."""
        state = self._states.get(producer_id)
        if state is None:
            state = self.get(producer_id) if found is None else found
            self._ended.pop(producer_id, None)
            state = self._states[producer_id] = ProducerState(producer_id) if state is None else state
        return state

    def highest_id(self, below: int) -> int:
        """Return the highest producer id below `below` with a state; -1 if there is none."""
        return max((known for known in chain(self._states, self._ended) if known < below), default=-1)

    @property
    def open_transactions(self) -> Mapping[int, int]:
        """First offset by producer id, in ascending order."""
        return MappingProxyType(self._open)

    @property
    def fences(self) -> Mapping[int, int]:
        """Lowest accepted epoch by producer id. A marker removes the entry."""
        return MappingProxyType(self._fences)

    def first_open_offset(self) -> int | None:
        """Return the first offset of the earliest open transaction."""
        return next(iter(self._open.values())) if self._open else None

    def first_unstable_offset(self) -> int | None:
        """Return the first offset of the earliest transaction that is open or whose marker is not durable yet.

        A marker is durable once it is below the high watermark.
        """
        first = self.first_open_offset()
        if not self.undurable:
            return first
        waiting = min(offset for _, offset in self.undurable)
        return waiting if first is None else min(first, waiting)

    def high_watermark_moved(self, high_watermark: int) -> None:
        self.undurable = [marker for marker in self.undurable if marker[0] >= high_watermark]

    def fence(self, producer_id: int, epoch: int) -> None:
        self._fences[producer_id] = max(epoch, self._fences.get(producer_id, -1))

    def is_earlier(self, producer_id: int) -> bool:
        """Return true if the producer may have written to a deleted topic of the same name."""
        return producer_id < self.earlier_below

    def check(
        self, state: ProducerState | None, facts: BatchFacts, *, produce_version: int, kafka_rules: bool
    ) -> RepeatedBatch | ProducerRefusal | None:
        """Check a client's batch. `state` is the result of `get`."""
        return check_batch(
            state,
            facts,
            fenced_below=self._fences.get(facts.producer_id, -1) if self._fences else -1,
            produce_version=produce_version,
            kafka_rules=kafka_rules,
            is_earlier=facts.producer_id < self.earlier_below,
            awaited=self.awaited.get(facts.producer_id) if self.awaited else None,
        )

    def check_marker(
        self, producer_id: int, *, epoch: int, coordinator_epoch: int, transaction_version: int
    ) -> ProducerRefusal | None:
        return check_marker(
            self.get(producer_id),
            epoch=epoch,
            coordinator_epoch=coordinator_epoch,
            transaction_version=transaction_version,
        )

    def note_batch(
        self,
        facts: BatchFacts,
        base_offset: int,
        last_offset: int,
        timestamp_ms: int,
        found: ProducerState | None = None,
    ) -> None:
        """Update the state for an appended batch. `found`: the result of `get`, if known."""
        producer_id = facts.producer_id
        state = self._states.get(producer_id)
        if state is None:
            state = self._known(producer_id, found)
        if self.awaited:
            self.awaited.pop(producer_id, None)
        if apply_batch(state, facts, base_offset=base_offset, last_offset=last_offset, timestamp_ms=timestamp_ms):
            self._open[producer_id] = base_offset

    def note_marker(
        self, producer_id: int, epoch: int, marker: Marker, offset: int, timestamp_ms: int, *, durable: bool
    ) -> Aborted | None:
        """Update the state for a marker at that offset.

        Return the entry for the index of aborted transactions, if any.
        """
        state = self._known(producer_id)
        first_offset = apply_marker(
            state, epoch=epoch, coordinator_epoch=marker.coordinator_epoch, timestamp_ms=timestamp_ms
        )
        self._fences.pop(producer_id, None)
        if has_ended(state):
            packed = pack_ended(state.epoch, state.coordinator_epoch, state.last_timestamp_ms)
            self._ended[producer_id] = packed
            del self._states[producer_id]
        if first_offset < 0:
            return None
        del self._open[producer_id]
        if not durable:
            self.undurable.append((offset, first_offset))
        if marker.commit:
            return None
        first_open = self.first_open_offset()
        return Aborted(producer_id, first_offset, offset, offset + 1 if first_open is None else first_open)

    def end(self, producer_id: int) -> None:
        """End the producer's open transaction, whose marker cannot be read."""
        if self._open.pop(producer_id, None) is not None:
            self._states[producer_id].txn_first_offset = -1

    def replay(self, header: BatchHeader, marker: Marker | None) -> Aborted | None:
        """Replay a batch during recovery, without checks."""
        if header.producer_id < 0:
            return None
        if marker is not None:
            pair = (header.producer_id, header.producer_epoch)
            return self.note_marker(*pair, marker, header.base_offset, header.max_timestamp, durable=True)
        if not header.is_control:
            self.note_batch(facts_of(header), header.base_offset, header.last_offset, header.max_timestamp)
        return None

    def encode(self, log_position: LogPosition) -> bytes:
        """Encode a snapshot taken at that position of the log."""
        return encode_snapshot(self._states.values(), log_position, self._ended)

    def load(self, data: bytes) -> LogPosition | None:
        """Load a snapshot. Return its position, if known. Raises CorruptSnapshot; then nothing has changed."""
        states, self._ended, log_position = decode_snapshot(data)
        self._states = {state.producer_id: state for state in states}
        still_open = sorted((s.txn_first_offset, s.producer_id) for s in states if s.txn_first_offset >= 0)
        self._open = OrderedDict((producer_id, first) for first, producer_id in still_open)
        self.undurable.clear()
        return log_position

    def expire(self, now_ms: int, expiration_ms: int, is_live: Callable[[int], bool], shrunk_max: int) -> None:
        """Shrink states that were idle for `expiration_ms`, except for live transactional ids and open transactions.

        The longest idle shrunk states beyond `shrunk_max` are dropped. States with only an epoch are dropped as in
        Kafka: the coordinator fences older epochs, and decides before any transactional append.
        """
        for producer_id, packed in list(self._ended.items()):
            if now_ms - unpack_ended(packed)[2] >= expiration_ms:
                del self._ended[producer_id]
        shrunk = []
        for state in self._states.values():
            idle = now_ms - state.last_timestamp_ms >= expiration_ms
            if not state.shrunk and idle and state.txn_first_offset < 0 and not is_live(state.producer_id):
                shrink(state)
            if state.shrunk:
                shrunk.append((state.last_timestamp_ms, state.producer_id))
        if len(shrunk) > shrunk_max:
            shrunk.sort()
            for _, producer_id in shrunk[: len(shrunk) - shrunk_max]:
                del self._states[producer_id]


def facts_of(header: BatchHeader) -> BatchFacts:
    pair, sequence = (header.producer_id, header.producer_epoch), header.base_sequence
    return _new(BatchFacts, (*pair, sequence, header.last_sequence, header.is_transactional))
