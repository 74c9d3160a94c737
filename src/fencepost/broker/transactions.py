"""The transaction coordinator at work: its records appended, its fences set, its markers written, its replies held
until durable.

The order is the guarantee: the Prepare record is durable before it is answered and before a marker is written; every
marker is durable before the Complete record is appended. A crash between any two of these steps is finished at the
next start, because what is owed follows from the records alone.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from fencepost.broker.config import BrokerConfig
from fencepost.broker.internal_records import encode_internal_batch, read_internal_records
from fencepost.broker.log.results import Appended, Rejected
from fencepost.broker.partitioning import coordinator_partition
from fencepost.broker.topics import CONSUMER_OFFSETS, TRANSACTION_STATE, Partition
from fencepost.broker.txn.coordinator import TransactionCoordinator
from fencepost.broker.txn.model import (
    MarkerWrite,
    ProducerPair,
    Result,
    TopicPartition,
    Transaction,
    TransactionConfig,
    TransactionRecord,
)
from fencepost.broker.txn.states import PREPARED
from fencepost.protocol.batch import BatchHeader, iter_batches
from fencepost.protocol.codes import ErrorCode

if TYPE_CHECKING:
    from fencepost.broker.core import BrokerCore

__all__ = ["COORDINATOR_EPOCH", "Transactions", "append_records", "internal_batches"]

COORDINATOR_EPOCH = 0
FIRST_BUMPING_VERSION = (
    2  # of transaction.version: from here on markers carry the epoch after the transaction's (KIP-890)
)
_READ_BYTES = 1 << 20
_RETRY_MS = 1000

_log = logging.getLogger("fencepost.broker.transactions")


class Transactions:
    """Drives a `TransactionCoordinator` with the broker's logs."""

    def __init__(self, core: BrokerCore) -> None:
        self._core = core
        self.coordinator = TransactionCoordinator(_coordinator_config(core.config), core.meta.allocate_producer_id)
        self._under_way: set[MarkerWrite] = set()
        self._waiting: defaultdict[str, list[Callable[[int], None]]] = defaultdict(list)
        self._owner_at_start: dict[int, str] = {}

    def settings_changed(self) -> None:
        """The broker's settings are others."""
        self.coordinator.config = _coordinator_config(self._core.config)

    def load(self, now_ms: int) -> None:
        """Replay `__transaction_state`."""
        topic = self._core.topics.get(TRANSACTION_STATE)
        for partition in topic.partitions if topic is not None else ():
            if self._core.files.exists(partition.directory):
                for header, batch in internal_batches(partition):
                    for _, key, value in read_internal_records(header, batch):
                        self.coordinator.replay(TransactionRecord.from_bytes(key, value))
        for listed in self.coordinator.list_transactions(now_ms).listings:
            transaction = self.coordinator.transaction(listed.transactional_id)
            if transaction is not None:
                for producer_id in (transaction.producer_id, transaction.next_producer_id):
                    self._owner_at_start[producer_id] = transaction.transactional_id

    def finish(self, now_ms: int) -> None:
        """Write the markers that are owed since before the start."""
        self._write_markers(now_ms, None)
        self.on_time(now_ms)

    def log_opened(self, now_ms: int, partition: Partition) -> None:
        """Look for what a power loss left open in a log that is read for the first time."""
        if not partition.topic.internal:
            self.settle(now_ms, partition)

    def settle(self, now_ms: int, partition: Partition) -> None:
        """See that every transaction that is open in a log is open for its coordinator too.

        A power loss can leave one that is not: the batch reached the disk, the record that enlisted the partition did
        not, and the client was never answered. Under its id's present pair it is enlisted again (its client will retry
        the batch, which is there); otherwise nobody can go on with it, and it is aborted.
        """
        log, name = partition.log, TopicPartition(partition.topic.name, partition.index)
        for producer_id in list(log.producers.open_transactions):
            state = log.producers.get(producer_id)
            owner = self._owner_at_start.get(producer_id)
            current = None if owner is None else self.coordinator.transaction(owner)
            if state is None or self._is_open(current, ProducerPair(producer_id, state.epoch), name):
                continue
            if current is None or owner is None or current.client_pair != (producer_id, state.epoch) or current.is_kept:
                self._abort_orphan(now_ms, partition, producer_id, state.epoch)
            elif current.state in PREPARED:
                self.when_idle(now_ms, owner, partial(self._settle_again, partition))
            else:
                _log.warning("%s: enlisting it again in the transaction of %s", partition.directory, owner)
                self.apply(now_ms, self.coordinator.adopt(now_ms, owner, name))

    def _settle_again(self, partition: Partition, now_ms: int) -> None:
        self.settle(now_ms, partition)

    @staticmethod
    def _is_open(current: Transaction | None, pair: ProducerPair, name: TopicPartition) -> bool:
        """Whether the coordinator will end what `pair` has open in the partition."""
        if current is None or name not in current.partitions:
            return False
        if current.state in PREPARED:
            return pair.producer_id == current.producer_id and pair != current.client_pair
        return current.transaction_pair == pair

    def _abort_orphan(self, now_ms: int, partition: Partition, producer_id: int, epoch: int) -> None:
        """End a transaction that nobody can go on with."""
        _log.warning("%s: aborting what producer id %s left open", partition.directory, producer_id)
        partition.log.append_marker(producer_id, epoch, False, COORDINATOR_EPOCH, now_ms, transaction_version=0)
        self._core.durability.appended(partition)
        if partition.topic.name == CONSUMER_OFFSETS:
            self._core.groups.complete_transaction(producer_id, epoch, False, partition.index)

    def apply(self, now_ms: int, result: Result[Any], reply: Callable[[int], None] | None = None) -> None:
        """Carry out a decision.

        `reply(now_ms)` is called once everything appended so far is durable. Raises OSError.
        """
        for record in result.records:
            self._append(now_ms, record)
        for fence in result.fence:
            partition = self._core.topics.partition(*fence.partition)
            if partition is not None:
                partition.log.fence(fence.producer_id, fence.epoch)
        names = {record.transactional_id for record in result.records}
        owing = [name for name in names if self._is_prepared(name)]

        def proceed(now_ms: int) -> None:
            if reply is not None:
                reply(now_ms)
            for name in owing:
                self._write_markers(now_ms, name)

        if reply is not None or owing:
            self._core.durability.when_durable(now_ms, proceed)
        for name in names:
            if name in self._waiting and not self._is_prepared(name):
                for action in self._waiting.pop(name):
                    action(now_ms)

    def when_idle(self, now_ms: int, transactional_id: str, action: Callable[[int], None]) -> None:
        """Call `action(now_ms)` when no markers of the id are being written, at once if none are."""
        if self._is_prepared(transactional_id):
            self._waiting[transactional_id].append(action)
        else:
            action(now_ms)

    @property
    def writes_markers(self) -> bool:
        """Whether markers are written that are not durable yet."""
        return bool(self._under_way)

    def on_time(self, now_ms: int) -> None:
        """Abort what has timed out, forget ids that were idle for too long."""
        for result in self.coordinator.on_time(now_ms):
            for record in result.records:
                state = "forgotten" if record.transaction is None else f"now {record.transaction.state.name}"
                _log.info("time is over for transactional id %s: it is %s", record.transactional_id, state)
            self.apply(now_ms, result)

    def next_deadline_ms(self) -> int | None:
        """When `on_time` has something to do."""
        return self.coordinator.next_deadline_ms()

    def _is_prepared(self, transactional_id: str) -> bool:
        transaction = self.coordinator.transaction(transactional_id)
        return transaction is not None and transaction.state in PREPARED

    def _append(self, now_ms: int, record: TransactionRecord) -> None:
        topic = self._core.topics.internal(TRANSACTION_STATE)
        partition = topic.partitions[coordinator_partition(record.transactional_id, len(topic.partitions))]
        append_records(self._core, partition, encode_internal_batch([(record.key(), record.value())], now_ms), now_ms)
        self.coordinator.replay(record)

    def _write_markers(self, now_ms: int, transactional_id: str | None) -> None:
        for write in self.coordinator.marker_work(transactional_id):
            if write not in self._under_way:
                self._under_way.add(write)
                self._write_marker(now_ms, write)

    def _write_marker(self, now_ms: int, write: MarkerWrite) -> None:
        partition = self._core.topics.partition(*write.partition)
        offset = -1
        if partition is not None:
            try:
                offset = _append_marker(partition, write, now_ms)
            except OSError:
                _log.exception("a marker cannot be written to %s; it will be tried again", partition.directory)
                self._under_way.discard(write)
                self._again(now_ms, lambda now_ms: self._write_markers(now_ms, write.transactional_id))
                return
            self._core.durability.appended(partition)
        self._core.durability.when_durable(now_ms, lambda now_ms: self._acknowledge(now_ms, write, partition, offset))

    def _acknowledge(self, now_ms: int, write: MarkerWrite, partition: Partition | None, offset: int) -> None:
        self._under_way.discard(write)
        log = None if partition is None else partition.opened
        if log is not None and not log.is_durable(offset):
            _log.error("a marker in %s is not durable; it is owed until the broker starts again", log.directory)
            return
        if write.partition.topic == CONSUMER_OFFSETS:
            self._core.groups.complete_transaction(
                write.producer_id, write.producer_epoch, write.commit, write.partition[1]
            )
        self._complete(now_ms, self.coordinator.marker_written(now_ms, write))

    def _complete(self, now_ms: int, result: Result[None]) -> None:
        """All markers are durable. Until the record that says so is written, the id takes no new transaction."""
        try:
            self.apply(now_ms, result)
        except OSError:
            _log.exception("a transaction cannot be completed; it will be tried again")
            self._again(now_ms, lambda now_ms: self._complete(now_ms, result))

    def _again(self, now_ms: int, action: Callable[[int], None]) -> None:
        self._core.timers.at(now_ms + _RETRY_MS, action)


