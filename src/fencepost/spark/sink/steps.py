"""Carry out the steps of plan.py that send requests to a cluster, with the client's async core over any Runtime.

writer.py carries out the steps about a task's rows (HasRows, DrainRows, WriteRows), because it has the rows.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from fencepost.client.admin.configs import BROKER_RESOURCE
from fencepost.client.admin.transactions import TransactionDescription
from fencepost.client.net.cluster import CoordinatorKind
from fencepost.client.net.connection import BrokerConnection
from fencepost.client.net.tasks import gather
from fencepost.client.net.transaction_calls import (
    END_TXN_WITH_BUMP,
    TRANSACTION_VERSION,
    init_producer_id,
    must_enlist,
)
from fencepost.errors import (
    ConfigurationError,
    KafkaError,
    KafkaTimeoutError,
    ProtocolError,
    UnsupportedVersionError,
    error_for,
)
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from fencepost.protocol.messages.describe_transactions import DescribeTransactionsRequest
from fencepost.protocol.messages.end_txn import EndTxnRequest
from fencepost.protocol.messages.init_producer_id import InitProducerIdRequest
from fencepost.protocol.transactions import NO_TIMEOUT_MS
from fencepost.spark.cluster_calls import ClusterCalls
from fencepost.spark.errors import SinkContradictionError
from fencepost.spark.sink import names, plan, plan_abilities, plan_steps, wire
from fencepost.spark.sink.decision import Beginning, Decision, Pair, Winner
from fencepost.spark.sink.decision_store import DEFAULT_TOPIC, DecisionStore, KnownQuery
from fencepost.spark.sink.task_ids import IdPool, TaskIds
from fencepost.spark.sink.unfinished import unknown_outcome_warning
from fencepost.values import Value

__all__ = ["SinkConfig", "StepRunner"]

log = logging.getLogger("fencepost.spark")

T = TypeVar("T")

STEP_TIMEOUT_MS: Final = 120_000
CLAIM_TIMEOUT_MS: Final = 60_000  # of the transaction that writes a decision
DEFAULT_TIMEOUT_MS: Final = 900_000  # Kafka's default transaction.max.timeout.ms
MAX_TIMEOUT: Final = "transaction.max.timeout.ms"
AT_ONCE: Final = 256
ALL_BROKERS_MS: Final = 10_000  # the longest wait for a broker's versions
GIVE_UP_MS: Final = 10_000  # the longest wait of a failing task for the end of its transaction
COMPLETION_MS: Final = 60_000  # the part of a timeout that must be left for a decision and its completion
DESCRIBED_AT_ONCE: Final = 500


class SinkConfig(Value):
    """Settings for the steps of a sink. Times are in milliseconds."""

    # After this time the broker aborts an attempt that died writing; with the guarantee `timed`, also a decided
    # transaction. None: 15 minutes, or the brokers' maximum if that is less.
    transaction_timeout_ms: int | None = None
    step_timeout_ms: int = STEP_TIMEOUT_MS
    decision_topic: str = DEFAULT_TOPIC
    output_topic: str | None = None  # the topic of all rows; the decision topic gets as many replicas


class StepRunner:
    """Carries out the steps of all plans of a sink in this process.

    Args:
        admin: The client.
        config: The settings of the steps.
        unique: Returns 16 bytes that it never returned before, in any process.
        pool: Keeps task ids between their uses.
    """

    def __init__(self, admin: ClusterCalls, config: SinkConfig, unique: Callable[[], bytes], pool: IdPool) -> None:
        self._admin = admin
        self._cluster = admin.cluster
        self._config = config
        self._ids = TaskIds(unique, pool)
        self._claim_timeout_ms = CLAIM_TIMEOUT_MS
        self._timeout_ms = config.transaction_timeout_ms or DEFAULT_TIMEOUT_MS
        self._store = DecisionStore(admin, config.decision_topic, config.output_topic)

    @property
    def admin(self) -> ClusterCalls:
        """The client."""
        return self._admin

    @property
    def transaction_timeout_ms(self) -> int:
        """The timeout of a task's transaction: as configured, or the brokers' maximum if they refused it."""
        return self._timeout_ms

    @property
    def decision_topic(self) -> str:
        """The name of the decision topic."""
        return self._config.decision_topic

    async def run(self, steps: plan.Plan[T]) -> T:
        """Carry a plan out to its end."""
        try:
            step = next(steps)
            while True:
                try:
                    observation = await self.perform(step)
                except Exception as error:  # noqa: BLE001 - the plan decides
                    step = steps.throw(error)
                else:
                    step = steps.send(observation)
        except StopIteration as stop:
            result: T = stop.value
            return result

    async def perform(self, step: plan_steps.Step) -> Any:
        """Carry out the step, as its docstring says. Raises KafkaError if the step's time limit expires."""
        deadline_ms = self._cluster.runtime.now_ms() + self._config.step_timeout_ms
        match step:
            case plan_steps.ListTransactions(sink):
                return await self._list(sink)
            case plan_steps.Claim(sink):
                return await self._claim(sink)
            case plan_steps.ReadDecisions(sink):
                return await self._store.read(sink, deadline_ms)
            case plan_steps.EndTransactions(ends):
                return await self._end_all(ends)
            case plan_steps.SaveOffsets():
                return None  # writer.py has the query's options, and so the checkpoint
            case plan_steps.KeepWinners(winners):
                return await self._keep_all(winners)
            case plan_steps.DescribeWinners(sink, transactional_ids):
                return await self._describe_winners(sink, transactional_ids)
            case plan_steps.DescribeTasks(transactional_ids):
                return await self._describe(transactional_ids)
            case plan_steps.WriteDecision(claim, decision, complete, verified):
                writing = self._store.write(claim, decision, deadline_ms, complete, verified=verified)
                return await self._decide(decision.sink, claim, writing)
            case plan_steps.ForgetQuery(claim, sink, query_id, verified):
                forgetting = self._store.forget(claim, sink, query_id, deadline_ms, verified=verified)
                return await self._decide(sink, claim, forgetting)
            case plan_steps.VerifyClaim() | plan_steps.BumpEpoch() | plan_steps.HasDecided():
                return await self._ask(step, deadline_ms)
            case _:
                return await self._perform_for_task(step, deadline_ms)

    async def _ask(
        self, step: plan_steps.VerifyClaim | plan_steps.BumpEpoch | plan_steps.HasDecided, deadline_ms: int
    ) -> Any:
        match step:
            case plan_steps.BumpEpoch(sink, claim):
                return await self._bump_epoch(sink, claim, deadline_ms)
            case plan_steps.HasDecided(sink, claim):
                return await self._store.has_decided(sink, claim, deadline_ms)
            case plan_steps.VerifyClaim(sink, claim) if await self._must_enlist(deadline_ms):
                return await self.run(plan_abilities.verify_claim(sink, claim))
            case plan_steps.VerifyClaim(sink, claim):
                return await self._end(plan_steps.EndTxn(names.sink_id(sink), claim, commit=False))

    async def _perform_for_task(self, step: plan_steps.Step, deadline_ms: int) -> Any:
        match step:
            case plan_steps.AcquireTaskId(opened):
                return self._ids.take(opened)
            case plan_steps.BeginTask(transactional_id, batch, two_phase):
                pair = await self._begin(transactional_id, two_phase, deadline_ms)
                if pair is not None:
                    self._ids.begun(transactional_id, batch)
                return pair
            case plan_steps.ReportUnknown(sink, abilities, unknown):
                return log.warning("%s", unknown_outcome_warning(sink, abilities, unknown))
            case plan_steps.AbortTask(transactional_id, pair):
                return await self._abort_task(plan_steps.EndTxn(transactional_id, pair, commit=False))
            case plan_steps.DescribeBroker():
                return await self._describe_broker(deadline_ms)
            case plan_steps.ProbeTwoPhase(sink, keep_prepared):
                return await self._probe(sink, keep_prepared, deadline_ms)
            case _:
                raise SinkContradictionError(f"{type(step).__name__} is not a step that talks to the cluster")

    async def last_decisions(self, sink: str) -> tuple[Decision, ...]:
        """Return the last decision of every query of the sink, without creating the topic. Raises as ReadDecisions."""
        deadline_ms = self._cluster.runtime.now_ms() + self._config.step_timeout_ms
        return await self._store.read(sink, deadline_ms) if await self._store.is_there(deadline_ms) else ()

    async def decided_by_others(self, sink: str, query_id: str) -> tuple[Decision, ...]:
        """Return the query's last decisions in sinks of other names. Raises as ReadDecisions does."""
        deadline_ms = self._cluster.runtime.now_ms() + self._config.step_timeout_ms
        found = await self._store.read_query(query_id, deadline_ms)
        return tuple(decision for decision in found if decision.sink != sink)

    async def last_elsewhere(self, sink: str, query_id: str) -> tuple[Decision, ...]:
        """Return the result of `decided_by_others`, without creating the topic."""
        is_there = await self._store.is_there(self._cluster.runtime.now_ms() + self._config.step_timeout_ms)
        return await self.decided_by_others(sink, query_id) if is_there else ()

    async def queries(self, sink: str) -> tuple[KnownQuery, ...]:
        """Return the sink's queries, as DecisionStore has them. Raises as ReadDecisions does."""
        return await self._store.queries(sink, self._cluster.runtime.now_ms() + self._config.step_timeout_ms)

    async def begin(self, beginning: Beginning) -> None:
        """Write the query's beginning to the decision topic. Raises KafkaError."""
        await self._store.begin(beginning, self._cluster.runtime.now_ms() + self._config.step_timeout_ms)

    def knows(self, sink: str, query_id: str) -> bool:
        """Return true if the last read found the query, and it was not released."""
        return self._store.knows(sink, query_id)

    # --- open ---

    async def _list(self, sink: str) -> tuple[plan_steps.SinkTransaction, ...]:
        timeout_ms = self._config.step_timeout_ms
        shown = await self._admin.list_transactions(
            names.listing_pattern(sink), states=("Ongoing",), api_timeout_ms=timeout_ms
        )
        ids = [txn.transactional_id for txn in shown if _belongs(sink, txn.transactional_id)]
        return await self._describe(ids)

    async def _describe(self, ids: Sequence[str]) -> tuple[plan_steps.SinkTransaction, ...]:
        return tuple(
            plan_steps.SinkTransaction(txn.transactional_id, Pair(txn.producer_id, txn.producer_epoch), txn.state)
            for txn in await self._descriptions(ids)
            if txn.error_code == 0  # the others have expired since they were listed
        )

    async def _descriptions(self, ids: Sequence[str]) -> list[TransactionDescription]:
        """Return the descriptions in the order of `ids`. Raises the error of a refusal, except for an unknown id."""
        found: list[TransactionDescription] = []
        for at in range(0, len(ids), DESCRIBED_AT_ONCE):
            chunk = ids[at : at + DESCRIBED_AT_ONCE]
            found += await self._admin.describe_transactions(chunk, api_timeout_ms=self._config.step_timeout_ms)
        for txn in found:
            if txn.error_code not in (ErrorCode.NONE, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND):
                raise error_for(txn.error_code, f"describe {txn.transactional_id!r}")
        return found

    async def _claim(self, sink: str) -> Pair:
        step_ms = self._config.step_timeout_ms
        while True:
            try:
                result = await self._admin.init_producer_id(
                    names.sink_id(sink), timeout_ms=self._claim_timeout_ms, api_timeout_ms=step_ms
                )
            except ConfigurationError as error:
                allowed = await self._longest_timeout(self._cluster.runtime.now_ms() + step_ms)
                if error.code != ErrorCode.INVALID_TRANSACTION_TIMEOUT or not 0 < allowed < self._claim_timeout_ms:
                    raise
                self._claim_timeout_ms = allowed
            else:
                return Pair(result.producer_id, result.producer_epoch)

    # --- ends ---

    async def _end(self, end: plan_steps.EndTxn, patience_ms: int | None = None) -> int:
        timeout_ms = patience_ms or self._config.step_timeout_ms
        deadline_ms = self._cluster.runtime.now_ms() + timeout_ms
        is_v1 = await self._must_enlist(deadline_ms)
        result = await self._admin.end_transaction(
            end.transactional_id,
            end.pair.producer_id,
            end.pair.epoch,
            end.commit,
            # Without that version, each transaction of the sink gets its own epoch from InitProducerId.
            version=None if is_v1 else END_TXN_WITH_BUMP,
            api_timeout_ms=timeout_ms,
        )
        return result.error_code

    async def _must_enlist(self, deadline_ms: int) -> bool:
        """Return true below transaction.version 1. Asks the brokers each time, because they may be upgraded."""
        await self._cluster.reached("ask the brokers for their versions", deadline_ms)
        return must_enlist(self._cluster)

    async def _bump_epoch(self, sink: str, claim: Pair, deadline_ms: int) -> int:
        request = InitProducerIdRequest(
            transactional_id=names.sink_id(sink),
            transaction_timeout_ms=self._claim_timeout_ms,
            producer_id=claim.producer_id,
            producer_epoch=claim.epoch,
        )
        return (await init_producer_id(self._cluster, request, deadline_ms)).error_code

    async def _end_all(self, ends: tuple[plan_steps.EndTxn, ...]) -> tuple[int, ...]:
        return await self._chunked([end.transactional_id for end in ends], [partial(self._end, end) for end in ends])

    async def _chunked(self, ids: list[str], calls: list[Callable[[], Coroutine[Any, Any, T]]]) -> tuple[T, ...]:
        """Make a call for each transactional id, many at a time. Raises the first failure after its chunk has ended."""
        answers: list[T] = []
        for at in range(0, len(ids), AT_ONCE):
            deadline_ms = self._cluster.runtime.now_ms() + self._config.step_timeout_ms
            some = ids[at : at + AT_ONCE]
            await self._cluster.learn_coordinators(CoordinatorKind.TRANSACTION, some, deadline_ms)
            answers += _all(await gather(self._cluster.runtime, [call() for call in calls[at : at + AT_ONCE]]))
        return tuple(answers)

    async def _decide(self, sink: str, claim: Pair, writing: Coroutine[Any, Any, int]) -> int | None:
        try:
            code = await writing
            if code == 0:
                code = await self._end(plan_steps.EndTxn(names.sink_id(sink), claim, commit=True))
        except KafkaTimeoutError:
            return None  # the plan raises DecisionUnknownError; a restart finds the outcome
        return code

    # --- tasks ---

    async def _begin(self, transactional_id: str, two_phase: bool, deadline_ms: int) -> Pair | None:
        while True:
            request = InitProducerIdRequest(
                transactional_id=transactional_id, transaction_timeout_ms=self._timeout_ms, enable2_pc=two_phase
            )
            reply = await wire.init_once(self._cluster, request, deadline_ms)
            if reply is None:
                return None
            if reply.error_code != ErrorCode.INVALID_TRANSACTION_TIMEOUT:
                break
            self._timeout_ms = await self._allowed_timeout(deadline_ms)
        if reply.error_code != 0:
            raise error_for(reply.error_code, f"begin {transactional_id!r}")
        return Pair(reply.producer_id, reply.producer_epoch)

    async def _allowed_timeout(self, deadline_ms: int) -> int:
        """Return the brokers' maximum, after they refused our default timeout.

        Raises ConfigurationError if the user has set the timeout, or if the maximum is unknown or not lower.
        """
        allowed = await self._longest_timeout(deadline_ms)
        if self._config.transaction_timeout_ms is not None or not 0 < allowed < self._timeout_ms:
            raise ConfigurationError(
                f"kafka.transaction.timeout.ms={self._timeout_ms}: the brokers' {MAX_TIMEOUT} is {allowed}",
                code=int(ErrorCode.INVALID_TRANSACTION_TIMEOUT),
            )
        return allowed

    async def _longest_timeout(self, deadline_ms: int) -> int:
        """Return transaction.max.timeout.ms, or 0 if the broker does not return it."""
        left = max(deadline_ms - self._cluster.runtime.now_ms(), 1)
        node = str(min(self._cluster.nodes))
        settings = await self._admin.describe_configs(node, resource_type=BROKER_RESOURCE, api_timeout_ms=left)
        return int(settings.get(MAX_TIMEOUT) or 0)

    async def _abort_task(self, end: plan_steps.EndTxn) -> KafkaError | None:
        try:
            await self._end(end, min(GIVE_UP_MS, self._config.step_timeout_ms))
        except KafkaError as error:
            return error  # the batch's commit, the next open, or the timeout ends the transaction
        return None

    # --- winners before their decision ---

    async def _keep_all(self, winners: tuple[Winner, ...]) -> tuple[Pair | None, ...]:
        return await self._chunked(
            [winner.transactional_id for winner in winners], [partial(self._keep, winner) for winner in winners]
        )

    async def _keep(self, winner: Winner) -> Pair | None:
        """Send InitProducerId(keep) with the pair that began the transaction, so that repeats get the same answer."""
        request = InitProducerIdRequest(
            transactional_id=winner.transactional_id,
            transaction_timeout_ms=self._timeout_ms,
            producer_id=winner.pair.producer_id,
            producer_epoch=winner.pair.epoch,
            enable2_pc=True,
            keep_prepared_txn=True,
        )
        deadline_ms = self._cluster.runtime.now_ms() + self._config.step_timeout_ms
        reply = await init_producer_id(self._cluster, request, deadline_ms)
        if reply.error_code in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH):
            return None
        if reply.error_code != 0:
            raise error_for(reply.error_code, f"keep {winner.transactional_id!r} ({winner.pair})")
        if Pair(reply.ongoing_txn_producer_id, reply.ongoing_txn_producer_epoch) != winner.pair:
            return None
        return Pair(reply.producer_id, reply.producer_epoch)

    async def _describe_winners(self, sink: str, ids: tuple[str, ...]) -> tuple[plan_steps.DescribedWinner, ...]:
        described = await self._descriptions(ids)
        finite = [txn.timeout_ms for txn in described if 0 < txn.timeout_ms < NO_TIMEOUT_MS]
        late: set[str] = set()
        if finite:
            shortest = min(finite)
            late = await self._older_than(sink, described, _latest_age(shortest))
        now_ms = self._cluster.runtime.wall_ms()
        return tuple(
            plan_steps.DescribedWinner(
                Pair(txn.producer_id, txn.producer_epoch),
                txn.state if txn.error_code == 0 else "not known any more",
                max(now_ms - txn.start_time_ms, 0) if txn.start_time_ms >= 0 else None,
                txn.timeout_ms if txn.timeout_ms < NO_TIMEOUT_MS else None,
                txn.transactional_id in late and txn.timeout_ms < NO_TIMEOUT_MS,
            )
            for txn in described
        )

    async def _older_than(self, sink: str, described: list[TransactionDescription], age_ms: int) -> set[str]:
        # Asks the coordinators for the age, because this host's clock may differ.
        try:
            listed = await self._admin.list_transactions(
                names.listing_pattern(sink),
                states=("Ongoing",),
                duration_ms=age_ms,
                api_timeout_ms=self._config.step_timeout_ms,
            )
        except UnsupportedVersionError:  # brokers before Kafka 3.8 (KIP-994) cannot filter by age
            begun_ms = self._cluster.runtime.wall_ms() - age_ms
            return {txn.transactional_id for txn in described if 0 <= txn.start_time_ms <= begun_ms}
        return {txn.transactional_id for txn in listed}

    # --- abilities ---

    async def _describe_broker(self, deadline_ms: int) -> plan_steps.BrokerVersions:
        """Return the lowest versions of all brokers that can be reached, because an upgrade may be in progress."""
        await self._cluster.reached("ask the brokers for their versions", deadline_ms)
        cluster = self._cluster
        await cluster.refresh_quietly((), deadline_ms)
        patience_ms = min(deadline_ms, cluster.runtime.now_ms() + ALL_BROKERS_MS)
        calls = [cluster.connection(node, patience_ms) for node in sorted(cluster.nodes)]
        found = [each for each in await gather(cluster.runtime, calls) if isinstance(each, BrokerConnection)]
        connections = found or [await self._cluster.reached("ask the brokers for their versions", deadline_ms)]

        def least(api_key: int) -> int:
            return min(connection.versions.get(api_key, (0, -1))[1] for connection in connections)

        return plan_steps.BrokerVersions(
            init_producer_id=least(InitProducerIdRequest.API_KEY),
            end_txn=least(EndTxnRequest.API_KEY),
            add_partitions_to_txn=least(AddPartitionsToTxnRequest.API_KEY),
            describe_transactions=least(DescribeTransactionsRequest.API_KEY),
            transaction_version=min(connection.features.get(TRANSACTION_VERSION, 0) for connection in connections),
        )

    async def _probe(self, sink: str, keep_prepared: bool, deadline_ms: int) -> int:
        request = InitProducerIdRequest(
            transactional_id=names.probe_id(sink),
            transaction_timeout_ms=CLAIM_TIMEOUT_MS,
            enable2_pc=True,
            keep_prepared_txn=keep_prepared,
        )
        for _ in range(3):
            reply = await wire.init_once(self._cluster, request, deadline_ms)
            if reply is not None:
                return reply.error_code
            if self._cluster.runtime.now_ms() >= deadline_ms:
                limit_ms = self._config.step_timeout_ms
                raise KafkaTimeoutError(f"InitProducerId of sink {sink!r}: no answer in step.timeout ({limit_ms} ms)")
        raise ProtocolError("the brokers offer InitProducerId v6, but did not answer it three times")


def _latest_age(timeout_ms: int) -> int:
    """Return the highest age, in ms, at which a winner may still be decided."""
    return timeout_ms - min(COMPLETION_MS, timeout_ms // 4)


def _belongs(sink: str, transactional_id: str) -> bool:
    name = names.parse(transactional_id)
    return isinstance(name, names.TaskId) and name.sink == sink


def _all(results: Iterable[T | Exception]) -> list[T]:
    answers: list[T] = []
    for result in results:
        if isinstance(result, Exception):
            raise result
        answers.append(result)
    return answers
