"""The pool in which the Python workers of an executor find each other's task ids."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

import pytest

from fencepost.spark.sink import names
from fencepost.spark.sink.decision import Pair
from fencepost.spark.sink.local.id_folder import IdFolder
from fencepost.spark.sink.plan_steps import ClaimedBatch, DecidedBatch, OpenedSink
from fencepost.spark.sink.task_ids import OwnPool, TaskIds
from tests.support.sink_abilities import ONE_PHASE

QUERY = "9d0cbd2e-6bb1-4c5e-9c12-c0f1d3ce9c27"


def worker(folder: Path | str, servers: str = "a:9092", topic: str = "decisions") -> IdFolder:
    return IdFolder({"SPARK_LOCAL_DIRS": f"{folder},/nowhere"}, servers, topic)


def opened(decided: int, epoch: int = 20, sink: str = "s", query_id: str = QUERY) -> OpenedSink:
    return OpenedSink(sink, ONE_PHASE, Pair(1, epoch), (DecidedBatch(query_id, decided, None),))


def use(batch_id: int, epoch: int = 10, sink: str = "s", query_id: str = QUERY) -> ClaimedBatch:
    return ClaimedBatch(sink, Pair(1, epoch), query_id, batch_id)


def an_id(number: int, sink: str = "s") -> str:
    return names.task_id(sink, number.to_bytes(16))


@pytest.fixture(params=["own", "folder"])
def pool(request: pytest.FixtureRequest, tmp_path: Path) -> OwnPool | IdFolder:
    return OwnPool() if request.param == "own" else worker(tmp_path)


def test_what_is_given_lies_there_until_it_is_taken_with_its_last_use(pool: OwnPool | IdFolder) -> None:
    assert list(pool.idle(opened(9))) == []
    assert not pool.take(an_id(1), use(5))
    pool.give(an_id(1), use(5))
    pool.give(an_id(2), use(6))
    assert sorted(pool.idle(opened(9))) == [(an_id(1), use(5)), (an_id(2), use(6))]
    for another in (use(6), use(5, epoch=11), use(5, query_id="q")):
        assert not pool.take(an_id(1), another)
    assert pool.take(an_id(1), use(5))
    assert not pool.take(an_id(1), use(5))
    pool.give(an_id(1), use(7, epoch=12))
    assert not pool.take(an_id(1), use(5))  # seen before somebody else has had it
    assert sorted(pool.idle(opened(9))) == [(an_id(1), use(7, epoch=12)), (an_id(2), use(6))]


def test_a_worker_uses_what_another_has_left_and_nothing_that_was_never_answered(tmp_path: Path) -> None:
    numbers = iter(range(1, 99))

    def ids() -> TaskIds:
        return TaskIds(lambda: next(numbers).to_bytes(16), worker(tmp_path))

    first = ids()
    taken = [first.take(opened(4)) for _ in range(3)]
    first.begun(taken[0], use(5))
    first.begun(taken[1], use(5))  # the third was not answered, or its process was killed
    assert ids().take(opened(5)) == an_id(4)  # batch 5 may still be completed
    assert sorted(ids().take(opened(6)) for _ in range(3)) == [*sorted(taken[:2]), an_id(5)]
    assert list(tmp_path.glob("*/*")) == []


def test_sinks_clusters_decision_topics_and_queries_have_their_own(tmp_path: Path) -> None:
    worker(tmp_path).give(an_id(1), use(5))
    assert list(worker(tmp_path, servers="b:9092").idle(opened(9))) == []
    assert list(worker(tmp_path, topic="others").idle(opened(9))) == []
    assert list(worker(tmp_path).idle(opened(9, sink="t"))) == []
    assert list(worker(tmp_path).idle(opened(9, query_id="another"))) == []
    assert list(worker(tmp_path / "another executor").idle(opened(9))) == []
    assert list(worker(tmp_path).idle(opened(9))) == [(an_id(1), use(5))]


@pytest.mark.parametrize("query_id", ["batch", "q/../..", "ä" * 500])
def test_any_query_id_is_kept(tmp_path: Path, query_id: str) -> None:
    last_use = use(2**62, 2**15 - 1, query_id=query_id)
    worker(tmp_path).give(an_id(2**128 - 1), last_use)
    assert list(worker(tmp_path).idle(opened(9, query_id=query_id))) == [(an_id(2**128 - 1), last_use)]


def test_of_many_who_take_at_once_one_gets_it(tmp_path: Path) -> None:
    workers, count = 6, 40
    for number in range(count):
        worker(tmp_path).give(an_id(number), use(5))
    got: list[list[str]] = [[] for _ in range(workers)]
    begin = threading.Barrier(workers)

    def take_all(mine: list[str]) -> None:
        begin.wait()
        pool = worker(tmp_path)
        mine += [task_id for task_id, last in pool.idle(opened(9)) if pool.take(task_id, last)]

    threads = [threading.Thread(target=take_all, args=(mine,)) for mine in got]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(task_id for mine in got for task_id in mine) == [an_id(number) for number in range(count)]


def test_other_files_in_the_folder_are_no_ids(tmp_path: Path) -> None:
    worker(tmp_path).give(an_id(1), use(5))
    (lying,) = tmp_path.glob("*/*")
    for name in ("x", lying.name[1:], lying.name + "0", lying.name.replace("-5-", "--5-"), lying.name.upper() + "Z"):
        lying.with_name(name).touch()
    assert list(worker(tmp_path).idle(opened(9))) == [(an_id(1), use(5))]


def test_without_a_folder_that_can_be_used_ids_stay_with_their_process(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    worker(tmp_path / "folder").give(an_id(3), use(5))
    (folder,) = (tmp_path / "folder").iterdir()
    (tmp_path / "taken" / folder.name).mkdir(parents=True)
    (tmp_path / "taken" / folder.name).rmdir()
    (tmp_path / "taken" / folder.name).touch()  # a file where the folder should be
    reported = []
    for pool in (
        IdFolder({}, "a:9092", "decisions"),
        worker(""),
        worker(tmp_path / "gone"),
        worker(tmp_path / "file"),
        worker(tmp_path / "taken"),
    ):
        caplog.clear()
        with caplog.at_level(logging.WARNING, "fencepost.spark"):
            for number in (1, 2):
                pool.give(an_id(number), use(5))
            assert sorted(pool.idle(opened(9))) == [(an_id(1), use(5)), (an_id(2), use(5))]
            assert [pool.take(an_id(1), use(5)) for _ in range(2)] == [True, False]
        reported.append([record.getMessage() for record in caplog.records])
    assert [len(lines) for lines in reported] == [0, 1, 1, 1, 1]
    assert all("task ids are not passed on" in lines[0] for lines in reported[1:])
