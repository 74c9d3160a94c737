"""Processor time of a broker per request: `python -m bench.request_time [OTHER/src ...] [--rounds 5] [--rows ROW ...]`.

The broker of this source tree, and of each other one that is named, in turns. One connection keeps five units of a row
of `hot_requests` under way. Printed are, by row, the medians of the rounds in us of the broker's processor time per
unit. `request_calls` measures the core alone.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
from collections.abc import Iterator
from pathlib import Path

import psutil

import fencepost
from bench.common import OwnBroker, RawConnection, own_broker
from bench.hot_requests import ROWS, Row, ask_in_turn

WARM_UP = 10
"""The part of the units that comes before the measured ones: one of so many."""


def measure(broker: OwnBroker, row: Row, count: int) -> float:
    """Us of the broker's processor time per unit."""
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(RawConnection(broker.servers)) for _ in range(2)]

        def ask(frame: bytes) -> bytes:
            connections[0].send(frame)
            return connections[0].answer()

        units = row.frames(ask, count)
        skipped = len(units) // WARM_UP
        process = psutil.Process(broker.pid)
        ask_in_turn(connections, units[:skipped], row.in_flight)
        began = process.cpu_times()
        ask_in_turn(connections, units[skipped:], row.in_flight)
        ended = process.cpu_times()
    took_s = ended.user + ended.system - began.user - began.system
    return took_s * 1e6 / (len(units) - skipped)


@contextlib.contextmanager
def sources(directory: str) -> Iterator[None]:
    """Start brokers from these sources."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = directory
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", nargs="*", help="other source trees")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--rows", nargs="*", choices=ROWS, default=list(ROWS), metavar="ROW")
    given = parser.parse_args()
    trees = [str(Path(fencepost.__file__).parents[1]), *given.sources]
    found: dict[tuple[str, str], list[float]] = {}
    for number in range(given.rounds):
        for tree in trees if number % 2 == 0 else reversed(trees):
            with sources(tree), own_broker() as broker:
                for name in given.rows:
                    took_us = measure(broker, ROWS[name], given.requests)
                    found.setdefault((name, tree), []).append(took_us)
    for (name, tree), took in sorted(found.items()):
        print(f"{name}, {tree}: {statistics.median(took):.1f} us ({min(took):.1f} to {max(took):.1f})")


if __name__ == "__main__":
    main()
