"""Run plans from blocking code, with one client per process and cluster in the process's I/O thread.

Spark reuses its Python workers, so the client stays open. A forked worker makes its own client.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Callable, Mapping
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
from fencepost.spark.errors import GuaranteeUnavailableError, UnfinishedSinkError, UnknownQueryError
from fencepost.spark.sink import names, plan, plan_abilities, plan_steps, unfinished
from fencepost.spark.sink.abilities import BrokerAbilities, Guarantee
from fencepost.spark.sink.decision import Beginning, Decision, Pair
from fencepost.spark.sink.decision_store import KnownQuery
from fencepost.spark.sink.local.id_folder import IdFolder
from fencepost.spark.sink.names import UNIQUE_BYTES
from fencepost.spark.sink.steps import SinkConfig, StepRunner
from fencepost.values import Value

__all__ = ["ClusterClient", "Resolved", "SinkLink", "link_for", "link_to", "resolve_sink", "sink_link", "unique_bytes"]

log = logging.getLogger("fencepost.spark")


TOPIC_PATIENCE_MS: Final = 10_000
IS_OVER_MS: Final = 10_000
FIRST_CONTACT_MS: Final = 15_000  # before a job begins; running queries wait longer

T = TypeVar("T")
Performer = Callable[[plan_steps.Step], Any]


class ClusterClient:
    """A client of one cluster in this process."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        """Make a client. `settings` have Kafka's dotted names. Raises ConfigurationError."""
        self.config = AdminConfig.from_dotted(settings)
        self.io: IoThread = io_thread()

        async def make() -> ClusterCalls:
            return ClusterCalls(Cluster(runtime_for(self.config), self.config), self.config.default_api_timeout_ms)

        self.admin: ClusterCalls = self.io.run(make())
        self.sinks: dict[SinkConfig, StepRunner] = {}
        self.abilities: dict[tuple[str, Guarantee | None], BrokerAbilities] = {}
        self._reached = False
        self.batch_limits = BatchLimits()
        self.looked_for: set[tuple[str, ...]] = set()  # the checks that were done once

    def reach(self, patience_ms: int = FIRST_CONTACT_MS) -> None:
        """Check before a job that a broker answers. Raises KafkaTimeoutError with the servers and the reason."""
        if not self._reached:
            self.io.run(self._first_contact(patience_ms))
            self._reached = True

    async def _first_contact(self, patience_ms: int) -> None:
        cluster = self.admin.cluster
        deadline_ms = cluster.runtime.now_ms() + min(patience_ms, self.config.default_api_timeout_ms)
        what = f"kafka.bootstrap.servers={self.config.bootstrap_servers}: no broker can be reached"
        await cluster.reached(what, deadline_ms)

    def close(self) -> None:
        """Close the connections."""

        async def end() -> None:
            self.admin.cluster.close()

        self.io.run(end())


_links: dict[tuple[tuple[str, str], ...], ClusterClient] = {}
os.register_at_fork(after_in_child=_links.clear)


def link_to(settings: Mapping[str, str]) -> ClusterClient:
    """Return this process's client with these settings. The first call makes it."""
    worker_garbage.imports.spare()  # every task asks for its client
    key = tuple(sorted(settings.items()))
    if key not in _links:
        _links[key] = ClusterClient(settings)
    return _links[key]


def unique_bytes() -> bytes:
    """Return bytes that no process has ever had."""
    return os.urandom(UNIQUE_BYTES)


