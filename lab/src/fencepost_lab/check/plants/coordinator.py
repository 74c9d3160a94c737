"""Defects of the transaction coordinator."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fencepost.broker.api.transactions import k24_add_partitions_to_txn
from fencepost.broker.coordinator.runtime import CoordinatorRuntime
from fencepost.broker.coordinator.txn import decide_end, decide_enlist, decide_init, ending, markers
from fencepost.broker.coordinator.txn import driver as shell
from fencepost.broker.coordinator.txn.coordinator import TransactionCoordinator
from fencepost.broker.coordinator.txn.model import BumpCause, Result, Transaction, TransactionRecord
from fencepost.broker.coordinator.txn.states import TxnState
from fencepost.broker.log import Appended
from fencepost.broker.log.partition import PartitionLog
from fencepost.broker.log.producers import table
from fencepost.broker.log.producers.idempotence import ProducerRefusal, check_batch
from fencepost.broker.topics.topic import Partition
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.logs.partitioning import coordinator_partition
from fencepost_lab.check.plants.plant import (
    ALONE,
    DECIDED,
    GROUP,
    KILLED,
    NO_DISK_FAULTS,
    OUTAGES,
    POWER_LOSS,
    Patches,
    plant,
)


@plant("clients")
def epoch_not_checked(patches: Patches) -> None:
    """A fenced producer can still write, and can end its successor's transaction."""
    check, end = check_batch, decide_end.end_txn

    def lenient(*args: Any, **kwargs: Any) -> Any:
        verdict = check(*args, **kwargs)
        fenced = isinstance(verdict, ProducerRefusal) and verdict.code == ErrorCode.INVALID_PRODUCER_EPOCH
        return None if fenced else verdict

    def any_epoch(now_ms: int, config: Any, current: Any, request: Any, allocate: Any) -> Any:
        if current is not None and request.pair.producer_id == current.producer_id:
            request = replace(request, pair=current.client_pair)
        return end(now_ms, config, current, request, allocate)

    patches.setattr(table, "check_batch", lenient)
    patches.setattr(decide_end, "end_txn", any_epoch)


@plant("clients")
def late_end_accepted(patches: Patches) -> None:
    """A late EndTxn ends the transaction that is open when it arrives, even if it was meant for an earlier one."""
    end = decide_end.end_txn

    def any_epoch(now_ms: int, config: Any, current: Any, request: Any, allocate: Any) -> Any:
        if current is not None and request.pair.producer_id == current.producer_id:
            request = replace(request, pair=current.client_pair)
        return end(now_ms, config, current, request, allocate)

    patches.setattr(decide_end, "end_txn", any_epoch)


@plant("clients")
def marker_lost(patches: Patches) -> None:
    """Some markers are reported as written and are not."""
    original = PartitionLog.append_marker

    def sometimes(self: PartitionLog, *args: Any, **kwargs: Any) -> Any:
        if self.log_end_offset % 7 == 3:
            return Appended(self.log_end_offset, self.log_end_offset, -1, 0)
        return original(self, *args, **kwargs)

    patches.setattr(PartitionLog, "append_marker", sometimes)


@plant("clients")
def commit_marker_for_an_abort(patches: Patches) -> None:
    """Every marker is a commit marker."""
    original = markers.marker_for

    def committing(*args: Any) -> Any:
        return original(*args)._replace(commit=True)

    patches.setattr(markers, "marker_for", committing)


@plant("clients")
def abort_marker_for_a_commit(patches: Patches) -> None:
    """The last partition of a transaction gets an abort marker, whatever was decided."""
    original = markers.marker_for

    def aborting(transaction: Any, partition: Any, coordinator_epoch: int) -> Any:
        write = original(transaction, partition, coordinator_epoch)
        return write._replace(commit=False) if partition == max(transaction.partitions) else write

    patches.setattr(markers, "marker_for", aborting)


