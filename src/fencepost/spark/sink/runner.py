"""Runs plans from ordinary (blocking) code: one client per process and cluster, in the process's I/O thread.

Spark reuses its Python workers, so the client is kept; a forked worker makes its own.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

from fencepost.client.net.asyncio_runtime import runtime_for
from fencepost.client.net.cluster import Cluster
from fencepost.client.net.io_thread import IoThread, io_thread
from fencepost.client.producer.batching import BatchLimits
from fencepost.config import AdminConfig
from fencepost.errors import (
    ConfigurationError,
    KafkaError,
    KafkaTimeoutError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from fencepost.protocol.codes import ErrorCode
from fencepost.spark import worker_garbage
from fencepost.spark.cluster_calls import ClusterCalls
from fencepost.spark.errors import LevelUnavailableError, UnfinishedSinkError, UnknownQueryError
from fencepost.spark.sink import names, plan, plan_level, plan_steps, unfinished
from fencepost.spark.sink.checkpoint import SinkName
from fencepost.spark.sink.decision import Beginning, Decision, Pair
from fencepost.spark.sink.decision_store import KnownQuery
from fencepost.spark.sink.local.id_folder import IdFolder
from fencepost.spark.sink.names import UNIQUE_BYTES
from fencepost.spark.sink.steps import SinkConfig, StepRunner

__all__ = ["Link", "Resolved", "SinkLink", "link_for", "link_to", "resolve_sink", "sink_link", "unique_bytes"]

log = logging.getLogger("fencepost.spark")


TOPIC_PATIENCE_MS: Final = 10_000
IS_OVER_MS: Final = 10_000
FIRST_CONTACT_MS: Final = 15_000  # a job that has not begun loses nothing; running queries wait longer

T = TypeVar("T")
Performer = Callable[[plan_steps.Step], Any]


class Link:
    """A client of one cluster in this process."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        """`settings` are Kafka's dotted names. Raises ConfigurationError."""
        self.config = AdminConfig.from_dotted(settings)
        self.io: IoThread = io_thread()

        async def make() -> ClusterCalls:
            return ClusterCalls(Cluster(runtime_for(self.config), self.config), self.config.default_api_timeout_ms)

        self.admin: ClusterCalls = self.io.run(make())
        self.sinks: dict[SinkConfig, StepRunner] = {}
        self.levels: dict[tuple[str, plan_steps.Level | None], plan_steps.Level] = {}
        self._reached = False
        self._topics: set[str] = set()
        self.names: dict[SinkName, str] = {}
        self.batch_limits = BatchLimits()
        self.looked_for: set[tuple[str, ...]] = set()  # what unfinished.py has to look for once

    def reach(self, patience_ms: int = FIRST_CONTACT_MS) -> None:
        """Check before a job that a broker answers. Raises KafkaTimeoutError with the servers and the reason."""
        if not self._reached:
            self.io.run(self._first_contact(patience_ms))
            self._reached = True

    async def _first_contact(self, patience_ms: int) -> None:
        cluster = self.admin.cluster
        deadline_ms = cluster.runtime.now_ms() + min(patience_ms, self.config.default_api_timeout_ms)
        what = f"kafka.bootstrap.servers={self.config.bootstrap_servers}: no broker can be reached"
        await cluster.until_answered(what, partial(cluster.any_connection, deadline_ms), deadline_ms)

    def check_topic(self, name: str) -> None:
        """Asked for once per topic: it is there, or the brokers make it. Raises ConfigurationError otherwise."""
        if name in self._topics:
            return
        if not self.io.run(self.admin.describe_topics([name])):
            cluster = self.admin.cluster
            try:
                self.io.run(cluster.topic(name, cluster.runtime.now_ms() + TOPIC_PATIENCE_MS))
            except (KafkaTimeoutError, UnknownTopicOrPartitionError) as error:
                raise ConfigurationError(
                    f"topic {name!r} does not exist, and the brokers do not make topics by themselves"
                ) from error
        self._topics.add(name)

    def tell_of_strays(self, topic: str, sink: str) -> None:
        """Once per topic: warn of other sinks' open transactions there."""
        if (topic, sink) in self.looked_for:
            return
        self.looked_for.add((topic, sink))
        try:
            strays = self.io.run(unfinished.open_on_topic(self.admin, topic, sink))
        except KafkaError as error:
            log.info("open transactions of other sinks could not be looked for: %s", error)
            return
        for stray in strays:
            log.warning("%s", stray.told(topic))

    def close(self) -> None:
        """Close the connections."""

        async def end() -> None:
            self.admin.cluster.close()

        self.io.run(end())