def _append_marker(partition: Partition, write: MarkerWrite, now_ms: int) -> int:
    """Append the marker. An administrator's WriteTxnMarkers may have named higher epochs: the one true coordinator
    goes on with the higher ones. Returns its offset, -1 when it was there. Raises OSError."""
    log = partition.log
    state = log.producers.get(write.producer_id)
    coordinator_epoch = (
        write.coordinator_epoch if state is None else max(write.coordinator_epoch, state.coordinator_epoch)
    )
    bumped = write.transaction_version >= FIRST_BUMPING_VERSION
    if state is not None and bumped and state.epoch == write.producer_epoch and state.txn_first_offset >= 0:
        # The next transaction is open here, which it can only be behind this marker: a power loss took the record that
        # says so, and left what came after it.
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


def append_records(core: BrokerCore, partition: Partition, batch: bytearray, now_ms: int) -> Appended | Rejected:
    """Append a batch of the broker's own to an internal topic. Raises OSError when the disk refuses it."""
    appended = partition.log.append_internal(batch, now_ms)
    if isinstance(appended, Rejected):
        if appended.error_code == ErrorCode.KAFKA_STORAGE_ERROR:
            raise OSError(appended.message)
    else:
        core.durability.appended(partition)
    return appended


def internal_batches(partition: Partition) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Every batch of an internal topic's partition, oldest first. Raises OSError."""
    log = partition.log
    offset = log.log_start_offset
    while offset < log.high_watermark:
        read = log.read(offset, _READ_BYTES, committed_only=False, min_one=True)
        if not read.records:
            raise OSError(f"{partition.directory}: nothing can be read at offset {offset}: {read.message}")
        for header, batch in iter_batches(read.records):
            offset = header.last_offset + 1
            yield header, batch


def _coordinator_config(config: BrokerConfig) -> TransactionConfig:
    return TransactionConfig(
        transaction_max_timeout_ms=config.number("transaction.max.timeout.ms"),
        transactional_id_expiration_ms=config.number("transactional.id.expiration.ms"),
        transaction_two_phase_commit_enable=config.flag("transaction.two.phase.commit.enable"),
        transaction_version=config.number("transaction.version"),
        coordinator_epoch=COORDINATOR_EPOCH,
    )
