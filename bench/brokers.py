"""Our broker beside Apache Kafka 4.3.1, both without fsync, asked by one and the same client on the same cores.

python -m bench.brokers [--quick]

Requests are made before the clock runs and answers are not decoded, so that the broker is what is measured.
"""

from __future__ import annotations

import argparse
import socket
import statistics
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import psutil

import fencepost
from bench.common import Contest, new_topic
from fencepost.protocol import fetch_wire, frame, produce_wire
from fencepost.protocol.records.columns import encode_batch
from tests.support.apache_kafka import ApacheKafka

OURS, KAFKA = "Fencepost's broker", "Apache Kafka 4.3.1"
JVM_OPTIONS = ("-Xms128m", "-Xmx512m", "-XX:+UseG1GC", "-Dorg.apache.logging.log4j.level=WARN")
IN_FLIGHT = 5
PRODUCE_VERSION, FETCH_VERSION = 9, 11
BATCH_RECORDS, RECORD_BYTES = 250, 1_000
FETCH_BYTES = 8 * 1024 * 1024


@dataclass
class Running:
    """A broker that answers, its process, and how long it took from the command to the first producer id."""

    servers: str
    pid: int
    started_s: float


class RawConnection:
    """Ready-made frames out, answers counted and thrown away."""

    def __init__(self, servers: str) -> None:
        host, _, port = servers.rpartition(":")
        self._socket = socket.create_connection((host, int(port)))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._read = self._socket.makefile("rb", buffering=1 << 20)

    def send(self, request: bytes) -> None:
        self._socket.sendall(request)

    def answer(self) -> bytes:
        """The next answer, whole, without its size."""
        size: int = struct.unpack(">i", self._read.read(4))[0]
        answer: bytes = self._read.read(size)
        return answer

    def pipelined(self, request: bytes, count: int) -> None:
        """`count` times the same request, IN_FLIGHT of them under way."""
        for number in range(count):
            self.send(request)
            if number >= IN_FLIGHT - 1:
                self.answer()
        for _ in range(min(count, IN_FLIGHT - 1)):
            self.answer()

    def close(self) -> None:
        self._read.close()
        self._socket.close()


def produce_frame(topic: str, values: list[bytes]) -> bytes:
    batch = encode_batch(None, values=values, timestamps=0)
    request = produce_wire.ProduceRequest(None, -1, 30_000, [produce_wire.ProducePartition(topic, None, 0, batch)])
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
    """How long begin, one record and commit take, `count` times, with our client."""
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


def first_producer_id(servers: str) -> None:
    """A transactional id is initialized: the whole of the broker works."""
    with fencepost.Producer(servers, transactional_id="bench-start") as producer:
        producer.init_transactions()


@contextmanager
def ours() -> Iterator[Running]:
    """`fencepost broker --fsync never`."""
    begun = time.perf_counter()
    command = [sys.executable, "-m", "fencepost", "broker", "--listen", "127.0.0.1:0", "--fsync", "never"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            line = process.stdout.readline() if process.stdout else ""
            if not line.startswith("listening on "):
                raise RuntimeError("the broker did not start")
            servers = line.removeprefix("listening on ").strip()
            first_producer_id(servers)
            yield Running(servers, process.pid, time.perf_counter() - begun)
        finally:
            process.terminate()


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


def row(name: str, own: float, kafka: float, unit: str, ratio: float, of: str) -> str:
    return f"{name:44} {own:12,.2f} {kafka:12,.2f} {unit:10} {ratio:7.2f}x {of}"


def measure(quick: bool) -> list[str]:
    """One line for each row of the table."""
    scale = 10 if quick else 1
    rounds = 1 if quick else 3
    lines = [f"{'':44} {'ours':>12} {'Kafka':>12}"]
    with ExitStack() as stack:
        warm_up = stack.enter_context(ours())  # compiles and caches what the first start ever would pay for
        del warm_up
        running = {OURS: stack.enter_context(ours()), KAFKA: stack.enter_context(apache_kafka())}
        own, kafka = running[OURS], running[KAFKA]
        lines.append(
            row(
                "command to first producer id",
                own.started_s,
                kafka.started_s,
                "s",
                own.started_s / kafka.started_s,
                "of its time",
            )
        )
        memory = {name: psutil.Process(one.pid).memory_info().rss / 1e6 for name, one in running.items()}
        lines.append(
            row(
                "resident memory, idle",
                memory[OURS],
                memory[KAFKA],
                "MB",
                memory[OURS] / memory[KAFKA],
                "of its memory",
            )
        )

        contests: list[tuple[str, str, int, Callable[[str], Callable[[int], None]]]] = [
            ("produce, 250 records of 1 KB a request", "MB/s", 1_000 // scale, produce),
            ("produce, one record of 100 B a request", "requests/s", 50_000 // scale, small_produce),
            ("fetch, answers of 8 MB", "MB/s", 2_000 // scale, lambda servers: fetch(servers, 500 // scale + 40)),
        ]
        for name, unit, amount, prepare in contests:
            contest = Contest(unit, KAFKA)
            works = {which: prepare(one.servers) for which, one in running.items()}
            contest.run(works, dict.fromkeys(works, amount), rounds)
            middle = {which: statistics.median(rates) for which, rates in contest.rates.items()}
            lines.append(row(name, middle[OURS], middle[KAFKA], unit, middle[OURS] / middle[KAFKA], "its rate"))

        taken: dict[str, list[float]] = {OURS: [], KAFKA: []}
        for _ in range(rounds):
            for which, one in running.items():
                taken[which] += transaction_ms(one.servers, 1_000 // scale)
        median = {which: statistics.median(times) for which, times in taken.items()}
        lines.append(
            row(
                "begin, one record, commit (median)",
                median[OURS],
                median[KAFKA],
                "ms",
                median[OURS] / median[KAFKA],
                "of its time",
            )
        )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of everything, one round")
    print("\n".join(measure(parser.parse_args().quick)))


if __name__ == "__main__":
    main()
