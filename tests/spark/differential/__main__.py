"""Run all cells, or some of them, and print what differs.

Ctrl-C ends the run with a report of the cells until then. With `--resume FILE` the same command goes on afterwards.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from itertools import chain
from pathlib import Path

from tests.spark.copying import environment
from tests.spark.differential import seen_file
from tests.spark.differential.cases import Options
from tests.spark.differential.comparing import Cell, Seen
from tests.spark.differential.frames import Write
from tests.spark.differential.known import judge, known, report
from tests.spark.differential.running import Driver, all_cells, run
from tests.spark.differential.states import world
from tests.spark.differential.writes import all_writes, write
from tests.support.forked_python import forked_python

INTERRUPTED = 130  # as shells have it for Ctrl-C


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", default=[""], help="cells whose name contains one of these texts")
    parser.add_argument(
        "--resume",
        type=Path,
        metavar="FILE",
        help="add each cell's outcome to this file, and leave out the cells it has; begin a new one after a change",
    )
    asked = parser.parse_args()
    cells = {cell: options for cell, options in all_cells().items() if any(text in str(cell) for text in asked.only)}
    frames = {cell: frame for cell, frame in all_writes().items() if any(text in str(cell) for text in asked.only)}
    begun = time.monotonic()
    seen = seen_file.read(asked.resume, [*cells, *frames]) if asked.resume else []
    earlier, is_interrupted = len(seen), False
    for comparison in seen:
        _print_difference(comparison)
    try:
        with closing(_run({comparison.cell for comparison in seen}, cells, frames)) as running:
            for comparison in running:
                seen.append(comparison)
                _print_difference(comparison)
                if asked.resume:
                    seen_file.append(asked.resume, comparison)
    except KeyboardInterrupt:
        is_interrupted = True
    unknown, wrong = judge(seen, known())
    if is_interrupted:
        wrong = []  # a cell that did not run may show the row
    elif asked.only == [""]:
        wrong += [f"line {row.line} is about no cell" for row in known() if not any(map(row.covers, [*cells, *frames]))]
    print(_summary(seen, earlier, len(cells) + len(frames), time.monotonic() - begun))
    print(
        f"{sum(bool(comparison.aspects()) for comparison in seen)} differ, {len(unknown)} of them unknown to the page"
    )
    print(report(unknown, wrong))
    if is_interrupted:
        print("interrupted; the same command runs the other cells" if asked.resume else "interrupted")
        return INTERRUPTED
    return 1 if unknown or wrong or not seen else 0


def _run(done: set[Cell], cells: Mapping[Cell, Options], frames: Mapping[Cell, Write]) -> Generator[Seen]:
    """Run those that are not done."""
    reads = {cell: options for cell, options in cells.items() if cell not in done}
    writes = {cell: frame for cell, frame in frames.items() if cell not in done}
    if not reads and not writes:
        return
    with (
        world() as topics,
        tempfile.TemporaryDirectory(prefix="fencepost-beside-") as folder,
        forked_python(environment()) as python,
        Driver(python.path, Path(folder)) as driver,
    ):
        yield from chain(run(driver, topics, reads), write(driver, topics, writes))


def _print_difference(comparison: Seen) -> None:
    if comparison.aspects():
        print(f"{comparison.cell}: {', '.join(comparison.aspects())}: {' | '.join(comparison.kinds)}", flush=True)


def _summary(seen: Sequence[Seen], earlier: int, asked: int, seconds: float) -> str:
    states = Counter(comparison.cell.state for comparison in seen)
    text = f"{len(seen)} of {asked} cells in {len(states)} states, {seconds:.0f} s"
    return text + (f" without the {earlier} that ran earlier" if earlier else "")


if __name__ == "__main__":
    sys.exit(main())
