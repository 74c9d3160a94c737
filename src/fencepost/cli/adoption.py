"""`fencepost spark adopt` and `release`: a query moves from Spark's own Kafka connector to this one, and back."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NoReturn

import typer

from fencepost.cli.cluster_settings import CommandConfig, DecisionTopic, Servers, client_settings
from fencepost.cli.names import named, sink_named, topic_named
from fencepost.cli.output import (
    CommandChanges,
    Json,
    Yes,
    changes_reported,
    confirmed,
    print_json,
    print_line,
)
from fencepost.cli.printable import printable
from fencepost.cli.transaction_view import Session, open_session
from fencepost.config import ProducerConfig
from fencepost.counted import counted_noun, duration_words
from fencepost.errors import ConfigurationError
from fencepost.extras import require
from fencepost.spark.adoption.plans import Begun, MoveRecords, begins_unknown, differs
from fencepost.spark.adoption.refusals import UndecidedBatchError
from fencepost.spark.options import milliseconds
from fencepost.spark.sink.decision_store import DEFAULT_TOPIC

if TYPE_CHECKING:
    from fencepost.spark.adoption.move import PlannedMove

__all__ = ["adopt", "release"]

UNDECIDED: Final = 3
CHOICES: Final = """nothing was written. Either let the query compute the rows of the batch, and compare them:
  1. start the query unchanged once more, with the sink replaced by
     .foreachBatch(fencepost.spark.describe_batch("batch.rows", topic=...)); it writes nothing, and ends with an error
  2. give the file: --rows batch.rows
     (if a part of the batch is in the output: with keep_rows=True, and --begun missing writes the missing rows)
or look at the output yourself, and add --begun again (no row of the batch is there) or --begun done (all are)"""
NO_TRACE: Final = "the command cannot detect a query that waits for new records: stop the query first"

CheckpointFolder = Annotated[
    str, typer.Argument(metavar="CHECKPOINT", callback=named, help="Its checkpointLocation, in local files.")
]
SinkId = Annotated[
    str | None,
    typer.Option("--sink-id", callback=sink_named, help="The sink's option sink.id.", show_default="the query's id"),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")]


def _topics(given: list[str] | None) -> list[str]:
    for topic in given or ():
        topic_named(topic)
    return given or []


def adopt(
    checkpoint: CheckpointFolder,
    topic: Annotated[
        list[str] | None,
        typer.Option(callback=_topics, help="Output topic, if the sink moves; once for each topic that it writes to."),
    ] = None,
    sink_id: SinkId = None,
    rows: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="The file that describe_batch has written.")
    ] = None,
    begun: Annotated[
        Begun | None,
        typer.Option(
            help="Your decision about a batch that was begun. again: none of its rows is in the output. done: all are. "
            "missing: write the rows of --rows that the output lacks."
        ),
    ] = None,
    clocks_within: Annotated[
        str, typer.Option(metavar="TIME", help="Largest difference between clocks of driver, executors and brokers.")
    ] = "60s",
    other_writers: Annotated[
        bool, typer.Option("--other-writers", help="Other programs write to the topics, too; never the same rows.")
    ] = False,
    bootstrap_servers: Servers = None,
    decision_topic: DecisionTopic = DEFAULT_TOPIC,
    command_config: CommandConfig = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Take a query over from Spark's own Kafka connector, with its checkpoint and state. Stop the query first.

    The command reads the checkpoint, shows its findings, and asks. If the sink moves (--topic), it then writes the last
    batch of the output into the decision topic. It compares a batch that was begun and not finished with the topic's
    end. It never writes into the checkpoint, and may be repeated. Without --topic only the source moves: the command
    checks the checkpoint, and writes nothing.

    Status: 0 taken over, now or before, or --dry-run; 1 refused, standard error has the reason; 2 invalid arguments;
    3 a batch was begun, and a person has to choose.

    Example: fencepost spark adopt /data/checkpoints/orders-copy --topic orders-copy
    """
    try:
        within_ms = milliseconds({"--clocks-within": clocks_within}, "--clocks-within", 0)
    except ConfigurationError as error:
        raise typer.BadParameter(str(error), param_hint="--clocks-within") from error
    with changes_reported() as changes, _undecided_reported():
        require("arrow", "fencepost spark adopt")
        from fencepost.spark.adoption.move import AdoptionArguments, plan_adoption

        session = Session(client_settings(bootstrap_servers, command_config), decision_topic)
        settings = client_settings(bootstrap_servers, command_config, kind=ProducerConfig)
        arguments = AdoptionArguments(
            checkpoint, settings, sink_id, tuple(topic or ()), rows, begun, within_ms, other_writers, dry_run
        )
        found = plan_adoption(session.link, session.sink_link, arguments)
        _carry_out_move(found, changes, "adopted", dry_run=dry_run, yes=yes, as_json=as_json)


