"""Number of simulated runs that find each planted defect: `python -m tests.support.plants_table [--write] [NAME ...]`.

Prints the rows of the table in docs/check.md. With `--write` it puts them there. Rows of other names stay as they are,
so that the table can be written in pieces.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from statistics import median
from typing import NamedTuple

from fencepost_lab.check.options import Profile
from fencepost_lab.check.plants import PLANTS, Plant, planted
from fencepost_lab.check.simulations import SIMULATIONS

DOCUMENT = Path(__file__).parents[2] / "docs" / "check.md"
HEAD = "| defect | effect | fixed options | checks that find it | runs | CPU s |"
RULE = "|---|---|---|---|---|---|"


class Found(NamedTuple):
    """`runs` until one showed anomalies, of these `checks`."""

    runs: int
    cpu_s: float
    checks: frozenset[str]


def find(plant: Plant, seeds: Iterable[int], wanted: str | None = None) -> Found | None:
    """Run the plant's world with it until a check complains, `wanted` if given, that does not without it. None: none
    did. Raises AssertionError when the world without the plant is not clean: then nobody knows what was found."""
    simulation = next(candidate for candidate in SIMULATIONS if candidate.name == plant.world)
    cpu_s = 0.0
    for runs, seed in enumerate(seeds, 1):
        options = simulation.changed(simulation.draw(seed, Profile.SWARM), plant.options)
        began = time.process_time()
        with planted(plant.name):
            checks = frozenset(simulation.run(seed, options).checks)
        cpu_s += time.process_time() - began
        if wanted in checks or (wanted is None and checks):
            sound = simulation.run(seed, options)
            if sound.anomalies:
                raise AssertionError(f"{plant.name}: seed {seed} without it: {sound.anomalies[0]}")
            return Found(runs, cpu_s, checks)
    return None


def row(plant: Plant, times: int, most: int) -> str:
    """A line of the table: medians of `times` searches, each of at most `most` runs from a seed of its own."""
    searches = [find(plant, range(1 + 1_000 * number, 1 + 1_000 * number + most)) for number in range(times)]
    found = [search for search in searches if search is not None]
    runs, cpu_s, who = f"more than {most}", "", "nobody"
    if len(found) > times // 2:
        runs = f"{median(search.runs if search is not None else most for search in searches):g}"
        cpu_s = f"{median(search.cpu_s for search in found):.1f}"
    if found:
        who = ", ".join(
            f"`{check}`" for check, _ in Counter(c for search in found for c in sorted(search.checks)).most_common(2)
        )
    given = ", ".join(f"`{option}`" for option in plant.options)
    return f"| `{plant.name}` | {plant.summary} | {given} | {who} | {runs} | {cpu_s} |"


def rows_of(text: str) -> dict[str, str]:
    """The rows of a document by the names of their defects."""
    _, _, behind = text.partition(f"{HEAD}\n{RULE}\n")
    lines = [line for line in behind.partition("\n\n")[0].splitlines() if line.startswith("| `")]
    return {line.split("`")[1]: line for line in lines}


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description="How soon the simulator finds each planted defect.")
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--times", type=int, default=3, help="searches, whose medians are told")
    parser.add_argument("--runs", type=int, default=60, help="the most runs of a search")
    parser.add_argument("--write", action="store_true", help="put the rows into docs/check.md")
    given = parser.parse_args()
    logging.disable(logging.CRITICAL)
    for name in given.names or PLANTS:
        line = row(PLANTS[name], given.times, given.runs)
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
        if given.write:
            _write(name, line)


def _write(name: str, line: str) -> None:
    text = DOCUMENT.read_text()
    known = {**rows_of(text), name: line}
    before, _, behind = text.partition(f"{HEAD}\n{RULE}\n")
    rest = behind.partition("\n\n")[2]
    rows = "\n".join(known[plant_name] for plant_name in PLANTS if plant_name in known)
    DOCUMENT.write_text(f"{before}{HEAD}\n{RULE}\n{rows}\n\n{rest}")


if __name__ == "__main__":
    main()
