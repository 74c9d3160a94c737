"""Defects of the transactional producer."""

from __future__ import annotations

from typing import Any

from fencepost.client.producer.chunks import Batch
from fencepost.client.producer.partition_queue import PartitionQueue
from fencepost.client.producer.produce_answers import ProduceAnswers
from fencepost.client.producer.sender import Sender
from fencepost.client.producer.transaction_answers import UnansweredRequests
from fencepost.client.producer.transaction_block import TransactionBlock
from fencepost.client.producer.transaction_states import TxnEvent
from fencepost.client.producer.transactions import ProducerTransactions
from fencepost.errors import (
    FatalError,
    KafkaTimeoutError,
    TransactionAbortableError,
    TransactionCommitFailedError,
)
from fencepost_lab.check.plants.plant import ALONE, CUT_SHORT, GROUP, Patches, plant


@plant("clients")
def positions_moved_before_the_commit(patches: Patches) -> None:
    """A failed transaction leaves its consumer behind the records that were not copied."""
    patches.setattr(TransactionBlock, "_forget", lambda self: None)


@plant("clients", *GROUP, *CUT_SHORT)
def positions_kept_after_a_cancellation(patches: Patches) -> None:
    """A cancelled transaction leaves its consumer behind the records that were not copied."""

    async def fail(self: TransactionBlock, error: BaseException) -> bool:
        if isinstance(error, Exception):
            self._forget()
        return await self._abort(error)

    patches.setattr(TransactionBlock, "_fail", fail)


@plant("clients", *GROUP, *CUT_SHORT)
def positions_kept_when_the_abort_fails(patches: Patches) -> None:
    """The consumer is rewound only if the abort was answered."""

    async def fail(self: TransactionBlock, error: BaseException) -> bool:
        is_committed = await self._abort(error)
        if not self._producer.abort_is_pending:
            self._forget()
        return is_committed

    patches.setattr(TransactionBlock, "_fail", fail)


@plant("clients", *GROUP, "operators=1")
def positions_kept_when_fenced(patches: Patches) -> None:
    """The consumer is not rewound if its producer is fenced."""

    async def fail(self: TransactionBlock, error: BaseException) -> bool:
        if not isinstance(error, FatalError):
            self._forget()
        return await self._abort(error)

    patches.setattr(TransactionBlock, "_fail", fail)


@plant("clients", *CUT_SHORT)
def commit_raises_a_bare_timeout(patches: Patches) -> None:
    """A commit without an answer raises the error of any timeout, not the error of an unknown outcome."""
    original = ProducerTransactions.commit

    async def bare(self: ProducerTransactions) -> None:
        try:
            await original(self)
        except TransactionCommitFailedError as error:
            if isinstance(error.__cause__, KafkaTimeoutError):
                raise error.__cause__ from None
            raise

    patches.setattr(ProducerTransactions, "commit", bare)


@plant("clients", "feeders=2", "operators=0", "storm_ms=5000", "shrink_interval_ms=150", "slow_chance=0.05")
def refused_batch_leaves_a_gap(patches: Patches) -> None:
    """Batches after one that was given up keep their sequence numbers, so the broker refuses them as out of order."""
    patches.setattr(PartitionQueue, "_close_gap", lambda self: setattr(self, "gap", False))


@plant("clients", *CUT_SHORT)
def cancelled_commit_believed_aborted(patches: Patches) -> None:
    """An abort after a commit without an answer succeeds without asking the coordinator for the outcome."""
    original = ProducerTransactions.abort

    async def abort(self: ProducerTransactions) -> None:
        if not self.commit_unanswered:
            return await original(self)
        self._advance(TxnEvent.ABORT)
        await self._sender.discard(KafkaTimeoutError("aborted"))
        self._start_afresh(-1, -1)
        self._advance(TxnEvent.ENDED)
        return None

    patches.setattr(ProducerTransactions, "abort", abort)


@plant("clients", *CUT_SHORT)
def failed_abort_taken_for_done(patches: Patches) -> None:
    """An abort without an answer counts as done, so the next transaction's records join the old one."""
    original = ProducerTransactions._abort_enlisted

    async def lenient(self: ProducerTransactions) -> None:
        try:
            await original(self)
        except KafkaTimeoutError:
            return

    patches.setattr(ProducerTransactions, "_abort_enlisted", lenient)


@plant("clients", *CUT_SHORT)
def unanswered_commit_taken_for_refused(patches: Patches) -> None:
    """A commit without an answer is reported as one that did not take effect."""
    original = ProducerTransactions.commit

    async def certain(self: ProducerTransactions) -> None:
        try:
            await original(self)
        finally:
            self.commit_unanswered = False

    patches.setattr(ProducerTransactions, "commit", certain)


