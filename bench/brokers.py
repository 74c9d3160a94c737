"""Our broker beside Apache Kafka 4.3.1, both without fsync, asked by one and the same client on the same cores.

python -m bench.brokers [--quick] [--rounds 5]

Requests are made before the clock runs and answers are not decoded, so that the broker is what is measured.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import psutil

import fencepost
from bench import hot_requests
from bench.common import IN_FLIGHT, RawConnection, new_topic, own_broker
from bench.raw import empty_process_s, round_trips_ms, through
from fencepost.protocol import fetch_wire, frame, produce_wire
from fencepost.protocol.records.encoding import encode_batch
from fencepost_lab.benchmark.contest import Contest, Row, others_share
from tests.support.apache_kafka import ApacheKafka

OURS, KAFKA = "Fencepost's broker", "Apache Kafka 4.3.1"
JVM_OPTIONS = ("-Xms128m", "-Xmx512m", "-XX:+UseG1GC", "-Dorg.apache.logging.log4j.level=WARN")
PRODUCE_VERSION, FETCH_VERSION = 9, 11
BATCH_RECORDS, RECORD_BYTES = 250, 1_000
FETCH_BYTES = 8 * 1024 * 1024
ANSWER_BYTES = 60  # of a Produce answer, or so


@dataclass
class Running:
    """A broker that answers, its process, and how long it took from the command to the first producer id."""

    servers: str
    pid: int
    started_s: float


def produce_frame(topic: str, values: list[bytes], partitions: int = 1) -> bytes:
    """The values as a batch to each partition."""
    batch = encode_batch(None, values=values, timestamps=0)
    requested = [produce_wire.ProducePartition(topic, None, partition, batch) for partition in range(partitions)]
    request = produce_wire.ProduceRequest(None, -1, 30_000, requested)
    body = b"".join(produce_wire.encode_request(request, PRODUCE_VERSION))
    return frame.encode_request_frame(0, PRODUCE_VERSION, 1, "bench", body)


def fetch_frame(topic: str, offset: int) -> bytes:
    wanted = fetch_wire.FetchTopic(topic, None, [fetch_wire.FetchPartition(0, offset, FETCH_BYTES)])
    request = fetch_wire.FetchRequest(max_bytes=FETCH_BYTES, topics=[wanted])
    body = b"".join(fetch_wire.encode_request(request, FETCH_VERSION))
    return frame.encode_request_frame(1, FETCH_VERSION, 1, "bench", body)


def produce(servers: str) -> Callable[[int], None]:
    """Moves MB: batches of 250 records of 1 KB, acks=all."""
    topic = new_topic(servers)
    connection = RawConnection(servers)
    request = produce_frame(topic, [b"x" * RECORD_BYTES] * BATCH_RECORDS)
    return lambda megabytes: connection.pipelined(request, megabytes * 1_000_000 // (BATCH_RECORDS * RECORD_BYTES))


def small_produce(servers: str) -> Callable[[int], None]:
    """Moves requests, each with one record of 100 B, acks=all."""
    topic = new_topic(servers)
    connection = RawConnection(servers)
    request = produce_frame(topic, [b"x" * 100])
    return lambda requests: connection.pipelined(request, requests)


def idempotent_produce(servers: str, requests: int) -> Callable[[int], None]:
    """Moves requests of an idempotent producer, each with one record of 100 B. Raises RuntimeError if it is refused."""
    topic = new_topic(servers)
    connection = RawConnection(servers)

    def ask(frame: bytes) -> bytes:
        connection.send(frame)
        return connection.answer()

    owner = hot_requests.producer(ask, None)
    first = ask(hot_requests.produce(topic, owner, 0))
    _, position = frame.decode_response_header(0, PRODUCE_VERSION, first)
    (result,) = produce_wire.decode_response(memoryview(first)[position:], PRODUCE_VERSION).partitions
    if result.error_code:
        raise RuntimeError(f"the broker refuses the first record with error {result.error_code}")
    frames = (hot_requests.produce(topic, owner, number) for number in range(1, requests + 1))
    units = iter([[(0, each)] for each in frames])
    return lambda count: hot_requests.ask_in_turn([connection], itertools.islice(units, count), IN_FLIGHT)


def partitions_produce(servers: str, count: int) -> Callable[[int], None]:
    """Moves records of 100 B, one to each partition in each request."""
    topic = new_topic(servers, count)
    write_to_each(servers, topic, count)
    connection = RawConnection(servers)
    request = produce_frame(topic, [b"x" * 100], count)
    return lambda records: connection.pipelined(request, max(1, records // count))


def write_to_each(servers: str, topic: str, count: int) -> None:
    """Write a record to each partition, so that each has a leader and a log. RawConnection reads no errors."""
    with fencepost.Producer(servers) as producer:
        for partition in range(count):
            producer.send(topic, b"x" * 100, partition=partition)
        producer.flush()


def fetch(servers: str, megabytes: int) -> Callable[[int], None]:
    """Moves MB: answers of up to 8 MB from the start of a log of that size."""
    topic = new_topic(servers)
    connection = RawConnection(servers)
    connection.pipelined(
        produce_frame(topic, [b"x" * RECORD_BYTES] * BATCH_RECORDS),
        megabytes * 1_000_000 // (BATCH_RECORDS * RECORD_BYTES),
    )
    fetched_records = FETCH_BYTES // (RECORD_BYTES + 12)

    def work(wanted: int) -> None:
        moved, offset = 0, 0
        while moved < wanted * 1_000_000:
            connection.send(fetch_frame(topic, offset))
            moved += len(connection.answer())
            offset += fetched_records
            if offset * RECORD_BYTES > (megabytes - 20) * 1_000_000:
                offset = 0

    return work


def transaction_ms(servers: str, count: int) -> list[float]:
    """Measure transactions of one record with our client. Return the duration of each in ms."""
    topic = new_topic(servers)
    taken = []
    with fencepost.Producer(servers, transactional_id=topic, linger_ms=0) as producer:
        producer.init_transactions()
        for _ in range(count):
            begun = time.perf_counter()
            with producer.transaction():
                producer.send(topic, b"x" * 100)
            taken.append((time.perf_counter() - begun) * 1000)
    return taken


def median_transaction_ms(servers: str, count: int) -> float:
    return statistics.median(transaction_ms(servers, count))


def first_producer_id(servers: str) -> None:
    """A transactional id is initialized: the whole of the broker works."""
    with fencepost.Producer(servers, transactional_id="bench-start") as producer:
        producer.init_transactions()


@contextmanager
def ours() -> Iterator[Running]:
    """`fencepost broker --fsync never`."""
    begun = time.perf_counter()
    with own_broker() as own:
        first_producer_id(own.servers)
        yield Running(own.servers, own.pid, time.perf_counter() - begun)


@contextmanager
def apache_kafka() -> Iterator[Running]:
    """One node; its data directory is formatted before the clock runs."""
    node = ApacheKafka(jvm_options=JVM_OPTIONS)
    with node:
        node.stop(keep_data=True)
        begun = time.perf_counter()
        node.start()
        first_producer_id(node.bootstrap_servers)
        started = time.perf_counter() - begun
        if node.pid is None:
            raise RuntimeError("Apache Kafka ended")
        yield Running(node.bootstrap_servers, node.pid, started)


class Comparison(NamedTuple):
    """A row to be: how much is moved in a round, what prepares it, the ratio aimed at, the raw limit."""

    name: str
    unit: str
    amount: int
    prepare: Callable[[str], Callable[[int], None]]
    mark: str
    raw: float | None


def used_s(broker: Running) -> float:
    """Processor time that the broker has used."""
    times = psutil.Process(broker.pid).cpu_times()
    return float(times.user + times.system)


def started(rounds: int) -> Row:
    """From the command to the first producer id, each broker started and ended in turn."""
    contest = Contest("s", KAFKA)
    contest.take({OURS: partial(_started_s, ours), KAFKA: partial(_started_s, apache_kafka)}, rounds)
    raw = statistics.median(empty_process_s() for _ in range(5))
    return contest.row("command to first producer id", OURS, mark="0.05x", raw=raw)


def _started_s(start: Callable[[], AbstractContextManager[Running]]) -> float:
    with start() as running:
        return running.started_s


def another(count: int) -> Row:
    """A further broker in a process that has one already, until it answers, so often."""
    taken, busy = [], others_share()
    with fencepost.Broker():
        for _ in range(count):
            begun = time.perf_counter()
            with fencepost.Broker() as broker, RawConnection(broker.bootstrap_servers):
                taken.append((time.perf_counter() - begun) * 1000)
    return Row("a second broker in the same process", "ms", taken, "", [], "3 ms", None, max(busy, others_share()))


def measure(quick: bool, rounds: int) -> Iterator[Row]:
    """The rows of the table."""
    scale = 10 if quick else 1
    with ours():
        pass  # compiles and caches what the first start ever would pay for
    yield started(min(rounds, 3))
    yield another(max(10, 100 // scale))
    with ours() as own, apache_kafka() as kafka:
        running, amount = {OURS: own, KAFKA: kafka}, 50_000 // scale
        yield _memory(running, "resident memory, idle", "keep")
        large = len(produce_frame("bench-topic", [b"x" * RECORD_BYTES] * BATCH_RECORDS))
        small = len(produce_frame("bench-topic", [b"x" * 100]))
        get = len(fetch_frame("bench-topic", 0))
        contests = (
            Comparison(
                "produce, 250 records of 1 KB a request",
                *("MB/s", 1_000 // scale, produce, "2.5x"),
                through(large, ANSWER_BYTES, "append", 4_000 // scale) * large / 1e6,
            ),
            Comparison(
                "produce, one record of 100 B a request",
                *("requests/s", amount, small_produce, "3x"),
                through(small, ANSWER_BYTES, "append", amount),
            ),
            Comparison(
                "the same, idempotent",
                *("requests/s", amount, partial(idempotent_produce, requests=amount * (rounds + 1)), "15 us"),
                through(small, ANSWER_BYTES, "append", amount),
            ),
            Comparison(
                "produce, a record of 100 B to each of 1,000 partitions a request",
                *("records/s", 2 * amount, partial(partitions_produce, count=1_000), "1.2x"),
                None,
            ),
            Comparison(
                "fetch, answers of 8 MB",
                *("MB/s", 2_000 // scale, partial(fetch, megabytes=500 // scale + 40), "1.2x"),
                through(get, FETCH_BYTES, "sendfile", 200 // scale, in_flight=1) * FETCH_BYTES / 1e6,
            ),
        )
        for each in contests:
            contest = Contest(each.unit, KAFKA, lambda which: used_s(running[which]))
            works = {which: each.prepare(broker.servers) for which, broker in running.items()}
            contest.run(works, dict.fromkeys(works, each.amount), rounds)
            yield contest.row(each.name, OURS, mark=each.mark, raw=each.raw)
        yield transactions(running, 1_000 // scale, rounds, round_trips_ms(small, ANSWER_BYTES, 2, 10_000 // scale))
        yield _memory(running, "resident memory, after the rows above", "40 MB")


def _memory(running: Mapping[str, Running], title: str, mark: str) -> Row:
    memory = {name: psutil.Process(broker.pid).memory_info().rss / 1e6 for name, broker in running.items()}
    return Row(title, "MB", [memory[OURS]], KAFKA, [memory[KAFKA]], mark)


def transactions(running: Mapping[str, Running], count: int, rounds: int, raw_ms: float) -> Row:
    """Medians of `count` transactions each, in turn."""
    for broker in running.values():
        transaction_ms(broker.servers, count // 10)
    contest = Contest("ms", KAFKA)
    contest.take(
        {which: partial(median_transaction_ms, broker.servers, count) for which, broker in running.items()}, rounds
    )
    return contest.row("begin, one record, commit", OURS, mark="0.3x", raw=raw_ms)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of everything, one round")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    for row in measure(options.quick, options.rounds):
        print(row_text(row), flush=True)


def row_text(row: Row) -> str:
    """The row as a line."""
    peer = f"{statistics.median(row.peers):12,.2f}" if row.peers else f"{'-':>12}"
    ratio = f"{row.ratio:7.2f}x" if row.ratio is not None else ""
    return f"{row.name:44} {statistics.median(row.ours):12,.2f} {peer} {row.unit:10} {ratio}".rstrip()


if __name__ == "__main__":
    main()
