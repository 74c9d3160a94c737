"""The calls of a transactional producer about its transactional id, as the owner of its producer id and epoch."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from fencepost.client.net.cluster import Cluster
from fencepost.client.net.transaction_calls import describe_transaction, end_txn, find_ending, init_producer_id
from fencepost.client.prepared import Found, PreparedTransaction
from fencepost.client.producer.sender import Sender
from fencepost.client.producer.transaction_answers import Opened, Strays, how_it_ended, is_taken_over
from fencepost.config import ProducerConfig
from fencepost.errors import UnsupportedVersionError
from fencepost.protocol.endings import Ending
from fencepost.protocol.messages.describe_transactions import TransactionState
from fencepost.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from fencepost.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

__all__ = ["IdCalls"]


class IdCalls:
    """One producer's. Each call has `max_block_ms` and raises KafkaTimeoutError when that is over."""

    def __init__(self, cluster: Cluster, sender: Sender, config: ProducerConfig, strays: Strays) -> None:
        self.transactional_id = config.transactional_id or ""
        self._cluster = cluster
        self._sender = sender
        self._config = config
        self._strays = strays

    def deadline(self) -> int:
        return self._cluster.runtime.now_ms() + self._config.max_block_ms

    @property
    def own(self) -> PreparedTransaction:
        """The producer id and epoch that this producer has, which name what it writes."""
        return PreparedTransaction(self._sender.producer_id, self._sender.epoch)

    async def claim(self, keep_prepared: bool) -> InitProducerIdResponse:
        """As the owner of the present epoch, or as anybody. Only who is asked to claim may ever ask as anybody."""
        if self._sender.producer_id >= 0:
            with suppress(UnsupportedVersionError):
                return await self._init(keep_prepared, current=True)
        return await self._init(keep_prepared, current=False)

    async def next_epoch(self) -> InitProducerIdResponse:
        """For the owner of the present epoch alone (KIP-360). Raises UnsupportedVersionError before Kafka 2.5."""
        return await self._init(False, current=True)

    async def _init(self, keep_prepared: bool, *, current: bool) -> InitProducerIdResponse:
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self._config.transaction_timeout_ms,
            producer_id=self._sender.producer_id if current else -1,
            producer_epoch=self._sender.epoch if current else -1,
            enable2_pc=self._config.two_phase_commit,
            keep_prepared_txn=keep_prepared,
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

    async def describe(self) -> TransactionState | None:
        """The id as its coordinator sees it; None when it cannot or may not tell."""
        return await describe_transaction(self._cluster, self.transactional_id, self.deadline())

    async def find(
        self, prepared: PreparedTransaction, before: TransactionState | None, topics: Iterable[str]
    ) -> Found:
        """How a prepared transaction ended, see `find_ending`."""
        return await find_ending(self._cluster, self.transactional_id, prepared, self.deadline(), before, topics)

    async def how_it_ended(self) -> Ending:
        """What became of the transaction of the present epoch, see `transaction_answers.how_it_ended`."""
        state = await describe_transaction(self._cluster, self.transactional_id, self.deadline(), self.own)
        return how_it_ended(self.own, state, two_phase=self._config.two_phase_commit)

    async def may_have_timed_out(self, opened: Opened) -> bool:
        """Whether a transaction of ours may have been ended by its timeout, before v2, so that our epoch is refused."""
        if opened.for_ms() < self._config.transaction_timeout_ms and not self._strays.may_arrive:
            return False
        return not is_taken_over(await self.describe(), self._sender.producer_id, self._sender.epoch)
