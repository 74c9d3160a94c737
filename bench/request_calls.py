"""Calls and processor time of the broker's core per request: `python -m bench.request_calls [OTHER/src ...]`.

The core runs in a process of its own on a disk in memory, without sockets, for this source tree and each other one in
turns. Printed are, by row of `hot_requests`: the calls of Python and builtin functions (cProfile), and the median of
the rounds' processor times in us, of one unit. `--profile ROW` prints the functions of a row by their own time instead.
"""

from __future__ import annotations

import argparse
import cProfile
import itertools
import json
import os
import pstats
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import fencepost
from bench.hot_requests import ROWS, Frames
from fencepost.broker.core import BrokerCore
from fencepost.broker.disk.changes import Write
from fencepost.broker.effects import Failed, Reply
from fencepost.broker.settings.values import BrokerConfig
from fencepost_lab.check.disk import MemoryDisk

CONNECTIONS = 2
WARM_UP = 10
COUNTED = 200
SLICE = 20
"""Units that are timed together. The lower quartile of their times counts, because other work disturbs some."""
MOST_SHOWN = 45


class OwnCore:
    """A core that is driven as the server drives it."""

    def __init__(self) -> None:
        uuids = itertools.count(1)
        config = BrokerConfig({"fsync": "never", "group.initial.rebalance.delay.ms": 0})
        self.core = BrokerCore(
            MemoryDisk(durable=False),
            config,
            new_uuid=lambda: UUID(int=next(uuids)),
            steady_ms=lambda: int(time.monotonic() * 1_000),
        )
        self.core.open(now_ms())
        for connection in range(CONNECTIONS):
            self.core.connected(now_ms(), connection, ("127.0.0.1", 9092), ("127.0.0.1", 50_000 + connection))
        self._answers: list[bytes] = []

    def send(self, connection: int, frame: bytes) -> None:
        """Handle one frame, and the work behind its answer."""
        self.core.handle_frame(now_ms(), connection, memoryview(frame)[4:])
        self._perform()
        if self.core.follow_up():
            self._perform()

    def ask(self, frame: bytes) -> bytes:
        """The answer, without its size."""
        self._answers = []
        self.send(0, frame)
        self._wait(1)
        return self._answers[0][4:]

    def _perform(self) -> None:
        for effect in self.core.take_effects():
            if isinstance(effect, Reply):
                self._answers.append(b"".join(effect.buffers))
            elif isinstance(effect, Failed):
                raise effect.error
            elif isinstance(effect, Write):
                effect.step()
                self.core.written(now_ms(), effect.token, None)

    def run(self, units: Frames) -> None:
        """Send all, each unit when the one before is answered."""
        for unit in units:
            self._answers = []
            for connection, frame in unit:
                self.send(connection, frame)
            self._wait(len(unit))

    def _wait(self, answers: int) -> None:
        while len(self._answers) < answers:
            self.core.on_time(now_ms())
            self._perform()


def now_ms() -> int:
    """The time of the clock."""
    return int(time.time() * 1_000)


def measure(name: str, count: int) -> tuple[float, float]:
    """Us and calls of one unit."""
    own = OwnCore()
    units = ROWS[name].frames(own.ask, count + COUNTED)
    measured = units[: max(len(units) - COUNTED, len(units) // 2)]
    skipped = len(measured) // WARM_UP
    own.run(measured[:skipped])
    took_us = []
    for slices in _slices(measured[skipped:]):
        began = time.thread_time()
        own.run(slices)
        took_us.append((time.thread_time() - began) * 1e6 / len(slices))
    rest = units[len(measured) :]
    profile = profiled(own, rest)
    quartile = sorted(took_us)[len(took_us) // 4]
    return quartile, pstats.Stats(profile).total_calls / len(rest)  # type: ignore[attr-defined]


def _slices(units: Frames) -> Iterator[Frames]:
    return (units[start : start + SLICE] for start in range(0, len(units), SLICE))


def profiled(own: OwnCore, units: Frames) -> cProfile.Profile:
    """The profile of these."""
    profile = cProfile.Profile()
    profile.enable()
    own.run(units)
    profile.disable()
    return profile


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", nargs="*", help="other source trees")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=2_000)
    parser.add_argument("--rows", nargs="*", choices=ROWS, default=list(ROWS), metavar="ROW")
    parser.add_argument("--profile", choices=ROWS, metavar="ROW")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.profile:
        own = OwnCore()
        units = ROWS[given.profile].frames(own.ask, given.requests)
        own.run(units[: len(units) // 2])
        shown = pstats.Stats(profiled(own, units[len(units) // 2 :]))
        shown.sort_stats("tottime").print_stats(MOST_SHOWN)
    elif given.one:
        json.dump({name: measure(name, given.requests) for name in given.rows}, sys.stdout)
    else:
        compare([str(Path(fencepost.__file__).parents[1]), *given.sources], given)


def compare(trees: list[str], given: argparse.Namespace) -> None:
    """Run all trees in turns."""
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for number in range(given.rounds):
        for tree in trees if number % 2 == 0 else reversed(trees):
            command = [sys.executable, "-m", "bench.request_calls", "--one", "--requests", str(given.requests)]
            environment = {**os.environ, "PYTHONPATH": tree}
            reported = subprocess.run(
                [*command, "--rows", *given.rows], env=environment, check=True, stdout=subprocess.PIPE
            ).stdout
            for name, measured in json.loads(reported).items():
                found.setdefault((name, tree), []).append(measured)
    for name in given.rows:
        for tree in trees:
            times, calls = zip(*found[name, tree], strict=True)
            spread = f"({min(times):.1f} to {max(times):.1f})"
            print(f"{name}, {tree}: {statistics.median(times):.1f} us {spread}, {statistics.median(calls):.0f} calls")


if __name__ == "__main__":
    main()
