"""Functions for a person whose query is stopped: read the sink's decisions, and repair a checkpoint with them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from fencepost.errors import ConfigurationError
from fencepost.spark.sink import checkpoint, plan, plan_steps
from fencepost.spark.sink.decision import Decision, Winner
from fencepost.spark.sink.runner import SinkLink, link_for

__all__ = [
    "Repair",
    "Repaired",
    "WinnerState",
    "repair_checkpoint",
    "repair_of",
    "settle_lost_batch",
    "states_of",
    "winner_state",
]


class WinnerState(Enum):
    """The outcome of a transaction whose commit is decided."""

    COMMITTED = "committed"
    OPEN = "open"  # the next open of the sink commits it
    LOST = "lost"  # its rows are not in the topic
    UNKNOWN = "unknown"  # its transactional id has expired, so the brokers do not know the outcome


# Keys are Kafka's names. While a decision is its query's last, no other transaction uses the ids that it names.
_STATES = {
    "Ongoing": WinnerState.OPEN,
    "PrepareCommit": WinnerState.COMMITTED,
    "CompleteCommit": WinnerState.COMMITTED,
    "PrepareAbort": WinnerState.LOST,
    "CompleteAbort": WinnerState.LOST,
    "PrepareEpochFence": WinnerState.LOST,
    "Empty": WinnerState.LOST,
    "Dead": WinnerState.UNKNOWN,
}


@dataclass(frozen=True, slots=True)
class Repair:
    """Changes that let a checkpoint continue after the decided batch."""

    folder: Path
    decision: Decision
    changes: list[checkpoint.Change]

    def carry_out(self) -> None:
        """Write the changes. Raises ConfigurationError if the checkpoint has changed since; OSError."""
        checkpoint.restore(self.folder, self.changes)


@dataclass(frozen=True, slots=True)
class Repaired:
    """The result of `repair_checkpoint`: the decision, and the written files. No file: nothing differed."""

    decision: Decision
    written: list[Path]


def winner_state(state: str | None) -> WinnerState:
    """Return the outcome for Kafka's name of the transaction's state; None: the brokers do not know the id."""
    return _STATES.get(state or "", WinnerState.UNKNOWN)


def states_of(link: SinkLink, decision: Decision) -> dict[Winner, WinnerState]:
    """Return the outcome of each transaction. Does not claim the sink, so a running query continues.

    Raises KafkaError.
    """
    known = {described.transactional_id: described.state for described in link.run(_described(decision))}
    last = {other.query_id: other.batch_id for other in link.decisions(decision.sink)}
    if last.get(decision.query_id, -1) > decision.batch_id:
        # A running query has decided more. It completed this decision before, and may use the ids again.
        return dict.fromkeys(decision.winners, WinnerState.COMMITTED)
    # A transaction that is open with another pair was kept by another process. The next commit finds the pair.
    return {winner: winner_state(known.get(winner.transactional_id)) for winner in decision.winners}


def _described(decision: Decision) -> plan.Plan[tuple[plan_steps.SinkTransaction, ...]]:
    found: tuple[plan_steps.SinkTransaction, ...] = yield plan_steps.DescribeTasks(
        tuple(winner.transactional_id for winner in decision.winners)
    )
    return found


def settle_lost_batch(
    bootstrap_servers: str, sink_id: str, query_id: str, *, lost: str, **options: str
) -> plan_steps.SettledBatch:
    """Let a query continue after PreparedTransactionLostError, and return the outcomes of its last batch.

    The query may be gone: then Open no longer asks for its transactions. A running query of the sink is superseded.

    Args:
        bootstrap_servers: The Kafka cluster.
        sink_id: The sink.
        query_id: The query whose last decided batch is lost in part.
        lost: "accept": continue after the batch, without the rows of its lost transactions. "again": write the whole
            batch again; the rows of its committed transactions are then in the topic twice.
        options: As for `resolve_sink`.

    Raises:
        ConfigurationError: There is no such decision.
        KafkaTimeoutError: The brokers did not answer in time.
        DecisionUnknownError: The broker did not answer; call this function again.
        SupersededError: Another run has claimed the sink.
        GuaranteeUnavailableError: The brokers do not support exactly-once.
    """
    if lost not in ("accept", "again"):
        raise ConfigurationError(f"lost={lost!r}: accept or again")
    link = link_for(bootstrap_servers, options)
    # Before the claim, which would create the transactional id of an unknown sink.
    plan.decision_of(sink_id, query_id, link.decisions(sink_id))
    return link.run(plan.settle_lost(sink_id, query_id, link.abilities(sink_id, None), again=lost == "again"))


def repair_of(link: SinkLink, sink_id: str, checkpoint_folder: str) -> Repair:
    """Return the changes of `repair_checkpoint`. Raises as that."""
    folder = checkpoint.local_folder(checkpoint_folder)
    if folder is None:
        raise ConfigurationError(f"{checkpoint_folder!r} is not a checkpoint in local files")
    if (query_id := checkpoint.query_of(folder)) is None:
        raise ConfigurationError(checkpoint.without_query(folder))
    decision = plan.decision_of(sink_id, query_id, link.decisions(sink_id))
    return Repair(folder, decision, checkpoint.changes(folder, decision))


def repair_checkpoint(bootstrap_servers: str, sink_id: str, checkpoint_folder: str, **options: str) -> Repaired:
    """Let a checkpoint that was restored, or lost files, continue after the sink's last decided batch.

    The query then replays that batch with its original offsets, finds it written, and continues after it. Works for
    checkpoints in local files, and queries without state. Stop the query first. `options` as for `resolve_sink`.
    Raises ConfigurationError if the checkpoint or the decision do not allow it, KafkaTimeoutError.
    """
    repair = repair_of(link_for(bootstrap_servers, options), sink_id, checkpoint_folder)
    repair.carry_out()
    return Repaired(repair.decision, [change.path for change in repair.changes])
