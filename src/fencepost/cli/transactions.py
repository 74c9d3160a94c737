"""`fencepost transactions`: nothing in doubt stays invisible. Knows the sinks of Spark queries and their decisions."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Annotated, NoReturn

import typer

from fencepost.client.admin_transactions import TransactionDescription, TransactionListing
from fencepost.errors import KafkaError
from fencepost.protocol.codes import describe as describe_code
from fencepost.spark import names, plan, takeover
from fencepost.spark.decision import Decision, Pair
from fencepost.spark.decision_store import DEFAULT_TOPIC
from fencepost.spark.runner import Link, resolve_sink
from fencepost.spark.steps import SAFE_END_TXN_VERSION, SinkConfig, StepRunner

__all__ = ["transactions"]

transactions = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    help="List, describe and resolve transactions.",
)

Servers = Annotated[str, typer.Option("--bootstrap-servers", "-b", help="HOST:PORT,... of the brokers.")]
DecisionTopic = Annotated[str, typer.Option(help="Where Spark sinks keep their decisions.")]
LOCAL = "localhost:9092"
PATIENCE_MS = "20000"  # for one call: a person waits for the answer
OPEN_STATES = ("Ongoing", "PrepareCommit", "PrepareAbort")


class _Session:
    """A client, and what the decision topic says."""

    def __init__(self, servers: str, decision_topic: str) -> None:
        self.link = Link({"bootstrap.servers": servers, "default.api.timeout.ms": PATIENCE_MS})
        self._topic = decision_topic
        self._decisions: dict[str, tuple[Decision, ...]] = {}

    def listed(self, states: Sequence[str]) -> list[TransactionListing]:
        return self.link.io.run(self.link.admin.list_transactions(states=states))

    def describe(self, ids: Sequence[str]) -> list[TransactionDescription]:
        return self.link.io.run(self.link.admin.describe_transactions(ids))

    def decisions(self, sink: str) -> tuple[Decision, ...]:
        """The sink's last decisions; none where there is no decision topic (it is not created)."""
        if sink not in self._decisions:
            link = self.link
            found: tuple[Decision, ...] = ()
            if link.io.run(link.admin.describe_topics([self._topic])):
                steps = StepRunner(link.admin, SinkConfig(decision_topic=self._topic), lambda: b"")
                found = link.io.run(steps.perform(plan.ReadDecisions(sink)))
            self._decisions[sink] = found
        return self._decisions[sink]

    def meaning(self, transactional_id: str) -> str:
        """What the id is to a Spark sink; "" for a stranger's."""
        name = names.parse(transactional_id)
        if name is None:
            return ""
        if isinstance(name, names.SinkId):
            return f"sink {name.sink}: its own"
        for decision in self.decisions(name.sink):
            if any(winner.transactional_id == transactional_id for winner in decision.winners):
                return f"sink {name.sink}: decided, batch {decision.batch_id} of query {decision.query_id}"
        return f"sink {name.sink}: not decided"


def _fail(error: KafkaError) -> NoReturn:
    _refuse(str(error))


def _refuse(words: str) -> NoReturn:
    sys.stderr.write(f"fencepost: {words}\n")
    raise typer.Exit(1)


