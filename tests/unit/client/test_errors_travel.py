"""Exceptions come back from another process, and from `copy`, as they were raised there.

`concurrent.futures` and `multiprocessing` pickle an exception in the worker and read it in the parent. If that fails,
`concurrent.futures` reports a broken pool, and `multiprocessing.Pool` waits for ever.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fencepost.errors
import fencepost.spark.errors
from fencepost import Broker, Producer
from fencepost.errors import (
    DataLossError,
    FailureType,
    ItemsFailedError,
    KafkaError,
    KafkaTimeoutError,
    LogTruncationError,
    ProduceFailedError,
)
from fencepost.spark.errors import BatchChangedError, BatchTimedOutError, CheckpointLostError, TaskTimedOutError
from fencepost.spark.sink.decision import Content, SourceOffsets

BY_HAND: dict[type[KafkaError], Callable[[], KafkaError]] = {
    BatchChangedError: lambda: BatchChangedError(
        "orders", "q", 3, Content(1, 2), Content(2, 3), SourceOffsets("v1\n{}\n{}", None), None
    ),
    BatchTimedOutError: lambda: BatchTimedOutError("q", 3, ["a", "b"], 4),
    CheckpointLostError: lambda: CheckpointLostError(Path("/data/cp"), "offsets/3", 3),
    DataLossError: lambda: DataLossError("gone", code=45, topic="orders", partition=2, last_acked_offset=9),
    ItemsFailedError: lambda: ItemsFailedError(
        "1 of 2 failed", results={"a": 1}, errors={"b": KafkaTimeoutError("late", outcome_unknown=True)}
    ),
    LogTruncationError: lambda: LogTruncationError("shorter", topic="orders", partition=2, divergent_offset=7),
    ProduceFailedError: lambda: ProduceFailedError(
        "lost", failure_type=FailureType.DELIVERY_FAILED, code=7, records=5, outcome_unknown=True
    ),
    TaskTimedOutError: lambda: TaskTimedOutError("t", 90.0, 60_000, KafkaTimeoutError("late")),
}
WAYS: dict[str, Callable[[Any], Any]] = {
    "oldest pickle": lambda error: pickle.loads(pickle.dumps(error, 0)),
    "newest pickle": lambda error: pickle.loads(pickle.dumps(error, pickle.HIGHEST_PROTOCOL)),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
}


def classes() -> list[type[KafkaError]]:
    found = {
        member
        for module in (fencepost.errors, fencepost.spark.errors)
        for member in vars(module).values()
        if isinstance(member, type) and issubclass(member, KafkaError)
    }
    return sorted(found, key=lambda kind: kind.__name__)


def seen(error: BaseException) -> tuple[Any, ...]:
    """Return all that a program can see of an error: two errors are equal only if they are the same object."""
    return type(error), str(error), error.args, {name: repr(value) for name, value in vars(error).items()}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", classes(), ids=lambda kind: kind.__name__)
def test_each_exception_stays_as_it_is(kind: type[KafkaError], way: str) -> None:
    error = BY_HAND.get(kind, lambda: kind("the reason"))()
    error.add_note("of the application")
    assert seen(WAYS[way](error)) == seen(error)


def test_a_timeout_is_still_told_as_unknown() -> None:
    error = pickle.loads(pickle.dumps(KafkaTimeoutError("late", outcome_unknown=True)))
    assert error.outcome_unknown
    assert isinstance(error, TimeoutError)
    assert "late" in repr(error)


def test_the_error_of_a_delivery_can_leave_its_process() -> None:
    with Broker() as broker, Producer(broker.bootstrap_servers, linger_ms=60_000) as producer:
        delivery = producer.send("orders", b"book")
        producer.purge()
        with pytest.raises(ProduceFailedError) as raised:
            delivery.result()
    there = pickle.loads(pickle.dumps(raised.value))
    assert (there.failure_type, there.records, there.outcome_unknown) == (FailureType.DELIVERY_FAILED, 1, False)