class SinkLink:
    """Runs one sink's plans."""

    def __init__(self, link: ClusterClient, config: SinkConfig) -> None:
        if config not in link.sinks:
            pool = IdFolder(os.environ, ",".join(link.config.bootstrap_servers), config.decision_topic)
            admin = ClusterCalls(link.admin.cluster, config.step_timeout_ms)
            link.sinks[config] = StepRunner(admin, config, unique_bytes, pool)
        self._link = link
        self._steps = link.sinks[config]
        self._step_ms = config.step_timeout_ms

    @property
    def admin(self) -> ClusterCalls:
        """The sink's requests to brokers. The time limit of each is step.timeout."""
        return self._steps.admin

    def reach(self) -> None:
        """Check before a job that a broker answers. Raises as ClusterClient.reach."""
        self._link.reach(min(FIRST_CONTACT_MS, self._step_ms))

    def check_topic(self, name: str) -> None:
        """Check once per topic that it exists, or that the brokers create it. Raises ConfigurationError otherwise."""
        if ("topic", name) in self._link.looked_for:
            return
        if not self._link.io.run(self.admin.describe_topics([name])):
            try:
                self._link.io.run(self._have_topic_created(name))
            except (KafkaTimeoutError, UnknownTopicOrPartitionError) as error:
                raise ConfigurationError(
                    f"topic {name!r} does not exist, and auto.create.topics.enable is off at the brokers; create it"
                ) from error
        self._link.looked_for.add(("topic", name))

    async def _have_topic_created(self, name: str) -> None:
        """Let the brokers create the topic, which the first records of the tasks would cause too."""
        cluster = self.admin.cluster
        deadline_ms = cluster.runtime.now_ms() + min(TOPIC_PATIENCE_MS, self._step_ms)
        await cluster.fetch_metadata([name], deadline_ms, create=True)
        await cluster.topic(name, deadline_ms)

    def warn_of_open_transactions(self, topic: str, sink: str) -> None:
        """Warn of other sinks' open transactions on the topic, once per topic."""
        key = ("orphans", topic, sink)
        if key in self._link.looked_for:
            return
        self._link.looked_for.add(key)
        try:
            orphans = self._link.io.run(unfinished.open_on_topic(self.admin, topic, sink))
        except KafkaError as error:
            log.info("topic %r: open transactions of other sinks could not be listed: %s", topic, error)
            return
        for orphan in orphans:
            log.warning("%s", orphan.describe(topic))

    def run(self, steps: plan.Plan[T]) -> T:
        """Carry out a plan whose steps all talk to the cluster."""
        return self._link.io.run(self._steps.run(steps))

    def run_task(self, steps: plan.Plan[T], own: Mapping[type, Performer]) -> T:
        """Carry out a task's plan. The functions in `own` carry out the steps of their types, in this thread."""
        try:
            step = next(steps)
            while True:
                perform = own.get(type(step))
                try:
                    observation = perform(step) if perform is not None else self._link.io.run(self._steps.perform(step))
                except Exception as error:  # noqa: BLE001 - the plan decides
                    step = steps.throw(error)
                else:
                    step = steps.send(observation)
        except StopIteration as stop:
            result: T = stop.value
            return result

    @property
    def transaction_timeout_ms(self) -> int:
        """The timeout of a task's transaction, in ms: as configured, or the brokers' maximum if they refused it."""
        return self._steps.transaction_timeout_ms

    def decisions(self, sink: str) -> tuple[Decision, ...]:
        """Return the last decision of every query of the sink. Does not claim the sink or create anything."""
        return self._link.io.run(self._steps.last_decisions(sink))

    def check_known(self, sink: str) -> None:
        """Raise ConfigurationError if neither the brokers nor the decision topic know the sink."""
        (own,) = self._link.io.run(self.admin.describe_transactions([names.sink_id(sink)]))
        is_known = own.error_code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        if not (is_known or self._listed(sink) or self.decisions(sink)):
            raise ConfigurationError(f"there is no sink {sink!r}; `fencepost spark sinks` lists all sinks")

    def _listed(self, sink: str) -> tuple[plan_steps.SinkTransaction, ...]:
        """Return the open transactions of the sink's tasks. Raises KafkaError."""
        listed: tuple[plan_steps.SinkTransaction, ...] = self._perform(plan_steps.ListTransactions(sink))
        return listed

    def undecided(self, sink: str) -> tuple[str, ...]:
        """Return the open transactions of the sink's tasks that no decision names. Does not claim the sink."""
        named = {winner.transactional_id for decision in self.decisions(sink) for winner in decision.winners}
        return tuple(txn.transactional_id for txn in self._listed(sink) if txn.transactional_id not in named)

    def _perform(self, step: plan_steps.Step) -> Any:
        return self._link.io.run(self._steps.perform(step))

    def abilities(self, sink: str, required: Guarantee | None) -> BrokerAbilities:
        """Ask the brokers for their abilities, once per process. Raises GuaranteeUnavailableError."""
        key = (sink, required)
        if key not in self._link.abilities:
            abilities = self._link.abilities[key] = self.run(plan_abilities.ask_abilities(sink, required))
            severity = logging.INFO if abilities.guarantee is Guarantee.DURABLE else logging.WARNING
            words = f"sink {sink!r} writes exactly once, guarantee {abilities.guarantee}"
            log.log(severity, words)
            if not log.hasHandlers() and not log.isEnabledFor(severity):
                # Logging is not configured in a Python worker of Spark; its stderr is the driver's.
                print(f"fencepost: {words}", file=sys.stderr)
        return self._link.abilities[key]

    def is_over(self, sink: str, claim: Pair) -> bool:
        """Return True if the claim can no longer decide a batch: it was used, or a newer run has claimed the sink.

        False if the brokers do not answer, or a node answers that hung and does not know yet that it is no longer the
        coordinator: it knows only an earlier epoch.
        """
        try:
            (own,) = self._link.io.run(
                self.admin.describe_transactions([names.sink_id(sink)], api_timeout_ms=min(IS_OVER_MS, self._step_ms))
            )
        except KafkaError:
            return False  # then the batch's commit, the next open, or the timeout ends the transaction
        if own.error_code or (own.producer_id == claim.producer_id and own.producer_epoch < claim.epoch):
            return False
        # Before transaction.version 1 the decision does not change the pair, only the state.
        return own.state not in ("Empty", "Ongoing") or Pair(own.producer_id, own.producer_epoch) != claim

    def elsewhere(self, sink: str, query_id: str) -> tuple[Decision, ...]:
        """Return the query's last decisions in sinks of other names. Does not claim or create anything."""
        return self._link.io.run(self._steps.last_elsewhere(sink, query_id))

    def begin(self, beginning: Beginning) -> None:
        """Write the query's beginning, or its release, to the decision topic. Raises KafkaError."""
        self._link.looked_for.discard(("begun", self._steps.decision_topic, beginning.sink, beginning.query_id))
        self._link.io.run(self._steps.begin(beginning))

    def queries(self, sink: str) -> tuple[KnownQuery, ...]:
        """Return the sink's queries in the decision topic. Does not claim or create anything."""
        return self._link.io.run(self._steps.queries(sink))

    def others(self, sink: str, query_id: str | None) -> str:
        """Return a text with the sink's other queries."""
        try:
            return unfinished.others(sink, query_id, self.queries(sink))
        except KafkaError as error:
            return f"Its other queries could not be read: {error}"

    def check_begun(self, query: Beginning, first_batch: int | None, *, others_count: bool) -> frozenset[str] | None:
        """Check, before a claim or a write, that the sink knows the query, or that this is the query's first batch.

        Writes the beginning of a new query. Returns the topics to which the batch may be written; None: to any topic.
        Raises UnknownQueryError.

        Args:
            query: The query, with the batch that Spark runs now as its first batch.
            first_batch: Option first.batch.
            others_count: True if the query also counts as known if a sink of another name has decided a batch of it.
        """
        key = ("begun", self._steps.decision_topic, query.sink, query.query_id)
        if key in self._link.looked_for:
            return None
        known = self.queries(query.sink)
        own = next((each for each in known if each.query_id == query.query_id), None)
        reason = None
        if own is not None:
            reason = unfinished.moved_away(query, own, first_batch)
        elif not (others_count and self._writes_elsewhere(query, first_batch)):
            is_new = bool(known) or not self._has_decided(query.sink)
            reason = unfinished.unknown_query(query, self._steps.decision_topic, first_batch, is_new=is_new)
        if reason is not None:
            raise UnknownQueryError(reason)
        if own is None or (own.beginning is not None and own.beginning.is_released):
            self._link.io.run(self._steps.begin(query))
        only = None if own is None else unfinished.only_topics(query, own, first_batch)
        if only is None:  # otherwise the next start may run the same batch with another topic
            self._link.looked_for.add(key)
        return only

    def _writes_elsewhere(self, query: Beginning, first_batch: int | None) -> bool:
        """Return True if a sink of another name has decided a batch of the query.

        Raises UnknownQueryError if that sink has released the query.
        """
        others = self._link.io.run(self._steps.decided_by_others(query.sink, query.query_id))
        for name in sorted({decision.sink for decision in others}):
            for known in self.queries(name):
                if known.query_id == query.query_id and known.beginning is not None and known.beginning.is_released:
                    reason = unfinished.moved_away(query, known, first_batch)
                    if reason is not None:
                        raise UnknownQueryError(reason)
        return bool(others)

    def check_still_known(self, query: Beginning, first_batch: int | None, *, others_count: bool) -> None:
        """Check again, after the decisions were read, in case the decision topic was deleted and created since.

        Raises as `check_begun`.
        """
        if not self._steps.knows(query.sink, query.query_id):
            self._link.looked_for.discard(("begun", self._steps.decision_topic, query.sink, query.query_id))
            self.check_begun(query, first_batch, others_count=others_count)

    def check_sink_remembered(self, sink: str) -> None:
        """Raise UnknownQueryError if the topic has lost the sink. For a claim without a known query."""
        if not self.queries(sink) and self._has_decided(sink):
            raise UnknownQueryError(unfinished.unknown_sink(sink, self._steps.decision_topic))

    def _has_decided(self, sink: str) -> bool:
        """Return true if the coordinator reports that the sink's last claim has decided a batch."""
        (own,) = self._link.io.run(self.admin.describe_transactions([names.sink_id(sink)]))
        return own.error_code == 0 and own.state in ("PrepareCommit", "CompleteCommit")

    def check_finished(self, sink: str) -> None:
        """Raise UnfinishedSinkError if the sink has open transactions. For a write without transactions."""
        if ("open", sink) in self._link.looked_for:
            return
        try:
            listed = self._listed(sink)
        except UnsupportedVersionError:
            listed = ()  # on these brokers the sink never wrote exactly once
        if listed:
            raise UnfinishedSinkError(unfinished.begun_exactly_once(sink, len(listed)))
        self._link.looked_for.add(("open", sink))

    def check_renamed(self, sink: str, query_id: str, batch_id: int) -> None:
        """Raise UnfinishedSinkError if another sink wrote the batch. For the first decision of this process."""
        if ("query", sink, query_id) in self._link.looked_for:
            return
        decisions = self._link.io.run(self._steps.decided_by_others(sink, query_id))
        reason = unfinished.written_elsewhere(sink, query_id, batch_id, decisions)
        if reason is not None:
            raise UnfinishedSinkError(reason)
        self._link.looked_for.add(("query", sink, query_id))

    def check_not_written_again(self, sink: str) -> None:
        """Raise UnfinishedSinkError if another sink has decided a batch that this sink would still commit."""
        still_open = {txn.transactional_id for txn in self._listed(sink)}
        for decision in self._perform(plan_steps.ReadDecisions(sink)) if still_open else ():
            if not {winner.transactional_id for winner in decision.winners} & still_open:
                continue
            others = self._link.io.run(self._steps.decided_by_others(sink, decision.query_id))
            reason = unfinished.written_again(decision, others)
            if reason is not None:
                raise UnfinishedSinkError(reason)

    def open(self, sink: str, required: Guarantee | None = None) -> plan_steps.OpenedSink:
        """Carry out steps 1-5 of the protocol. Raises GuaranteeUnavailableError if a broker was downgraded."""
        self._link.looked_for.discard(("open", sink))
        abilities = self.abilities(sink, required)
        try:
            self.run(plan_abilities.check_abilities(sink, abilities))
        except GuaranteeUnavailableError:
            del self._link.abilities[sink, required]  # a query that is started again in this process asks again
            raise
        return self.run(plan.open_sink(sink, abilities))


