"""Exceptions of the sink. Their base classes in `fencepost.errors` say what to do.

A restart of the query recovers from an ApplicationRecoverableError. A FatalError needs a person (docs/spark.md, "When
something is wrong"). `PreparedTransactionLostError` (fencepost.errors) reports the loss of a decided transaction.
"""

from __future__ import annotations

from pickle import PickleError
from typing import TYPE_CHECKING, Final

from fencepost.counted import duration_words, share_has
from fencepost.errors import ApplicationRecoverableError, ConfigurationError, FatalError, KafkaError

if TYPE_CHECKING:
    from pathlib import Path

    from fencepost.spark.sink.decision import Content, SourceOffsets

__all__ = [
    "BatchChangedError",
    "BatchTimedOutError",
    "CheckpointLostError",
    "CheckpointRolledBackError",
    "CorruptDecisionError",
    "DecisionRefusedError",
    "DecisionUnknownError",
    "GuaranteeUnavailableError",
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
    """Transactions of the batch have ended, or would end before their commit. The whole batch was aborted."""

    def __init__(self, query_id: str, batch_id: int, ended: list[str], of: int) -> None:
        super().__init__(
            f"batch {batch_id} of query {query_id} was not decided, and nothing of it is visible: "
            f"{share_has(len(ended), of, 'transaction')} ended or will end soon: {', '.join(ended[:3])}. "
            "A batch has to be written and "
            "committed within kafka.transaction.timeout.ms: raise it and the brokers' transaction.max.timeout.ms, or "
            "give each batch less (maxOffsetsPerTrigger; Spark plans this batch anew after `fencepost spark repair "
            "--replan`). If time was not the cause: another query writes under the "
            "same sink.id, or a person has ended them"
        )


class TaskTimedOutError(BatchTimedOutError):
    """A task's transaction ended while its rows were being written. Nothing of the batch is visible."""

    def __init__(self, transactional_id: str, age_s: float, timeout_ms: int, cause: Exception) -> None:
        if age_s * 1000 >= timeout_ms:
            reason = (
                f"it was open for longer than kafka.transaction.timeout.ms={timeout_ms}, and the brokers aborted it. "
                "Raise that and the brokers' transaction.max.timeout.ms, or give each batch less (maxOffsetsPerTrigger)"
            )
        else:
            reason = (
                f"another process ended it before its timeout ({duration_words(timeout_ms)}): a newer run of the sink, "
                "the batch's end without this attempt, or a person"
            )
        ApplicationRecoverableError.__init__(
            self,
            f"{cause}: transaction {transactional_id} ended {duration_words(age_s * 1000)} after its task began it: "
            f"{reason}",
        )


class DecisionRefusedError(ApplicationRecoverableError):
    """The broker refused the decision, for example after a timeout. The batch is not decided; nothing was aborted."""


class DecisionUnknownError(ApplicationRecoverableError):
    """The broker did not answer whether the batch is decided. Nothing was aborted; the next run finds out."""


class CorruptDecisionError(FatalError):
    """A decision record is damaged, or a newer release has written it."""


class SinkContradictionError(FatalError):
    """Messages or records contradict the protocol: a mixed batch, two claims, or another sink's transaction."""


class CheckpointRolledBackError(FatalError):
    """Spark runs a batch below the last written batch, because its checkpoint is older. Nothing was written."""


class CheckpointLostError(FatalError):
    """A file of the batch left the checkpoint while the query ran. Nothing of the batch was decided."""

    def __init__(self, folder: Path, gone: str, batch_id: int) -> None:
        super().__init__(
            f"batch {batch_id} was not decided, and nothing of it is visible: checkpoint {folder} does not have the "
            f"file {gone} any more. Either the checkpoint was deleted or moved while the query ran: put it back, for "
            "with a new one the query is new and writes again what it reads again. Or a person took the plan of the "
            "batch back (`fencepost spark repair --replan`): start the query again"
        )


class BatchChangedError(FatalError):
    """Spark runs a written batch again under the same number, but with other rows. Nothing was written.

    Attributes:
        decided: The content of the batch in the topic.
        came: The content of the batch that Spark runs now.
        decided_offsets: Spark's source offsets of the batch in the topic, if they could be read.
        came_offsets: Spark's source offsets of the batch that Spark runs now, if they could be read.
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
        message = (
            f"batch {batch_id} of query {query_id} is in the topic with {decided}, and comes again with {came}: "
            "nothing of it was written. "
        )
        if decided_offsets is None or came_offsets is None:
            message += (
                "Either the checkpoint was restored or lost files, so that Spark planned the batch anew, or the query "
                "makes other rows of the same input each time, or was changed"
            )
        elif decided_offsets == came_offsets:
            message += (
                "Its source offsets are the same: the query makes other rows of the same input each time, or was "
                "changed (then start it once as it was)"
            )
        else:
            message += (
                f"Its source offsets were {_shown(decided_offsets)} and are {_shown(came_offsets)}: the checkpoint was "
                "restored or lost files, and Spark planned the batch anew; `fencepost spark repair` puts back the "
                "offsets of the written batch"
            )
        super().__init__(f"sink {sink!r}: {message}. Option same.batch chooses the comparison")


def _shown(offsets: SourceOffsets) -> str:
    text = str(offsets)
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."


class GuaranteeUnavailableError(ConfigurationError):
    """The brokers do not support the guarantee that `require.guarantee` asks for, or exactly-once at all."""


class UnfinishedSinkError(ConfigurationError):
    """Transactions or decisions of this query wait under another sink.id, or for a query that wrote exactly once.

    Continuing would leave them open for ever, or write their rows again. The message says what to do.
    """


class UnknownQueryError(ConfigurationError):
    """The decision topic has no record of a query or sink that has written before.

    Continuing could write a batch again. The message says which setting to restore, and which option starts again.
    """


def shown_as_it_is(error: KafkaError) -> KafkaError:
    """Return an error that pyspark passes on unchanged if it is raised while pyspark pickles an object.

    pyspark replaces any other error by a PicklingError ("Could not serialize object"), which hides the cause.
    """
    kind = type(error)
    named = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
    error.__class__ = type(kind.__name__, (kind, PickleError), named)
    return error
