"""Carries out the steps of plan.py that talk to a cluster, with the client's async core over any Runtime.

The steps of a task that are about its rows (HasRows, Drain, WriteRows) belong to whoever has the rows: sink.py.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

from fencepost.client.admin import BROKER_RESOURCE, AdminCore
from fencepost.client.tasks import gather
from fencepost.errors import (
    ConfigurationError,
    KafkaError,
    KafkaTimeoutError,
    ProtocolError,
    TransactionAbortableError,
    error_for,
)
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages.end_txn import EndTxnRequest
from fencepost.protocol.messages.init_producer_id import InitProducerIdRequest
from fencepost.spark import names, plan, wire
from fencepost.spark.decision import Pair
from fencepost.spark.decision_store import DEFAULT_TOPIC, DecisionStore
from fencepost.spark.errors import SinkContradictionError

__all__ = ["SinkConfig", "StepRunner"]

T = TypeVar("T")

SAFE_END_TXN_VERSION: Final = 5  # below it a late EndTxn can end a later transaction of the same epoch
CLAIM_TIMEOUT_MS: Final = 60_000  # how long an undecided decision may stay open
DEFAULT_TIMEOUT_MS: Final = 900_000  # Kafka's default transaction.max.timeout.ms
MAX_TIMEOUT: Final = "transaction.max.timeout.ms"
PARALLEL_ENDS: Final = 256
DESCRIBED_AT_ONCE: Final = 500
TRANSACTION_VERSION: Final = "transaction.version"


@dataclass(frozen=True, slots=True)
class SinkConfig:
    """How a sink's steps are carried out; times in milliseconds."""

    # Level "resume": how long a decided transaction may have to wait. Level "keep-prepared": after this an attempt
    # that died writing is aborted by the broker. None: 15 minutes, or as much as the brokers allow.
    transaction_timeout_ms: int | None = None
    step_timeout_ms: int = 120_000
    decision_topic: str = DEFAULT_TOPIC