@plant("clients")
def init_does_not_fence(patches: Patches) -> None:
    """InitProducerId returns the current pair again, without a new epoch."""

    def same(now_ms: int, current: Any, request: Any, allocate: Any) -> Any:
        return decide_init._granted(decide_init._emptied(now_ms, current, current.client_pair, request))

    patches.setattr(decide_init, "_init_idle", same)


@plant("clients")
def init_commits_what_is_open(patches: Patches) -> None:
    """InitProducerId commits an open transaction of the id."""
    original = ending.prepare

    def committing(now_ms: int, before: Any, commit: bool, *, cause: Any, **kwargs: Any) -> Any:
        takes_over = cause in (BumpCause.NONE, BumpCause.INITIALIZED)
        return original(now_ms, before, commit or takes_over, cause=cause, **kwargs)

    patches.setattr(ending, "prepare", committing)


@plant("clients")
def timeout_commits(patches: Patches) -> None:
    """A transaction that times out is committed."""
    original = ending.prepare

    def committing(now_ms: int, before: Any, commit: bool, *, cause: Any, **kwargs: Any) -> Any:
        return original(now_ms, before, commit or cause is BumpCause.TIMEOUT, cause=cause, **kwargs)

    patches.setattr(ending, "prepare", committing)


@plant("clients", *GROUP, "kill_chance=0.4")
def timeout_never_comes(patches: Patches) -> None:
    """A transaction of a dead producer stays open forever."""
    patches.setattr(decide_end, "time_out", lambda now_ms, current, allocate: Result(None))


@plant("clients", *DECIDED)
def keep_aborts(patches: Patches) -> None:
    """InitProducerId with KeepPreparedTxn aborts the prepared transaction."""

    def over_open(now_ms: int, config: Any, current: Any, request: Any, allocate: Any) -> Any:
        return honest(now_ms, config, current, replace(request, keep_prepared=False), allocate)

    honest = decide_init._init_over_open
    patches.setattr(decide_init, "_init_over_open", over_open)


@plant("clients", *DECIDED)
def timeout_hits_a_prepared_transaction(patches: Patches) -> None:
    """A two-phase transaction has a timeout like any other."""

    def soon(self: Transaction) -> int | None:
        return self.start_ms + min(self.timeout_ms, 2_000) if self.state is TxnState.ONGOING else None

    patches.setattr(Transaction, "deadline_ms", property(soon))


@plant("clients", *DECIDED)
def kept_is_always_committed(patches: Patches) -> None:
    """A transaction kept over a restart is committed, regardless of the decision."""
    honest = decide_end._end_with_client_pair

    def end(now_ms: int, current: Any, request: Any, allocate: Any) -> Any:
        return honest(now_ms, current, replace(request, commit=request.commit or current.is_kept), allocate)

    patches.setattr(decide_end, "_end_with_client_pair", end)


@plant("clients", *POWER_LOSS)
def prepared_is_forgotten_at_the_start(patches: Patches) -> None:
    """After a crash the coordinator does not write the missing markers of a prepared end."""
    patches.setattr(shell.Transactions, "finish", lambda self, now_ms: None)


@plant("clients")
def completed_with_the_first_marker(patches: Patches) -> None:
    """A transaction counts as complete after its first marker."""

    def forgetful(self: Any, transaction: Any) -> None:
        partitions = dict.fromkeys(sorted(transaction.partitions)[:1])
        if partitions:
            self._by_id[transaction.transactional_id] = (transaction, partitions)

    patches.setattr(markers.Outstanding, "expect", forgetful)


@plant("clients")
def enlisting_is_forgotten(patches: Patches) -> None:
    """The third and later partitions that a batch adds to a transaction are not persisted."""
    original = decide_enlist._enlisted

    def some(now_ms: int, current: Any, partitions: Any, **kwargs: Any) -> tuple[TransactionRecord, ...]:
        found = []
        for record in original(now_ms, current, partitions, **kwargs):
            after = record.transaction
            first = frozenset(sorted(after.partitions)[:2]) if after is not None else frozenset()
            found.append(replace(record, transaction=None if after is None else replace(after, partitions=first)))
        return tuple(found)

    patches.setattr(decide_enlist, "_enlisted", some)