_links: dict[tuple[tuple[str, str], ...], Link] = {}
os.register_at_fork(after_in_child=_links.clear)


def link_to(settings: Mapping[str, str]) -> Link:
    """This process's client with these settings, made when first asked for."""
    worker_garbage.imports.spare()  # every task asks for its client
    key = tuple(sorted(settings.items()))
    if key not in _links:
        _links[key] = Link(settings)
    return _links[key]


def unique_bytes() -> bytes:
    """Bytes that no process has ever had."""
    return os.urandom(UNIQUE_BYTES)


class SinkLink:
    """Runs one sink's plans."""

    def __init__(self, link: Link, config: SinkConfig) -> None:
        if config not in link.sinks:
            pool = IdFolder(os.environ, ",".join(link.config.bootstrap_servers), config.decision_topic)
            link.sinks[config] = StepRunner(link.admin, config, unique_bytes, pool)
        self._link = link
        self._steps = link.sinks[config]

    def run(self, steps: plan.Plan[T]) -> T:
        """Carry out a plan all of whose steps are about the cluster."""
        return self._link.io.run(self._steps.run(steps))

    def run_task(self, steps: plan.Plan[T], own: Mapping[type, Performer]) -> T:
        """Carry out a task's plan; steps of the types in `own` are done by these functions, in this thread."""
        try:
            step = next(steps)
            while True:
                perform = own.get(type(step))
                try:
                    observation = perform(step) if perform is not None else self._link.io.run(self._steps.perform(step))
                except Exception as error:  # noqa: BLE001 - the plan's to judge
                    step = steps.throw(error)
                else:
                    step = steps.send(observation)
        except StopIteration as stop:
            result: T = stop.value
            return result

    @property
    def transaction_timeout_ms(self) -> int:
        """Return the transaction timeout for tasks, if this process knows the brokers' limit."""
        return self._steps.transaction_timeout_ms

    def decisions(self, sink: str) -> tuple[Decision, ...]:
        """The last decision of every query of the sink. Claims nothing and leaves nothing behind."""
        return self._link.io.run(self._steps.last_decisions(sink))

    def check_known(self, sink: str) -> None:
        """Raises ConfigurationError when neither the brokers nor the decision topic know the sink."""
        io, admin = self._link.io, self._link.admin
        try:
            (own,) = io.run(admin.describe_transactions([names.sink_id(sink)]))
            is_known = own.error_code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        except UnsupportedVersionError:
            is_known = False
        if not (is_known or self._listed(sink) or self.decisions(sink)):
            raise ConfigurationError(f"there is no sink {sink!r}; `fencepost spark sinks` lists those there are")

    def _listed(self, sink: str) -> tuple[plan_steps.Listed, ...]:
        """The sink's tasks that are open; where brokers do not list, those that may be. Raises KafkaError."""
        try:
            listed: tuple[plan_steps.Listed, ...] = self._perform(plan_steps.ListTransactions(sink))
        except UnsupportedVersionError:
            listed = self._perform(plan_steps.ListTransactions(sink, registered=True))
        return listed

    def _perform(self, step: plan_steps.Step) -> Any:
        return self._link.io.run(self._steps.perform(step))

    def level(self, sink: str, required: plan_steps.Level | None) -> plan_steps.Level:
        """The guarantee level, asked for once per process. Raises LevelUnavailableError."""
        key = (sink, required)
        if key not in self._link.levels:
            level = self._link.levels[key] = self.run(plan_level.choose_level(sink, required))
            severity = logging.WARNING if level.may_lose else logging.INFO
            words = f"sink {sink!r} writes exactly once at guarantee level {level.value!r}: {PROMISES[level]}"
            log.log(severity, words)
            if not log.hasHandlers() and not log.isEnabledFor(severity):
                # A Python worker of Spark, where nobody sets logging up; its stderr is the driver's.
                print(f"fencepost: {words}", file=sys.stderr)
        return self._link.levels[key]

    def is_over(self, sink: str, claim: Pair) -> bool:
        """Return true if the claim cannot decide a batch any more: it was used, or a newer run has claimed the sink.

        False if the brokers do not tell.
        """
        try:
            (own,) = self._link.io.run(
                self._link.admin.describe_transactions([names.sink_id(sink)], api_timeout_ms=IS_OVER_MS)
            )
        except KafkaError:
            return False  # the batch's commit, the next open or the timeout end what is left open then
        # Before transaction version 1 the decision leaves the pair as it is, and another state.
        is_new = own.state in ("Empty", "Ongoing") and Pair(own.producer_id, own.producer_epoch) == claim
        return own.error_code == 0 and not is_new

    def name_in_use(self, name: SinkName) -> str:
        """A former name where the query's decisions are under it, or only it was ever claimed; else the own name.

        Raises ConfigurationError when only a former name would do, and none is in use.
        """
        if name not in self._link.names:
            found = next((former for former in name.former if self._is_former(name, former)), None)
            if found is None and name.refusal:
                raise ConfigurationError(name.refusal)
            self._link.names[name] = found or name.own
        return self._link.names[name]

    def _is_former(self, name: SinkName, former: str) -> bool:
        if name.query_id is not None:
            return any(query.query_id == name.query_id for query in self.queries(former))
        asked = [former] if name.refusal else [name.own, former]
        try:
            described = self._link.io.run(self._link.admin.describe_transactions(list(map(names.sink_id, asked))))
            known = [txn.error_code == 0 for txn in described]
        except UnsupportedVersionError:
            known = [bool(self.decisions(one)) for one in asked]
        return known[-1] and not any(known[:-1])

    def elsewhere(self, sink: str, query_id: str) -> tuple[Decision, ...]:
        """The query's last decisions in sinks of other names. Claims nothing and leaves nothing behind."""
        return self._link.io.run(self._steps.last_elsewhere(sink, query_id))

    def begin(self, beginning: Beginning) -> None:
        """Remember that the query writes by its sink, or was released by it. Raises KafkaError."""
        self._link.looked_for.discard(("begun", self._steps.decision_topic, beginning.sink, beginning.query_id))
        self._link.io.run(self._steps.begin(beginning))

    def queries(self, sink: str) -> tuple[KnownQuery, ...]:
        """The sink's queries, as the decision topic tells. Claims nothing and leaves nothing behind."""
        return self._link.io.run(self._steps.queries(sink))

    def others(self, sink: str, query_id: str | None) -> str:
        """The sink's other queries, for a person. "" where the brokers do not answer."""
        try:
            return unfinished.others(sink, query_id, self.queries(sink))
        except KafkaError as error:
            return f"Its other queries could not be looked up: {error}"

    def check_begun(self, query: Beginning, first_batch: int | None, *, others_count: bool) -> None:
        """Before a batch is written or anything is claimed: the sink knows its query, or it is the query's first batch.

        A query that begins is remembered. Raises UnknownQueryError.

        Args:
            query: The query, and the batch that it comes with as its first batch.
            first_batch: Option first.batch.
            others_count: Whether the query is known as well when a sink of another name has decided for it.
        """
        key = ("begun", self._steps.decision_topic, query.sink, query.query_id)
        if key in self._link.looked_for:
            return
        known = self.queries(query.sink)
        own = next((one for one in known if one.query_id == query.query_id), None)
        why = None
        if own is not None:
            why = unfinished.moved_away(query, own.beginning, first_batch)
        elif not (others_count and self._writes_elsewhere(query, first_batch)):
            is_new = bool(known) or not self._has_decided(query.sink)
            why = unfinished.unknown_query(query, self._steps.decision_topic, first_batch, is_new=is_new)
        if why is not None:
            raise UnknownQueryError(why)
        if own is None or (own.beginning is not None and own.beginning.is_released):
            self._link.io.run(self._steps.begin(query))
        self._link.looked_for.add(key)

    def _writes_elsewhere(self, query: Beginning, first_batch: int | None) -> bool:
        """Return whether a sink of another name has decided for the query.

        Raises UnknownQueryError when that sink has released it.
        """
        others = self._link.io.run(self._steps.decided_by_others(query.sink, query.query_id))
        for name in sorted({decision.sink for decision in others}):
            for known in self.queries(name):
                if known.query_id == query.query_id and known.beginning is not None and known.beginning.is_released:
                    why = unfinished.moved_away(query, known.beginning, first_batch)
                    if why is not None:
                        raise UnknownQueryError(why)
        return bool(others)

    def check_still_known(self, query: Beginning, first_batch: int | None, *, others_count: bool) -> None:
        """After the decisions were read: since `check_begun` the topic was not made again, nor the query released.

        Raises as that.
        """
        if not self._steps.knows(query.sink, query.query_id):
            self._link.looked_for.discard(("begun", self._steps.decision_topic, query.sink, query.query_id))
            self.check_begun(query, first_batch, others_count=others_count)

    def check_sink_remembered(self, sink: str) -> None:
        """Before a claim, where no query is known: raises UnknownQueryError when the topic has lost the sink."""
        if not self.queries(sink) and self._has_decided(sink):
            raise UnknownQueryError(unfinished.unknown_sink(sink, self._steps.decision_topic))

    def _has_decided(self, sink: str) -> bool:
        """Return true if the coordinator reports that the sink's last claim has decided a batch."""
        try:
            (own,) = self._link.io.run(self._link.admin.describe_transactions([names.sink_id(sink)]))
        except UnsupportedVersionError:
            return False
        return own.error_code == 0 and own.state in ("PrepareCommit", "CompleteCommit")

    def check_finished(self, sink: str) -> None:
        """Before rows are written without transactions. Raises UnfinishedSinkError when the sink has some open."""
        if ("open", sink) in self._link.looked_for:
            return
        if listed := self._listed(sink):
            raise UnfinishedSinkError(unfinished.begun_exactly_once(sink, len(listed)))
        self._link.looked_for.add(("open", sink))

    def check_renamed(self, sink: str, query_id: str, batch_id: int) -> None:
        """Before the first decision of this process. Raises UnfinishedSinkError if another sink wrote the batch."""
        if ("query", sink, query_id) in self._link.looked_for:
            return
        decisions = self._link.io.run(self._steps.decided_by_others(sink, query_id))
        why = unfinished.written_elsewhere(sink, query_id, batch_id, decisions)
        if why is not None:
            raise UnfinishedSinkError(why)
        self._link.looked_for.add(("query", sink, query_id))

    def check_not_written_again(self, sink: str) -> None:
        """Raises UnfinishedSinkError when another sink has decided what this sink would still commit."""
        still_open: set[str] | None = None  # not told: any may be
        with contextlib.suppress(UnsupportedVersionError):
            listed = self._perform(plan_steps.ListTransactions(sink))
            still_open = {txn.transactional_id for txn in listed}
        for decision in self._perform(plan_steps.ReadDecisions(sink)) if still_open is None or still_open else ():
            winners = {winner.transactional_id for winner in decision.winners}
            if not (winners if still_open is None else winners & still_open):
                continue
            others = self._link.io.run(self._steps.decided_by_others(sink, decision.query_id))
            why = unfinished.written_again(decision, others)
            if why is not None:
                raise UnfinishedSinkError(why)

    def open(self, sink: str, required: plan_steps.Level | None = None) -> plan_steps.Opened:
        """Steps 1-5 of the protocol. Raises LevelUnavailableError where brokers were taken back below the level."""
        self._link.looked_for.discard(("open", sink))
        level = self.level(sink, required)
        try:
            self.run(plan_level.check_level(sink, level))
        except LevelUnavailableError:
            del self._link.levels[sink, required]  # who starts the query again in this process gets what there is
            raise
        return self.run(plan.open_sink(sink, level))


