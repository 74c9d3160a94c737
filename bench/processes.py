"""The costs of a process that uses a client: its memory, and its processor time for a few records.

python -m bench.processes [--quick] [--rounds 5]

Each figure is that of a process of its own, ours and one with confluent-kafka in turns, at Fencepost's broker. Such a
process imports this module, so the module itself imports nothing that a client does not need.
"""

from __future__ import annotations

import os
import sys
import time
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fencepost_lab.benchmark.contest import Row

__all__ = ["rows"]

OURS, PEER = "fencepost", "confluent-kafka"
FIRST_RECORDS = 20_000
RECORDS = 300_000
KEYS = [b"key-%d" % number for number in range(1_000)]
VALUE = b"x" * 100


def send_ours(servers: str, topic: str, records: int) -> None:
    """Send records with keys, and wait until they are acknowledged."""
    from fencepost import Producer

    with Producer(servers) as producer:
        for number in range(records):
            producer.send(topic, VALUE, KEYS[number % len(KEYS)])
        producer.flush()


def send_peers(servers: str, topic: str, records: int) -> None:
    """Do the same with confluent-kafka."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": servers, "queue.buffering.max.messages": FIRST_RECORDS * 100})
    for number in range(records):
        producer.produce(topic, VALUE, KEYS[number % len(KEYS)])
    producer.flush()


def read_ours(servers: str, topic: str, records: int) -> None:
    """Read the topic."""
    from fencepost import Consumer

    with Consumer(servers, group_id=topic, auto_offset_reset="earliest") as consumer:
        consumer.subscribe([topic])
        sum(1 for _ in islice(consumer, records))


def read_peers(servers: str, topic: str, records: int) -> None:
    """Do the same with confluent-kafka."""
    from confluent_kafka import Consumer

    consumer = Consumer({"bootstrap.servers": servers, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    while records > 0:
        records -= len(consumer.consume(500, 1.0))
    consumer.close()


WORKS = {OURS: (send_ours, read_ours), PEER: (send_peers, read_peers)}


def in_this_process(name: str, what: str, servers: str, topic: str) -> float:
    """Return the processor time in ms for the first records, or the resident memory in MB after use."""
    send, read = WORKS[name]
    if what == "first":
        send(servers, topic, FIRST_RECORDS)
        return time.process_time() * 1000
    records = int(what)
    send(servers, topic, records)
    read(servers, topic, records)
    with open("/proc/self/statm") as file:  # psutil would be a part of the measured memory
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def in_own_process(servers: str, what: str, name: str) -> float:
    """Return the figure of a process of its own. Raises RuntimeError."""
    import subprocess

    from bench.common import installed_environment, new_topic

    command = [sys.executable, "-m", "bench.processes", "--one", name, what, servers, new_topic(servers)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=installed_environment())
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    return float(done.stdout)


def rows(*, quick: bool, rounds: int) -> Iterator[Row]:
    """The rows of the table."""
    from functools import partial

    from bench.common import own_broker
    from fencepost_lab.benchmark.contest import Contest

    wanted = (
        ("memory of a client after use", "MB", str(RECORDS // (10 if quick else 1)), "55 MB"),
        (f"first {FIRST_RECORDS:,} keyed records of a process, processor time", "ms", "first", "90 ms"),
    )
    with own_broker() as own:
        for title, unit, what, mark in wanted:
            contest = Contest(unit, PEER)
            contest.take({name: partial(in_own_process, own.servers, what, name) for name in WORKS}, rounds)
            yield contest.row(title, OURS, mark=mark)


def main() -> None:
    if sys.argv[1:2] == ["--one"]:
        print(in_this_process(*sys.argv[2:]))
        return
    import argparse

    from bench.brokers import row_text

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of the records for the memory")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    for row in rows(quick=given.quick, rounds=given.rounds):
        print(row_text(row), flush=True)


if __name__ == "__main__":
    main()
