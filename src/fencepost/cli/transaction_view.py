"""Data of `fencepost transactions`: open transactions, their owners, and the partitions they block."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple

from fencepost.cli.cluster_settings import PATIENCE, PATIENCE_MS, client_settings, first_contact
from fencepost.cli.diagnosis.cluster_snapshot import Calls, ClusterSnapshot, SnapshotCollector
from fencepost.client.admin.transactions import TransactionDescription, TransactionListing
from fencepost.client.diagnosis.collecting import CollectionLimits
from fencepost.client.diagnosis.holding import OPEN_STATES, is_two_phase, note_of, partition_name
from fencepost.errors import ConfigurationError, ItemsFailedError, KafkaTimeoutError, UnsupportedVersionError
from fencepost.protocol.codes import describe as describe_code
from fencepost.protocol.transactions import NO_TIMEOUT_MS
from fencepost.spark.sink import names
from fencepost.spark.sink.decision import Decision, Pair
from fencepost.spark.sink.decision_store import DecisionStore
from fencepost.spark.sink.repair import WinnerState, winner_state
from fencepost.spark.sink.runner import ClusterClient, SinkLink
from fencepost.spark.sink.steps import SinkConfig

__all__ = ["Session", "age_of", "meaning_in", "meaning_of", "open_session", "state_of"]


_DECIDED: Final = {
    WinnerState.COMMITTED: "committed",
    WinnerState.OPEN: "to be committed",
    WinnerState.LOST: "lost, its rows are not in the topic",
    WinnerState.UNKNOWN: "unknown, its transactional id has expired",
}
# Meaning of a task's transaction that no decision names, by Kafka's states. A query keeps a decision until its next
# one. So a completed transaction belongs to an older batch or a losing attempt, or was ended by hand.
_NOT_NAMED: Final = {
    "Ongoing": "not decided",
    "PrepareCommit": "committed",
    "CompleteCommit": "committed",
    "PrepareAbort": "aborted",
    "CompleteAbort": "aborted",
    "PrepareEpochFence": "aborted",
}


def state_of(transaction: TransactionDescription) -> str:
    """Return Kafka's name of the state, with a remark for two-phase transactions."""
    if transaction.error_code != 0:
        return f"unknown to the brokers: {describe_code(transaction.error_code)}"
    return "Ongoing (two-phase: prepared, or about to be)" if is_two_phase(transaction) else transaction.state


def age_of(transaction: TransactionDescription) -> float | None:
    """Return the seconds since the transaction began; None if it is not open."""
    began = transaction.error_code == 0 and transaction.state in OPEN_STATES and transaction.start_time_ms >= 0
    return max(time.time() - transaction.start_time_ms / 1000, 0.0) if began else None


def meaning_of(transactional_id: str, state: str | None, decision: Decision | None) -> str:
    """Return the transaction's role in a Spark sink; "" if it belongs to none.

    Args:
        transactional_id: The transactional id.
        state: Kafka's name of its state; None if the brokers do not know the id.
        decision: The decision that names the transaction, or None.
    """
    name = names.parse(transactional_id)
    if name is None:
        return ""
    if isinstance(name, names.SinkId):
        return f"sink {name.sink}: its own"
    if decision is not None:
        became = _DECIDED[winner_state(state)]
        return f"sink {name.sink}: decided, batch {decision.batch_id} of query {decision.query_id}: {became}"
    return f"sink {name.sink}: {_NOT_NAMED.get(state or '', 'nothing is open')}"


def meaning_in(snapshot: ClusterSnapshot, transaction: TransactionDescription) -> str:
    """Return `meaning_of` by the decisions of the snapshot."""
    name = names.parse(transaction.transactional_id)
    if isinstance(name, names.TaskId) and not snapshot.knows("sinks"):
        return f"sink {name.sink}: its decisions are not known"
    decisions = (
        each
        for each in snapshot.decisions
        if any(winner.transactional_id == transaction.transactional_id for winner in each.winners)
    )
    state = transaction.state if transaction.error_code == 0 else None
    return meaning_of(transaction.transactional_id, state, next(decisions, None))


class KnownSinks(NamedTuple):
    """The known Spark sinks, their transactions, and the error if some coordinators have not answered."""

    names: Sequence[str]
    listed: Sequence[TransactionListing]
    missing: ItemsFailedError | None


