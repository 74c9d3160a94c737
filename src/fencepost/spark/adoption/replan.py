"""Take back the plan of a batch, so that Spark plans the batch again with the source's present options.

Spark repeats a planned batch with the offsets in `offsets/N` until it is committed. A batch that can never be written
stops its query for good: one that was planned with the offsets of another cluster, or one that is too large for the
transaction timeout. `plan_replan` proves that the sink has written nothing of the batch. `carry_out` claims the sink,
so that no older run can decide the batch any more. It then proves it again, and renames `offsets/N`. A killed process
leaves either the old plan or none, because the renaming is the only step with an effect.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import Any, Final

from fencepost.errors import ConfigurationError
from fencepost.protocol.json_text import parse_json
from fencepost.spark.adoption.checkpoint import Checkpoint, files_of, parse
from fencepost.spark.adoption.plans import SinkFacts, sink_facts
from fencepost.spark.sink import checkpoint, plan
from fencepost.spark.sink.decision import source_lines
from fencepost.spark.sink.runner import SinkLink
from fencepost.spark.source.ranges import recreated_topics, topic_ids

__all__ = ["Replan", "plan_replan", "refusal"]

ELSEWHERE: Final = (
    "only checkpoints in local files are read here. Copy `metadata`, `offsets` and `commits` of the stopped query into "
    "a local folder and give that. When the command has renamed offsets/N there, rename it in the checkpoint too"
)


@dataclass(frozen=True, slots=True)
class Replan:
    """A batch whose plan can be taken back.

    Attributes:
        folder: The checkpoint's folder.
        files: The checkpoint's files, as `files_of` returns them.
        found: The parsed checkpoint.
        sink: The sink's name.
        other_ids: The topics whose ids in the plan differ from those in the batch before.
    """

    folder: Path
    files: Mapping[str, bytes]
    found: Checkpoint
    sink: str
    other_ids: tuple[str, ...]

    @property
    def batch_id(self) -> int | None:
        """The planned batch; None if no batch is planned and not finished."""
        return self.found.last if self.found.is_begun else None

    @property
    def plan(self) -> tuple[str, ...]:
        """Each source's line of the plan."""
        return tuple(source.text for source in self.found.sources)

    @property
    def before(self) -> tuple[str, ...]:
        """Each source's line of the batch before."""
        return () if self.found.before is None else tuple(source_lines(self.found.before))

    def carry_out(self, link: SinkLink) -> Path:
        """Take the plan back, and return the file that keeps it. A running query of the sink is superseded.

        Raises:
            ConfigurationError: The checkpoint has changed, or the batch was decided meanwhile.
            SupersededError: A newer run has claimed the sink.
            PreparedTransactionLostError: A decided transaction of the sink is lost.
            KafkaError: A request failed.
            OSError: The checkpoint could not be changed.
        """
        number = self.batch_id
        if number is None:
            raise ConfigurationError(f"{self.folder} has no batch that is planned and not finished")
        # After the claim no older run can decide the batch, so the facts that are read then stay true.
        link.run(plan.open_sink(self.sink, link.abilities(self.sink, None)))
        reason = refusal(self.found, *_facts(link, self.sink, self.found.query_id))
        if reason is not None:
            raise ConfigurationError(reason)
        if files_of(self.folder) != self.files:
            raise ConfigurationError(f"{self.folder} has changed meanwhile: the query runs. Stop it first")
        return checkpoint.take_back(self.folder, number)


def plan_replan(link: SinkLink, sink: str, location: str) -> Replan:
    """Read the checkpoint and the sink's records, and prove that nothing of the planned batch was written.

    Changes nothing. Raises ConfigurationError if the batch was decided, or if it cannot be known; KafkaError; OSError.
    """
    folder = checkpoint.local_folder(location)
    if folder is None:
        raise ConfigurationError(f"{location!r} is not a checkpoint in local files, and {ELSEWHERE}")
    if not folder.is_dir():
        raise ConfigurationError(f"there is no folder {location!r}")
    files = files_of(folder)
    try:
        found = parse(files)
    except ConfigurationError as error:
        raise type(error)(f"{folder}: {error}") from error
    if found.is_begun:
        reason = refusal(found, *_facts(link, sink, found.query_id))
        if reason is not None:
            raise ConfigurationError(reason)
    before = () if found.before is None else tuple(source_lines(found.before))
    return Replan(folder, files, found, sink, _other_ids(before, [source.text for source in found.sources]))


def refusal(checkpoint: Checkpoint, facts: SinkFacts, undecided: int) -> str | None:
    """Return the reason why the plan of the begun batch must not be taken back, or None.

    A batch that the sink has not decided is in no output: its transactions are aborted when the sink is opened.

    Args:
        checkpoint: The query's checkpoint.
        facts: The records of the decision topic about the sink and the query.
        undecided: The number of the sink's open transactions that no decision names.
    """
    number, sink, last, beginning = checkpoint.last, facts.name, facts.last, facts.beginning
    if number is None:
        return "the query has planned no batch"
    if last is None and beginning is None:
        return (
            f"sink {sink!r} has no record of query {checkpoint.query_id}, so nothing proves that batch {number} is not "
            "in the output. Give the brokers, the sink and the decision topic with which the query has written before"
        )
    for other in facts.elsewhere:
        if other.batch_id >= number:
            return (
                f"sink {other.sink!r} has decided batch {other.batch_id} of query {checkpoint.query_id}: batch "
                f"{number} may be in its output. If the checkpoint is a copy of that query's, rename "
                f"offsets/{number} yourself"
            )
    if beginning is not None and beginning.is_released:
        return (
            f"query {checkpoint.query_id} was given back to another sink (`fencepost spark release`), which may have "
            f"written batch {number}"
        )
    if beginning is not None and beginning.first_batch > number:
        return (
            f"batch {number} was written by another sink: sink {sink!r} took the query over to begin with batch "
            f"{beginning.first_batch}"
        )
    if last is not None and last.batch_id >= number:
        return (
            f"sink {sink!r} has decided batch {last.batch_id}, so batch {number} is in the output. Start the query: "
            "it drops the rows of the batch and continues. If it does not, "
            f"`fencepost spark repair {quote(sink)}` without --replan restores the offsets with which the batch was "
            "written"
        )
    if undecided:
        return (
            f"sink {sink!r} has open transactions that are not decided ({undecided}): the query runs, or was killed "
            f"within a batch. Stop the query, then `fencepost transactions resolve {quote(sink)}`, and repeat this"
        )
    if number == 0:  # Spark refuses a checkpoint that has a file in `offsets` or `state` before batch 0
        return (
            f"batch 0 is the first of query {checkpoint.query_id}, and nothing of it is written. Start the query with "
            "a new checkpointLocation: this one has nothing that is needed"
        )
    return None


def _facts(link: SinkLink, sink: str, query_id: str) -> tuple[SinkFacts, int]:
    found = sink_facts(sink, query_id, link.queries(sink), link.decisions(sink))
    return replace(found, elsewhere=link.elsewhere(sink, query_id)), len(link.undecided(sink))


def _other_ids(before: Sequence[str], after: Sequence[str]) -> tuple[str, ...]:
    """Return the topics that have another id in the later lines: of another cluster, or made again."""
    pairs = zip(before, after, strict=False)
    return tuple(sorted({topic for line, later in pairs for topic in recreated_topics(_ids(line), _ids(later))}))


def _ids(line: str) -> dict[str, str]:
    try:
        offsets: Any = parse_json(line)
        return topic_ids(offsets) if isinstance(offsets, dict) else {}
    except ValueError:
        return {}
