"""Costs of many partitions: `python -m bench.partitions 100 1000 5000`.

Each count has a broker of its own, and one topic. A transaction writes one record of 100 B to every partition, four
times. The first transaction creates the partitions' logs. A consumer reads everything, then the broker is killed and
started again. Times are wall-clock times. Memory is the resident memory of the broker's process.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import psutil

from fencepost import Admin, Consumer, Producer, TopicPartition
from fencepost_lab.torture.broker_process import BrokerProcess

TOPIC = "many"
ROUNDS = 4
PATIENCE_MS = 600_000


def took(call: Callable[[], object]) -> float:
    """In seconds."""
    began = time.monotonic()
    call()
    return time.monotonic() - began


def resident_mb(broker: BrokerProcess) -> float:
    memory: int = psutil.Process(broker.pid).memory_info().rss
    return memory / 2**20


def write(servers: str, partitions: int) -> tuple[list[float], list[float]]:
    """Write a record to each partition in each of ROUNDS transactions. Return the seconds of writes and of commits."""
    writes, commits = [], []
    with Producer(
        servers, transactional_id="many", max_block_ms=PATIENCE_MS, delivery_timeout_ms=PATIENCE_MS
    ) as producer:
        producer.init_transactions()

        def send_to_each() -> None:
            for partition in range(partitions):
                producer.send(TOPIC, b"x" * 100, partition=partition)
            producer.flush()

        for _ in range(ROUNDS):
            producer.begin_transaction()
            writes.append(took(send_to_each))
            commits.append(took(producer.commit_transaction))
    return writes, commits


def read(servers: str, partitions: int) -> None:
    with Consumer(servers, auto_offset_reset="earliest", isolation_level="read_committed") as consumer:
        consumer.assign([TopicPartition(TOPIC, number) for number in range(partitions)])
        left = partitions * ROUNDS
        while left > 0:
            left -= len(consumer.poll(1000, max_records=10_000))


def measure(partitions: int, fsync: str) -> str:
    """A row of the table."""
    broker = BrokerProcess({"fsync": fsync})
    broker.start()
    try:
        servers = broker.bootstrap_servers
        idle = resident_mb(broker)
        with Admin(servers) as admin:
            admin.create_topic(TOPIC, partitions)
            looks = [took(lambda: admin.describe_topics([TOPIC])) for _ in range(9)]
        writes, commits = write(servers, partitions)
        written = resident_mb(broker)
        reading = took(lambda: read(servers, partitions))
        broker.kill()
        starting = took(broker.start)
    finally:
        broker.stop()
    later, ends = statistics.median(writes[1:]), statistics.median(commits)
    cells = [
        f"{partitions:,}",
        f"{idle:.0f} to {written:.0f} MB",
        f"{1000 * statistics.median(looks):.0f} ms",
        f"{writes[0]:.1f} s",
        f"{later:.2f} s",
        f"{ends:.2f} s",
        f"{reading:.1f} s",
        f"{starting:.1f} s",
    ]
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("partitions", type=int, nargs="+")
    parser.add_argument("--fsync", default="never", choices=("never", "interval", "commit"))
    given = parser.parse_args()
    heads = "partitions", "memory", "metadata", "first writes", "writes", "commit", "reading", "start after kill -9"
    print("| " + " | ".join(heads) + " |\n|" + "---|" * len(heads))
    for partitions in given.partitions:
        print(measure(partitions, given.fsync), flush=True)


if __name__ == "__main__":
    main()
