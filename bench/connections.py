"""Many connections, each of which waits for its answer: `python -m bench.connections 1 50 500 [--batch]`.

Every connection writes one record of 100 B (`--batch`: 250 of 1 KB) to one of ten partitions, waits until it is
acknowledged, and writes the next. Fencepost's broker, which has one thread, and Apache Kafka, which has many, in turn,
round after round, without fsync. Printed are the medians of the rounds: requests a second, how long the median and the
99th of a hundred waited, and what share of a processor the broker took.
"""

from __future__ import annotations

import argparse
import contextlib
import selectors
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import psutil

from bench.brokers import BATCH_RECORDS, KAFKA, OURS, RECORD_BYTES, Running, apache_kafka, ours, produce_frame
from bench.common import RawConnection, new_topic
from fencepost_lab.benchmark.contest import BUSY, Contest, Row, others_share

TOPICS = 10
WARM_UP_S = 3.0
STARTS: dict[str, Callable[[], contextlib.AbstractContextManager[Running]]] = {OURS: ours, KAFKA: apache_kafka}


class Load(NamedTuple):
    """Result of a measurement: requests per second, latencies in ms, and processors in use."""

    requests_s: float
    median_ms: float
    p99_ms: float
    processors: float
    """Of the broker's process."""


class Asker(RawConnection):
    """A connection with one request under way."""

    def __init__(self, servers: str, request: bytes) -> None:
        super().__init__(servers)
        self._request = request
        self._asked = 0.0

    def ask(self) -> None:
        self._asked = time.perf_counter()
        self.send(self._request)

    def waited(self) -> float:
        """Receive the answer that has begun to arrive. Return the seconds since its request. Raises ConnectionError."""
        self.answer()
        return time.perf_counter() - self._asked


@contextlib.contextmanager
def connected(servers: str, count: int, records: list[bytes]) -> Iterator[list[Asker]]:
    requests = [produce_frame(new_topic(servers), records) for _ in range(TOPICS)]
    with contextlib.ExitStack() as stack:
        askers = [Asker(servers, requests[number % TOPICS]) for number in range(count)]
        for asker in askers:
            stack.callback(asker.close)
        yield askers


def measure(broker: Running, count: int, records: list[bytes], seconds: float, warm_up_s: float = WARM_UP_S) -> Load:
    """`count` connections for that long, after a warm-up."""
    process = psutil.Process(broker.pid)
    with connected(broker.servers, count, records) as askers, selectors.DefaultSelector() as ready:
        for asker in askers:
            ready.register(asker, selectors.EVENT_READ, asker)
            asker.ask()
        _answers(ready, warm_up_s)
        before, began = sum(process.cpu_times()[:2]), time.perf_counter()
        waits = sorted(_answers(ready, seconds))
        took = time.perf_counter() - began
        processors = (sum(process.cpu_times()[:2]) - before) / took
    p99 = waits[len(waits) * 99 // 100]
    return Load(len(waits) / took, statistics.median(waits) * 1000, p99 * 1000, processors)


def _answers(ready: selectors.BaseSelector, seconds: float) -> list[float]:
    waits = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for key, _ in ready.select(1):
            waits.append(key.data.waited())
            key.data.ask()
    if not waits:
        raise TimeoutError(f"no answer in {seconds:.0f} s")
    return waits


def rows(*, quick: bool, rounds: int) -> Iterator[Row]:
    """The rows of the table."""
    with contextlib.ExitStack() as stack:
        running = {name: stack.enter_context(start()) for name, start in STARTS.items()}
        for count in (50, 500):
            contest = Contest("requests/s", KAFKA)

            def requests_s(name: str, contest: Contest = contest, count: int = count) -> float:
                load = measure(running[name], count, [b"x" * 100], *((0.5, 0.2) if quick else (4.0, 1.0)))
                contest.used_us.setdefault(name, []).append(load.processors * 1e6 / load.requests_s)
                return load.requests_s

            contest.take({name: partial(requests_s, name) for name in running}, rounds)
            yield contest.row(f"{count} connections, each with one record of 100 B a request", OURS, mark="1.4x")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("connections", type=int, nargs="*", default=[1, 50, 500])
    parser.add_argument("--batch", action="store_true", help=f"{BATCH_RECORDS} records of {RECORD_BYTES} B a request")
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    records = [b"x" * RECORD_BYTES] * BATCH_RECORDS if given.batch else [b"x" * 100]
    found: dict[tuple[int, str], list[Load]] = {}
    busiest = others_share()
    for _ in range(given.rounds):
        for name, start in STARTS.items():
            with start() as broker:
                for count in given.connections:
                    load = measure(broker, count, records, given.seconds)
                    found.setdefault((count, name), []).append(load)
    busiest = max(busiest, others_share())
    titles = f"{'requests/s':>10} {'of Kafka':>8} {'median ms':>9} {'99% ms':>8} {'processors':>10}"
    print(f"{'connections':>11}  {'':19} {titles}")
    for (count, name), loads in sorted(found.items()):
        at = Load(*(statistics.median(values) for values in zip(*loads, strict=True)))
        kafka = statistics.median(load.requests_s for load in found[count, KAFKA])
        print(
            f"{count:11}  {name:19} {at.requests_s:10,.0f} {at.requests_s / kafka:7.2f}x"
            f" {at.median_ms:9.2f} {at.p99_ms:8.2f} {at.processors:10.2f}"
        )
    if busiest > BUSY:
        print(f"others took up to {busiest:.0%} of the machine: believe the ratios, not the figures")


if __name__ == "__main__":
    main()
