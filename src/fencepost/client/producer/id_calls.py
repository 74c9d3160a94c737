"""The calls of a transactional producer about its transactional id, as the owner of its producer id and epoch."""

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
from fencepost.client.producer.transaction_answers import OpenSince, UnansweredRequests, how_it_ended, is_taken_over
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
"""The timeout of a two-phase transaction until it is prepared, where prepare lifts it: the highest that brokers allow
by default."""


class IdCalls:
    """One producer's. Each call has `max_block_ms` and raises KafkaTimeoutError when that is over."""

    def __init__(self, cluster: Cluster, sender: Sender, config: ProducerConfig, strays: UnansweredRequests) -> None:
        self.transactional_id = config.transactional_id or ""
        self._cluster = cluster
        self._sender = sender
        self._config = config
        self._strays = strays
        self.lifts = False
        """The broker lifts the timeout of a transaction that is prepared. Until then each has one."""
        self._unprepared_ms = UNPREPARED_MS

    def deadline(self) -> int:
        return self._cluster.runtime.now_ms() + self._config.max_block_ms

    @property
    def own(self) -> PreparedTransaction:
        """The producer id and epoch that this producer has, which name what it writes."""
        return PreparedTransaction(self._sender.producer_id, self._sender.epoch)

    async def claim(self, keep_prepared: bool) -> InitProducerIdResponse:
        """As the owner of the present epoch, or as anybody. Only who is asked to claim may ever ask as anybody."""
        if self._config.two_phase_commit:
            # Of no transaction: the answer tells whether the broker has our fields, and so can lift a timeout.
            asked = PreparedTransaction(0, 0)
            state = await describe_transaction(self._cluster, self.transactional_id, self.deadline(), asked)
            self.lifts = state is not None and state.ending != Ending.NOT_TOLD
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
        """For the owner of the present epoch alone (KIP-360). Raises UnsupportedVersionError before Kafka 2.5."""
        return await self._init(self.own, two_phase=self._config.two_phase_commit and not self.lifts, keep=False)

    async def lift_timeout(self) -> InitProducerIdResponse:
        """Make the open transaction a two-phase one that takes no more records. May be repeated.

        The ongoing pair of the answer names it, and the other pair ends it.
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
        """EndTxn of what this producer has open."""
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self._sender.producer_id,
            producer_epoch=self._sender.epoch,
            committed=commit,
        )
        return await end_txn(self._cluster, request, self.deadline(), unanswered=self._strays.unanswered)

    async def enlist(self, partitions: Iterable[tuple[str, int]]) -> int:
        """AddPartitionsToTxn: 0 or the final code."""
        request = to_enlist(self.transactional_id, self._sender.producer_id, self._sender.epoch, partitions)
        return await enlist(self._cluster, request, self.deadline(), self._strays.unanswered)

    async def add_offsets(self, group_id: str) -> int:
        """AddOffsetsToTxn: 0 or the final code."""
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self._sender.producer_id,
            producer_epoch=self._sender.epoch,
            group_id=group_id,
        )
        return await add_offsets(self._cluster, request, self.deadline(), self._strays.unanswered)

    async def commit_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata, *, implicit: bool
    ) -> int:
        """TxnOffsetCommit, see `txn_offset_commit`: 0 or the first code."""
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            producer_id=self._sender.producer_id,
            producer_epoch=self._sender.epoch,
        )
        unanswered = self._strays.unanswered
        reply = await txn_offset_commit(
            self._cluster, request, offsets, group, self.deadline(), implicit=implicit, unanswered=unanswered
        )
        return offsets_code(reply)

    async def describe(self) -> TransactionState | None:
        """The id as its coordinator sees it; None when it cannot or may not tell."""
        return await describe_transaction(self._cluster, self.transactional_id, self.deadline())

    async def find(
        self, prepared: PreparedTransaction, before: TransactionState | None, topics: Iterable[str]
    ) -> PreparedAnswer:
        """Find the outcome of a prepared transaction with `find_ending`."""
        return await find_ending(self._cluster, self.transactional_id, prepared, self.deadline(), before, topics)

    async def how_it_ended(self) -> Ending:
        """Find the outcome of the present epoch's transaction with `transaction_answers.how_it_ended`."""
        state = await describe_transaction(self._cluster, self.transactional_id, self.deadline(), self.own)
        return how_it_ended(self.own, state, two_phase=self._config.two_phase_commit)

    async def may_have_timed_out(self, opened: OpenSince) -> bool:
        """Return true if the timeout may have ended our transaction, so that our epoch is refused (before v2)."""
        if opened.for_ms() < self._config.transaction_timeout_ms and not self._strays.may_arrive:
            return False
        return not is_taken_over(await self.describe(), self._sender.producer_id, self._sender.epoch)