class Session:
    """A client and the contents of the decision topic."""

    def __init__(self, settings: Mapping[str, str], decision_topic: str) -> None:
        self.link = ClusterClient({**PATIENCE, **settings})
        first_contact(str(settings["bootstrap.servers"]), self.link.reach)
        config = SinkConfig(decision_topic=decision_topic, step_timeout_ms=int(PATIENCE_MS))
        self.sink_link = SinkLink(self.link, config)
        self._topic = decision_topic
        self._decisions: dict[str, tuple[Decision, ...]] = {}

    def listed(self, states: Sequence[str]) -> list[TransactionListing]:
        """Return the transactions of the whole cluster."""
        return self.link.io.run(self.link.admin.list_transactions(states=states))

    def describe(self, ids: Sequence[str], api_timeout_ms: int | None = None) -> list[TransactionDescription]:
        """Return the descriptions of these ids, in this order."""
        if not ids:
            return []
        return self.link.io.run(self.link.admin.describe_transactions(ids, api_timeout_ms=api_timeout_ms))

    def limit(self) -> Callable[[], int]:
        """Return a function for the rest of default.api.timeout.ms from now on, in ms and at least 1."""
        runtime = self.link.admin.cluster.runtime
        until_ms = runtime.now_ms() + self.link.config.default_api_timeout_ms
        return lambda: max(until_ms - runtime.now_ms(), 1)

    @staticmethod
    def is_task_of(sink: str, transactional_id: str) -> bool:
        """Return true if the id belongs to a task of this sink."""
        name = names.parse(transactional_id)
        return isinstance(name, names.TaskId) and name.sink == sink

    def decisions(self, sink: str) -> tuple[Decision, ...]:
        """Return the sink's last decisions."""
        if sink not in self._decisions:
            self._decisions[sink] = self.sink_link.decisions(sink)
        return self._decisions[sink]

    def sinks(self) -> KnownSinks:
        """Return every Spark sink that the decision topic or a coordinator knows."""
        found = self._decided_sinks()
        missing: ItemsFailedError | None = None
        listed: list[TransactionListing]
        try:
            listed = self.link.io.run(self.link.admin.list_transactions(names.ANY_SINK))
        except UnsupportedVersionError:
            listed = []  # before Kafka 3.0 only the decision topic knows them
        except ItemsFailedError as error:
            missing, listed = error, sorted(chain.from_iterable(error.results.values()))
        parsed = (names.parse(transaction.transactional_id) for transaction in listed)
        found |= {name.sink for name in parsed if name is not None}
        return KnownSinks(sorted(found), listed, missing)

    def _decided_sinks(self) -> set[str]:
        store = DecisionStore(self.link.admin, self._topic)
        deadline_ms = self.link.admin.cluster.runtime.now_ms() + int(PATIENCE_MS)
        is_there = self.link.io.run(store.is_there(deadline_ms))  # reading must not create the topic
        return set(self.link.io.run(store.sinks(deadline_ms))) if is_there else set()

    def check_sink(self, sink: str) -> None:
        """Raise ConfigurationError if the sink does not exist; the message lists all sinks. Raises KafkaError."""
        if sink in self._decided_sinks():
            return  # coordinators that do not answer need not be waited for
        known = self.sinks()
        if sink in known.names:
            return
        if known.missing is not None:
            raise KafkaTimeoutError(f"it is not known if there is a sink {sink!r}: {known.missing}")
        raise ConfigurationError(f"there is no sink {sink!r}; there are: {', '.join(known.names) or 'none'}")

    def decided_by(self, transactional_id: str) -> Decision | None:
        """Return the decision that names this transaction, or None."""
        name = names.parse(transactional_id)
        if isinstance(name, names.TaskId):
            for decision in self.decisions(name.sink):
                if any(winner.transactional_id == transactional_id for winner in decision.winners):
                    return decision
        return None

    def meaning(self, transaction: TransactionDescription) -> str:
        """Return the transaction's role in a Spark sink; "" if it belongs to none."""
        state = transaction.state if transaction.error_code == 0 else None
        return meaning_of(transaction.transactional_id, state, self.decided_by(transaction.transactional_id))

    def facts(self, transaction: TransactionDescription, spark: str | None = None) -> dict[str, Any]:
        """Return a transaction's data, by the field names of --json. `spark` is its `meaning`; None: ask for it."""
        known = transaction.error_code == 0
        age, note = age_of(transaction), note_of(transaction)
        return {
            "transactional_id": transaction.transactional_id,
            "state": transaction.state if known else None,
            "error": None if known else describe_code(transaction.error_code),
            "two_phase": is_two_phase(transaction),
            "prepared": str(note) if note else None,
            "end_with": str(Pair(transaction.producer_id, transaction.producer_epoch)) if known else None,
            "timeout_ms": transaction.timeout_ms if known and transaction.timeout_ms != NO_TIMEOUT_MS else None,
            "age_s": None if age is None else round(age, 3),
            "partitions": list(map(partition_name, transaction.partitions)),
            "spark": self.meaning(transaction) if spark is None else spark,
        }

    def collect(self, parts: Iterable[str], bounds: CollectionLimits | None = None) -> ClusterSnapshot:
        """Return these parts of the facts about the cluster, within default.api.timeout.ms and the bounds.

        Raises KafkaError if no broker answers.
        """
        limit_ms = self.link.config.default_api_timeout_ms
        collector = SnapshotCollector.within(Calls(self.link.admin.cluster, limit_ms), self._topic, limit_ms, bounds)
        return self.link.io.run(collector.collect(parts))


def open_session(servers: str | None, command_config: Path | None, decision_topic: str) -> Session:
    """Open a session with a command's options. Raises ConfigurationError."""
    return Session(client_settings(servers, command_config), decision_topic)