PROMISES: Final = {
    plan_steps.Level.KEEP_PREPARED: "a prepared transaction waits for its decision for ever",
    plan_steps.Level.TWO_PHASE: "a transaction waits for its decision for ever, also when its task died",
    plan_steps.Level.RESUME: "a decided transaction can be lost if it is not completed within transaction.timeout.ms; "
    "that would stop the query with PreparedTransactionLostError",
    plan_steps.Level.RESUME_V1: "the brokers have transactions of before version 2: a decided transaction can be lost "
    "if it is not completed within transaction.timeout.ms, which would stop the query with "
    "PreparedTransactionLostError; and when its coordinator moves, a run may take itself for superseded, stop, and "
    "leave transactions open until their timeout",
    plan_steps.Level.RESUME_UNVERIFIED: "the brokers take a batch that comes after its transaction, and the sink keeps "
    "its own out by fencing; a decided transaction can be lost if it is not completed within transaction.timeout.ms, "
    "which would stop the query with PreparedTransactionLostError; and when its coordinator moves, or a decision is "
    "cut short, a run may take itself for superseded, stop, and leave transactions open until their timeout",
    plan_steps.Level.RESUME_UNLISTED: "as 'resume-unverified', and the brokers do not list transactions: tasks "
    "register theirs in the decision topic; a winner that does not answer whether it is open gives its batch up; a "
    "decided transaction that is not completed within transaction.timeout.ms is lost, which would stop the query with "
    "PreparedTransactionLostError; and a driver whose clock is set back may decide too late",
}


