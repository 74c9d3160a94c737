"""Take a query over from Spark's own connector, and give it back.

`plan_adoption` and `plan_release` plan the move, and `PlannedMove.carry_out` writes it. The caller can ask a person in
between. `plan_release` changes nothing. `plan_adoption` changes nothing except that it aborts a transaction that a
killed attempt has left open. Every write can be repeated, so a killed move is run again.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final

from fencepost.errors import KafkaError
from fencepost.spark.adoption import plans
from fencepost.spark.adoption.batch_rows import BatchRows, read_rows
from fencepost.spark.adoption.checkpoint import Checkpoint, files_of, parse
from fencepost.spark.adoption.fill import end_leftover, fill, is_left_open
from fencepost.spark.adoption.judgement import Rows, compare, without_rows
from fencepost.spark.adoption.plans import Begun, MoveRecords, SinkFacts
from fencepost.spark.adoption.refusals import AdoptionRefusedError
from fencepost.spark.adoption.tail import LastWrite, last_writes, read_tail
from fencepost.spark.adoption.verdict import BatchVerdict
from fencepost.spark.sink import checkpoint as sink_checkpoint
from fencepost.spark.sink import plan
from fencepost.spark.sink.abilities import BrokerAbilities
from fencepost.spark.sink.decision import Decision
from fencepost.spark.sink.plan_steps import WriteDecision
from fencepost.spark.sink.runner import ClusterClient, SinkLink

__all__ = ["AdoptionArguments", "PlannedMove", "adopt_steps", "plan_adoption", "plan_release"]

CLOCKS_MS: Final = 60_000


@dataclass(frozen=True, slots=True)
class AdoptionArguments:
    """The arguments of an adoption.

    Attributes:
        location: The checkpoint.
        settings: A producer's settings, by Kafka's dotted names.
        sink: The sink's name; None: the default name.
        topics: The output topics; empty if only the source moves.
        rows: The file of `describe_batch`.
        begun: A person's choice about a begun batch.
        within_ms: The largest difference between clocks that is assumed, in ms.
        others_write: As for `judgement.compare`.
        dry_run: True to abort no transaction. A transaction that a killed attempt has left open is then an error.
    """

    location: str
    settings: Mapping[str, str] = field(repr=False)  # passwords are among them
    sink: str | None = None
    topics: tuple[str, ...] = ()
    rows: Path | None = None
    begun: Begun | None = None
    within_ms: int = CLOCKS_MS
    others_write: bool = False
    dry_run: bool = False


@dataclass(frozen=True)
class PlannedMove:
    """The facts about a query, and the planned move.

    Attributes:
        folder: The checkpoint's folder.
        files: The checkpoint's files, as `files_of` returns them.
        checkpoint: The parsed checkpoint.
        sink: The sink's records about the query; None if only the source moves.
        move: The records to write; None if only the source moves, which needs no record.
        verdict: The verdict about a begun batch; None if there is none to judge.
        reason: The reason for the verdict.
        newest_s: The age of the checkpoint's newest file, in seconds.
        writes: The last writes to the output topics; None if unknown.
        link: The connection of the sink.
        is_release: True if the query goes back to Spark's own connector.
        fill: A function that writes the missing rows of a begun batch; None if none are to be written.
    """

    folder: Path
    files: Mapping[str, bytes]
    checkpoint: Checkpoint
    sink: SinkFacts | None
    move: MoveRecords | None
    verdict: BatchVerdict | None
    reason: str
    newest_s: float
    writes: LastWrite | None
    link: SinkLink
    is_release: bool = False
    fill: Callable[[], int] | None = None

    def carry_out(self) -> MoveRecords | None:
        """Write the planned move, and return it.

        Raises:
            AdoptionRefusedError: The checkpoint has changed since it was read.
            SupersededError: A newer run has claimed the sink.
            PreparedTransactionLostError: A decided transaction of the sink is lost.
            DecisionUnknownError: The broker did not confirm the decision. Call this again.
            KafkaError: A request failed.
        """
        move, sink = self.move, self.sink
        if move is None or move.is_done or sink is None:
            return move
        if files_of(self.folder) != self.files:
            raise AdoptionRefusedError(f"{self.folder} has changed meanwhile: the query runs. Stop it first")
        _sync(self.folder, self.files)
        abilities = self.link.abilities(sink.name, None)
        if self.is_release:
            # Open the sink first. This fences its older runs, so that none of them decides a batch after `_facts`.
            self.link.run(plan.open_sink(sink.name, abilities))
            move = plans.release(self.checkpoint, _facts(self.link, sink.name, self.checkpoint.query_id))
        if move.fills and self.fill is not None:
            self.fill()
        if move.decision is not None:
            self.link.run(adopt_steps(move.decision, abilities))
        if move.beginning is not None:
            self.link.begin(move.beginning)
        return move


def adopt_steps(decision: Decision, abilities: BrokerAbilities) -> plan.Plan[bool]:
    """Claim the sink, and write a decision about the batch of another sink. Returns False if the decision exists.

    Like every open of a sink, this fences older runs and ends the transactions that they left open.
    Raises AdoptionRefusedError if the sink has decided a later batch.
    """
    opened = yield from plan.open_sink(decision.sink, abilities)
    last = opened.last(decision.query_id)
    if last is not None and last.batch_id > decision.batch_id:
        raise AdoptionRefusedError(f"sink {decision.sink!r} has decided batch {last.batch_id} meanwhile: it runs")
    if last is not None and last.batch_id == decision.batch_id:
        return False
    code: int | None = yield WriteDecision(opened.claim, decision, verified=abilities.must_verify)
    plan.must_be_decided(decision.sink, decision.batch_id, code)
    return True


def plan_adoption(link: ClusterClient, sink_link: SinkLink, arguments: AdoptionArguments) -> PlannedMove:
    """Plan the records with which this sink takes the query over.

    The only change: this aborts a transaction that an earlier attempt has left open, unless `dry_run` is set.

    Raises AdoptionRefusedError, UndecidedBatchError, KafkaError and OSError.
    """
    folder, files, checkpoint = _checkpoint(arguments.location)
    newest_s = _newest_s(folder, files)
    if not arguments.topics:
        if all(source.offsets is None for source in checkpoint.sources) and checkpoint.sources:
            raise AdoptionRefusedError(
                f"{folder}: no source of the query is a Kafka source. If its sink is to move, give --topic"
            )
        return PlannedMove(folder, files, checkpoint, None, None, None, "", newest_s, None, sink_link)
    name = arguments.sink or _default_name(arguments.location)
    sink = _facts(sink_link, name, checkpoint.query_id)
    sink = replace(sink, elsewhere=sink_link.elsewhere(name, checkpoint.query_id))
    judged, rows = None, None
    if plans.needs_judging(checkpoint, sink, arguments.topics):
        rows = _described(arguments, checkpoint)
        _abort_leftover(link, arguments, checkpoint.query_id)
        judged = _judge(link, arguments, checkpoint, rows)
    about = {"topic": ", ".join(arguments.topics), "checkpoint": arguments.location, "host": socket.gethostname()}
    move = plans.adoption(
        checkpoint,
        sink,
        judged,
        arguments.begun,
        None if rows is None else rows.content,
        tuple(about.items()),
        arguments.topics,
    )
    if move.fills and (rows is None or rows.rows is None):
        raise AdoptionRefusedError(f"{arguments.rows} has no rows: describe the batch again, with keep_rows=True")
    verdict, reason = judged or (None, "")
    writes = _writes(link, arguments.topics)
    planned = PlannedMove(folder, files, checkpoint, sink, move, verdict, reason, newest_s, writes, sink_link)
    if rows is None or not move.fills:
        return planned
    read = partial(read_tail, link, arguments.topics, checkpoint.planned_ms, arguments.within_ms)
    return replace(planned, fill=partial(fill, arguments.settings, rows, read, others_write=arguments.others_write))


def plan_release(sink_link: SinkLink, location: str, sink: str | None) -> PlannedMove:
    """Plan the records after which Spark's own connector may continue the query. Changes nothing.

    Raises AdoptionRefusedError, KafkaError and OSError.
    """
    folder, files, found = _checkpoint(location)
    name = sink or _default_name(location)
    facts = _facts(sink_link, name, found.query_id)
    move = plans.release(found, facts)
    newest_s = _newest_s(folder, files)
    return PlannedMove(folder, files, found, facts, move, None, "", newest_s, None, sink_link, is_release=True)


def _checkpoint(location: str) -> tuple[Path, dict[str, bytes], Checkpoint]:
    folder = sink_checkpoint.local_folder(location)
    if folder is None:
        raise AdoptionRefusedError(
            f"{location!r} is not in local files, and only those are read here. Copy `metadata`, `offsets`, `commits` "
            "and `sources` of the stopped query into a local folder and give that, with --sink-id"
        )
    if not folder.is_dir():
        raise AdoptionRefusedError(f"there is no folder {location!r}")
    files = files_of(folder)
    try:
        return folder, files, parse(files)
    except AdoptionRefusedError as error:
        raise type(error)(f"{folder}: {error}") from error


def _newest_s(folder: Path, files: Mapping[str, bytes]) -> float:
    """Return the age of the newest file, in seconds."""
    newest = max((folder / name).stat().st_mtime for name in files)
    return max(time.time() - newest, 0.0)


def _default_name(location: str) -> str:
    found = sink_checkpoint.name_of(None, location, None)
    if found.refusal:
        raise AdoptionRefusedError(found.refusal)
    return found.name


def _facts(link: SinkLink, name: str, query_id: str) -> SinkFacts:
    return plans.sink_facts(name, query_id, link.queries(name), link.decisions(name))


def _described(arguments: AdoptionArguments, found: Checkpoint) -> BatchRows | None:
    rows = None if arguments.rows is None else read_rows(arguments.rows)
    if rows is not None:
        if (rows.query_id, rows.batch_id) != (found.query_id, found.last):
            raise AdoptionRefusedError(
                f"{arguments.rows} describes batch {rows.batch_id} of query {rows.query_id}, and batch {found.last} of "
                f"query {found.query_id} was begun: describe that batch"
            )
        unknown = sorted(set(rows.topics) - set(arguments.topics))
        if unknown:
            raise AdoptionRefusedError(f"the batch has rows for topic {unknown[0]!r}: give --topic for each topic")
    return rows


def _abort_leftover(link: ClusterClient, arguments: AdoptionArguments, query_id: str) -> None:
    """Abort the transaction of a killed attempt, which hides the end of the output from read_committed readers.

    Raises AdoptionRefusedError if there is one and `dry_run` is set.
    """
    if not is_left_open(link, query_id):
        return
    if arguments.dry_run:
        raise AdoptionRefusedError("an attempt that was killed has left a transaction open: look without --dry-run")
    end_leftover(arguments.settings, query_id)


def _judge(
    link: ClusterClient, arguments: AdoptionArguments, found: Checkpoint, rows: BatchRows | None
) -> tuple[BatchVerdict, str]:
    tail = read_tail(link, arguments.topics, found.planned_ms, arguments.within_ms)
    if rows is None:
        return without_rows(tail)
    return compare(Rows.of([rows.hashes]), tail, others_write=arguments.others_write)


def _writes(link: ClusterClient, topics: Sequence[str]) -> LastWrite | None:
    """Return the last writes to the topics; None if brokers do not answer, because they are only shown to the user."""
    try:
        return last_writes(link, topics)
    except KafkaError:
        return None


def _sync(folder: Path, files: Mapping[str, bytes]) -> None:
    """Sync the checkpoint's files, which Spark does not sync.

    Otherwise a power loss could remove a batch from the checkpoint that the decision topic has as written.
    """
    for path in [*(folder / name for name in files), *(folder / name for name in ("offsets", "commits", "."))]:
        if path.exists():
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
