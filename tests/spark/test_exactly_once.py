"""A stream from topic to topic, started again, stopped, or started twice: every record once."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.spark.copying import RECORDS, Copy, SharedDriver
from tests.spark.session import CHECKPOINT_MANAGER, USUAL_MANAGER

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def first_driver(pyspark_python: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedDriver]:
    """Another one than the shared driver, in which queries are started again."""
    with SharedDriver(pyspark_python, tmp_path_factory.mktemp("first") / "output") as driver:
        yield driver


def test_a_stream_and_its_restart_copy_every_record_once(copy: Copy, first_driver: SharedDriver) -> None:
    copy.produce(0, RECORDS)
    assert "batches 5" in first_driver.copy(copy.arguments())
    copy.check(RECORDS)
    copy.produce(RECORDS, 700)
    assert "batches 2" in copy.run_to_the_end()
    copy.check(RECORDS + 700)


@pytest.mark.slow
@pytest.mark.parametrize("copy", ["fencepost"], indirect=True)
def test_two_drivers_on_one_checkpoint(copy: Copy) -> None:
    """Spark stops one of them, or the sink does; whichever goes on, every record is there once."""
    copy.produce(0, RECORDS)
    more = {"rows_per_batch": "250", "settings": json.dumps({CHECKPOINT_MANAGER: USUAL_MANAGER})}
    first = copy.run(more=more)
    outputs = [copy.output]
    second = copy.run(more=more)
    outputs.append(copy.output)
    codes = [process.wait(600) for process in (first, second)]
    told = "".join(output.read_text() for output in outputs)
    assert codes == [0, 0] or "SupersededError" in told or "CONCURRENT" in told.upper(), told[-6000:]
    copy.run_to_the_end()
    copy.check(RECORDS)


@pytest.mark.slow
@pytest.mark.parametrize("copy", ["fencepost"], indirect=True)
def test_stopped_at_any_time(copy: Copy) -> None:
    copy.produce(0, RECORDS)
    assert "stopped 7 times" in copy.run_to_the_end(rows_per_batch="250", stops="0.2,0.9,0.5,0.05,0.7,1.3,0.35")
    copy.check(RECORDS)
