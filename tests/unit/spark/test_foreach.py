"""The function for foreachBatch: one frame of a batch for one sink. Spark's part is played."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from fencepost.errors import KafkaTimeoutError, UsageError
from fencepost.spark import exactly_once
from fencepost.spark.sink import foreach

OPTIONS = {"kafka.bootstrap.servers": "localhost:9092", "topic": "out"}


class Frame:
    """Stand-in for a frame: the local properties of its run, which exactly_once() reads."""

    def __init__(self, run_id: str, query_id: str = "query") -> None:
        self.sparkSession = self.sparkContext = self
        self._properties = {"sql.streaming.queryId": query_id, "sql.streaming.runId": run_id}

    def getLocalProperty(self, name: str) -> str | None:  # noqa: N802 - PySpark's name
        return self._properties.get(name)


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, int]]:
    """(sink.id, query, batch) of each write that got through."""
    found: list[tuple[str, str, int]] = []

    def write(options: dict[str, str], query_id: str, frame: Any, batch_id: int) -> None:
        if getattr(frame, "fails", False):
            raise KafkaTimeoutError("no broker")
        found.append((options["sink.id"], query_id, batch_id))

    monkeypatch.setattr(foreach, "_write_batch", write)
    monkeypatch.setattr(foreach, "_written", foreach._Written())
    return found


def door(sink: str) -> Any:
    return exactly_once({**OPTIONS, "sink.id": sink})


def test_a_second_frame_of_a_batch_is_refused(written: list[tuple[str, str, int]]) -> None:
    first, second, other = door("etl"), door("etl"), door("etl-2")
    frame = Frame("run-1")
    first(frame, 0)
    for again in (first, second):
        with pytest.raises(UsageError, match=r"second frame of batch 0.*sink\.id of its own"):
            again(frame, 0)
    other(frame, 0)
    first(frame, 1)
    with pytest.raises(UsageError, match="batch 1"):
        second(frame, 1)
    assert written == [("etl", "query", 0), ("etl-2", "query", 0), ("etl", "query", 1)]


def test_a_batch_that_is_written_again_is_no_second_frame(written: list[tuple[str, str, int]]) -> None:
    write = door("etl")
    broken: Any = Frame("run-1")
    broken.fails = True
    with pytest.raises(KafkaTimeoutError):
        write(broken, 0)
    write(Frame("run-1"), 0)  # the function's author tries again
    write(Frame("run-2"), 0)  # the query was started again in this process, and Spark repeats the batch
    write(Frame("run-2", "another query"), 0)
    assert written == [("etl", "query", 0), ("etl", "query", 0), ("etl", "another query", 0)]


def test_the_function_can_be_sent_to_another_process() -> None:
    from pyspark import cloudpickle

    dumps: Any = cloudpickle.dumps
    assert callable(pickle.loads(dumps(door("etl"))))