def sink_link(settings: Mapping[str, str], config: SinkConfig) -> SinkLink:
    """Return the runner of a sink's plans in this process."""
    return SinkLink(link_to(settings), config)


def link_for(bootstrap_servers: str, options: Mapping[str, str]) -> SinkLink:
    """Return the runner for options: client settings in snake_case, decision_topic, and step_timeout_ms.

    Raises ConfigurationError.
    """
    usual = SinkConfig()
    config = SinkConfig(
        decision_topic=options.get("decision_topic", usual.decision_topic),
        step_timeout_ms=int(options.get("step_timeout_ms", usual.step_timeout_ms)),
    )
    own = ("decision_topic", "step_timeout_ms")
    settings = {key.replace("_", "."): options[key] for key in options if key not in own}
    return sink_link({"bootstrap.servers": bootstrap_servers, **settings}, config)


class Resolved(Value):
    """The result of `resolve_sink`.

    Attributes:
        committed: The transactional ids that were committed.
        aborted: The transactional ids that were aborted.
        unknown: Decided transactional ids that have expired: the brokers do not know whether they were committed.
        guarantee: The sink's guarantee with these brokers, "durable" or "timed".
    """

    committed: list[str]
    aborted: list[str]
    unknown: list[str]
    guarantee: str


def resolve_sink(
    bootstrap_servers: str, sink_id: str, *, even_if_written_again: bool = False, **options: str
) -> Resolved:
    """Finish a sink that no query uses any more: commit its decided transactions, and abort all others.

    A running query of the sink is superseded.

    Args:
        bootstrap_servers: The Kafka cluster.
        sink_id: The sink.
        even_if_written_again: Also commit a batch that another sink has written, which doubles its rows.
        options: Client settings in snake_case, decision_topic, and step_timeout_ms (the time limit of one step).

    Raises:
        ConfigurationError: There is no such sink.
        UnknownQueryError: The decision topic has no record of it.
        UnfinishedSinkError: Another sink has written a batch that would be committed.
        PreparedTransactionLostError: A decided transaction is lost.
        GuaranteeUnavailableError: The brokers do not support exactly-once.
        KafkaTimeoutError: The brokers did not answer in time.
    """
    link = link_for(bootstrap_servers, options)
    # Check before the probe and the claim, which create transactional ids. On brokers that cannot describe
    # transactions, `abilities` raises the error with the reason.
    with contextlib.suppress(UnsupportedVersionError):
        link.check_known(sink_id)
    abilities = link.abilities(sink_id, None)
    link.check_sink_remembered(sink_id)
    if not even_if_written_again:
        link.check_not_written_again(sink_id)
    resolved = Resolved([], [], [], abilities.guarantee.value)
    link.run(_noting(plan.open_sink(sink_id, abilities), resolved))
    return resolved


def _noting(steps: plan.Plan[T], resolved: Resolved) -> plan.Plan[T]:
    """Run the plan, and note the listed transactions that it ends, and those with an unknown outcome."""
    observation: Any = None
    open_ids: set[str] = set()
    while True:
        try:
            step = steps.send(observation)
        except StopIteration as stop:
            result: T = stop.value
            return result
        observation = yield step
        if isinstance(step, plan_steps.ListTransactions):
            open_ids = {txn.transactional_id for txn in observation}
        if isinstance(step, plan_steps.ReportUnknown):
            resolved.unknown.extend(winner.transactional_id for winner in step.unknown.winners)
        if isinstance(step, plan_steps.EndTransactions):
            for end, code in zip(step.ends, observation, strict=True):
                if code == 0 and end.transactional_id in open_ids:
                    (resolved.committed if end.commit else resolved.aborted).append(end.transactional_id)