def sink_link(settings: Mapping[str, str], config: SinkConfig) -> SinkLink:
    """Return the runner of a sink's plans in this process."""
    return SinkLink(link_to(settings), config)


def link_for(bootstrap_servers: str, options: Mapping[str, str]) -> SinkLink:
    """`options`: client settings in snake_case, decision_topic, and step_timeout_ms. Raises ConfigurationError."""
    usual = SinkConfig()
    config = SinkConfig(
        decision_topic=options.get("decision_topic", usual.decision_topic),
        step_timeout_ms=int(options.get("step_timeout_ms", usual.step_timeout_ms)),
    )
    own = ("decision_topic", "step_timeout_ms")
    settings = {key.replace("_", "."): options[key] for key in options if key not in own}
    return sink_link({"bootstrap.servers": bootstrap_servers, **settings}, config)


@dataclass(frozen=True, slots=True)
class Resolved:
    """The result of `resolve_sink`: the committed and the aborted transactional ids, and the guarantee level.

    If brokers do not list transactions, some may have been committed or ended earlier.
    """

    committed: list[str]
    aborted: list[str]
    level: str


def resolve_sink(
    bootstrap_servers: str, sink_id: str, *, even_if_written_again: bool = False, **options: str
) -> Resolved:
    """Finish a sink that nobody runs any more: commit what is decided, abort the rest of its transactions.

    `options`: client settings in snake_case, decision_topic, and step_timeout_ms (patience for one step).
    A run of the sink that is still alive is superseded.
    Raises ConfigurationError (there is no such sink), UnknownQueryError (the decision topic knows nothing of it),
    UnfinishedSinkError (another sink has written a batch that would
    be committed: its rows would be there twice, unless `even_if_written_again`), PreparedTransactionLostError,
    LevelUnavailableError, KafkaTimeoutError.
    """
    committed: list[str] = []
    aborted: list[str] = []
    link = link_for(bootstrap_servers, options)
    link.check_known(sink_id)  # before a claim on a name that nobody has leaves an id behind
    link.check_sink_remembered(sink_id)
    if not even_if_written_again:
        link.check_not_written_again(sink_id)
    level = link.level(sink_id, None)
    link.run(_noting(plan.open_sink(sink_id, level), committed, aborted))
    return Resolved(committed, aborted, level.value)


def _noting(steps: plan.Plan[T], committed: list[str], aborted: list[str]) -> plan.Plan[T]:
    """The same plan; what it found open and ended is noted (ending again what was complete before is not news)."""
    observation: Any = None
    found: set[str] = set()
    is_told = True
    while True:
        try:
            step = steps.send(observation)
        except StopIteration as stop:
            result: T = stop.value
            return result
        observation = yield step
        if isinstance(step, plan_steps.ListTransactions):
            found, is_told = {txn.transactional_id for txn in observation}, not step.registered
        if isinstance(step, plan_steps.EndTransactions):
            for end, code in zip(step.ends, observation, strict=True):
                if code == 0 and (end.transactional_id in found or (end.commit and not is_told)):
                    (committed if end.commit else aborted).append(end.transactional_id)
