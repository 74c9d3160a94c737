"""A sample of the comparison with Spark's own connector; `python -m tests.spark.differential` is the whole."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.spark.copying import ROOT, environment
from tests.spark.differential import seen_file
from tests.spark.differential.cases import Options
from tests.spark.differential.comparing import Cell, Seen
from tests.spark.differential.known import Known, judge, known, report
from tests.spark.differential.running import Driver, all_cells, run
from tests.spark.differential.states import CHANGING, RESTING, World, world
from tests.spark.differential.writes import all_writes, write
from tests.support import built_in_connector
from tests.support.apache_kafka import Unavailable
from tests.support.waiting import until

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1200)]

# Besides one of each state, and one for each row of the page.
MORE = (
    Cell("plain", "batch", "seven tasks"),
    Cell("plain", "batch", "to offsets"),
    Cell("plain", "batch", "an end beyond the end, loss allowed"),
    Cell("plain", "batch", "pattern of a part"),
    Cell("plain", "available now", "more tasks and records"),
    Cell("plain", "processing time", "between two and four offsets"),
    Cell("plain", "once", "three offsets a batch"),
    Cell("aborted", "available now", "one offset a batch"),
    Cell("held back", "available now", "headers"),
    Cell("truncated", "available now", "offset 0, loss allowed"),
    Cell("made anew shorter", "available now", "loss allowed"),
)


@pytest.fixture(scope="module")
def topics() -> Iterator[World]:
    with world() as shared_world:
        yield shared_world


@pytest.fixture(scope="module")
def driver(pyspark_python: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    try:
        with Driver(pyspark_python, tmp_path_factory.mktemp("differential")) as new_driver:
            yield new_driver
    except Unavailable as reason:
        pytest.skip(str(reason))


# Frames that both write alike.
ALIKE = (
    "strings",
    "keys choose partitions",
    "partitions",
    "headers",
    "null topic",
    "value is a number",
    "missing topic",
)


def sample(rows: list[Known]) -> dict[Cell, Options]:
    cells = all_cells()
    assert len(cells) > 1900
    chosen = {*MORE, *(next(cell for cell in cells if row.covers(cell)) for row in rows)}
    chosen |= {Cell(state, "batch", "earliest") for state in RESTING}
    chosen |= {Cell(state, "available now", "earliest") for state in CHANGING}
    return {cell: options for cell, options in cells.items() if cell in chosen}


def check(seen: list[Seen], rows: list[Known]) -> None:
    found = report(*judge(seen, rows))
    if found:
        pytest.fail(found, pytrace=False)  # in full, while pytest shortens what an assertion compares


def test_what_differs_from_sparks_own_is_what_the_page_says(driver: Driver, topics: World) -> None:
    rows = [row for row in known() if any(map(row.covers, all_cells()))]
    cells = sample(rows)
    assert len(cells) >= len(rows) + len(CHANGING)
    seen = list(run(driver, topics, cells))
    assert [comparison.cell for comparison in seen] and len(seen) == len(cells)
    assert sum(any(comparison.built_in["rows"]) for comparison in seen) > len(cells) // 2, "nothing was read"
    check(seen, rows)


def test_what_is_written_differs_where_the_page_says_so(driver: Driver, topics: World) -> None:
    frames = all_writes()
    assert len(frames) >= 200
    rows = [row for row in known() if any(map(row.covers, frames))]
    chosen = {cell: frame for cell, frame in frames.items() if any(row.covers(cell) for row in rows)}
    chosen |= {cell: frame for cell, frame in frames.items() if cell.options in ALIKE}
    assert len(rows) >= 7 and len(chosen) >= len(rows) + len(ALIKE)
    seen = list(write(driver, topics, chosen))
    assert len(seen) == len(chosen) and sum(any(comparison.ours["rows"]) for comparison in seen) >= 5
    check(seen, rows)


def test_a_busy_broker_changes_no_outcome(driver: Driver, topics: World) -> None:
    """Spark's own sink does not wait for the records of `acks=0`, and its message for a missing topic has a cause only
    if the broker answers within `max.block.ms`, 5 s."""
    names = ("acks 0", "some topics null", "missing topic")
    rows = [row for row in known() if any(name in row.options for name in names)]
    chosen = {cell: frame for cell, frame in all_writes().items() if cell.options in names}
    with (
        topics.faults.delay("Produce", 4, times=None) as late,
        topics.faults.delay("Metadata", 6, times=None, topic="is-missing") as later,
    ):
        seen = list(write(driver, topics, chosen))
    assert len(seen) == 6 and late.hits >= 4 and later.hits >= 2
    check(seen, rows)


def test_a_difference_without_a_row_is_found_and_so_is_a_row_without_a_difference() -> None:
    none = {"errors": [], "schema": "", "rows": [], "tasks": [], "batches": []}
    refused = {**none, "errors": ["ConfigurationError: no"]}
    cell, other = Cell("plain", "batch", "a"), Cell("plain", "batch", "b")
    row = Known(7, ("plain",), ("*",), ("b",), "no rows", "refused", frozenset())
    differing = Seen(cell, none, refused)
    assert judge([differing], [row]) == ([differing], [])
    assert judge([Seen(other, none, refused)], [row]) == ([], [])
    assert judge([Seen(other, none, none)], [row])[1] == ["differences-from-spark.md, line 7: no cell shows it"]
    assert judge([Seen(other, refused, none)], [row])[1] != []  # the other way round is another difference


def test_a_failure_tells_all_of_each_unknown_cell() -> None:
    none: dict[str, Any] = {"errors": [], "schema": "", "rows": [], "tasks": [], "batches": []}
    some = {**none, "rows": [[[0, None, "v" * 5000]]]}
    refused = {**none, "errors": ["ConfigurationError: no\n" + "at line\n" * 500 + "because"]}
    cells = [Cell("a frame", "write", f"frame {number}") for number in range(30)]
    with pytest.raises(pytest.fail.Exception) as failed:
        check([Seen(cell, some, refused) for cell in cells], [])
    text = str(failed.value)
    assert all(text.count(f"unknown: {cell}: kind, rows\n") == 1 for cell in cells)
    assert text.count("Spark's own: rows\n") == text.count("here: refused\n") == 30
    assert text.count("v" * 5000) == text.count("because") == 30


def test_outcomes_are_kept_in_a_file(tmp_path: Path) -> None:
    none: dict[str, Any] = {"errors": [], "schema": "", "rows": [], "tasks": [], "batches": []}
    path, cells = tmp_path / "seen", [Cell("plain", "batch", name) for name in ("a", "b", "c")]
    assert seen_file.read(path, cells) == []
    seen = [Seen(cells[0], none, {**none, "errors": ["no\n"]}), Seen(cells[1], none, none, moving=True)]
    for comparison in seen:
        seen_file.append(path, comparison)
    with path.open("a") as file:
        file.write('{"cell": "plain / ba')  # a kill
    assert seen_file.read(path, cells) == seen
    seen_file.append(path, Seen(cells[2], none, none))
    assert [comparison.cell for comparison in seen_file.read(path, cells)] == cells
    assert seen_file.read(path, cells[1:2]) == seen[1:]


def test_a_run_that_is_interrupted_says_what_it_has_seen_and_goes_on(tmp_path: Path) -> None:
    """A terminal sends SIGINT to the program, its driver and all their processes."""
    try:
        built_in_connector.jars()
    except Unavailable as reason:
        pytest.skip(str(reason))
    cells = sorted(str(cell) for cell in all_cells() if str(cell).endswith("/ once / earliest"))
    path, reported = tmp_path / "seen", tmp_path / "told"
    command = [sys.executable, "-m", "tests.spark.differential", "--only", *cells, "--resume", str(path)]
    with reported.open("w") as output:
        program = subprocess.Popen(
            command, cwd=ROOT, env=environment(), stdout=output, stderr=output, start_new_session=True
        )
    try:
        until(lambda: path.exists() or program.poll() is not None, within_s=600)
        os.killpg(program.pid, signal.SIGINT)
        assert program.wait(120) == 130, reported.read_text()
        text, earlier = reported.read_text(), len(path.read_text().splitlines())
        assert 0 < earlier < len(cells) and "Traceback" not in text, text
        assert f"{earlier} of {len(cells)} cells" in text and "the same command runs the other cells" in text
    finally:
        program.kill()
    again = subprocess.run(command, check=False, cwd=ROOT, env=environment(), capture_output=True, text=True)
    assert again.returncode == 0, again.stdout + again.stderr
    assert re.search(rf"{len(cells)} of {len(cells)} cells .* without the {earlier} that ran earlier", again.stdout)
    assert sorted(str(comparison.cell) for comparison in seen_file.read(path, all_cells())) == cells
