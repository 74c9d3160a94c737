"""The requests of a transactional producer about its transactional id, sent with its producer id and epoch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Final

from fencepost.client.net.cluster import Cluster
from fencepost.client.net.transaction_calls import (
    add_offsets,
    describe_transaction,
    end_txn,
    enlist,
    find_ending,
    init_producer_id,
    offsets_code,
    to_enlist,
    txn_offset_commit,
)
from fencepost.client.prepared import PreparedAnswer, PreparedTransaction
from fencepost.client.producer.sender import Sender
from fencepost.client.producer.transaction_answers import (
    TransactionClock,
    UnansweredRequests,
    find_own_outcome,
    is_taken_over,
)
from fencepost.client.types import GroupMetadata, OffsetAndMetadata, TopicPartition
from fencepost.config import ProducerConfig
from fencepost.errors import UnsupportedVersionError
from fencepost.protocol.codes import ErrorCode as E
from fencepost.protocol.endings import Ending
from fencepost.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from fencepost.protocol.messages.describe_transactions import TransactionState
from fencepost.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from fencepost.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from fencepost.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest

__all__ = ["UNPREPARED_MS", "IdCalls"]

UNPREPARED_MS: Final = 900_000
"""Timeout of a two-phase transaction until prepare lifts it, in ms: the maximum that brokers allow by default."""


class IdCalls:
    """The requests of one producer. Each takes at most `max_block_ms`, then raises KafkaTimeoutError."""

    def __init__(
        self, cluster: Cluster, sender: Sender, config: ProducerConfig, unanswered_requests: UnansweredRequests
    ) -> None:
        self.transactional_id = config.transactional_id or ""
        self._cluster = cluster
        self._sender = sender
        self._config = config
        self._unanswered = unanswered_requests
        self.lifts = False
        """True if the broker can lift the timeout of a prepared transaction.

        In that case each transaction has a timeout until it is prepared.
        """
        self._unprepared_ms = UNPREPARED_MS

    def deadline(self) -> int:
        return self._cluster.runtime.now_ms() + self._config.max_block_ms

    @property
    def own(self) -> PreparedTransaction:
        """The current producer id and epoch, which identify the transaction being written."""
        return PreparedTransaction(self._sender.producer_id, self._sender.epoch)

    async def claim(self, keep_prepared: bool) -> InitProducerIdResponse:
        """Claim the transactional id with InitProducerId.

        A producer that has a producer id claims as its owner (KIP-360). A claim without an id fences other producers,
        so only init_transactions() may send it.
        """
        if self._config.two_phase_commit:
            # The pair (0, 0) names no transaction. The response shows if the broker has our fields, and so can lift a
            # timeout.
            placeholder = PreparedTransaction(0, 0)
            state = await describe_transaction(self._cluster, self.transactional_id, self.deadline(), placeholder)
            self.lifts = state is not None and state.ending != Ending.NOT_REPORTED
        two_phase = self._config.two_phase_commit
        if self._sender.producer_id >= 0:
            with suppress(UnsupportedVersionError):
                return await self._with_timeout(await self._init(self.own, two_phase=two_phase, keep=keep_prepared))
        return await self._with_timeout(await self._init(None, two_phase=two_phase, keep=keep_prepared))

    async def _with_timeout(self, claimed: InitProducerIdResponse) -> InitProducerIdResponse:
        """Give the next transactions a timeout until they are prepared.

        The claim has shown that two-phase commit is allowed. A kept transaction needs no second request.
        """
        if not self.lifts or claimed.error_code != 0 or claimed.ongoing_txn_producer_id >= 0:
            return claimed
        pair = PreparedTransaction(claimed.producer_id, claimed.producer_epoch)
        reply = await self._init(pair, two_phase=False, keep=False)
        if reply.error_code != E.INVALID_TRANSACTION_TIMEOUT:
            return reply
        self._unprepared_ms = self._config.transaction_timeout_ms
        return await self._init(pair, two_phase=False, keep=False)

    async def next_epoch(self) -> InitProducerIdResponse:
        """Take the next epoch as owner of the current one (KIP-360).

        Raises UnsupportedVersionError before Kafka 2.5.
        """
        return await self._init(self.own, two_phase=self._config.two_phase_commit and not self.lifts, keep=False)

    async def lift_timeout(self) -> InitProducerIdResponse:
        """Make the open transaction a two-phase one that takes no more records. The call can be repeated.

        The response's ongoing producer id and epoch name the transaction. Its other pair is needed to end it.
        """
        return await self._init(self.own, two_phase=True, keep=True)

    async def _init(self, pair: PreparedTransaction | None, *, two_phase: bool, keep: bool) -> InitProducerIdResponse:
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self._unprepared_ms if self.lifts else self._config.transaction_timeout_ms,
            producer_id=-1 if pair is None else pair.producer_id,
            producer_epoch=-1 if pair is None else pair.epoch,
            enable2_pc=two_phase,
            keep_prepared_txn=keep,
        )
        return await init_producer_id(self._cluster, request, self.deadline())

    async def end(self, *, commit: bool) -> EndTxnResponse:
        """End this producer's open transaction with EndTxn."""
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self._sender.producer_id,
            producer_epoch=self._sender.epoch,
            committed=commit,
        )
        return await end_txn(self._cluster, request, self.deadline(), unanswered=self._unanswered.unanswered)

    async def enlist(self, partitions: Iterable[tuple[str, int]]) -> int:
        """Send AddPartitionsToTxn. Return 0 or the final error code."""
        request = to_enlist(self.transactional_id, self._sender.producer_id, self._sender.epoch, partitions)
        return await enlist(self._cluster, request, self.deadline(), self._unanswered.unanswered)

    async def add_offsets(self, group_id: str) -> int:
        """Send AddOffsetsToTxn. Return 0 or the final error code."""
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self._sender.producer_id,
            producer_epoch=self._sender.epoch,
            group_id=group_id,
        )
        return await add_offsets(self._cluster, request, self.deadline(), self._unanswered.unanswered)

    async def commit_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata, *, implicit: bool
    ) -> int:
        """Send TxnOffsetCommit, see `txn_offset_commit`. Return 0 or the first error code."""
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            producer_id=self._sender.producer_id,
            producer_epoch=self._sender.epoch,
        )
        unanswered = self._unanswered.unanswered
        reply = await txn_offset_commit(
            self._cluster, request, offsets, group, self.deadline(), implicit=implicit, unanswered=unanswered
        )
        return offsets_code(reply)

    async def describe(self) -> TransactionState | None:
        """Return the coordinator's description of the id, or None if it cannot or may not describe it."""
        return await describe_transaction(self._cluster, self.transactional_id, self.deadline())

    async def find(
        self, prepared: PreparedTransaction, before: TransactionState | None, topics: Iterable[str]
    ) -> PreparedAnswer:
        """Find the outcome of a prepared transaction with `find_ending`."""
        return await find_ending(self._cluster, self.transactional_id, prepared, self.deadline(), before, topics)

    async def find_own_outcome(self) -> Ending:
        """Find the outcome of the present epoch's transaction with `transaction_answers.find_own_outcome`."""
        state = await describe_transaction(self._cluster, self.transactional_id, self.deadline(), self.own)
        return find_own_outcome(self.own, state, two_phase=self._config.two_phase_commit)

    async def may_have_timed_out(self, opened: TransactionClock) -> bool:
        """Return true if the timeout may have ended our transaction, so that our epoch is refused (before v2)."""
        if opened.for_ms() < self._config.transaction_timeout_ms and not self._unanswered.may_arrive:
            return False
        return not is_taken_over(await self.describe(), self._sender.producer_id, self._sender.epoch)
