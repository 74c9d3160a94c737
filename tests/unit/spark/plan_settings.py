"""Settings of a world of plan_world.py: the rules that it follows, and the faults that may happen in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fencepost.spark.sink import plan, plan_abilities, plan_steps
from fencepost.spark.sink.abilities import BrokerAbilities
from fencepost.spark.sink.decision import Pair
from fencepost.spark.sink.task_ids import IdPool, OwnPool, TaskIds
from tests.support.sink_abilities import TWO_PHASE


@dataclass(frozen=True)
class Rules:
    """The protocol under test; a planted bug replaces one of these."""

    open_sink: Callable[[str, BrokerAbilities], plan.Plan[plan_steps.OpenedSink]] = plan.open_sink
    write_task: Callable[[plan_steps.OpenedSink, str, int], plan.Plan[plan_steps.TaskResult]] = plan.write_task
    commit_batch: Callable[..., plan.Plan[Any]] = plan.commit_batch
    abort_batch: Callable[..., plan.Plan[Any]] = plan.abort_batch
    ids: Callable[[Callable[[], bytes], IdPool], TaskIds] = TaskIds
    pool: Callable[[], IdPool] = OwnPool
    names_by_attempt: bool = False
    verify_claim: Callable[[str, Pair], plan.Plan[int]] = plan_abilities.verify_claim  # before transaction.version 1
    sends_to_all: bool = False  # also to a broker that does not verify, where only one that verifies may get it


@dataclass
class Settings:
    abilities: BrokerAbilities = TWO_PHASE
    batches: int = 2
    partitions: int = 2
    attempts: int = 3  # of a task
    faults: int = 4
    may_time_out: bool = False
    may_lose: bool = False  # decided transactions may time out
    breaking_rows: bool = False
    timed_out_code: int = 48
    checkpoint_faults: bool = False
    others_keep: bool = False  # another process keeps the sink's transactions
    gone: bool = False  # another query has decided with this sink, and runs no more
    epochs: int = 2**15  # of a producer id of S
    rolls: bool = False  # brokers are downgraded below Kafka 3.6 and upgraded again
    forgets: bool = False  # the coordinator forgets ids whose transaction has ended
    one_host: bool = False  # workers end with their task, and inherit each other's ids; else each keeps its own
