"""Admin calls for transactions, without a producer (KIP-664, KIP-939).

`init_producer_id` and `end_transaction` send single requests, and repeat them if that is safe. A transaction does not
belong to a connection: transactional id, producer id and epoch identify it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Final, NamedTuple

from fencepost.arguments import Int16, Int16OrMinusOne, Int32, Int32OrMinusOne, OrMinusOne
from fencepost.client.admin.base import AdminBase
from fencepost.client.admin.items import Outcomes, outcomes_of
from fencepost.client.net.answers import only, refusal
from fencepost.client.net.cluster import Coordinator, CoordinatorKind, Leader
from fencepost.client.net.retry import OFFSET_FETCH, TXN_OFFSET_COMMIT
from fencepost.client.net.tasks import gather
from fencepost.client.net.transaction_calls import MOVED_ON, end_txn, find_ending, init_producer_id
from fencepost.client.prepared import PreparedTransaction, name_of, settle_commit, unknown_outcome
from fencepost.client.types import TopicPartition
from fencepost.errors import (
    ItemsFailedError,
    KafkaError,
    KafkaTimeoutError,
    ProducerFencedError,
    ProtocolError,
    TransactionCommittedError,
    error_for,
)
from fencepost.protocol.codes import ErrorCode as E
from fencepost.protocol.codes import describe
from fencepost.protocol.endings import Ending
from fencepost.protocol.logs.topic_names import TRANSACTION_STATE
from fencepost.protocol.messages import describe_producers as dp
from fencepost.protocol.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from fencepost.protocol.messages.end_txn import EndTxnRequest
from fencepost.protocol.messages.init_producer_id import InitProducerIdRequest
from fencepost.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from fencepost.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

MOST_NAMED: Final = 3  # ids in error messages
FENCING_BY_GROUP: Final = {TXN_OFFSET_COMMIT: 3, OFFSET_FETCH: 7}
"""Versions of a broker that verifies the member and holds back pending offsets (KIP-447), by API key."""


class InitResult(NamedTuple):
    """Response of InitProducerId. The ongoing producer id and epoch are -1 unless a prepared transaction was kept."""

    producer_id: int
    producer_epoch: int
    ongoing_producer_id: int = -1
    ongoing_producer_epoch: int = -1


class EndResult(NamedTuple):
    """Response of EndTxn: the error code, and the producer id and epoch to continue with (-1 below v5)."""

    error_code: int
    producer_id: int
    producer_epoch: int


class TransactionListing(NamedTuple):
    """A listed transaction. `state` is Kafka's name: Empty, Ongoing, PrepareCommit, ..."""

    transactional_id: str
    producer_id: int
    state: str


class TransactionDescription(NamedTuple):
    """A transaction. `error_code` is 105 for an unknown id; start_time_ms is -1 if no transaction is open.

    Producer id and epoch are those that end an open transaction. `prepared` has those of its records. They differ if a
    producer has kept the transaction (`init_transactions(keep_prepared=True)`).
    """

    transactional_id: str
    error_code: int
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_time_ms: int
    partitions: tuple[TopicPartition, ...]
    prepared: PreparedTransaction | None = None


class ProducerDescription(NamedTuple):
    """A producer's state in a partition. `transaction_start_offset` is -1 if it has no open transaction there."""

    producer_id: int
    producer_epoch: Int16
    last_sequence: Int32OrMinusOne
    last_timestamp_ms: OrMinusOne
    coordinator_epoch: Int32OrMinusOne
    transaction_start_offset: OrMinusOne


