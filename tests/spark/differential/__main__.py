"""Run all cells, or some of them, and print what differs."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from itertools import chain
from pathlib import Path

from tests.spark.copying import environment
from tests.spark.differential.known import judge, known, report
from tests.spark.differential.running import Driver, all_cells, run
from tests.spark.differential.states import world
from tests.spark.differential.writes import all_writes, write
from tests.support.forked_python import forked_python


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", default=[""], help="cells whose name contains one of these texts")
    parser.add_argument("--save", type=Path, help="a file for all that was seen, as JSON lines")
    asked = parser.parse_args()
    cells = {cell: options for cell, options in all_cells().items() if any(text in str(cell) for text in asked.only)}
    frames = {cell: frame for cell, frame in all_writes().items() if any(text in str(cell) for text in asked.only)}
    begun, seen = time.monotonic(), []
    with (
        world() as topics,
        tempfile.TemporaryDirectory(prefix="fencepost-beside-") as folder,
        forked_python(environment()) as python,
        Driver(python.path, Path(folder)) as driver,
    ):
        for one in chain(run(driver, topics, cells), write(driver, topics, frames)):
            seen.append(one)
            if one.aspects():
                print(f"{one.cell}: {', '.join(one.aspects())}: {' | '.join(one.kinds)}", flush=True)
            if asked.save:
                with asked.save.open("a") as file:
                    print(json.dumps([str(one.cell), one.aspects(), one.built_in, one.ours]), file=file)
    unknown, wrong = judge(seen, known())
    if asked.only == [""]:
        wrong += [f"line {row.line} is about no cell" for row in known() if not any(map(row.covers, [*cells, *frames]))]
    states = Counter(one.cell.state for one in seen)
    print(f"{len(seen)} cells in {len(states)} states, {time.monotonic() - begun:.0f} s")
    print(f"{sum(bool(one.aspects()) for one in seen)} differ, {len(unknown)} of them unknown to the page")
    print(report(unknown, wrong))
    return 1 if unknown or wrong or not seen else 0


if __name__ == "__main__":
    sys.exit(main())
