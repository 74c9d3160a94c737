"""A stream from topic to topic, started again, stopped, or started twice: every record once."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # it has no types
from pyspark.errors import StreamingQueryException

from tests.spark.answering import AnotherDriver
from tests.spark.copying import RECORDS, Copy, with_killer
from tests.spark.session import USUAL_MANAGER
from tests.support.forked_python import forked_python
from tests.support.waiting import until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def another_driver(pyspark_python: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AnotherDriver]:
    with AnotherDriver(pyspark_python, tmp_path_factory.mktemp("another") / "output") as driver:
        yield driver


def test_a_stream_and_its_restart_copy_every_record_once(copy: Copy, another_driver: AnotherDriver) -> None:
    copy.produce(0, RECORDS)
    # 1212 and 1288 offsets: 242 and 257 of them in each of five batches, as Spark's own connector shares 500; then 5.
    assert "batches 6" in another_driver.copy(copy.arguments())
    copy.check(RECORDS)
    copy.produce(RECORDS, 700)
    assert "batches 2" in copy.run_to_the_end()
    copy.check(RECORDS + 700)


@pytest.mark.slow
@pytest.mark.parametrize("copy", ["fencepost"], indirect=True)
def test_two_drivers_on_one_checkpoint(copy: Copy, another_driver: AnotherDriver) -> None:
    """Spark stops one of them, or the sink does; whichever goes on, every record is there once."""
    another_driver.start()
    copy.produce(0, 250)
    copy.run_to_the_end()  # so that there is a checkpoint: of two that are to make it Spark ends one at once
    copy.produce(250, RECORDS - 250)
    more = {"rows_per_batch": "250", "checkpoint_manager": USUAL_MANAGER}
    failures: list[BaseException] = []
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(another_driver.copy, copy.arguments(**more))
        try:
            copy.run_to_the_end(**more)
        except (StreamingQueryException, Py4JJavaError) as error:
            failures.append(error)
        failures += filter(None, [other.exception()])
    reported = "".join(map(str, failures))
    assert not failures or "SupersededError" in reported or "CONCURRENT" in reported.upper(), reported[-6000:]
    copy.run_to_the_end()
    copy.check(RECORDS)


@pytest.mark.slow
@pytest.mark.parametrize("step", ["BeginTask", "WriteDecision"])
@pytest.mark.parametrize("copy", ["fencepost"], indirect=True)
def test_of_two_drivers_the_first_is_told_that_the_second_took_over(copy: Copy, tmp_path: Path, step: str) -> None:
    """The first stands in a batch until the second has copied everything, and then goes on."""
    copy.produce(0, RECORDS)
    orders = {"step": step, "when": "before", "nth": 2, "mode": "stand", "folder": str(tmp_path)}
    surroundings = with_killer(orders)
    with (
        forked_python(surroundings) as python,
        AnotherDriver(python.path, tmp_path / "output", surroundings) as first,
        ThreadPoolExecutor(1) as pool,
    ):
        first.start()
        run = pool.submit(first.copy, copy.arguments(checkpoint_manager=USUAL_MANAGER))
        try:
            until(lambda: (tmp_path / "standing").exists() or run.done(), within_s=300)
            copy.run_to_the_end(checkpoint_manager=USUAL_MANAGER)
        finally:
            (tmp_path / "go").touch()
        reported = str(run.exception())
    for words in (
        "SupersededError",
        "a newer run",
        copy.name,
        "another driver runs this query with the same checkpoint",
    ):
        assert words in reported, reported[-6000:]
    copy.check(RECORDS)


@pytest.mark.slow
@pytest.mark.parametrize("copy", ["fencepost"], indirect=True)
def test_stopped_at_any_time(copy: Copy) -> None:
    copy.produce(0, RECORDS)
    assert "stopped 7 times" in copy.run_to_the_end(rows_per_batch="250", stops="0.2,0.9,0.5,0.05,0.7,1.3,0.35")
    copy.check(RECORDS)