class AdminTransactions(AdminBase):
    """Transaction calls of `AdminCore`."""

    async def init_producer_id(
        self,
        transactional_id: str | None,
        *,
        timeout_ms: Int32 = 60_000,
        two_phase: bool = False,
        keep_prepared: bool = False,
        producer_id: int = -1,
        producer_epoch: Int16OrMinusOne = -1,
        api_timeout_ms: int | None = None,
    ) -> InitResult:
        """Send InitProducerId: fence earlier producers of the id, and abort their open transaction.

        Args:
            transactional_id: The transactional id; None: only get a producer id.
            timeout_ms: Transaction timeout in ms. A two-phase transaction has none.
            two_phase: Enable two-phase commit (KIP-939).
            keep_prepared: Keep an open transaction instead of aborting it (KIP-939).
            producer_id: Expected producer id; -1: any.
            producer_epoch: Expected epoch; -1: any.
            api_timeout_ms: Time limit of the call in ms; default: default_api_timeout_ms.

        Raises:
            ProducerFencedError: The expected producer id or epoch is not the current one.
            TransactionalIdAuthorizationError: The principal may not use the id, or two-phase commit is disabled.
            UnsupportedVersionError: The broker does not support an option.
            KafkaTimeoutError: No response in time.
        """
        request = InitProducerIdRequest(
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            enable2_pc=two_phase,
            keep_prepared_txn=keep_prepared,
        )
        reply = await init_producer_id(self.cluster, request, self._deadline(api_timeout_ms))
        if reply.error_code in (E.INVALID_PRODUCER_EPOCH, E.PRODUCER_FENCED):
            words = f"InitProducerId of {transactional_id!r} with {producer_id}:{producer_epoch}"
            raise ProducerFencedError(f"{words}: {describe(reply.error_code)}", code=reply.error_code)
        if reply.error_code != 0:
            raise error_for(reply.error_code, f"InitProducerId of {transactional_id!r}")
        return InitResult(
            reply.producer_id,
            reply.producer_epoch,
            reply.ongoing_txn_producer_id,
            reply.ongoing_txn_producer_epoch,
        )

    async def end_transaction(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: Int16,
        commit: bool,
        *,
        version: Int16 | None = None,
        api_timeout_ms: int | None = None,
    ) -> EndResult:
        """Send EndTxn and return its error code, after retries of codes 14, 15, 16, 51 and of lost connections.

        Args:
            transactional_id: The transactional id.
            producer_id: Producer id of the transaction.
            producer_epoch: Epoch of the transaction.
            commit: Commit or abort.
            version: Version of the request; default: 5 with transaction.version 2, else at most 4.
            api_timeout_ms: Time limit of the call in ms; default: default_api_timeout_ms.

        Raises:
            KafkaTimeoutError: No response in time (`outcome_unknown`).
            UnsupportedVersionError: The broker does not support the version.
        """
        request = EndTxnRequest(
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            committed=commit,
        )
        reply = await end_txn(self.cluster, request, self._deadline(api_timeout_ms), version)
        return EndResult(reply.error_code, reply.producer_id, reply.producer_epoch)

    async def complete(
        self,
        transactional_id: str,
        prepared: PreparedTransaction,
        *,
        commit: bool,
        topics: Iterable[str] = (),
        api_timeout_ms: int | None = None,
    ) -> None:
        """Commit or abort a prepared transaction, from any client.

        The call can be repeated with the same decision, also after another client has completed the transaction. It
        also ends a transaction that a producer keeps (`init_transactions(keep_prepared=True)`). It does nothing for a
        transaction that was prepared without records.

        Args:
            transactional_id: The transactional id.
            prepared: The name of the prepared transaction.
            commit: Commit or abort.
            topics: Topics of the transaction. Apache Kafka does not store the outcome of a transaction after the next
                one of the id. These topics are then searched from the beginning for the transaction's marker.
            api_timeout_ms: Time limit of the call in ms; default: default_api_timeout_ms.

        Raises:
            PreparedTransactionLostError: It was to be committed, and is aborted.
            TransactionCommittedError: It was to be aborted, and is committed.
            TransactionOutcomeUnknownError: The broker does not know the outcome.
            KafkaTimeoutError: No response in time; repeat the call.
        """
        deadline_ms = self._deadline(api_timeout_ms)
        pair, attempt, operation = prepared, 0, f"transaction {prepared} of {transactional_id!r}"
        unanswered: list[KafkaError] = []
        while True:
            request = EndTxnRequest(
                transactional_id=transactional_id,
                producer_id=pair.producer_id,
                producer_epoch=pair.epoch,
                committed=commit,
            )
            code = (await end_txn(self.cluster, request, deadline_ms, unanswered=unanswered)).error_code
            if code == 0:
                return
            if code not in MOVED_ON:
                raise refusal(code, operation, None, unanswered)
            answer = await find_ending(self.cluster, transactional_id, prepared, deadline_ms, topics=topics)
            if answer.ending is not Ending.OPEN or answer.ended_by is None:
                break
            if answer.ended_by == pair:  # it was kept once more, or is being ended
                await self.cluster.pause_after(error_for(code, operation), attempt, deadline_ms, operation)
                attempt += 1
            pair = answer.ended_by
        if commit:
            settle_commit(transactional_id, prepared, answer)
        elif answer.ending is Ending.COMMITTED:
            raise TransactionCommittedError(f"{operation} is committed already ({answer.words})", code=code)
        elif answer.ending is Ending.UNKNOWN:
            raise unknown_outcome(transactional_id, prepared, answer)

    async def fence_producers(
        self, transactional_ids: Iterable[str], *, api_timeout_ms: int | None = None
    ) -> dict[str, InitResult]:
        """Fence the producers of these ids and abort their open transactions; return the responses by id.

        Raises:
            ItemsFailedError: The producers of some ids could not be fenced; those of the others were.
        """
        ids = dict.fromkeys(transactional_ids)
        calls = {each: self.init_producer_id(each, api_timeout_ms=api_timeout_ms) for each in ids}
        return (await outcomes_of(self.cluster, calls)).results("fence producers")

    async def force_terminate_transaction(self, transactional_id: str, *, api_timeout_ms: int | None = None) -> None:
        """Abort the open transaction of the id, also a prepared one (KIP-939), and fence its producer."""
        await self.init_producer_id(transactional_id, api_timeout_ms=api_timeout_ms)

    async def list_transactions(
        self,
        pattern: str | None = None,
        *,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        duration_ms: int = -1,
        api_timeout_ms: int | None = None,
    ) -> list[TransactionListing]:
        """Return the transactional ids of the cluster that match the filters.

        Args:
            pattern: Regular expression for the whole id (RE2 in the broker since v2, else Python's).
            states: Only these states, by Kafka's names; default: all.
            producer_ids: Only these producer ids; default: all.
            duration_ms: Only transactions open for at least this time in ms (v1), and ids that never began one;
                default: all.
            api_timeout_ms: Time limit of the call in ms; default: default_api_timeout_ms.

        Raises:
            ItemsFailedError: Some brokers did not answer in time. By broker id, `results` has the ids of the others,
                and `errors` the reasons; at -1 if partitions of `__transaction_state` have no leader.
            KafkaTimeoutError: No broker answered in time.
            UnsupportedVersionError: A broker does not support a filter.
        """
        request = ListTransactionsRequest(
            state_filters=list(states),
            producer_id_filters=list(producer_ids),
            duration_filter=duration_ms,
            transactional_id_pattern=pattern,
        )
        found = await self._transactions_by_broker(self._deadline(api_timeout_ms), request)
        listed = chain.from_iterable(found.results("ListTransactions").values())
        return sorted(each for each in listed if not pattern or re.fullmatch(pattern, each.transactional_id))

    async def _transactions_by_broker(
        self,
        deadline_ms: int,
        request: ListTransactionsRequest,
        away: Mapping[int, KafkaError] | None = None,
    ) -> Outcomes[int]:
        """Return lists of TransactionListing by broker id. Results and errors are those of `_of_each_broker`."""
        lowest = 1 if request.duration_filter >= 0 else 0

        async def ask(node: int, until_ms: int) -> list[TransactionListing]:
            reply: ListTransactionsResponse = await self._ask_once(node, request, (lowest, 2), until_ms)
            if reply.error_code != 0:
                raise error_for(reply.error_code, f"ListTransactions of broker {node}")
            return [
                TransactionListing(each.transactional_id, each.producer_id, each.transaction_state)
                for each in reply.transaction_states
            ]

        return await self._of_each_broker("ListTransactions", TRANSACTION_STATE, ask, deadline_ms, away)

    async def describe_transactions(
        self, transactional_ids: Sequence[str], *, api_timeout_ms: int | None = None
    ) -> list[TransactionDescription]:
        """Return a description of each id, in order; an unknown id has error_code 105.

        Raises:
            ItemsFailedError: Some ids could not be described in time, such as those of a coordinator that does not
                answer; `results` has the descriptions of the others.
            KafkaError: No id could be described, or a coordinator refused one.
        """
        deadline_ms = self._deadline(api_timeout_ms)
        missing = list(dict.fromkeys(transactional_ids))
        found: dict[str, TransactionDescription] = {}
        attempt, operation = 0, f"DescribeTransactions of {', '.join(map(repr, missing[:MOST_NAMED]))}"
        while missing:
            error = await self._describe_some(missing, found, deadline_ms)
            missing = [transactional_id for transactional_id in missing if transactional_id not in found]
            if missing:
                left_out = ProtocolError(f"{operation}: the coordinator left it out of its answer")
                try:
                    await self.cluster.pause_after(error or left_out, attempt, deadline_ms, operation)
                except KafkaTimeoutError as late:
                    if not found:
                        raise
                    errors = dict.fromkeys(missing, late)
                    raise ItemsFailedError.of("DescribeTransactions", found, errors) from late
                attempt += 1
        self.cluster.lasting_errors.succeeded(operation)
        return [found[transactional_id] for transactional_id in transactional_ids]

    async def _describe_some(
        self, missing: Sequence[str], descriptions: dict[str, TransactionDescription], deadline_ms: int
    ) -> KafkaError | None:
        by_node: dict[int, list[str]] = defaultdict(list)
        error: KafkaError | None = None
        try:
            await self.cluster.learn_coordinators(CoordinatorKind.TRANSACTION, missing, deadline_ms)
            for transactional_id in missing:
                target = Coordinator(CoordinatorKind.TRANSACTION, transactional_id)
                by_node[await self.cluster.coordinator(target, deadline_ms)].append(transactional_id)
        except KafkaError as failure:
            if not self.cluster.worth_retrying(failure):
                raise
            return failure
        calls = [self._describe_at(node, ids, deadline_ms) for node, ids in by_node.items()]
        for (_, ids), result in zip(by_node.items(), await gather(self.cluster.runtime, calls), strict=True):
            if isinstance(result, KafkaError) and self.cluster.worth_retrying(result):
                for transactional_id in ids:
                    self.cluster.forget_coordinator(Coordinator(CoordinatorKind.TRANSACTION, transactional_id))
                error = result
            elif isinstance(result, Exception):
                raise result
            else:
                error = self._take_descriptions(result, descriptions) or error
        return error

    def _take_descriptions(
        self, described: Iterable[TransactionDescription], found: dict[str, TransactionDescription]
    ) -> KafkaError | None:
        error: KafkaError | None = None
        for transaction in described:
            if transaction.error_code in (0, E.TRANSACTIONAL_ID_NOT_FOUND):
                found[transaction.transactional_id] = transaction
                continue
            error = error_for(transaction.error_code, f"DescribeTransactions of {transaction.transactional_id!r}")
            if not self.cluster.worth_retrying(error):
                raise error
            self.cluster.forget_coordinator(Coordinator(CoordinatorKind.TRANSACTION, transaction.transactional_id))
        return error

    async def _describe_at(self, node_id: int, ids: list[str], deadline_ms: int) -> list[TransactionDescription]:
        request = DescribeTransactionsRequest(transactional_ids=ids, include_ending=True)
        reply: DescribeTransactionsResponse = await self._ask_once(node_id, request, (0, 0), deadline_ms)
        return [
            TransactionDescription(
                transaction.transactional_id,
                transaction.error_code,
                transaction.transaction_state,
                transaction.producer_id,
                transaction.producer_epoch,
                transaction.transaction_timeout_ms,
                transaction.transaction_start_time_ms,
                tuple(
                    TopicPartition(topic.topic, number) for topic in transaction.topics for number in topic.partitions
                ),
                name_of(transaction),
            )
            for transaction in reply.transaction_states
        ]

    async def describe_producers(
        self, partitions: Sequence[tuple[str, int]], *, api_timeout_ms: int | None = None
    ) -> dict[TopicPartition, list[ProducerDescription]]:
        """Return the producers that the leader of each partition knows, with open transactions.

        Raises:
            ItemsFailedError: Some partitions failed, such as those of a leader that does not answer; `results` has the
                producers of the others.
            KafkaError: All partitions failed.
        """
        outcomes = await self._producers_of_each(partitions, self._deadline(api_timeout_ms))
        if outcomes.failed and not outcomes.done:
            raise next(iter(outcomes.failed.values()))
        return outcomes.results("DescribeProducers")

    async def _producers_of_each(
        self, partitions: Iterable[tuple[str, int]], deadline_ms: int
    ) -> Outcomes[TopicPartition]:
        """Return lists of ProducerDescription."""
        asked = [TopicPartition(*partition) for partition in partitions]
        return await outcomes_of(
            self.cluster, {partition: self._describe_producers_of(partition, deadline_ms) for partition in asked}
        )

    async def _describe_producers_of(self, partition: TopicPartition, deadline_ms: int) -> list[ProducerDescription]:
        reply: dp.DescribeProducersResponse = await self.cluster.call(
            Leader(partition.topic, partition.partition),
            dp.DescribeProducersRequest(
                topics=[dp.TopicRequest(name=partition.topic, partition_indexes=[partition.partition])]
            ),
            (0, 0),
            deadline_ms=deadline_ms,
            code_of=lambda answer: int(only(only(answer.topics).partitions).error_code),
        )
        described = only(only(reply.topics).partitions)
        if described.error_code != 0:
            raise error_for(
                described.error_code, f"producers of {partition.topic}-{partition.partition}", described.error_message
            )
        return [
            ProducerDescription(
                state.producer_id,
                state.producer_epoch,
                state.last_sequence,
                state.last_timestamp,
                state.coordinator_epoch,
                state.current_txn_start_offset,
            )
            for state in described.active_producers
        ]

    async def write_abort_marker(
        self, partition: tuple[str, int], producer: ProducerDescription, *, api_timeout_ms: int | None = None
    ) -> None:
        """Abort a hanging transaction in one partition by an abort marker (KIP-664; needs CLUSTER_ACTION).

        Use it only for a transaction that its coordinator no longer knows, and has not committed. Raises KafkaError.
        """
        await self._write_marker(partition, producer, api_timeout_ms, commit=False)

    async def write_commit_marker(
        self, partition: tuple[str, int], producer: ProducerDescription, *, api_timeout_ms: int | None = None
    ) -> None:
        """Write the commit marker that a hanging transaction lacks in one partition (needs CLUSTER_ACTION).

        Use it only for a transaction that its coordinator has committed: its records become visible. Raises KafkaError.
        """
        await self._write_marker(partition, producer, api_timeout_ms, commit=True)

    async def _write_marker(
        self, partition: tuple[str, int], producer: ProducerDescription, api_timeout_ms: int | None, *, commit: bool
    ) -> None:
        topic, number = partition
        marker = WritableTxnMarker(
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            transaction_result=commit,
            topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[number])],
            coordinator_epoch=max(producer.coordinator_epoch, 0),
        )
        unanswered: list[KafkaError] = []
        reply: WriteTxnMarkersResponse = await self.cluster.call(
            Leader(topic, number),
            WriteTxnMarkersRequest(markers=[marker]),
            (0, 1),
            deadline_ms=self._deadline(api_timeout_ms),
            code_of=lambda answer: int(only(only(only(answer.markers).topics).partitions).error_code),
            unanswered=unanswered,
        )
        code = only(only(only(reply.markers).topics).partitions).error_code
        if code != 0:
            operation = f"{'commit' if commit else 'abort'} marker for {topic}-{number}"
            raise refusal(code, operation, None, unanswered)

    async def features(self, *, api_timeout_ms: int | None = None) -> dict[str, int]:
        """Return the finalized feature levels, such as {"transaction.version": 2}. A missing feature has level 0."""
        await self.cluster.reached("connection to a broker", self._deadline(api_timeout_ms))
        return dict(self.cluster.features)

    async def fences_by_group(self, *, api_timeout_ms: int | None = None) -> bool:
        """Return true if one transactional producer per thread is safe (KIP-447), with fencing by group generation.

        Every broker must verify the member (TxnOffsetCommit v3) and hold back pending offsets (OffsetFetch v7).
        Otherwise each input partition needs a producer of its own.
        """
        deadline_ms = self._deadline(api_timeout_ms)
        await self.cluster.refresh([], deadline_ms)
        return await self._offered_by(sorted(self.cluster.nodes), FENCING_BY_GROUP, deadline_ms)

    async def _offered_by(self, nodes: Iterable[int], versions: Mapping[int, int], deadline_ms: int) -> bool:
        """Return true if each of these brokers offers each API key in this version or a later one."""
        for node in nodes:
            offered = (await self.cluster.connection(node, deadline_ms)).versions
            if any(offered.get(api_key, (0, 0))[1] < version for api_key, version in versions.items()):
                return False
        return True

    async def api_versions(self, *, api_timeout_ms: int | None = None) -> dict[int, tuple[int, int]]:
        """Return the API versions of one broker: API key -> (lowest, highest) version."""
        connection = await self.cluster.reached("connection to a broker", self._deadline(api_timeout_ms))
        return dict(connection.versions)