def _print_table(rows: Iterable[Sequence[str]]) -> None:
    table = [tuple(row) for row in rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for row in table:
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        sys.stdout.write(line.rstrip() + "\n")


@transactions.command("list")
def list_(
    bootstrap_servers: Servers = LOCAL,
    every: Annotated[bool, typer.Option("--all", help="Completed ones too.")] = False,
    prefix: Annotated[str, typer.Option(help="Only ids that begin with this.")] = "",
    decision_topic: DecisionTopic = DEFAULT_TOPIC,
) -> None:
    """The transactions that are open, and what each is to a Spark sink."""
    try:
        session = _Session(bootstrap_servers, decision_topic)
        listed = session.listed(() if every else OPEN_STATES)
        listed = [one for one in listed if one.transactional_id.startswith(prefix)]
        rows = [(one.transactional_id, one.state, session.meaning(one.transactional_id)) for one in listed]
    except KafkaError as error:
        _fail(error)
    _print_table([("TRANSACTIONAL ID", "STATE", "SPARK"), *rows])


@transactions.command()
def describe(
    transactional_id: Annotated[list[str], typer.Argument(help="One or more transactional ids.")],
    bootstrap_servers: Servers = LOCAL,
    decision_topic: DecisionTopic = DEFAULT_TOPIC,
) -> None:
    """Owner, timeout, partitions and, for a Spark sink, whether it is decided."""
    try:
        session = _Session(bootstrap_servers, decision_topic)
        for one in session.describe(transactional_id):
            unknown = one.error_code != 0
            partitions = ", ".join(f"{at.topic}-{at.partition}" for at in one.partitions)
            sys.stdout.write(f"{one.transactional_id}\n")
            facts = {
                "state": f"unknown to the brokers ({one.error_code})" if unknown else one.state,
                "end with": "" if unknown else str(Pair(one.producer_id, one.producer_epoch)),
                "timeout": "" if unknown else f"{one.timeout_ms} ms",
                "partitions": partitions,
                "spark": session.meaning(one.transactional_id),
            }
            for name, value in facts.items():
                if value:
                    sys.stdout.write(f"  {name}: {value}\n")
    except KafkaError as error:
        _fail(error)


@transactions.command()
def resolve(
    sink: Annotated[str, typer.Argument(help="The sink's name: its option sink.id.")],
    bootstrap_servers: Servers = LOCAL,
    decision_topic: DecisionTopic = DEFAULT_TOPIC,
) -> None:
    """Commit what a Spark sink has decided and abort the rest. A run that is alive is superseded: stop it first."""
    try:
        done = resolve_sink(bootstrap_servers, sink, decision_topic=decision_topic, step_timeout_ms=PATIENCE_MS)
    except KafkaError as error:
        _fail(error)
    for word, ids in (("committed", done.committed), ("aborted", done.aborted)):
        for one in ids:
            sys.stdout.write(f"{word} {one}\n")
    sys.stdout.write(f"{len(done.committed)} committed, {len(done.aborted)} aborted\n")


@transactions.command()
def abort(
    transactional_id: Annotated[str, typer.Argument(help="The transaction to abort.")],
    bootstrap_servers: Servers = LOCAL,
    decision_topic: DecisionTopic = DEFAULT_TOPIC,
    even_if_decided: Annotated[bool, typer.Option(help="Lose a batch that a Spark query believes written.")] = False,
) -> None:
    """Abort one open transaction, whoever owns it."""
    try:
        session = _Session(bootstrap_servers, decision_topic)
        meaning = session.meaning(transactional_id)
        if ": decided" in meaning and not even_if_decided:
            _refuse(f"{transactional_id} is to be committed ({meaning}); use resolve")
        _end_open(session, transactional_id, commit=False)
    except KafkaError as error:
        _fail(error)


@transactions.command()
def commit(
    transactional_id: Annotated[str, typer.Argument(help="The transaction to commit.")],
    bootstrap_servers: Servers = LOCAL,
    decision_topic: DecisionTopic = DEFAULT_TOPIC,
    even_if_undecided: Annotated[bool, typer.Option(help="Make rows visible that a Spark query writes again.")] = False,
) -> None:
    """Commit one open transaction, whoever owns it. Only its owner knows whether everything is in it: ask there."""
    try:
        session = _Session(bootstrap_servers, decision_topic)
        meaning = session.meaning(transactional_id)
        if meaning and ": decided" not in meaning and not even_if_undecided:
            _refuse(f"{transactional_id} is not decided ({meaning}): its rows will be written again; use resolve")
        _end_open(session, transactional_id, commit=True)
    except KafkaError as error:
        _fail(error)


@transactions.command("finish-flink")
def finish_flink(
    prefix: Annotated[str, typer.Argument(help="The sink's transactional id prefix.")],
    checkpoint: Annotated[int, typer.Option(help="The last completed checkpoint (or savepoint) of the job.")],
    bootstrap_servers: Servers = LOCAL,
    apply: Annotated[bool, typer.Option("--apply", help="Do it; without this, only say what would be done.")] = False,
) -> None:
    """Finish what a stopped Flink KafkaSink left open: commit up to a checkpoint, abort what is later.

    Its ids are PREFIX-SUBTASK-CHECKPOINT. Stop the job first: a running one would be fenced.
    """
    try:
        session = _Session(bootstrap_servers, DEFAULT_TOPIC)
        listed = [one.transactional_id for one in session.listed(("Ongoing",))]
        to_commit, to_abort = takeover.judge(prefix, listed, checkpoint)
        for ids, is_commit in ((to_commit, True), (to_abort, False)):
            for one in ids:
                if apply:
                    _end_open(session, one.transactional_id, commit=is_commit)
                else:
                    sys.stdout.write(f"would {'commit' if is_commit else 'abort'} {one.transactional_id}\n")
    except KafkaError as error:
        _fail(error)
    done = "committed" if apply else "to commit", "aborted" if apply else "to abort"
    sys.stdout.write(f"{len(to_commit)} {done[0]}, {len(to_abort)} {done[1]}\n")


def _end_open(session: _Session, transactional_id: str, *, commit: bool) -> None:
    """EndTxn with the pair that is in force. Exits with 1 when the transaction is not open, or stays so."""
    word = "committed" if commit else "aborted"
    (found,) = session.describe([transactional_id])
    if found.error_code != 0 or found.state != "Ongoing":
        _refuse(f"{transactional_id} is not open: {'unknown' if found.error_code else found.state}")
    admin = session.link.admin
    pair = found.producer_id, found.producer_epoch
    ended = session.link.io.run(admin.end_transaction(transactional_id, *pair, commit, version=SAFE_END_TXN_VERSION))
    if ended.error_code != 0:
        _refuse(f"{transactional_id} was not {word}: {describe_code(ended.error_code)}")
    sys.stdout.write(f"{word} {transactional_id}\n")