def release(
    checkpoint: CheckpointFolder,
    sink_id: SinkId = None,
    bootstrap_servers: Servers = None,
    decision_topic: DecisionTopic = DEFAULT_TOPIC,
    command_config: CommandConfig = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Give a query back to Spark's own Kafka connector, with its checkpoint and state. Stop the query first.

    The command commits the transactions that the sink has decided and aborts the rest, so that none of their records
    appears later. It refuses if the output has a batch that Spark has not recorded as finished. From then on this sink
    refuses the query until `adopt` takes it over again. The command never writes into the checkpoint.

    Status: 0 released, now or before, or --dry-run; 1 refused, standard error has the reason; 2 invalid arguments.

    Example: fencepost spark release /data/checkpoints/orders-copy
    """
    with changes_reported() as changes:
        require("arrow", "fencepost spark release")
        from fencepost.spark.adoption.move import plan_release

        session = open_session(bootstrap_servers, command_config, decision_topic)
        found = plan_release(session.sink_link, checkpoint, sink_id)
        _carry_out_move(found, changes, "released", dry_run=dry_run, yes=yes, as_json=as_json)


@contextmanager
def _undecided_reported() -> Iterator[None]:
    try:
        yield
    except UndecidedBatchError as error:
        _print_choices(error)


def _print_choices(error: UndecidedBatchError) -> NoReturn:
    sys.stderr.write(f"fencepost: {printable(str(error))}; {CHOICES}\n")
    raise typer.Exit(UNDECIDED)


def _carry_out_move(
    planned: PlannedMove, changes: CommandChanges, done: str, *, dry_run: bool, yes: bool, as_json: bool
) -> None:
    move = planned.move
    is_written = move is None or move.is_done
    if not as_json:
        _print(planned)
    if not (is_written or dry_run):
        confirmed(f"Write that into the decision topic? (The query must not run: {NO_TRACE}.)", yes=yes)
        with changes.change(f"the query was {done}", has_steps=True):
            move = planned.carry_out()
    outcome = "nothing to write" if is_written else "dry run" if dry_run else done
    if as_json:
        print_json(_facts(planned, move, outcome))
    else:
        print_line(
            f"{outcome}. {_next(planned, move)}" if not dry_run or is_written else "dry run: nothing was written"
        )


def _next(found: PlannedMove, move: MoveRecords | None) -> str:
    if found.is_release:
        return "Start the query with format('kafka') at source and sink, and the same checkpointLocation"
    if move is None or found.sink is None:
        return "Start the query with format('fencepost') at its source, and the same checkpointLocation"
    own = "" if found.sink.name == found.checkpoint.query_id else f", sink.id={found.sink.name}"
    return f"Start the query with format('fencepost') at its sink{own}, and the same checkpointLocation as an option"


def _moment(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(sep=" ", timespec="milliseconds")


def _print(planned: PlannedMove) -> None:
    checkpoint, sink, move = planned.checkpoint, planned.sink, planned.move
    print_line(f"query {checkpoint.query_id} in {planned.folder}")
    if checkpoint.last is None:
        print_line("  batches: none was planned")
    elif checkpoint.is_begun:
        print_line(f"  batches: {checkpoint.last} was begun at {_moment(checkpoint.planned_ms)}, and not finished")
    else:
        print_line(f"  batches: {checkpoint.last} is the last one, and finished")
    for source in checkpoint.sources:
        print_line(f"  {source}")
        if begins_unknown(checkpoint) and source.began is not None and not planned.is_release:
            print_line(f"    its first batch begins at {source.began}: give that as startingOffsets")
    print_line(f"  state: {checkpoint.state or 'none'}")
    print_line(
        f"  looked at: its newest file is {duration_words(planned.newest_s * 1000)} old; {_writes(planned)}{NO_TRACE}"
    )
    print_line("  Spark's release and the old sink are not in a checkpoint")
    if planned.verdict is not None:
        print_line(f"  output: of batch {checkpoint.last}: {planned.verdict.value}; {planned.reason}")
    if sink is not None:
        known = "knows nothing of the query" if sink.last is None else f"has decided batch {sink.last.batch_id}"
        print_line(f"sink {sink.name}: {known}")
        if differs(checkpoint, sink):
            print_line(
                "  the checkpoint has other source offsets for this batch than the sink's decision. The query "
                "continues at those of the checkpoint, so rows may be skipped or written twice. `fencepost spark "
                "repair` shows both, and restores those of the decision"
            )
    if move is None:
        print_line("only the source moves: the checkpoint is in a form that both sources read")
        return
    print_line(f"  {move.words}")
    if move.fills:
        print_line("  to write: the rows of the batch that are missing, in one transaction")
    if move.decision is not None:
        print_line(f"  to write: the decision that batch {move.decision.batch_id} is in the output")
    if move.beginning is not None:
        mark = (
            "the query is released" if planned.is_release else f"the first batch here is {move.beginning.first_batch}"
        )
        print_line(f"  to write: {mark}")


def _writes(found: PlannedMove) -> str:
    if found.writes is None:
        return ""
    last = found.writes.last_ms
    when = "no recent write to it is known" if last is None else f"the last write to it was at {_moment(last)}"
    return f"the brokers know {counted_noun(found.writes.producers, 'producer')} of the output, {when}; "


def _facts(planned: PlannedMove, move: MoveRecords | None, outcome: str) -> dict[str, Any]:
    checkpoint, sink = planned.checkpoint, planned.sink
    decision = None if move is None else move.decision
    beginning = None if move is None else move.beginning
    return {
        "outcome": outcome,
        "checkpoint": str(planned.folder),
        "query": checkpoint.query_id,
        "batch": checkpoint.last,
        "begun": checkpoint.is_begun,
        "sources": [
            {"number": source.number, "offsets": source.offsets, "began": source.began, "ids": source.has_ids}
            for source in checkpoint.sources
        ],
        "offsets_differ": sink is not None and differs(checkpoint, sink),
        "state": checkpoint.state or None,
        "newest_file_s": round(planned.newest_s, 3),
        "sink": None if sink is None else sink.name,
        "decided": None if sink is None or sink.last is None else sink.last.batch_id,
        "verdict": None if planned.verdict is None else planned.verdict.value,
        "why": planned.reason or None,
        "decision": None if decision is None else decision.batch_id,
        "first_batch": None if beginning is None or planned.is_release else beginning.first_batch,
        "meaning": None if move is None else move.words,
    }
