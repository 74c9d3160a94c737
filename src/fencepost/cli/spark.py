"""`fencepost spark`: list the sinks of Spark queries, show their decisions, and repair after a loss."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from enum import Enum
from typing import Annotated, Any, Final

import typer

from fencepost.arguments import brief_repr
from fencepost.cli.adoption import DryRun, adopt, release
from fencepost.cli.cluster_settings import CommandConfig, DecisionTopic, Servers, client_settings, sink_options
from fencepost.cli.hidden import refuse_incomplete
from fencepost.cli.names import named, sink_named
from fencepost.cli.output import (
    CommandChanges,
    Json,
    Yes,
    changes_reported,
    command_group,
    confirmed,
    failures_reported,
    print_json,
    print_line,
    print_table,
    refuse,
)
from fencepost.cli.progress import paused
from fencepost.cli.transaction_view import Session, open_session
from fencepost.client.diagnosis.cluster_rules import unanswered_finding
from fencepost.client.diagnosis.collecting import unanswered_lists
from fencepost.counted import counted_noun
from fencepost.protocol.json_text import parse_json
from fencepost.spark.adoption.replan import Replan, plan_replan
from fencepost.spark.sink.checkpoint import Change
from fencepost.spark.sink.decision import Decision, Winner, shown_sources, source_lines
from fencepost.spark.sink.decision_store import DEFAULT_TOPIC
from fencepost.spark.sink.plan import decision_of
from fencepost.spark.sink.repair import WinnerState, repair_of, settle_lost_batch, states_of

__all__ = ["Sink", "sinks", "spark"]

spark = command_group("Show the decisions of Spark sinks; repair checkpoints; move queries.")
spark.command()(adopt)
spark.command()(release)

DRY_RUN: Final = "dry run: nothing was written\n"
MOST_SHOWN: Final = 100  # transactions in each state; a decision may name 30,000
Sink = Annotated[str, typer.Argument(callback=sink_named, help="The sink's name: its option sink.id.")]
States = dict[Winner, WinnerState]


class LostBatchChoice(Enum):
    """The user's choice for a batch that is lost in part."""

    ACCEPT = "accept"
    AGAIN = "again"


@spark.command()
def sinks(
    bootstrap_servers: Servers = None,
    decision_topic: DecisionTopic = DEFAULT_TOPIC,
    command_config: CommandConfig = None,
    as_json: Json = False,
) -> None:
    """List the Spark sinks with their open transactions, and their queries with output topic and last decided batch.

    If a coordinator does not answer, its transactions are missing in the list, and the command names it.

    Status: 0 done; 1 not done, or the list is not complete; 2 invalid arguments.

    Example: fencepost spark sinks -b localhost:9092
    """
    with failures_reported():
        session = open_session(bootstrap_servers, command_config, decision_topic)
        known = session.sinks()
        open_ids = [each.transactional_id for each in known.listed if each.state == "Ongoing"]
        found = [
            (
                sink,
                sum(session.is_task_of(sink, transactional_id) for transactional_id in open_ids),
                session.sink_link.queries(sink),
            )
            for sink in known.names
        ]
    _print_sinks(found, as_json=as_json)
    if known.missing is not None:
        refuse_incomplete(map(unanswered_finding, unanswered_lists("transactions", known.missing.errors)))


def _print_sinks(found: Sequence[tuple[str, int, Sequence[Any]]], *, as_json: bool) -> None:
    if as_json:
        print_json(
            [
                {
                    "sink": sink,
                    "open": count,
                    "decided": {query.query_id: query.batch_id for query in queries if query.batch_id is not None},
                    "queries": {query.query_id: query.about for query in queries},
                }
                for sink, count, queries in found
            ]
        )
        return
    rows = [("SINK", "OPEN", "QUERY", "DECIDED UP TO BATCH", "TOPIC")]
    for sink, count, queries in found:
        shown = [
            (query.query_id, "" if query.batch_id is None else str(query.batch_id), query.about.get("topic", ""))
            for query in queries
        ]
        rows += [(sink, str(count), *query) for query in shown or [("", "", "")]]
    print_table(rows)


