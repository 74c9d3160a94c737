"""Damage to every byte of every file of a small data directory, one place at a time, and the steps that follow.

A case is a directory as a clean stop or a kill left it, a file, a byte, a kind of damage, a way of stopping and the
step that meets the damage first. The broker starts, reads, compacts, applies retention and starts again. Then `repair`
looks, accepts and looks again, and the broker starts once more. The rule: everything that was readable and was not hit
stays readable, no record appears at another offset or in the place of another, an error names every loss, nothing ends
the broker, and repair is done after one run and destroys nothing.

    python -m tests.support.damage_campaign [--share 0.05] [--seed 1] [--image killed] [--file keys-0]
    python -m tests.support.damage_campaign --minutes 30 --resume .soak-damage
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from uuid import UUID

from fencepost.broker.settings.values import BrokerConfig
from fencepost.broker.topics.repair import DAMAGED, repair
from fencepost_lab.check.disk import MemoryDisk
from tests.support.broker_driver import BrokerDriver
from tests.support.damage_cases import Case, cases, hit_of, ordered
from tests.support.damage_judge import Judge, written_in
from tests.support.damage_world import CONFIG, TOPICS, View, disk_of, images, look, retain

__all__ = ["Campaign", "Case", "cases", "ordered", "run"]

_STEPS = {
    "fetch": ("start", "look", "compact", "look", "again", "look", "repair", "start", "retain", "look", "produce"),
    "compact": ("start", "compact", "look", "again", "look", "repair", "start", "look", "retain", "again", "produce"),
    "retain": ("start", "retain", "look", "compact", "again", "look", "repair", "start", "look", "produce"),
    "repair": ("repair", "start", "look", "retain", "compact", "look", "again", "look", "repair", "start", "produce"),
}
"""By route. Retention comes behind repair where it would take away the damage that repair is to meet."""


class Campaign:
    """Runs cases against the directories and judges them."""

    def __init__(self, found: Mapping[str, Mapping[str, bytes]]) -> None:
        self.images = found
        self._views = {name: look(BrokerDriver(CONFIG, disk_of(files))) for name, files in found.items()}
        self._retained = {name: _retained(files) for name, files in found.items()}
        self._written = {name: written_in(files) for name, files in found.items()}
        self.counts: Counter[str] = Counter()

    def run(self, case: Case) -> list[str]:
        """Return what breaks the rule."""
        files = self.images[case.image]
        damaged = case.applied(files[case.path])
        if damaged is None:
            return []
        view = self._views[case.image]
        there = [name for name in TOPICS if name in view.ends]
        topics = there if case.topic not in TOPICS else (case.topic, next(name for name in there if name != case.topic))
        hit = hit_of(case, files[case.path])
        judge = Judge(view, self._retained[case.image], self._written[case.image], case, hit, topics)
        self.counts[f"{case.image} {case.kind}"] += 1
        self.counts[f"{case.route} first, then {case.stop}"] += 1
        return _Life(disk_of({**files, case.path: damaged}), case, judge, topics).wrong()


class _Life:
    """One case: the steps of its route over its directory, with the judge's word on each."""

    def __init__(self, disk: MemoryDisk, case: Case, judge: Judge, topics: Sequence[str]) -> None:
        self._disk = disk
        self._case = case
        self._judge = judge
        self._topics = topics
        self._driver: BrokerDriver
        self._done: list[str] = []
        self._wrong: list[str] = []

    def wrong(self) -> list[str]:
        """Run the steps; return what breaks the rule."""
        steps: dict[str, Callable[[], None]] = {
            "start": self._start,
            "look": self._look,
            "compact": self._compact,
            "retain": self._retain,
            "again": self._again,
            "repair": self._repair,
            "produce": lambda: self._wrong.extend(self._judge.produce(self._driver)),
        }
        for step in _STEPS[self._case.route]:
            self._done.append(step)
            try:
                steps[step]()
            except Exception as error:  # noqa: BLE001 - it is a finding
                where = traceback.extract_tb(error.__traceback__)[-1]
                text = f"{type(error).__name__}: {error} ({where.filename.rpartition('/')[2]}:{where.lineno})"
                return [*self._wrong, f"{', '.join(self._done)}: {text}"]
        return self._wrong

    def _start(self) -> None:
        self._driver = BrokerDriver(CONFIG, self._disk)

    def _look(self) -> None:
        self._wrong += self._judge.judge(", ".join(self._done), look(self._driver, self._topics))

    def _compact(self) -> None:
        self._driver.housekeep()
        self._driver.pass_time(20)

    def _retain(self) -> None:
        self._judge.is_retained = True
        retain(self._driver, self._topics)

    def _again(self) -> None:
        """Stop or kill the broker and start it anew."""
        if self._case.stop == "stop":
            self._driver.core.close()
        self._disk.kill()
        self._start()

    def _repair(self) -> None:
        """Look for damage, accept it, look again and accept again; nothing is left to do the second time."""
        self._disk.kill()
        gaps = _repaired(self._disk, accept=False)
        before = self._disk.tree("")
        _repaired(self._disk, accept=True)
        self._judge.accepted = True
        self._wrong += _copies(before, self._disk, gaps)
        if left := _repaired(self._disk, accept=False):
            self._wrong.append(f"repair again: still finds {left}")
        copies = _damaged_files(self._disk)
        _repaired(self._disk, accept=True)
        if _damaged_files(self._disk) != copies:
            found = sorted(_damaged_files(self._disk))
            self._wrong.append(f"repair again: copies changed from {sorted(copies)} to {found}")


