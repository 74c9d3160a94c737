"""Two workers: speculative copies, an executor that is killed while its task goes on, executors that come and go."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fencepost.broker.embedded import Broker
from tests.spark.copying import Copy, with_killer
from tests.spark.session import jvm_options
from tests.spark.session_here import SparkHere
from tests.spark.standalone import DYNAMIC, SPECULATION, Standalone
from tests.support.forked_python import forked_python
from tests.support.waiting import until

RECORDS = 3000

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture
def copy(spark_here: SparkHere, tmp_path: Path) -> Iterator[Copy]:
    with Broker({"transaction.two.phase.commit.enable": True}) as broker:
        new_copy = Copy(broker.bootstrap_servers, tmp_path, guarantee="durable", driver=spark_here)
        new_copy.create()
        yield new_copy


def test_copies_and_lost_executors_change_nothing(copy: Copy) -> None:
    copy.produce(0, RECORDS)
    # Both strike after a task has begun its transaction: it is open when the copy starts, or when the executor dies.
    orders = [
        {"step": "BeginTask", "when": "after", "nth": 4, "mode": "slow", "name": "slow", "folder": str(copy.folder)},
        {"step": "BeginTask", "when": "after", "nth": 9, "mode": "executor", "name": "ex", "folder": str(copy.folder)},
    ]
    surroundings = with_killer(orders)
    settings = SPECULATION | {"spark.executor.extraJavaOptions": jvm_options()}
    with forked_python(surroundings) as python, Standalone(copy.folder, surroundings) as cluster:
        began = time.monotonic()
        copy.run_alone_to_the_end(python.path, master=cluster.url, settings=json.dumps(settings))
        print(f"{time.monotonic() - began:.0f} s")
    assert (copy.folder / "slow.copied").exists(), "no task had two attempts that wrote at the same time"
    assert (copy.folder / "executor.killed").exists()
    # The copy's transaction, and the lost executor's, are aborted by the next run; here it has no data of its own.
    copy.produce(RECORDS, 10)
    copy.run_to_the_end()
    copy.check(RECORDS + 10)


def test_executors_that_come_and_go_change_nothing(copy: Copy) -> None:
    """Dynamic allocation: the second half is copied by executors that have not copied the first.

    One of them is killed when its task has begun a transaction, and with it files of the batch's shuffle are lost.
    """
    copy.produce(0, RECORDS)
    settings = DYNAMIC | {"spark.executor.extraJavaOptions": jvm_options()}
    more = {"settings": json.dumps(settings), "rests_in": str(copy.folder), "rows_per_batch": "1000"}
    more["shuffled_to"] = "3"
    killed = {"step": "BeginTask", "when": "after", "nth": 5, "mode": "executor", "folder": str(copy.folder)}
    surroundings = with_killer(killed)
    with (
        forked_python(surroundings) as python,
        Standalone(copy.folder, surroundings) as cluster,
        ThreadPoolExecutor(1) as pool,
    ):
        run = pool.submit(copy.run_alone_to_the_end, python.path, master=cluster.url, **more)
        try:
            until(lambda: (copy.folder / "rests").exists() or run.done(), within_s=500)
            copy.produce(RECORDS, RECORDS)
        finally:
            (copy.folder / "go-on").touch()
        run.result()
    assert (copy.folder / "executor.killed").exists()
    copy.check(2 * RECORDS)
