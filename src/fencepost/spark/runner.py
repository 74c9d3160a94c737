"""Runs plans from ordinary (blocking) code: one client per process and cluster, in the process's I/O thread.

Spark reuses its Python workers, so the client is kept; a forked worker makes its own.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from fencepost.client.admin import AdminCore
from fencepost.client.assembly import cluster_for
from fencepost.client.asyncio_runtime import runtime_for
from fencepost.client.io_thread import IoThread, io_thread
from fencepost.config import AdminConfig
from fencepost.errors import ConfigurationError, KafkaTimeoutError
from fencepost.spark import plan
from fencepost.spark.names import UNIQUE_BYTES
from fencepost.spark.steps import SinkConfig, StepRunner

__all__ = ["Link", "Resolved", "SinkLink", "link_to", "resolve_sink", "sink_link"]

log = logging.getLogger("fencepost.spark")

TOPIC_PATIENCE_MS: Final = 10_000

T = TypeVar("T")
Performer = Callable[[plan.Step], Any]


class Link:
    """A client of one cluster in this process."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        """`settings` are Kafka's dotted names. Raises ConfigurationError."""
        self.config = AdminConfig.from_dotted(settings)
        self.io: IoThread = io_thread()

        async def make() -> AdminCore:
            return AdminCore(cluster_for(runtime_for(self.config), self.config), self.config.default_api_timeout_ms)

        self.admin: AdminCore = self.io.run(make())
        self.sinks: dict[SinkConfig, StepRunner] = {}
        self.levels: dict[tuple[str, plan.Level | None], plan.Level] = {}
        self._topics: set[str] = set()

    def check_topic(self, name: str) -> None:
        """Asked for once per topic: it is there, or the brokers make it. Raises ConfigurationError otherwise."""
        if name in self._topics:
            return
        if not self.io.run(self.admin.describe_topics([name])):
            cluster = self.admin.cluster
            try:
                self.io.run(cluster.topic(name, cluster.runtime.now_ms() + TOPIC_PATIENCE_MS))
            except KafkaTimeoutError as error:
                raise ConfigurationError(
                    f"topic {name!r} does not exist, and the brokers do not make topics by themselves"
                ) from error
        self._topics.add(name)

    def close(self) -> None:
        """Close the connections."""

        async def end() -> None:
            self.admin.cluster.close()

        self.io.run(end())


_links: dict[tuple[tuple[str, str], ...], Link] = {}
os.register_at_fork(after_in_child=_links.clear)


def link_to(settings: Mapping[str, str]) -> Link:
    """This process's client with these settings, made when first asked for."""
    key = tuple(sorted(settings.items()))
    if key not in _links:
        _links[key] = Link(settings)
    return _links[key]


class SinkLink:
    """Runs one sink's plans."""

    def __init__(self, link: Link, config: SinkConfig) -> None:
        if config not in link.sinks:
            link.sinks[config] = StepRunner(link.admin, config, lambda: os.urandom(UNIQUE_BYTES))
        self._link = link
        self._steps = link.sinks[config]

    def run(self, steps: plan.Plan[T]) -> T:
        """Carry out a plan all of whose steps are about the cluster."""
        return self._link.io.run(self._steps.run(steps))

    def run_task(self, steps: plan.Plan[T], own: Mapping[type, Performer]) -> T:
        """Carry out a task's plan; steps of the types in `own` are done by these functions, in this thread."""
        observation: Any = None
        while True:
            try:
                step = steps.send(observation)
            except StopIteration as stop:
                result: T = stop.value
                return result
            perform = own.get(type(step))
            observation = perform(step) if perform is not None else self._link.io.run(self._steps.perform(step))

    def level(self, sink: str, required: plan.Level | None) -> plan.Level:
        """The guarantee level, asked for once per process. Raises LevelUnavailableError."""
        key = (sink, required)
        if key not in self._link.levels:
            level = self._link.levels[key] = self.run(plan.choose_level(sink, required))
            severity = logging.WARNING if level is plan.Level.RESUME else logging.INFO
            words = f"sink {sink!r} writes exactly once at guarantee level {level.value!r}: {PROMISES[level]}"
            log.log(severity, words)
            if not log.hasHandlers() and not log.isEnabledFor(severity):
                # A Python worker of Spark, where nobody sets logging up; its stderr is the driver's.
                print(f"fencepost: {words}", file=sys.stderr)
        return self._link.levels[key]

    def open(self, sink: str, required: plan.Level | None = None) -> plan.Opened:
        """Steps 1-5 of the protocol."""
        return self.run(plan.open_sink(sink, self.level(sink, required)))


PROMISES: Final = {
    plan.Level.KEEP_PREPARED: "a prepared transaction waits for its decision for ever",
    plan.Level.TWO_PHASE: "a transaction waits for its decision for ever, also when its task died",
    plan.Level.RESUME: "a decided transaction can be lost if it is not completed within transaction.timeout.ms; "
    "that would stop the query with PreparedTransactionLostError",
}


def sink_link(settings: Mapping[str, str], config: SinkConfig) -> SinkLink:
    """What runs a sink's plans in this process."""
    return SinkLink(link_to(settings), config)


@dataclass(frozen=True, slots=True)
class Resolved:
    """What `resolve_sink` did: transactional ids whose commit was decided, those aborted, and the guarantee level."""

    committed: list[str]
    aborted: list[str]
    level: str


def resolve_sink(bootstrap_servers: str, sink_id: str, **options: str) -> Resolved:
    """Finish a sink that nobody runs any more: commit what is decided, abort the rest of its transactions.

    `options`: client settings in snake_case, decision_topic, and step_timeout_ms (patience for one step).
    A run of the sink that is still alive is superseded.
    Raises PreparedTransactionLostError, LevelUnavailableError, KafkaTimeoutError.
    """
    usual = SinkConfig()
    config = SinkConfig(
        decision_topic=options.pop("decision_topic", usual.decision_topic),
        step_timeout_ms=int(options.pop("step_timeout_ms", usual.step_timeout_ms)),
    )
    settings = {"bootstrap.servers": bootstrap_servers, **{key.replace("_", "."): options[key] for key in options}}
    committed: list[str] = []
    aborted: list[str] = []
    link = sink_link(settings, config)
    level = link.level(sink_id, None)
    link.run(_noting(plan.open_sink(sink_id, level), committed, aborted))
    return Resolved(committed, aborted, level.value)


def _noting(steps: plan.Plan[T], committed: list[str], aborted: list[str]) -> plan.Plan[T]:
    """The same plan; what it found open and ended is noted (ending again what was complete before is not news)."""
    observation: Any = None
    found: set[str] = set()
    while True:
        try:
            step = steps.send(observation)
        except StopIteration as stop:
            result: T = stop.value
            return result
        observation = yield step
        if isinstance(step, plan.ListTransactions):
            found = {one.transactional_id for one in observation}
        if isinstance(step, plan.EndTransactions):
            for end, code in zip(step.ends, observation, strict=True):
                if code == 0 and end.transactional_id in found:
                    (committed if end.commit else aborted).append(end.transactional_id)