@plant("clients", "operators=1", "storm_ms=5000")
def internal_topics_can_be_enlisted(patches: Patches) -> None:
    """A client can enlist an internal topic, so that a marker is written among the coordinators' records."""
    patches.setattr(k24_add_partitions_to_txn, "_refusal", lambda core, partition: ErrorCode.NONE)


@plant("clients", *KILLED, "resetting_chance=0.9", "producers=3")
def coordinators_counted_by_the_settings(patches: Patches) -> None:
    """After a start with another number of coordinator partitions, an id's records go to another partition."""

    def partition_of(self: CoordinatorRuntime, key: str) -> Partition:
        partitions = self._topics.internal(self._topic).partitions
        return partitions[coordinator_partition(key, self._topics.usual_partitions(self._topic)) % len(partitions)]

    patches.setattr(CoordinatorRuntime, "partition_of", partition_of)
    patches.setattr(CoordinatorRuntime, "index_of", lambda self, key: self.partition_of(key).index)


@plant("clients", *OUTAGES)
def timeouts_decided_together(patches: Patches) -> None:
    """Transactions that time out together are decided together, before the first decision can affect the next."""
    due = TransactionCoordinator.on_time
    patches.setattr(TransactionCoordinator, "on_time", lambda self, now_ms, **how: list(due(self, now_ms, **how)))


@plant("clients", *OUTAGES, "read_error_chance=0.9")
def unsettled_ids_go_on(patches: Patches) -> None:
    """An id accepts requests although a disk error keeps the broker from settling its state after a power loss."""
    settle = shell.Transactions.settle

    def forgetful(self: shell.Transactions, now_ms: int, partition: Partition) -> None:
        settle(self, now_ms, partition)
        self._unsettled.clear()

    patches.setattr(shell.Transactions, "settle", forgetful)


@plant("clients", *KILLED, "producers=3", "pause_chance=0.1", "clock_jump_chance=0.9")
def timeouts_wait_for_a_clock_set_back(patches: Patches) -> None:
    """After the clock was set back, an earlier transaction does not time out until the clock has caught up."""
    patches.setattr(TransactionCoordinator, "loaded", lambda self, now_ms: None)


@plant("clients", *ALONE)
def timeout_comes_too_early(patches: Patches) -> None:
    """A transaction is aborted after a small part of its timeout, and its producer is fenced."""

    def soon(self: Transaction) -> int | None:
        return None if self.state is not TxnState.ONGOING or self.is_two_phase else self.start_ms + 100

    patches.setattr(Transaction, "deadline_ms", property(soon))


@plant("clients", *ALONE, "crash_interval_ms=300")
def start_aborts_what_is_open(patches: Patches) -> None:
    """The broker aborts every open transaction at its start, as if it had timed out."""
    finish = shell.Transactions.finish

    def aborting(self: shell.Transactions, now_ms: int) -> None:
        for name in self.coordinator.names():
            current = self.coordinator._store.get(name)
            if current is not None and current.deadline_ms is not None:
                self.apply(now_ms, decide_end.time_out(now_ms, current, lambda: 1_000_000 + now_ms))
        finish(self, now_ms)

    patches.setattr(shell.Transactions, "finish", aborting)


@plant("clients", "storm_ms=2000", "producers=3", "look_chance=1", *NO_DISK_FAULTS)
def readers_do_not_wait_for_markers(patches: Patches) -> None:
    """Reads of committed records and offsets do not wait for the missing markers of an answered EndTxn."""
    patches.setattr(shell.Transactions, "writes_markers", property(lambda self: False))