def _retained(files: Mapping[str, bytes]) -> View:
    driver = BrokerDriver(CONFIG, disk_of(files))
    retain(driver, TOPICS)
    return look(driver)


def _repaired(disk: MemoryDisk, *, accept: bool) -> list[tuple[str, int, int, int]]:
    found = list(repair(disk, BrokerConfig(CONFIG), lambda: UUID(int=99), 1_700_000_000_000, accept=accept))
    disk.kill()
    return [(each.topic, each.partition, *each.gap[:2]) for each in found]


def _damaged_files(disk: MemoryDisk) -> dict[str, bytes]:
    return {path: data for path, data in disk.tree("").items() if DAMAGED in path}


def _copies(before: Mapping[str, bytes], disk: MemoryDisk, gaps: Sequence[tuple[str, int, int, int]]) -> Iterator[str]:
    """Yield the log files of damaged partitions that have changed, and of which no copy is kept."""
    after = disk.tree("")
    for path in before:
        if DAMAGED in path and after.get(path) != before[path]:
            yield f"repair: {path} is gone"
    for topic in {gap[0] for gap in gaps}:
        for path, data in before.items():
            if path.startswith(f"{topic}-0/") and path.endswith(".log") and data and after.get(path) != data:
                copies = [other for other in after if other.startswith(path + DAMAGED) and after[other] == data]
                if not copies and not after.get(path, b"").startswith(data):
                    yield f"repair: {path} has changed and no copy of it is kept"


def run(chosen: Sequence[Case], campaign: Campaign, *, shown: int = 50) -> int:
    """Run the cases and print those that break the rule; return their number."""
    failed = 0
    for case in chosen:
        wrong = campaign.run(case)
        if wrong:
            failed += 1
            if failed <= shown:
                sys.stdout.write(f"{case}\n" + "".join(f"    {text}\n" for text in wrong[:4]))
                sys.stdout.flush()
    return failed


_PIECE = 200


def _from(options: argparse.Namespace, count: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of cases until the time is over or all are done, and note the end of each one that is done."""
    first = options.first
    if options.resume is not None and options.resume.exists():
        first = int(options.resume.read_text())
    first = first if first < count else 0
    until = None if options.minutes is None else time.monotonic() + 60 * options.minutes
    while first < count and (until is None or time.monotonic() < until):
        last = min(first + _PIECE, count)
        yield first, last
        first = last
        if options.resume is not None:
            options.resume.write_text(f"{first}\n")


def main() -> None:
    """Run all cases, a share of them, or as many as fit into the time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--share", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--image", default="")
    parser.add_argument("--file", default="")
    parser.add_argument("--part", default="0/1", help="which part of so many, to run several processes")
    parser.add_argument("--first", type=int, default=0, help="the number of the first case")
    parser.add_argument("--minutes", type=float, help="begin no 200 cases after so long")
    parser.add_argument("--resume", type=Path, help="begin with the case written here, and write the next one")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    campaign = Campaign(found := images())
    part, parts = map(int, options.part.split("/"))
    rng = random.Random(options.seed)
    chosen = [
        case
        for case in ordered(cases(found, rng, options.share), rng)
        if case.image.startswith(options.image) and options.file in case.path
    ][part::parts]
    began = time.monotonic()
    failed = count = 0
    met: set[tuple[str, ...]] = set()
    for first, last in _from(options, len(chosen)):
        failed += run(chosen[first:last], campaign)
        count += last - first
        met.update(case.stratum for case in chosen[first:last])
        sys.stdout.write(f"{last} of {len(chosen)}: {failed} of {count} against the rule\n")
        sys.stdout.flush()
    for what, number in sorted(campaign.counts.items()):
        sys.stdout.write(f"{number:8} {what}\n")
    strata = len({case.stratum for case in chosen})
    sys.stdout.write(f"{count} of {len(chosen)} cases in {time.monotonic() - began:.0f} s, {failed} against the rule; ")
    sys.stdout.write(f"{len(met)} of {strata} combinations of file, damage, stop and first step met\n")
    raise SystemExit(failed > 0)


if __name__ == "__main__":
    main()