class StepRunner:
    """One sink's hands. `unique` gives 16 bytes that were never given before."""

    def __init__(self, admin: AdminCore, config: SinkConfig, unique: Callable[[], bytes]) -> None:
        self._admin = admin
        self._cluster = admin.cluster
        self._config = config
        self._unique = unique
        self._claim_timeout_ms = CLAIM_TIMEOUT_MS
        self._timeout_ms = config.transaction_timeout_ms or DEFAULT_TIMEOUT_MS
        self._store = DecisionStore(admin, config.decision_topic)

    async def run(self, steps: plan.Plan[T]) -> T:
        """Carry a plan out to its end."""
        observation: Any = None
        while True:
            try:
                step = steps.send(observation)
            except StopIteration as stop:
                result: T = stop.value
                return result
            observation = await self.perform(step)

    async def perform(self, step: plan.Step) -> Any:
        """What the step's docstring promises. Raises KafkaError when the step's time runs out."""
        deadline_ms = self._cluster.runtime.now_ms() + self._config.step_timeout_ms
        match step:
            case plan.ListTransactions(sink):
                return await self._list(sink)
            case plan.Claim(sink):
                return await self._claim(sink)
            case plan.ReadDecisions(sink):
                return await self._store.read(sink, deadline_ms)
            case plan.EndTransactions(ends):
                return await self._end_all(ends)
            case plan.AskOwner(sink, claim):
                return await self._end(plan.End(names.sink_id(sink), claim, commit=False))
            case plan.WriteDecision():
                return await self._decide(step, deadline_ms)
            case _:
                return await self._perform_for_task(step, deadline_ms)

    async def _perform_for_task(self, step: plan.Step, deadline_ms: int) -> Any:
        match step:
            case plan.Mint(sink):
                return names.task_id(sink, self._unique())
            case plan.BeginTask(transactional_id, two_phase):
                return await self._begin(transactional_id, two_phase, deadline_ms)
            case plan.Prepare(transactional_id, pair):
                return await self._prepare(transactional_id, pair, deadline_ms)
            case plan.DescribeBroker():
                return await self._describe_broker(deadline_ms)
            case plan.ProbeTwoPhase(sink, keep_prepared):
                return await self._probe(sink, keep_prepared, deadline_ms)
            case _:
                raise SinkContradictionError(f"{type(step).__name__} is not a step for the cluster")

    # --- open ---

    async def _list(self, sink: str) -> tuple[plan.Listed, ...]:
        timeout_ms = self._config.step_timeout_ms
        shown = await self._admin.list_transactions(
            names.listing_pattern(sink), states=("Ongoing",), api_timeout_ms=timeout_ms
        )
        ids = [one.transactional_id for one in shown if _belongs(sink, one.transactional_id)]
        listed: list[plan.Listed] = []
        for at in range(0, len(ids), DESCRIBED_AT_ONCE):
            chunk = ids[at : at + DESCRIBED_AT_ONCE]
            for one in await self._admin.describe_transactions(chunk, api_timeout_ms=timeout_ms):
                if one.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                    continue  # it expired in between
                if one.error_code != 0:
                    raise error_for(one.error_code, f"describe {one.transactional_id!r}")
                listed.append(plan.Listed(one.transactional_id, Pair(one.producer_id, one.producer_epoch), one.state))
        return tuple(listed)

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

    async def _end(self, end: plan.End) -> int:
        result = await self._admin.end_transaction(
            end.transactional_id,
            end.pair.producer_id,
            end.pair.epoch,
            end.commit,
            version=SAFE_END_TXN_VERSION,
            api_timeout_ms=self._config.step_timeout_ms,
        )
        return result.error_code

    async def _end_all(self, ends: tuple[plan.End, ...]) -> tuple[int, ...]:
        codes: list[int] = []
        for at in range(0, len(ends), PARALLEL_ENDS):
            chunk = ends[at : at + PARALLEL_ENDS]
            deadline_ms = self._cluster.runtime.now_ms() + self._config.step_timeout_ms
            ids = [end.transactional_id for end in chunk]
            ask = partial(self._cluster.transaction_coordinators, ids, deadline_ms)
            await self._until_answered("find coordinators", ask, deadline_ms)
            codes += _all(await gather(self._cluster.runtime, [self._end(end) for end in chunk]))
        return tuple(codes)

    async def _until_answered(self, what: str, ask: Callable[[], Awaitable[T]], deadline_ms: int) -> T:
        """For requests that may be repeated. Raises KafkaTimeoutError, and what repeating cannot help."""
        attempt = 0
        while True:
            try:
                return await ask()
            except KafkaError as error:
                if not self._cluster.worth_retrying(error):
                    raise
                await self._cluster.pause(attempt, deadline_ms, what, error)
            attempt += 1

    async def _decide(self, step: plan.WriteDecision, deadline_ms: int) -> int | None:
        try:
            code = await self._store.write(step.claim, step.decision, deadline_ms)
            if code == 0:
                code = await self._end(plan.End(names.sink_id(step.decision.sink), step.claim, commit=True))
        except KafkaTimeoutError:
            return None  # DecisionUnknownError says it; a restart finds out
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
        """After the brokers refused ours. Raises ConfigurationError unless theirs may be taken and is lower."""
        allowed = await self._longest_timeout(deadline_ms)
        if self._config.transaction_timeout_ms is not None or not 0 < allowed < self._timeout_ms:
            raise ConfigurationError(
                f"kafka.transaction.timeout.ms={self._timeout_ms}: the brokers' {MAX_TIMEOUT} is {allowed}",
                code=int(ErrorCode.INVALID_TRANSACTION_TIMEOUT),
            )
        return allowed

    async def _longest_timeout(self, deadline_ms: int) -> int:
        """transaction.max.timeout.ms, 0 when it is not told."""
        left = max(deadline_ms - self._cluster.runtime.now_ms(), 1)
        node = str(min(self._cluster.nodes))
        settings = await self._admin.describe_configs(node, resource_type=BROKER_RESOURCE, api_timeout_ms=left)
        return int(settings.get(MAX_TIMEOUT) or 0)

    async def _prepare(self, transactional_id: str, pair: Pair, deadline_ms: int) -> Pair:
        request = InitProducerIdRequest(
            transactional_id=transactional_id,
            transaction_timeout_ms=self._timeout_ms,
            producer_id=pair.producer_id,
            producer_epoch=pair.epoch,
            enable2_pc=True,
            keep_prepared_txn=True,
        )
        reply = await wire.init_once(self._cluster, request, deadline_ms)
        if reply is None:
            raise KafkaTimeoutError(f"no answer says whether {transactional_id!r} is prepared", outcome_unknown=True)
        if reply.error_code != 0:
            raise error_for(reply.error_code, f"prepare {transactional_id!r} ({pair})")
        kept = Pair(reply.ongoing_txn_producer_id, reply.ongoing_txn_producer_epoch)
        if kept.producer_id < 0:
            raise TransactionAbortableError(
                f"{transactional_id!r} was aborted before it was prepared, by a newer run of the sink or its timeout"
            )
        if kept != pair:
            raise SinkContradictionError(f"{transactional_id!r} was to be prepared as {pair}, the broker kept {kept}")
        return Pair(reply.producer_id, reply.producer_epoch)

    # --- what the brokers can ---

    async def _describe_broker(self, deadline_ms: int) -> plan.BrokerOffer:
        ask = partial(self._cluster.any_connection, deadline_ms)
        connection = await self._until_answered("ask what the brokers can", ask, deadline_ms)
        newest = {key: versions[1] for key, versions in connection.versions.items()}
        return plan.BrokerOffer(
            newest.get(InitProducerIdRequest.API_KEY, -1),
            newest.get(EndTxnRequest.API_KEY, -1),
            connection.features.get(TRANSACTION_VERSION, 0),
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
        raise ProtocolError("the brokers offer InitProducerId v6 and do not answer it")


def _belongs(sink: str, transactional_id: str) -> bool:
    name = names.parse(transactional_id)
    return isinstance(name, names.TaskId) and name.sink == sink


def _all(results: Iterable[int | Exception]) -> list[int]:
    codes: list[int] = []
    for one in results:
        if isinstance(one, Exception):
            raise one
        codes.append(one)
    return codes
