"""Processor time of a broker per Produce request: `python -m bench.request_time [OTHER/src ...] [--rounds 5]`.

The broker of this source tree, and of each other one that is named, in turns. One connection keeps five requests under
way. Printed are the medians of the rounds in us of the broker's processor time, by request: one record of 100 B, the
same of an idempotent producer, and one record to each of 1,000 partitions.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import psutil

import fencepost
from bench.brokers import PRODUCE_VERSION, produce_frame
from bench.common import IN_FLIGHT, OwnBroker, RawConnection, new_topic, own_broker
from fencepost.protocol import produce_wire
from fencepost.protocol.frame import encode_request_frame
from fencepost.protocol.records.batch import set_producer
from fencepost.protocol.records.encoding import encode_batch

VALUE = b"x" * 100
PARTITIONS = 1_000
WARM_UP = 10
"""The part of the requests that comes before the measured ones: one of so many."""


def plain(servers: str, count: int) -> Iterator[bytes]:
    """Requests of one record."""
    request = produce_frame(new_topic(servers), [VALUE])
    return (request for _ in range(count))


def idempotent(servers: str, count: int) -> list[bytes]:
    """The same, in the sequence of a producer."""
    topic = new_topic(servers)
    with fencepost.Producer(servers) as producer:
        producer.send(topic, VALUE).result()
        producer_id, epoch = producer.producer_id, producer.producer_epoch
    requests = []
    for number in range(count):
        batch = encode_batch(None, values=[VALUE], timestamps=0)
        set_producer(batch, producer_id, epoch, number + 1, transactional=False)
        wanted = produce_wire.ProducePartition(topic, None, 0, batch)
        request = produce_wire.ProduceRequest(None, -1, 30_000, [wanted])
        body = b"".join(produce_wire.encode_request(request, PRODUCE_VERSION))
        requests.append(encode_request_frame(0, PRODUCE_VERSION, 1, "bench", body))
    return requests


def many_partitions(servers: str, count: int) -> Iterator[bytes]:
    """Requests of one record for each of many partitions."""
    request = produce_frame(new_topic(servers, PARTITIONS), [VALUE], PARTITIONS)
    return (request for _ in range(max(2 * WARM_UP, count // PARTITIONS)))


WORK: dict[str, Callable[[str, int], Iterable[bytes]]] = {
    "one record": plain,
    "one record, idempotent": idempotent,
    "one record to each of 1,000 partitions": many_partitions,
}


def measure(broker: OwnBroker, requests: Iterable[bytes]) -> float:
    """Us of the broker's processor time per request."""
    requests = list(requests)
    skipped = len(requests) // WARM_UP
    process = psutil.Process(broker.pid)
    with contextlib.closing(RawConnection(broker.servers)) as connection:
        ask(connection, requests[:skipped])
        began = process.cpu_times()
        ask(connection, requests[skipped:])
        ended = process.cpu_times()
    took_s = ended.user + ended.system - began.user - began.system
    return took_s * 1e6 / (len(requests) - skipped)


def ask(connection: RawConnection, requests: list[bytes]) -> None:
    """Keep as many requests under way as a producer does, and read all answers."""
    for number, request in enumerate(requests):
        connection.send(request)
        if number >= IN_FLIGHT - 1:
            connection.answer()
    for _ in range(min(len(requests), IN_FLIGHT - 1)):
        connection.answer()


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
    given = parser.parse_args()
    trees = [str(Path(fencepost.__file__).parents[1]), *given.sources]
    found: dict[tuple[str, str], list[float]] = {}
    for number in range(given.rounds):
        for tree in trees if number % 2 == 0 else reversed(trees):
            with sources(tree), own_broker() as broker:
                for name, requests_of in WORK.items():
                    took_us = measure(broker, requests_of(broker.servers, given.requests))
                    found.setdefault((name, tree), []).append(took_us)
    for (name, tree), took in sorted(found.items()):
        print(f"{name}, {tree}: {statistics.median(took):.1f} us ({min(took):.1f} to {max(took):.1f})")


if __name__ == "__main__":
    main()