@spark.command()
def decisions(
    sink: Sink,
    query: Annotated[str | None, typer.Option(callback=named, help="Only the decision of this query id.")] = None,
    bootstrap_servers: Servers = None,
    decision_topic: DecisionTopic = DEFAULT_TOPIC,
    command_config: CommandConfig = None,
    as_json: Json = False,
) -> None:
    """Show the last decided batch of each query: rows, checksum, source offsets, and the states of its transactions.

    committed: the rows are in the topic. open: the next start of the query, or `fencepost transactions resolve`,
    commits the transaction. lost: the rows are not in the topic. unknown: the transaction ended so long ago that the
    brokers have forgotten its outcome.

    Example: fencepost spark decisions orders-copy
    """
    with failures_reported():
        session = open_session(bootstrap_servers, command_config, decision_topic)
        session.check_sink(sink)
        found = session.decisions(sink)
        if query is not None:
            found = (decision_of(sink, query, found),)
        shown = [(decision, states_of(session.sink_link, decision)) for decision in found]
    if as_json:
        print_json({"sink": sink, "decisions": [_facts(decision, states) for decision, states in shown]})
        return
    for decision, states in shown:
        _print(decision, states)
    if not shown:
        sys.stdout.write(f"sink {sink!r} has decided nothing\n")


