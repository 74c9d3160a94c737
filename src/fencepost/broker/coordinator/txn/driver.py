"""Driver of the transaction coordinator: it appends records, sets fences, writes markers and holds replies.

The order is the guarantee: the Prepare record is durable before it is answered and before a marker is written; every
marker is durable before the Complete record is appended. A crash between any two of these steps is finished at the next
start, because the missing markers follow from the records alone.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

from fencepost.broker.coordinator.corruption_guard import CorruptionGuard
from fencepost.broker.coordinator.runtime import CoordinatorRuntime
from fencepost.broker.coordinator.txn.coordinator import TransactionCoordinator
from fencepost.broker.coordinator.txn.decide_init import InitRequest
from fencepost.broker.coordinator.txn.ending import AllocateProducerId
from fencepost.broker.coordinator.txn.last_records import LastRecords
from fencepost.broker.coordinator.txn.model import (
    InitReply,
    MarkerWrite,
    ProducerPair,
    Result,
    Transaction,
    TransactionConfig,
    TransactionRecord,
)
from fencepost.broker.coordinator.txn.snapshot_files import TransactionSnapshots
from fencepost.broker.coordinator.txn.states import PREPARED, STATE_NAMES, TxnState
from fencepost.broker.coordinator.txn.transaction_log_messages import note_change
from fencepost.broker.disk.changes import Begin
from fencepost.broker.disk.files import Files
from fencepost.broker.log.producers.idempotence import ProducerState
from fencepost.broker.log.reading import Gap, has_gap
from fencepost.broker.log.results import Rejected
from fencepost.broker.metrics.counters import Metrics
from fencepost.broker.metrics.log_rate_limit import RateLimits
from fencepost.broker.settings.values import BrokerConfig
from fencepost.broker.timing.clock import ClockJumps
from fencepost.broker.timing.deadline_signal import DeadlineSignal
from fencepost.broker.topics.catalogue import TopicCatalogue
from fencepost.broker.topics.durability import Durability
from fencepost.broker.topics.internal import CONSUMER_OFFSETS
from fencepost.broker.topics.topic import Partition
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.records.batch import BatchHeader
from fencepost.protocol.records.walk import pairs_of
from fencepost.topic_partition import TopicPartition

__all__ = ["COORDINATOR_EPOCH", "Transactions"]

COORDINATOR_EPOCH = 0
# As transaction.version: from here on markers carry the epoch after the transaction's (KIP-890).
FIRST_BUMPING_VERSION = 2

OffsetsDecided = Callable[[int, int, bool, int, int], None]
"""(producer id, epoch, whether it was committed, partition, time of the marker)"""

_log = logging.getLogger("fencepost.broker.transactions")


class Transactions:
    """Drives a `TransactionCoordinator` with the broker's logs."""

    def __init__(
        self,
        runtime: CoordinatorRuntime,
        files: Files,
        config: BrokerConfig,
        topics: TopicCatalogue,
        durability: Durability,
        metrics: Metrics,
        doubts: CorruptionGuard,
        *,
        allocate_producer_id: AllocateProducerId,
        clock_jumps: ClockJumps,
        offsets_decided: OffsetsDecided,
        begin: Begin,
        deadline_signal: DeadlineSignal,
    ) -> None:
        """Connect the coordinator with the logs.

        `begin` carries out a change that no request waits for. `offsets_decided` is called when a marker in a partition
        of `__consumer_offsets` is durable.
        """
        self._runtime = runtime
        self._refusals = runtime.refusals("refused_transactional_ids")
        self._config = config
        self._topics = topics
        self._durability = durability
        self._metrics = metrics
        self._doubts = doubts
        self._offsets_decided = offsets_decided
        self.coordinator = TransactionCoordinator(
            _coordinator_config(config), allocate_producer_id, clock_jumps, runtime.index_of, deadline_signal
        )
        self.snapshots = TransactionSnapshots(files, durability, metrics, self.coordinator, begin)
        self.unfinished_ids: list[str] = []
        """Ids whose markers `write_pending_markers` writes, once their answers are being sent."""
        self._under_way: set[MarkerWrite] = set()
        self._refused_markers = RateLimits()
        self._waiting: defaultdict[str, list[Callable[[int], None]]] = defaultdict(list)
        self._requests: defaultdict[str, list[Callable[[int], None]]] = defaultdict(list)
        self._refused: set[str] = set()  # ids whose end the disk has refused so far
        self._idle_owners: dict[int, str] | None = None
        # transactional id of an open transaction, and its partition
        self._unsettled: set[tuple[str, Partition]] = set()

    def init_producer_id(self, now_ms: int, request: InitRequest) -> InitReply:
        """Decide an InitProducerId and carry it out. The caller sends the answer. Raises OSError."""
        result = self.coordinator.init_producer_id(now_ms, request)
        if result.reply.error_code == ErrorCode.POLICY_VIOLATION:
            name, count = request.transactional_id, len(self.coordinator)
            self._refusals.note(now_ms, f"transactional id {name!r}: there are {count} already (max.transactional.ids)")
        self.apply(now_ms, result)
        return result.reply

    def settings_changed(self) -> None:
        """Apply changed settings of the broker."""
        self.coordinator.config = _coordinator_config(self._config)

    def load(self, now_ms: int) -> None:
        """Replay `__transaction_state`, skipping unreadable records. Raises OSError."""
        for partition in self._runtime.stored():
            self._load_partition(partition)
        self.coordinator.loaded(now_ms)
        self._metrics.count("start_records_read", self.snapshots.behind)

    def _load_partition(self, partition: Partition) -> None:
        records = LastRecords()

        def note(header: BatchHeader, batch: memoryview) -> None:
            if header.is_control:
                _log.error("%s: ignoring an unexpected marker at offset %s", partition.directory, header.base_offset)
                return
            for offset, key, value in pairs_of(header, batch):
                records.note(offset, key, value)
            self.snapshots.replayed(partition, header.record_count)

        damaged_end = self._runtime.load(partition, self.snapshots.load(partition), note)
        self.coordinator.used(records.highest_producer_id)
        last_offset: dict[str, int] = {}
        for offset, key, value in records:
            try:
                record = TransactionRecord.from_bytes(key, value)
                self.coordinator.set_aside(record.transactional_id)  # the snapshot's state of the id is older
                self.coordinator.replay(record)
            except Exception as error:  # noqa: BLE001 - whatever the record is, it costs its own id only
                damaged_end = max(damaged_end, offset + 1)
                self._doubts.found(partition, Gap(offset, offset + 1, f"a record of another kind: {error!r}"))
            else:
                last_offset[record.transactional_id] = offset
        if damaged_end >= 0:
            self._set_aside(partition, {name for name, offset in last_offset.items() if offset >= damaged_end})

    def _set_aside(self, partition: Partition, certain: set[str]) -> None:
        """Drop the state of ids whose later records may be damaged.

        Otherwise a transaction could be committed or aborted by guess.
        """
        self._doubts.keep(partition, certain)
        for name in self.coordinator.names():
            if self._doubts.of_transaction(name):
                transaction = self.coordinator.set_aside(name)
                if transaction is not None:
                    _log.error(
                        "transactional id %r: was %s with producer id %s, epoch %s; its later records are damaged",
                        *(name, STATE_NAMES[transaction.state], transaction.producer_id, transaction.producer_epoch),
                    )

    def finish(self, now_ms: int) -> None:
        """Write the markers that are missing since before the start."""
        self._write_markers(now_ms, None)
        self.on_time(now_ms)
        self.snapshots.write_if_due(now_ms)

    def log_opened(self, now_ms: int, partition: Partition) -> None:
        """Settle a log that is read for the first time, in case a power loss left a transaction open."""
        if not partition.topic.internal:
            self.settle(now_ms, partition)

    def settle(self, now_ms: int, partition: Partition) -> None:
        """Make sure that the coordinator knows every open transaction of a log.

        A power loss can leave an unknown one: the batch reached the disk, the record that enlisted the partition did
        not, and the client was never answered. If the batch has the id's present pair, the partition is enlisted again,
        because the client will retry the batch and it is a duplicate. Otherwise no client can continue the transaction,
        and it is aborted. If the disk refuses, this is repeated. Until it succeeds, requests for the id are refused:
        the id's next transaction would adopt this one's records in the log.
        """
        self._unsettled = {unsettled for unsettled in self._unsettled if unsettled[1] is not partition}
        log, name = partition.log, TopicPartition(partition.topic.name, partition.index)
        for producer_id in list(log.producers.open_transactions):
            state = log.producers.get(producer_id)
            owner = self._owner_of(producer_id)
            current = None if owner is None else self.coordinator.transaction(owner)
            if state is None or self._is_open(current, ProducerPair(producer_id, state.epoch), name):
                continue
            try:
                self._settle_producer(now_ms, partition, owner, state)
            except OSError as error:
                _log.error("%s: it will be tried again: %s", partition.directory, error)
                if owner is not None:
                    self._unsettled.add((owner, partition))
                self._runtime.again(now_ms, partial(self._settle_again, partition))

    def _settle_producer(self, now_ms: int, partition: Partition, owner: str | None, state: ProducerState) -> None:
        """Settle the open transaction of one producer. Raises OSError."""
        current = None if owner is None else self.coordinator.transaction(owner)
        if self._may_hide_outcome(partition, owner, state.txn_first_offset):
            _log.error(
                "%s: producer id %s has a transaction open since offset %s, and its outcome is "
                "damaged. It stays open, and readers of committed records wait there: end it with WriteTxnMarkers "
                "(kafka-transactions abort), or run fencepost repair",
                *(partition.directory, state.producer_id, state.txn_first_offset),
            )
        elif (
            current is None
            or owner is None
            or current.client_pair != (state.producer_id, state.epoch)
            or current.is_kept
        ):
            self._abort_orphan(partition, state.producer_id, state.epoch, now_ms)
        elif current.state in PREPARED:
            self.when_idle(now_ms, owner, partial(self._settle_again, partition))
        else:
            _log.warning("%s: enlisting the partition again in the transaction of %r", partition.directory, owner)
            name = TopicPartition(partition.topic.name, partition.index)
            self._carry_out(now_ms, self.coordinator.adopt(now_ms, owner, name))

    def _owner_of(self, producer_id: int) -> str | None:
        """Return the transactional id that owns a producer id. Most often it is an id with an open transaction."""
        for transaction in self.coordinator.awake():
            if producer_id in (transaction.producer_id, transaction.next_producer_id):
                return transaction.transactional_id
        if self._idle_owners is None:
            self._idle_owners = self.coordinator.owners()
        return self._idle_owners.get(producer_id)

    def _may_hide_outcome(self, partition: Partition, owner: str | None, first_offset: int) -> bool:
        """Return true if a damaged record or marker may hold the outcome of a transaction. Raises OSError."""
        return (owner is None and self._doubts.exist) or has_gap(partition.log, first_offset)

    def _settle_again(self, partition: Partition, now_ms: int) -> None:
        if partition.opened is not None:
            self.settle(now_ms, partition)

    @staticmethod
    def _is_open(current: Transaction | None, pair: ProducerPair, name: TopicPartition) -> bool:
        """Return true if the coordinator will end the transaction that `pair` has open in the partition."""
        if current is None or name not in current.partitions:
            return False
        if current.state in PREPARED:
            return pair.producer_id == current.producer_id and pair != current.client_pair
        return current.transaction_pair == pair

    def _abort_orphan(self, partition: Partition, producer_id: int, epoch: int, now_ms: int) -> None:
        """Abort a transaction that no client can continue. Raises OSError."""
        _log.warning("%s: aborting the transaction that producer id %s left open", partition.directory, producer_id)
        log = partition.log
        appended = log.append_marker(producer_id, epoch, False, COORDINATOR_EPOCH, now_ms, transaction_version=0)
        if isinstance(appended, Rejected):
            raise OSError(appended.message)
        self._durability.appended(partition)
        if partition.topic.name == CONSUMER_OFFSETS:
            self._offsets_decided(producer_id, epoch, False, partition.index, now_ms)

    def apply(self, now_ms: int, result: Result[Any], reply: Callable[[int], None] | None = None) -> None:
        """Carry out a decision.

        `reply(now_ms)` is called once everything appended so far is durable. `write_pending_markers` then writes the
        markers. Raises OSError before anything is appended if a log to be fenced cannot be opened, because a decision
        must be carried out completely. Raises OSError also while an earlier transaction of the id is unsettled.
        """
        if self._unsettled:
            names = {record.transactional_id for record in result.records}
            unsettled = sorted(partition.directory for owner, partition in self._unsettled if owner in names)
            if unsettled:
                raise OSError(f"a transaction left open by a power loss in {', '.join(unsettled)} is not settled yet")
        self._carry_out(now_ms, result, reply)

    def _carry_out(self, now_ms: int, result: Result[Any], reply: Callable[[int], None] | None = None) -> None:
        fences = [(self._topics.partition(*fence.partition), fence) for fence in result.fence] if result.fence else ()
        fenced = [(partition.log, fence) for partition, fence in fences if partition is not None] if fences else ()
        reached: dict[str, bool] = {}  # if the id is prepared after its last record
        for record in result.records:
            self._append(now_ms, record)
            after = record.transaction
            reached[record.transactional_id] = after is not None and after.state in PREPARED
        for log, fence in fenced:
            log.fence(fence.producer_id, fence.epoch)
        unfinished_ids = [name for name, is_unfinished in reached.items() if is_unfinished]
        if reply is not None or unfinished_ids:
            self._durability.when_durable(now_ms, partial(self._proceed, unfinished_ids, reply))
        if self._refused or self._waiting or self._requests:
            for name, is_unfinished in reached.items():
                if not is_unfinished:
                    self._refused.discard(name)
                    for action in [*self._waiting.pop(name, ()), *self._requests.pop(name, ())]:
                        action(now_ms)

    def _proceed(self, unfinished_ids: Sequence[str], reply: Callable[[int], None] | None, now_ms: int) -> None:
        """Reply to a durable decision, whose markers these ids owe from now on."""
        self.unfinished_ids += unfinished_ids
        if reply is None:
            self.write_pending_markers(now_ms)
        else:
            reply(now_ms)

    def warn_of_loss(
        self, operation: str, *, topic: str | None = None, producer_ids: Collection[int] = frozenset()
    ) -> None:
        """Log the open transactions that lose data by an administrator's request about a topic or about producers."""
        for transaction in self.coordinator.awake():
            is_hit = transaction.producer_id in producer_ids or any(at.topic == topic for at in transaction.partitions)
            if transaction.state is TxnState.ONGOING and is_hit:
                _log.warning(
                    "%s: records of transaction %s:%s of transactional id %r (open%s) are lost, even if it commits",
                    *(operation, *transaction.transaction_pair, transaction.transactional_id),
                    ", waiting for its owner's decision" if transaction.is_two_phase else "",
                )

    def write_pending_markers(self, now_ms: int) -> None:
        """Write the markers of answered decisions, while the client already continues."""
        while self.unfinished_ids:
            self._write_markers(now_ms, self.unfinished_ids.pop())

    def when_idle(self, now_ms: int, transactional_id: str, action: Callable[[int], None]) -> None:
        """Call `action(now_ms)` when no markers of the id are being written, or at once."""
        if self._is_prepared(transactional_id):
            self._waiting[transactional_id].append(action)
        else:
            action(now_ms)

    def when_tried(self, now_ms: int, transactional_id: str, action: Callable[[int], None]) -> None:
        """Call `action(now_ms)` like `when_idle`, and also when the disk refuses the end of the transaction.

        For requests: the disk may refuse until the next start, and all later requests of a connection wait for one.
        """
        if self._is_prepared(transactional_id) and transactional_id not in self._refused:
            self._requests[transactional_id].append(action)
        else:
            action(now_ms)

    def _end_refused(self, now_ms: int, transactional_id: str) -> None:
        self._refused.add(transactional_id)
        for action in self._requests.pop(transactional_id, ()):
            action(now_ms)

    @property
    def writes_markers(self) -> bool:
        """Return true if written markers are not durable yet."""
        return bool(self._under_way)

    def on_time(self, now_ms: int) -> None:
        """Abort transactions that timed out, and expire idle ids."""
        self._runtime.on_time(now_ms, partial(self.coordinator.on_time, failed=self._not_decided), self._apply_due)

    def _not_decided(self, transactional_id: str, error: Exception) -> None:
        subject = f"the due work of transactional id {transactional_id!r}"
        self._runtime.failure_guard.failed(subject, error, "It is tried again in a second")

    def _apply_due(self, now_ms: int, result: Result[None]) -> None:
        """Carry out a due decision about one id. Raises OSError."""
        try:
            self.apply(now_ms, result)
        except OSError:
            raise
        except Exception as error:  # noqa: BLE001 - it is told
            # A refused write may have reached the disk, so the state in memory may not follow from the records.
            for name in {record.transactional_id for record in result.records}:
                self.coordinator.set_aside(name)
                self._doubts.found_id(name)
                follows = "Requests for the id are refused until the next start, which reads its records again"
                self._runtime.failure_guard.failed(f"a decision for transactional id {name!r}", error, follows)

    def next_deadline_ms(self) -> int | None:
        """Return the time of the next work for `on_time`, or None."""
        return self._runtime.next_deadline_ms(self.coordinator.next_deadline_ms())

    def _is_prepared(self, transactional_id: str) -> bool:
        transaction = self.coordinator.transaction(transactional_id)
        return transaction is not None and transaction.state in PREPARED

    def _append(self, now_ms: int, record: TransactionRecord) -> None:
        partitions = self._runtime.partitions()
        context = self.coordinator.context(record.transactional_id)
        partition = partitions[context.shard]
        self._runtime.append(now_ms, partition, [(context.key, record.value())])
        before = self.coordinator.replay(record)
        note_change(self._metrics, now_ms, before, record.transaction)
        self.snapshots.replayed(partition)
        self.snapshots.write_if_due(now_ms)

    def _write_markers(self, now_ms: int, transactional_id: str | None) -> None:
        for write in self.coordinator.marker_work(transactional_id):
            if write not in self._under_way:
                self._under_way.add(write)
                self._write_marker(now_ms, write)

    def _write_marker(self, now_ms: int, write: MarkerWrite) -> None:
        partition = self._topics.partition(*write.partition)
        offset = -1
        if partition is not None:
            try:
                offset = _append_marker(partition, write, now_ms)
            except Exception as error:  # noqa: BLE001 - it is told
                self._marker_refused(now_ms, write, partition, error)
                return
            self._durability.appended(partition)
        marker_ms = now_ms
        self._durability.when_durable(
            now_ms, lambda now_ms: self._acknowledge(now_ms, write, partition, offset, marker_ms)
        )

    def _marker_refused(self, now_ms: int, write: MarkerWrite, partition: Partition, error: Exception) -> None:
        """Repeat the marker in a second. Failures are logged at a limited rate, because a full disk refuses many."""
        if not isinstance(error, OSError):
            subject = f"a marker of transactional id {write.transactional_id!r} in {partition.directory}"
            self._runtime.failure_guard.failed(subject, error, "It is tried again in a second")
        elif times := self._refused_markers.hit(now_ms, partition.directory):
            _log.error(
                "a marker cannot be written to %s and will be tried again every second: %s; "
                "%d attempts since the last such message",
                *(partition.directory, error, times),
            )
        self._under_way.discard(write)
        self._runtime.again(now_ms, lambda now_ms: self._write_markers(now_ms, write.transactional_id))
        self._end_refused(now_ms, write.transactional_id)

    def _acknowledge(
        self, now_ms: int, write: MarkerWrite, partition: Partition | None, offset: int, marker_ms: int
    ) -> None:
        self._under_way.discard(write)
        log = None if partition is None else partition.opened
        if log is not None and not log.is_durable(offset):
            _log.error("a marker in %s is not durable; the next start of the broker writes it again", log.directory)
            self._end_refused(now_ms, write.transactional_id)
            return
        # otherwise the pending offsets belong to the next transaction
        if write.partition.topic == CONSUMER_OFFSETS and offset >= 0:
            pair = (write.producer_id, write.producer_epoch)
            self._offsets_decided(*pair, write.commit, write.partition.partition, marker_ms)
        completion = self.coordinator.marker_written(now_ms, write)
        self._runtime.until_done(partial(self._complete, write.transactional_id, completion), now_ms)

    def _complete(self, transactional_id: str, result: Result[None], now_ms: int) -> None:
        """Append the completion record after all markers are durable. Raises OSError.

        Until it is written, the id starts no transaction.
        """
        try:
            self.apply(now_ms, result)
        except OSError:
            self._end_refused(now_ms, transactional_id)
            raise


