"""Damage to every byte of every file of a small data directory, one place at a time, and the judge of what follows.

A case is a directory as a clean stop or a kill left it, a file, a byte and a kind of damage. The broker starts, reads,
compacts, applies retention and starts again; then `repair` looks, accepts and looks again, and the broker starts once
more. The rule: everything that was readable and was not hit stays readable, no record appears at another offset or in
the place of another, every loss is told by an error, nothing ends the broker, and repair is done after one run and
destroys nothing.

    python -m tests.support.damage_campaign [--share 0.05] [--seed 1] [--image killed] [--file keys-0]
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from fencepost.broker.settings.values import BrokerConfig
from fencepost.broker.topics.catalogue import is_internal
from fencepost.broker.topics.repair import DAMAGED, repair
from fencepost.check.disk import MemoryDisk
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.records.batch import iter_batches
from fencepost.protocol.records.walk import records_of
from tests.support.batches import batch
from tests.support.broker_driver import BrokerDriver, produce
from tests.support.damage_world import COMPACTED, CONFIG, TOPICS, View, disk_of, images, look

__all__ = ["Campaign", "Case", "cases", "run"]

Record = tuple[bytes | None, bytes | None]
_ABOUT = {
    "compacted": "keys-0/",
    "scanned": "paid-0/",
    "announced": "keys-0/",
    "cleaned": "keys-0/",
    "doomed": "-delete/",
}
"""What is damaged in a directory that differs from another one in that only."""
KINDS = ("flip", "zero", "cut", "double")


class Case(NamedTuple):
    """One place of one file of one directory, and what becomes of it. `bit` is used by "flip" only."""

    image: str
    path: str
    byte: int
    kind: str
    bit: int = 0

    def applied(self, data: bytes) -> bytes | None:
        """The damaged file; None when this kind changes nothing there."""
        at = self.byte
        if self.kind == "flip":
            return data[:at] + bytes([data[at] ^ (1 << self.bit)]) + data[at + 1 :]
        if self.kind == "zero":
            return data[:at] + b"\0" + data[at + 1 :] if data[at] else None
        if self.kind == "cut":
            return data[:at]
        return data[: at + 1] + data[at : at + 1] + data[at + 1 :]

    @property
    def topic(self) -> str:
        """The topic whose partition the file belongs to; empty for the files beside them."""
        directory = self.path.rpartition("/")[0]
        return directory.rpartition("-")[0] if not directory.endswith("-delete") else ""


class Hit(NamedTuple):
    """What a case destroys: offsets of its topic, and whether a marker is among them."""

    offsets: frozenset[int]
    marker: bool = False


def cases(found: Mapping[str, Mapping[str, bytes]], rng: random.Random, share: float = 1.0) -> Iterator[Case]:
    """A case for each byte of each log and each kind of damage, and one for each byte of each other file. One bit of
    each byte flips. Of the directories in which a kill interrupted something, only what that was about is damaged."""
    for image, files in found.items():
        about = _ABOUT.get(image, "")
        for path, data in sorted(files.items()):
            for byte in range(len(data) if about in path else 0):
                for kind in KINDS if ".log" in path else (rng.choice(KINDS),):
                    case = Case(image, path, byte, kind, rng.randrange(8))
                    if (share >= 1 or rng.random() < share) and case.applied(data) is not None:
                        yield case


class Campaign:
    """Runs cases against the directories and judges them."""

    def __init__(self, found: Mapping[str, Mapping[str, bytes]]) -> None:
        self.images = found
        self._views = {name: look(BrokerDriver(CONFIG, disk_of(files))) for name, files in found.items()}
        self._written = {name: _written(files) for name, files in found.items()}
        self.counts: Counter[str] = Counter()

    def run(self, case: Case) -> list[str]:
        """What is against the rule."""
        files = self.images[case.image]
        damaged = case.applied(files[case.path])
        if damaged is None:
            return []
        disk = disk_of({**files, case.path: damaged})
        hit = _hit(case, files[case.path])
        there = [name for name in TOPICS if name in self._views[case.image].ends]
        topics = there if case.topic not in TOPICS else (case.topic, next(name for name in there if name != case.topic))
        self.counts[f"{case.image} {case.kind}"] += 1
        wrong: list[str] = []
        step = "start"
        try:
            driver = BrokerDriver(CONFIG, disk)
            judge = Judge(self._views[case.image], self._written[case.image], case, hit, topics)
            step = "fetch"
            wrong += judge.judge(step, look(driver, topics))
            step = "compaction and retention"
            driver.core.housekeep(driver.now_ms)
            driver.pass_time(20)
            wrong += judge.judge(step, look(driver, topics))
            step = "stop" if case.byte % 2 else "kill"
            if case.byte % 2:
                driver.core.close()
            disk.kill()
            step += " and start"
            driver = BrokerDriver(CONFIG, disk)
            wrong += judge.judge(step, look(driver, topics))
            disk.kill()
            step = "repair"
            gaps = _repair(disk, accept=False)
            before = disk.tree("")
            step = "repair --accept"
            _repair(disk, accept=True)
            wrong += _copies(before, disk, gaps)
            step = "repair again"
            if left := _repair(disk, accept=False):
                wrong.append(f"{step}: still finds {left}")
            copies = _damaged_files(disk)
            _repair(disk, accept=True)
            if _damaged_files(disk) != copies:
                wrong.append(f"{step}: copies changed from {sorted(copies)} to {sorted(_damaged_files(disk))}")
            step = "start after repair"
            driver = BrokerDriver(CONFIG, disk)
            wrong += judge.judge(step, look(driver, topics), accepted=True)
            step = "produce"
            wrong += judge.produce(driver)
        except Exception as error:  # noqa: BLE001 - it is a finding
            where = traceback.extract_tb(error.__traceback__)[-1]
            wrong.append(
                f"{step}: {type(error).__name__}: {error} ({where.filename.rpartition('/')[2]}:{where.lineno})"
            )
        return wrong


def _repair(disk: MemoryDisk, *, accept: bool) -> list[tuple[str, int, int, int]]:
    found = list(repair(disk, BrokerConfig(CONFIG), lambda: UUID(int=99), 1_700_000_000_000, accept=accept))
    disk.kill()
    return [(each.topic, each.partition, *each.gap[:2]) for each in found]


def _damaged_files(disk: MemoryDisk) -> dict[str, bytes]:
    return {path: data for path, data in disk.tree("").items() if DAMAGED in path}


def _copies(before: Mapping[str, bytes], disk: MemoryDisk, gaps: Sequence[tuple[str, int, int, int]]) -> list[str]:
    """Each log file of a damaged partition that has changed is kept as it was."""
    after = disk.tree("")
    wrong = [f"repair: {path} is gone" for path in before if DAMAGED in path and after.get(path) != before[path]]
    for topic in {gap[0] for gap in gaps}:
        for path, data in before.items():
            if path.startswith(f"{topic}-0/") and path.endswith(".log") and data and after.get(path) != data:
                kept = [other for other in after if other.startswith(path + DAMAGED) and after[other] == data]
                if not kept and not after.get(path, b"").startswith(data):
                    wrong.append(f"repair: {path} has changed and no copy of it is kept")
    return wrong


def _written(files: Mapping[str, bytes]) -> dict[tuple[str, int], Record]:
    """Every record in the files of logs, also of those that are about to be replaced."""
    found: dict[tuple[str, int], Record] = {}
    for path, data in files.items():
        if path.endswith(".log"):
            topic = path.rpartition("/")[0].rpartition("-")[0]
            for header, view in iter_batches(data):
                for record in records_of(header, view):
                    found[topic, record.offset] = (None, None) if header.is_control else (record.key, record.value)
    return found


def _hit(case: Case, data: bytes) -> Hit:
    """The batches that the damage touches."""
    if not case.path.endswith((".log", ".log.swap")):
        return Hit(frozenset())
    position, offsets, marker = 0, set[int](), False
    for header, view in iter_batches(data):
        end = position + len(view)
        if end > case.byte and (position <= case.byte or case.kind == "cut"):
            offsets.update(range(header.base_offset, header.last_offset + 1))
            marker = marker or header.is_control
        position = end
    return Hit(frozenset(offsets), marker)


class Judge:
    """Compares what is read with what was readable before the damage."""

    def __init__(
        self, before: View, written: Mapping[tuple[str, int], Record], case: Case, hit: Hit, topics: Sequence[str]
    ) -> None:
        self._before = before
        self._written = written
        self._case = case
        self._hit = hit
        self._topics = topics

    def judge(self, step: str, view: View, *, accepted: bool = False) -> list[str]:
        """What is against the rule. `accepted`: repair has accepted the loss, so no reader meets an error."""
        wrong = [*self._records(view, accepted), *self._committed(view, accepted), *self._others(view, accepted)]
        return [f"{step}: {text}" for text in wrong]

    def _is_hit(self, topic: str, offset: int) -> bool:
        return topic == self._case.topic and offset in self._hit.offsets

    def _records(self, view: View, accepted: bool) -> Iterator[str]:
        for (topic, offset), was in self._before.records.items():
            if topic not in self._topics:
                continue
            now = view.records.get((topic, offset))
            if now == was:
                continue
            if now is None and topic in COMPACTED and self._is_superseded(view, offset, was):
                continue
            if self._is_hit(topic, offset) and ((accepted and now is None) or isinstance(now, int)):
                continue
            yield f"{topic} offset {offset}: {was!r} was readable, now {now!r}"
        for place, now in view.records.items():
            topic, offset = place
            is_known = place in self._before.records or isinstance(now, int) or self._written.get(place) == now
            is_marker = now == (None, None) and offset >= self._before.ends[topic][2]  # of what is ended now
            if not is_known and not (is_marker and self._hit.offsets):
                yield f"{place}: {now!r} was not there before"
            if isinstance(now, int) and (accepted or now != ErrorCode.CORRUPT_MESSAGE):
                yield f"{place}: error {now}"

    @staticmethod
    def _is_superseded(view: View, offset: int, was: tuple[bytes | None, bytes | None] | int) -> bool:
        later = (now for (topic, at), now in view.records.items() if topic in COMPACTED and at > offset)
        return any(not isinstance(now, int) and not isinstance(was, int) and now[0] == was[0] for now in later)

    def _committed(self, view: View, accepted: bool) -> Iterator[str]:
        for place, value in view.committed.items():
            was = self._written.get(place) if place[0] in COMPACTED else (None, self._before.committed.get(place))
            if was is None or was[1] != value:
                yield f"{place}: {value!r} was not committed, and is read as committed"
        for place in self._before.committed:
            topic, offset = place
            if topic not in self._topics or place in view.committed or self._is_hit(topic, offset):
                continue
            if topic in COMPACTED or (topic == self._case.topic and self._hit.marker):
                continue
            yield f"{place}: it was committed, and is not read as committed"

    def _others(self, view: View, accepted: bool) -> Iterator[str]:
        for topic, (start, stable, end) in self._before.ends.items():
            if topic in self._topics and topic in view.ends:
                found = view.ends[topic]
                is_same = found == (start, stable, end)
                if not is_same and (found[0] != start or found[2] < end or not self._hit.offsets):
                    yield f"{topic}: start, stable and end offset {(start, stable, end)}, now {found}"
            elif topic in self._topics:
                yield f"{topic} is gone"
        for (topic, timestamp), was in self._before.times.items():
            if topic in self._topics and topic not in COMPACTED and topic != "open":
                now = view.times.get((topic, timestamp))
                may_differ = topic == self._case.topic and self._hit.offsets
                if now != was and not (may_differ and (now is not None and (now[0] or self._is_hit(topic, was[1])))):
                    yield f"{topic} at time {timestamp}: {was}, now {now}"
        internal = self._case.topic if is_internal(self._case.topic) and self._hit.offsets else ""
        answers: list[tuple[str, Mapping[str, tuple[int, object]], Mapping[str, tuple[int, object]]]] = [
            ("__consumer_offsets", self._before.offsets, view.offsets),
            ("__transaction_state", self._before.states, view.states),
        ]
        for topic, before, after in answers:
            for name, answer in before.items():
                told = after.get(name, (0, None))
                if told != answer and not (internal == topic and (accepted or told[0])):
                    yield f"what {topic} says of {name}: {answer}, now {told}"

    def produce(self, driver: BrokerDriver) -> Iterator[str]:
        """A record to each topic: it gets an offset that nobody had."""
        for topic in self._topics:
            answer = driver.ask(produce(topic, batch(b"new")), 9).partitions[0]
            if topic == "keys":
                if answer.error_code != ErrorCode.INVALID_RECORD:
                    yield f"produce to {topic}: {answer}"
            elif answer.error_code or answer.base_offset < self._before.ends[topic][2]:
                yield f"produce to {topic}: {answer}"


def run(chosen: Sequence[Case], campaign: Campaign, *, told: int = 50) -> int:
    """Run the cases, print what is wrong; returns how many cases are."""
    failed = 0
    for case in chosen:
        wrong = campaign.run(case)
        if wrong:
            failed += 1
            if failed <= told:
                sys.stdout.write(f"{case}\n" + "".join(f"    {text}\n" for text in wrong[:4]))
                sys.stdout.flush()
    return failed


def main() -> None:
    """Run all cases, or a share of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--share", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--image", default="")
    parser.add_argument("--file", default="")
    parser.add_argument("--part", default="0/1", help="which part of so many, to run several processes")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    campaign = Campaign(found := images())
    part, parts = map(int, options.part.split("/"))
    chosen = [
        case
        for case in cases(found, random.Random(options.seed), options.share)
        if case.image.startswith(options.image) and options.file in case.path
    ][part::parts]
    began = time.monotonic()
    failed = run(chosen, campaign)
    for what, count in sorted(campaign.counts.items()):
        sys.stdout.write(f"{count:8} {what}\n")
    sys.stdout.write(f"{len(chosen)} cases in {time.monotonic() - began:.0f} s, {failed} against the rule\n")
    raise SystemExit(failed > 0)


if __name__ == "__main__":
    main()