@plant("clients")
def epoch_not_taken_over(patches: Patches) -> None:
    """The producer continues with the epoch of the transaction that it has ended."""
    original = ProducerTransactions._start_afresh

    def same(self: ProducerTransactions, producer_id: int, epoch: int) -> None:
        original(self, -1 if self._sender.epoch >= 0 and epoch > 0 else producer_id, epoch)

    patches.setattr(ProducerTransactions, "_start_afresh", same)


@plant("clients")
def commit_does_not_flush(patches: Patches) -> None:
    """A commit is sent while records are still in flight."""

    async def at_once(self: Sender, deadline_ms: int | None = None) -> bool:
        self._accumulator.close_all()
        self._ready.collect()
        self._wake.set()
        return True

    patches.setattr(Sender, "flush", at_once)


@plant("clients")
def aborted_records_sent_later(patches: Patches) -> None:
    """Records that an abort should drop are sent in the next transaction."""

    async def nothing(self: Sender, error: Any, deadline_ms: int | None = None) -> None:
        return

    patches.setattr(Sender, "discard", nothing)


@plant("clients", "feeders=2", *CUT_SHORT)
def repeat_under_a_new_number(patches: Patches) -> None:
    """A batch whose answer was lost is sent again with a new sequence number."""
    original = PartitionQueue.put_back

    def renumbered(self: PartitionQueue, batch: Any) -> None:
        original(self, batch)
        if not self.in_flight and len(self.pending) == 1:
            batch.sequence = -1

    patches.setattr(PartitionQueue, "put_back", renumbered)


@plant("clients")
def lost_batch_taken_for_delivered(patches: Patches) -> None:
    """A batch whose answer was lost counts as delivered."""

    def delivered(self: ProduceAnswers, queue: PartitionQueue, batch: Any, error: Any) -> None:
        self.acknowledge(queue, batch, -1, -1)

    patches.setattr(ProduceAnswers, "again", delivered)


@plant("clients")
def offsets_not_sent(patches: Patches) -> None:
    """A small number of consumer positions is not sent."""
    original = ProducerTransactions._commit_offsets

    async def some(self: ProducerTransactions, offsets: Any, group: Any) -> None:
        if len(offsets) > 1:
            await original(self, offsets, group)

    patches.setattr(ProducerTransactions, "_commit_offsets", some)


@plant("clients", *GROUP, *CUT_SHORT, "careless_chance=1.0", "cancel_chance=0.3", "kill_chance=0.4", "feeders=0")
def offsets_sent_when_not_answered_are_forgotten(patches: Patches) -> None:
    """Offsets without an answer from the coordinator do not prevent a commit."""
    original = ProducerTransactions.send_offsets

    async def lenient(self: ProducerTransactions, offsets: Any, group: Any) -> None:
        before = self.state
        try:
            await original(self, offsets, group)
        except BaseException:
            self.state, self.error = before, None
            raise

    patches.setattr(ProducerTransactions, "send_offsets", lenient)


@plant("clients", "transaction_version=0", "producers=3", "copiers=0", "late_chance=0.15", "storm_ms=5000")
def strays_met_in_the_same_epoch(patches: Patches) -> None:
    """Below transaction.version 2 a producer begins in an epoch whose EndTxn may still be in flight."""
    patches.setattr(UnansweredRequests, "transaction_ended", lambda self, *, end_unanswered: None)


@plant("clients", "feeders=3", "late_chance=0.15", "storm_ms=5000")
def given_up_batch_under_another_id(patches: Patches) -> None:
    """After giving up a batch with unknown outcome the producer takes another id, so the broker may append it late."""
    patches.setattr(Sender, "replace_epoch", Sender.replace_id)


@plant(
    *("clients", *ALONE, "transaction_version=0", "raise_chance=0.3"),
    *("slow_sync_chance=0.3", "crash_interval_ms=300", "power_cut_chance=0.0"),
)
def enlisting_goes_on_after_the_end(patches: Patches) -> None:
    """Below transaction.version 2 an abort does not wait for AddPartitionsToTxn.

    Repeated after EndTxn, that request opens a transaction that no client ends.
    """

    async def discard(self: ProducerTransactions, deadline_ms: int | None = None) -> None:
        await self._sender.discard(TransactionAbortableError("the transaction was aborted"), deadline_ms)

    patches.setattr(ProducerTransactions, "_discard", discard)


@plant("clients", "feeders=2", "operators=0", "storm_ms=5000", "shrink_interval_ms=150", "slow_chance=0.05")
def parts_stand_in_front(patches: Patches) -> None:
    """Parts of a split batch are sent before refused batches that precede it."""

    def cut(self: PartitionQueue, batch: Batch, parts: list[Batch]) -> None:
        self.in_flight.remove(batch)
        self.gap = True
        for part in reversed(parts):
            part.ordinal = batch.ordinal
            self.pending.appendleft(part)
            self.pending_bytes += len(part.data)

    patches.setattr(PartitionQueue, "cut", cut)
