"""What a person does about a sink whose query is stopped: look at its decisions, repair a checkpoint by them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from fencepost.errors import ConfigurationError, UnsupportedVersionError
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
    """What became of a transaction whose commit is decided."""

    COMMITTED = "committed"
    OPEN = "open"  # the next open of the sink commits it
    LOST = "lost"  # its rows are not in the topic
    EXPIRED = "expired"  # it ended so long ago that the brokers do not know how
    UNKNOWN = "unknown"  # the brokers do not tell (Kafka before 3.0)


# By Kafka's names. While a decision is its query's last, no other transaction uses the ids that it names.
_STATES = {
    "Ongoing": WinnerState.OPEN,
    "PrepareCommit": WinnerState.COMMITTED,
    "CompleteCommit": WinnerState.COMMITTED,
    "PrepareAbort": WinnerState.LOST,
    "CompleteAbort": WinnerState.LOST,
    "PrepareEpochFence": WinnerState.LOST,
    "Empty": WinnerState.LOST,
    "Dead": WinnerState.EXPIRED,
}


@dataclass(frozen=True, slots=True)
class Repair:
    """What makes a checkpoint go on behind the decided batch."""

    folder: Path
    decision: Decision
    changes: list[checkpoint.Change]

    def carry_out(self) -> None:
        """Raises ConfigurationError when the checkpoint has changed meanwhile; OSError."""
        checkpoint.restore(self.folder, self.changes)


@dataclass(frozen=True, slots=True)
class Repaired:
    """What `repair_checkpoint` did: the decision it went by, and the files it wrote (none: all was as decided)."""

    decision: Decision
    written: list[Path]


def winner_state(state: str | None) -> WinnerState:
    """By Kafka's name for the transaction's state; None: the brokers do not know the id."""
    return _STATES.get(state or "", WinnerState.EXPIRED)


def states_of(link: SinkLink, decision: Decision) -> dict[Winner, WinnerState]:
    """What became of each of its transactions. Claims nothing: a run that is alive goes on. Raises KafkaError."""
    try:
        known = {described.transactional_id: described.state for described in link.run(_described(decision))}
    except UnsupportedVersionError:
        return dict.fromkeys(decision.winners, WinnerState.UNKNOWN)
    last = {other.query_id: other.batch_id for other in link.decisions(decision.sink)}
    if last.get(decision.query_id, -1) > decision.batch_id:
        # A run that is alive has decided more: before that it has completed this, and may use the ids again.
        return dict.fromkeys(decision.winners, WinnerState.COMMITTED)
    # A transaction that is open with another pair was kept by somebody: whoever commits it finds the pair.
    return {winner: winner_state(known.get(winner.transactional_id)) for winner in decision.winners}


def _described(decision: Decision) -> plan.Plan[tuple[plan_steps.Listed, ...]]:
    found: tuple[plan_steps.Listed, ...] = yield plan_steps.DescribeTasks(
        tuple(winner.transactional_id for winner in decision.winners)
    )
    return found


def settle_lost_batch(
    bootstrap_servers: str, sink_id: str, query_id: str, *, lost: str, **options: str
) -> plan_steps.Settled:
    """After PreparedTransactionLostError: what of the batch is there, and let the query go on.

    `lost`: "accept": behind the batch, without the rows of its lost transactions; or "again": the query writes the
    whole batch again, and the rows of its committed transactions are there twice. Also for queries that are gone:
    Open asks for their transactions no more. A run that is alive is superseded. `options` as for `resolve_sink`.
    Raises ConfigurationError, KafkaTimeoutError, DecisionUnknownError (do it again then), SupersededError,
    LevelUnavailableError.
    """
    if lost not in ("accept", "again"):
        raise ConfigurationError(f"lost={lost!r}: accept or again")
    link = link_for(bootstrap_servers, options)
    # Before the plan claims the sink: a claim on a name that nobody has would leave an id behind.
    plan.decision_of(sink_id, query_id, link.decisions(sink_id))
    return link.run(plan.settle_lost(sink_id, query_id, link.level(sink_id, None), again=lost == "again"))


def repair_of(link: SinkLink, sink_id: str, checkpoint_folder: str) -> Repair:
    """What `repair_checkpoint` would do. Raises what it raises."""
    folder = checkpoint.local_folder(checkpoint_folder)
    query_id = None if folder is None else checkpoint.query_of(folder)
    if folder is None or query_id is None:
        raise ConfigurationError(f"{checkpoint_folder!r} is not a checkpoint in local files")
    decision = plan.decision_of(sink_id, query_id, link.decisions(sink_id))
    return Repair(folder, decision, checkpoint.changes(folder, decision))


def repair_checkpoint(bootstrap_servers: str, sink_id: str, checkpoint_folder: str, **options: str) -> Repaired:
    """Make a checkpoint that was restored, or lost files, go on where the sink is: after its last decided batch.

    The query then replays that batch with the offsets it was written with, finds it written, and goes on behind it. For
    checkpoints in local files, and queries without state. Stop the query first. `options` as for `resolve_sink`.
    Raises ConfigurationError when the checkpoint or the decision do not allow it, KafkaTimeoutError.
    """
    repair = repair_of(link_for(bootstrap_servers, options), sink_id, checkpoint_folder)
    repair.carry_out()
    return Repaired(repair.decision, [change.path for change in repair.changes])