def _append_marker(partition: Partition, write: MarkerWrite, now_ms: int) -> int:
    """Append the marker.

    Return its offset, or -1 if the log has it. Raises OSError.

    WriteTxnMarkers of an administrator may have set a higher epoch. The coordinator then continues with the higher one.
    """
    log = partition.log
    state = log.producers.get(write.producer_id)
    coordinator_epoch = (
        write.coordinator_epoch if state is None else max(write.coordinator_epoch, state.coordinator_epoch)
    )
    bumped = write.transaction_version >= FIRST_BUMPING_VERSION
    if state is not None and bumped and state.epoch == write.producer_epoch and state.txn_first_offset >= 0:
        # The next transaction of the id is open here, so the log has this marker: a power loss removed only the record
        # that says so.
        return -1
    ahead = state is not None and state.epoch > write.producer_epoch
    appended = log.append_marker(
        write.producer_id,
        state.epoch if state is not None and ahead else write.producer_epoch,
        write.commit,
        coordinator_epoch,
        now_ms,
        transaction_version=0 if ahead else write.transaction_version,
    )
    if isinstance(appended, Rejected):
        raise OSError(f"{partition.directory} refused the marker {write}: {appended.message}")
    return appended.base_offset


def _coordinator_config(config: BrokerConfig) -> TransactionConfig:
    return TransactionConfig(
        max_transactional_ids=config.number("max.transactional.ids"),
        transaction_max_timeout_ms=config.number("transaction.max.timeout.ms"),
        transactional_id_expiration_ms=config.number("transactional.id.expiration.ms"),
        transaction_two_phase_commit_enable=config.flag("transaction.two.phase.commit.enable"),
        transaction_version=config.number("transaction.version"),
        coordinator_epoch=COORDINATOR_EPOCH,
    )
