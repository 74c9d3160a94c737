"""What can go wrong in the sink beyond `fencepost.errors`, whose bases say what to do: a restart heals an
ApplicationRecoverableError, a FatalError needs a person (docs/spark.md, "When something is wrong").

`PreparedTransactionLostError` (fencepost.errors) tells of a loss: a decided transaction is not there any more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fencepost.errors import ApplicationRecoverableError, ConfigurationError, FatalError

if TYPE_CHECKING:
    from fencepost.spark.sink.decision import Content, SourceOffsets

__all__ = [
    "BatchChangedError",
    "BatchTimedOutError",
    "CheckpointRolledBackError",
    "CorruptDecisionError",
    "DecisionRefusedError",
    "DecisionUnknownError",
    "LevelUnavailableError",
    "SinkContradictionError",
    "SupersededError",
    "TaskTimedOutError",
    "UnfinishedSinkError",
    "UnknownQueryError",
]


MOST_SHOWN: Final = 1000


class SupersededError(ApplicationRecoverableError):
    """A newer run claimed this sink. This run stops and leaves everything to it."""


class BatchTimedOutError(ApplicationRecoverableError):
    """Transactions of the batch have ended, or would before they could be committed. It was aborted as a whole."""

    def __init__(self, query_id: str, batch_id: int, ended: list[str], of: int) -> None:
        super().__init__(
            f"batch {batch_id} of query {query_id} was not decided, and nothing of it is visible: {len(ended)} of its "
            f"{of} transactions have ended or are about to: {', '.join(ended[:3])}. A batch has to be written and "
            "committed within kafka.transaction.timeout.ms: raise it and the brokers' transaction.max.timeout.ms, or "
            "give each batch less (maxOffsetsPerTrigger). If it was not that: another query writes under the same "
            "sink.id, or somebody has ended them"
        )


class TaskTimedOutError(BatchTimedOutError):
    """A task's transaction ended while its rows were being written. Nothing of the batch is visible."""

    def __init__(self, transactional_id: str, age_s: float, timeout_ms: int, cause: Exception) -> None:
        if age_s * 1000 >= timeout_ms:
            why = (
                f"it was open for longer than kafka.transaction.timeout.ms={timeout_ms}, and the brokers aborted it. "
                "Raise that and the brokers' transaction.max.timeout.ms, or give each batch less (maxOffsetsPerTrigger)"
            )
        else:
            why = (
                f"somebody ended it before its timeout ({timeout_ms} ms): a newer run of the sink, the batch's end "
                "without this attempt, or a person"
            )
        ApplicationRecoverableError.__init__(
            self, f"{cause}: transaction {transactional_id} ended {age_s:.0f} s after its task began it: {why}"
        )


class DecisionRefusedError(ApplicationRecoverableError):
    """The broker refused the decision (a timeout, say). The batch is not decided, nothing was aborted."""


class DecisionUnknownError(ApplicationRecoverableError):
    """No answer says whether the batch's decision took effect. Nothing was aborted; the next run finds out."""


class CorruptDecisionError(FatalError):
    """A decision record's bytes are not what this or an older version writes."""


class SinkContradictionError(FatalError):
    """Messages or records that the protocol excludes (a mixed batch, two claims, another sink's transaction)."""


class CheckpointRolledBackError(FatalError):
    """Spark runs a batch below the last that was written: its checkpoint is older. Nothing was written."""


class BatchChangedError(FatalError):
    """A batch that was written comes again under its number with other rows. Nothing was written.

    `decided` is in the topic, `came` is what came now; `decided_offsets` and `came_offsets` are Spark's source offsets
    of both, where they could be read.
    """

    def __init__(
        self,
        sink: str,
        query_id: str,
        batch_id: int,
        decided: Content,
        came: Content,
        decided_offsets: SourceOffsets | None,
        came_offsets: SourceOffsets | None,
    ) -> None:
        self.decided, self.came = decided, came
        self.decided_offsets, self.came_offsets = decided_offsets, came_offsets
        told = (
            f"batch {batch_id} of query {query_id} is in the topic with {decided}, and comes again with {came}: "
            "nothing of it was written. "
        )
        if decided_offsets is None or came_offsets is None:
            told += (
                "Either the checkpoint was restored or lost files, so that Spark planned the batch anew, or the query "
                "makes other rows of the same input each time, or was changed"
            )
        elif decided_offsets == came_offsets:
            told += (
                "Its source offsets are the same: the query makes other rows of the same input each time, or was "
                "changed (then start it once as it was)"
            )
        else:
            told += (
                f"Its source offsets were {_shown(decided_offsets)} and are {_shown(came_offsets)}: the checkpoint was "
                "restored or lost files, and Spark planned the batch anew; `fencepost spark repair` puts back the "
                "offsets of what was written"
            )
        super().__init__(f"sink {sink!r}: {told}. Option same.batch says what is trusted")


def _shown(offsets: SourceOffsets) -> str:
    """The sources' lines of Spark's offset log, without its version and metadata."""
    text = "; ".join(offsets.batch.splitlines()[2:]) or offsets.batch
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."


class LevelUnavailableError(ConfigurationError):
    """The brokers do not offer the guarantee level that `require.level` asks for, or no safe level at all."""


class UnfinishedSinkError(ConfigurationError):
    """Transactions or decisions of this query wait under another sink.id, or for a query that wrote exactly once.

    Going on would leave them open for ever, or write their rows again. The message says what to do.
    """


class UnknownQueryError(ConfigurationError):
    """The decision topic knows nothing of a query or sink that has written before: its memory is gone, or elsewhere.

    Going on could write a batch again. The message says what to set back, and which option begins anew.
    """
