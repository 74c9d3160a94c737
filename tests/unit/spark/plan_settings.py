"""What a world of plan_world.py is like: the rules that it plays by, and what may go wrong in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fencepost.spark.sink import plan, plan_owner, plan_steps
from fencepost.spark.sink.decision import Pair
from fencepost.spark.sink.task_ids import IdPool, OwnPool, TaskIds

LOSING = tuple(level for level in plan_steps.Level if level.may_lose)  # what is decided may time out


@dataclass(frozen=True)
class Rules:
    """The protocol under test; a planted bug replaces one of these."""

    open_sink: Callable[[str, plan_steps.Level], plan.Plan[plan_steps.Opened]] = plan.open_sink
    write_task: Callable[[plan_steps.Opened, str, int], plan.Plan[plan_steps.Message]] = plan.write_task
    commit_batch: Callable[..., plan.Plan[Any]] = plan.commit_batch
    abort_batch: Callable[..., plan.Plan[Any]] = plan.abort_batch
    ids: Callable[[Callable[[], bytes], IdPool], TaskIds] = TaskIds
    pool: Callable[[], IdPool] = OwnPool
    names_by_attempt: bool = False
    ask_owner: Callable[[str, Pair], plan.Plan[int]] = plan_owner.ask_owner  # at level resume-v1
    ask_unverified: Callable[[str, Pair], plan.Plan[int]] = plan_owner.ask_by_fencing  # at level resume-unverified
    fences: bool = True  # at that level: what is to be aborted
    by_release: bool = False  # a coordinator's release says how to abort and to ask, not the level of the run
    sends_to_all: bool = False  # also what only a broker that verifies may have
    asks_again: bool = False  # a winner, where the answer was lost


@dataclass
class Settings:
    level: plan_steps.Level = plan_steps.Level.TWO_PHASE
    batches: int = 2
    partitions: int = 2
    attempts: int = 3  # of a task
    faults: int = 4
    may_time_out: bool = False
    may_lose: bool = False  # what is decided may time out
    breaking_rows: bool = False
    timed_out_code: int = 48
    checkpoint_faults: bool = False
    strangers: bool = False  # somebody keeps transactions that are not his
    gone: bool = False  # another query has decided with this sink, and does not run any more
    epochs: int = 2**15  # of a producer id of S
    rolls: bool = False  # brokers go to the other side of Kafka 3.6, and back where that is not level resume-v1
    remembers: bool = False  # who has fenced a registered id lists it no more
    one_host: bool = False  # workers end with their task, and inherit each other's ids; else each keeps its own