@spark.command()
def repair(
    sink: Sink,
    checkpoint: Annotated[str, typer.Option(callback=named, help="The query's checkpointLocation, in local files.")],
    replan: Annotated[
        bool,
        typer.Option(
            "--replan", help="Take back the plan of a batch that is not written, so that Spark plans it again."
        ),
    ] = False,
    bootstrap_servers: Servers = None,
    decision_topic: DecisionTopic = DEFAULT_TOPIC,
    command_config: CommandConfig = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Let a checkpoint that was restored, or lost files, continue after the sink's last batch. Stop the query first.

    The command restores the source offsets of the last decided batch. The query then replays this batch, finds it
    written, and continues after it. A query with state can continue only if its state of that batch still exists. Each
    replaced file is kept beside the new one as .N.replaced.

    With --replan it takes back a batch that Spark has planned and not finished, and of which the sink has written
    nothing: the batch was planned with other brokers, or is too large. Spark plans it again, with the source's present
    options. The command refuses if the batch is decided, if its transactions are open, or if the sink does not know
    the query. The plan is kept as .N.replaced.

    Example: fencepost spark repair orders-copy --checkpoint /data/checkpoints/orders-copy
    """
    with changes_reported() as changes:
        session = open_session(bootstrap_servers, command_config, decision_topic)
        session.check_sink(sink)
        if replan:
            planned = plan_replan(session.sink_link, sink, checkpoint)
            _replan(session, changes, planned, dry_run=dry_run, yes=yes, as_json=as_json)
            return
        plan = repair_of(session.sink_link, sink, checkpoint)
        if as_json:
            files = [
                {"file": str(change.path), "was": change.was, "becomes": change.becomes} for change in plan.changes
            ]
            print_json(
                {"sink": sink, "query": plan.decision.query_id, "batch": plan.decision.batch_id, "changes": files}
            )
        else:
            _print(plan.decision, states_of(session.sink_link, plan.decision))
            for change in plan.changes:
                sys.stdout.write(f"{change.path}: {_present(change)}; is to end at {shown_sources(change.becomes)}\n")
        if not plan.changes:
            sys.stderr.write("the checkpoint matches the decision: nothing to repair\n")
            return
        if dry_run:
            sys.stderr.write(DRY_RUN)
            return
        confirmed(
            f"Write {counted_noun(len(plan.changes), 'file')} in {plan.folder}? (The query must not run.)", yes=yes
        )
        with changes.change(f"all files in {plan.folder} were written", has_steps=True):
            plan.carry_out()
    sys.stderr.write(f"{counted_noun(len(plan.changes), 'file')} written\n")


def _present(change: Change) -> str:
    if change.was is not None:
        ends = _ends(change.was)
        is_damaged = not ends or any(isinstance(end, str) and end != "-" for end in ends)
        return f"is damaged: {brief_repr(change.was)}" if is_damaged else f"ends at {shown_sources(change.was)}"
    return "cannot be read as text" if change.path.exists() else "is not there"


def _replan(
    session: Session, changes: CommandChanges, replan: Replan, *, dry_run: bool, yes: bool, as_json: bool
) -> None:
    if as_json:
        facts = {"sink": replan.sink, "query": replan.found.query_id, "batch": replan.batch_id}
        before = [_parsed(line) for line in replan.before]
        plan = [_parsed(line) for line in replan.plan]
        print_json({**facts, "from": before, "to": plan, "other_topic_ids": list(replan.other_ids)})
    else:
        _print_plan(replan)
    if replan.batch_id is None:
        sys.stderr.write("every planned batch is finished: nothing to take back\n")
        return
    if dry_run:
        sys.stderr.write(DRY_RUN)
        return
    path = f"{replan.folder}/offsets/{replan.batch_id}"
    confirmed(f"Take back the plan of batch {replan.batch_id}, {path}? (The query must not run.)", yes=yes)
    with changes.change(f"the plan of batch {replan.batch_id} was taken back", has_steps=True):
        replaced = replan.carry_out(session.sink_link)
    sys.stderr.write(f"the plan is taken back, and kept as {replaced}; Spark plans batch {replan.batch_id} again\n")


def _print_plan(found: Replan) -> None:
    print_line(f"query {found.found.query_id} in {found.folder}")
    if found.batch_id is None:
        return
    print_line(f"  batch: {found.batch_id} is planned and not finished; the sink has decided and written nothing of it")
    print_line(f"  from: {'; '.join(found.before)}")
    print_line(f"  to: {'; '.join(found.plan)}")
    for topic in found.other_ids:
        print_line(
            f"  topic {topic}: its id in the plan is another: planned with other brokers, or the topic made again"
        )


@spark.command()
def forget(
    sink: Sink,
    query: Annotated[str, typer.Option(callback=named, help="The query's id; `decisions` shows it.")],
    lost: Annotated[
        LostBatchChoice | None,
        typer.Option(
            help="accept: the query continues after the batch, without the lost rows. again: it writes the whole batch "
            "again, and its committed rows are in the topic twice.",
            show_default="ask",
        ),
    ] = None,
    bootstrap_servers: Servers = None,
    decision_topic: DecisionTopic = DEFAULT_TOPIC,
    command_config: CommandConfig = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Let a query continue after its last decided batch was lost in part, or forget a query that no longer runs.

    The command shows which transactions are committed, lost or unknown, and asks how to continue. It commits the
    transactions that are still open. Stop the query first, because the command supersedes it.

    Example: fencepost spark forget orders-copy --query 5ad5c0c6-2f0b-4c1e-9d3a-0d1f0a5c7c11 --lost accept
    """
    if yes and lost is None:
        raise typer.BadParameter("--yes needs --lost accept or --lost again")
    with changes_reported() as changes:
        settings = client_settings(bootstrap_servers, command_config)
        session = Session(settings, decision_topic)
        session.check_sink(sink)
        decision = decision_of(sink, query, session.decisions(sink))
        states = states_of(session.sink_link, decision)
        if not as_json:
            _print(decision, states)
        chosen = lost or _asked()
        _check(decision, states, chosen)
        confirmed(_question(decision, states, chosen), yes=yes)
        servers, options = sink_options(settings, decision_topic)
        with changes.change(f"batch {decision.batch_id} is settled", has_steps=True):
            settled = settle_lost_batch(servers, sink, query, lost=chosen.value, **options)
    if as_json:
        done = {
            "committed": list(settled.committed),
            "lost": list(settled.lost),
            "unknown": list(settled.unknown),
        }
        print_json({"sink": sink, "query": query, "batch": settled.decision.batch_id, "settled": chosen.value, **done})
        return
    for word, ids in (("committed", settled.committed), ("lost", settled.lost), ("unknown", settled.unknown)):
        for transactional_id in ids:
            print_line(f"{word} {transactional_id}")
    goes_on = "continues after it" if chosen is LostBatchChoice.ACCEPT else "writes all of it again"
    counts = f"{len(settled.committed)} committed, {len(settled.lost)} lost"
    counts += f", {len(settled.unknown)} unknown" if settled.unknown else ""
    sys.stdout.write(f"batch {settled.decision.batch_id}: {counts}; the query {goes_on}\n")


def _asked() -> LostBatchChoice:
    with paused():
        answer = typer.prompt("accept or again?", err=True)
    if answer not in {kind.value for kind in LostBatchChoice}:
        refuse(f"{answer!r} is neither accept nor again: nothing was done")
    return LostBatchChoice(answer)


def _check(decision: Decision, states: States, chosen: LostBatchChoice) -> None:
    if chosen is LostBatchChoice.AGAIN and not {WinnerState.LOST, WinnerState.UNKNOWN} & set(states.values()):
        refuse(f"no transaction of batch {decision.batch_id} is lost: written again, all its rows would be there twice")


def _question(decision: Decision, states: States, chosen: LostBatchChoice) -> str:
    count = Counter(states.values())
    what = f"Continue after batch {decision.batch_id}"
    if chosen is LostBatchChoice.ACCEPT:
        lost, unknown = count[WinnerState.LOST], count[WinnerState.UNKNOWN]
        parts = [counted_noun(lost, "lost transaction")] if lost else []
        parts += [f"{counted_noun(unknown, 'transaction')} that may be lost"] if unknown else []
        return f"{what}, without the rows of {' and '.join(parts)}?" if parts else f"{what}?"
    unknown = count[WinnerState.UNKNOWN]
    there = len(states) - count[WinnerState.LOST] - unknown
    maybe = f" and perhaps of {unknown} more" if unknown else ""
    return (
        f"Write batch {decision.batch_id} again, and have the rows of "
        f"{counted_noun(there, 'committed transaction')}{maybe} twice?"
    )


def _facts(decision: Decision, states: States) -> dict[str, Any]:
    content, offsets = decision.content, decision.offsets
    return {
        "query": decision.query_id,
        "batch": decision.batch_id,
        "rows": None if content is None else content.rows,
        "checksum": None if content is None else f"{content.checksum:016x}",
        "from": None if offsets is None or offsets.before is None else _ends(offsets.before),
        "to": None if offsets is None else _ends(offsets.batch),
        "transactions": [
            {"transactional_id": winner.transactional_id, "end_with": str(winner.pair), "state": state.value}
            for winner, state in states.items()
        ],
    }


def _print(decision: Decision, states: States) -> None:
    fact = _facts(decision, states)
    count = Counter(states.values())
    parts = [f"{count[state]} {state.value}" for state in WinnerState if count[state]]
    unknown = "not known (adopted without its rows)" if decision.content is None else "not known"
    offsets = decision.offsets
    lines = {
        "batch": str(decision.batch_id),
        "rows": unknown if decision.content is None else str(fact["rows"]),
        "checksum": unknown if decision.content is None else fact["checksum"],
        "from": _begins(decision, unknown),
        "to": unknown if offsets is None else shown_sources(offsets.batch),
        "transactions": ", ".join(parts) or "none that would have to be completed",
    }
    print_line(f"query {decision.query_id}")
    for name, value in lines.items():
        print_line(f"  {name}: {value}")
    for state in WinnerState:
        shown = [winner for winner, found in states.items() if found is state]
        for winner in shown[:MOST_SHOWN]:
            print_line(f"    {state.value} {winner.transactional_id} ({winner.pair})")
        if len(shown) > MOST_SHOWN:
            sys.stdout.write(f"    {state.value}: {len(shown) - MOST_SHOWN} more (--json has all)\n")


def _begins(decision: Decision, unknown: str) -> str:
    if decision.offsets is None:
        return unknown
    if decision.offsets.before is not None:
        return shown_sources(decision.offsets.before)
    return "the query's startingOffsets" if decision.batch_id == 0 else unknown


def _ends(text: str) -> list[Any]:
    """Return each source's line in an entry of Spark's offset log, after its version and metadata."""
    return [_parsed(line) for line in source_lines(text)]


def _parsed(line: str) -> Any:
    try:
        return parse_json(line)
    except ValueError:
        return line
