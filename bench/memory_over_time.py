"""Resident memory under a steady load, and after it: `python -m bench.memory_over_time --minutes 60 [--broker kafka]`.

A producer writes records of 1 KB, a copier moves them to a second topic in transactions with its positions, and a
consumer reads what is committed; each is a process of its own, and so is the broker, which keeps 50 MB of a topic.
Memory is looked at all the time, from when records flow through all of them. Told are where each process began, where
it ended, the most that it had, and how steeply a line through the samples rises, without the first tenth of the time,
in which buffers and caches fill. In the end the load stops, and the processes are looked at once more.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import psutil

import fencepost
from bench import charts, report
from bench.brokers import Running, apache_kafka, ours
from fencepost.errors import KafkaError

IN, OUT = "memory-in", "memory-out"
RETENTION = {"retention.bytes": str(50 << 20), "segment.bytes": str(10 << 20)}
RECORD_BYTES = 1_000
TICK_S = 0.1  # the producer writes so often
COPY_S = 1.0  # a transaction of the copier begins so often
FILLING = 0.1  # of the time is not counted for the slope
STARTS = {"fencepost": ours, "kafka": apache_kafka}


@dataclass
class Memory:
    """Samples of one process: seconds since the load began, and resident bytes."""

    process: str
    seconds: list[float] = field(default_factory=list)
    resident: list[int] = field(default_factory=list)
    after: int = 0
    """When the load had stopped."""

    @property
    def resident_mb(self) -> list[float]:
        return [size / 1e6 for size in self.resident]

    @property
    def megabytes_an_hour(self) -> float:
        """The slope of a line through the samples but the first tenth of the time."""
        first = self.seconds[-1] * FILLING
        filled = [(at, size) for at, size in zip(self.seconds, self.resident_mb, strict=True) if at >= first]
        slope: float = statistics.linear_regression(*zip(*filled, strict=True)).slope
        return slope * 3600


@dataclass
class Hour:
    """Result of a run: records by client, and the memory of each process."""

    broker: str
    minutes: float
    records_s: int
    done: dict[str, int] = field(default_factory=dict)
    """Records, by who wrote, copied or read them."""
    processes: list[Memory] = field(default_factory=list)

    @classmethod
    def read(cls, file: Path) -> Hour:
        """Read a result from its file, also that of a run that has not ended."""
        reported = json.loads(file.read_text())
        return cls(**{**reported, "processes": [Memory(**memory) for memory in reported["processes"]]})

    def put(self, page: Path, command: str) -> None:
        """The chart beside the page, and what it shows in the page."""
        lines = {
            memory.process: dict(zip(memory.seconds, memory.resident_mb, strict=True)) for memory in self.processes
        }
        title = f"resident memory at {self.records_s} records of 1 KB a second"
        chart = charts.beside(page, f"memory-{self.broker}")
        charts.draw(chart, [charts.Panel(title, "seconds", "MB", lines, logarithmic=False)])
        moved = ", ".join(f"{role} {count:,} records" for role, count in self.done.items())
        where = {name: what for name, what in report.machine().items() if name in ("date", "processor", "python")}
        seen = f"The last sample is from minute {self.processes[0].seconds[-1] / 60:.0f}."
        reported = f"{report.provenance(command, where)} {seen}{f' {moved}.' if moved else ''}"
        report.put(page, f"memory {self.broker}", [f"![{title}](charts/{chart.name})", "", *self.table(), "", reported])

    def table(self) -> list[str]:
        """In Markdown."""
        lines = [
            "| process | at first | in the end | at most | a line through it | after the load |",
            "|---|---|---|---|---|---|",
        ]
        for memory in self.processes:
            sizes = memory.resident_mb
            first, last, most = (f"{size:.0f} MB" for size in (sizes[0], sizes[-1], max(sizes)))
            after = f"{memory.after / 1e6:.0f} MB" if memory.after else ""
            lines.append(
                f"| {memory.process} | {first} | {last} | {most} | {memory.megabytes_an_hour:+.1f} MB an hour "
                f"| {after} |"
            )
        return lines


# The clients, each in a process of its own ---------------------------------------------------------------------------


class Work:
    """Of one client: it goes on until a line comes, and what it has is kept until the end of them."""

    def __init__(self) -> None:
        self.records = 0
        self.stop = threading.Event()
        threading.Thread(target=self._wait, daemon=True).start()

    def _wait(self) -> None:
        sys.stdin.readline()
        self.stop.set()

    def moved(self, records: int) -> None:
        """With the first of them the client is at work."""
        if records and not self.records:
            print("at work", flush=True)
        self.records += records

    def rest(self) -> None:
        """Say how many they were, and stay to be looked at."""
        print(self.records, flush=True)
        sys.stdin.read()


def produce(servers: str, records_s: int, work: Work) -> None:
    value, began = b"x" * RECORD_BYTES, time.monotonic()
    with fencepost.Producer(servers) as producer:
        while not work.stop.wait(TICK_S):
            due = int((time.monotonic() - began) * records_s) - work.records
            for _ in range(due):
                producer.send(IN, value)
            work.moved(due)
        producer.flush()
        work.rest()


def copy(servers: str, _: int, work: Work) -> None:
    with (
        fencepost.Consumer(servers, group_id="memory-copier", auto_offset_reset="earliest") as consumer,
        fencepost.Producer(servers, transactional_id="memory-copier") as producer,
    ):
        consumer.subscribe([IN])
        producer.init_transactions()
        while not work.stop.wait(COPY_S):
            if records := consumer.poll(500, max_records=10_000):
                with producer.transaction(consumer):
                    for record in records:
                        producer.send(OUT, record.value)
                work.moved(len(records))
        work.rest()


def consume(servers: str, _: int, work: Work) -> None:
    with fencepost.Consumer(servers, group_id="memory-reader", auto_offset_reset="earliest") as consumer:
        consumer.subscribe([OUT])
        while not work.stop.is_set():
            work.moved(len(consumer.poll(500)))
        work.rest()


ROLES: dict[str, Callable[[str, int, Work], None]] = {"producer": produce, "copier": copy, "consumer": consume}


# The run -------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _at_work(servers: str, records_s: int) -> Iterator[dict[str, subprocess.Popen[str]]]:
    """The clients, when records flow through all of them. Raises KafkaError when one has ended."""
    command = [sys.executable, "-m", "bench.memory_over_time", "--records", str(records_s), "--role"]
    with contextlib.ExitStack() as stack:
        clients = {}
        for role in ROLES:
            clients[role] = stack.enter_context(
                subprocess.Popen([*command, role, servers], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            )
            stack.callback(clients[role].terminate)
        for role, client in clients.items():
            _line(role, client)
        yield clients


def _line(role: str, client: subprocess.Popen[str]) -> str:
    """Return the next line of the client's output. Raises KafkaError when the client has ended."""
    line = client.stdout.readline() if client.stdout else ""
    if not line:
        raise KafkaError(f"the {role} has ended")
    return line


def measure(
    broker: Running, hour: Hour, every_s: float, rest_s: float, keep: Callable[[Hour], None] = lambda _: None
) -> None:
    """The load for so long, a sample now and then, and one more when it has rested. Raises KafkaError.

    What is known is kept after every sample: an hour that is ended early has been of use.
    """
    with fencepost.Admin(broker.servers) as admin:
        for topic in (IN, OUT):
            admin.create_topic(topic, 1, configs=RETENTION)
    seconds = hour.minutes * 60
    with _at_work(broker.servers, hour.records_s) as clients:
        looked_at = {"broker": broker.pid, **{role: process.pid for role, process in clients.items()}}
        samples = [(Memory(role), psutil.Process(pid)) for role, pid in looked_at.items()]
        hour.processes = [memory for memory, _ in samples]
        began = time.monotonic()
        while (at := time.monotonic() - began) < seconds:
            time.sleep(min(every_s, seconds - at))
            for memory, process in samples:
                memory.seconds.append(round(time.monotonic() - began, 1))
                memory.resident.append(process.memory_info().rss)
            keep(hour)
        for role, client in clients.items():
            if client.stdin:
                client.stdin.write("enough\n")
                client.stdin.flush()
            hour.done[role] = int(_line(role, client))
        time.sleep(rest_s)
        for memory, process in samples:
            memory.after = process.memory_info().rss
        for client in clients.values():
            client.communicate("")
    keep(hour)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--broker", choices=list(STARTS), default="fencepost")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--records", type=int, default=200, help="a second")
    parser.add_argument("--every", type=float, default=10, help="seconds between two samples")
    parser.add_argument("--rest", type=float, default=10, help="seconds between the load's end and the last sample")
    parser.add_argument("--json", type=Path, help="keep all samples there")
    parser.add_argument("--read", type=Path, metavar="JSON", help="tell what is there, in the place of measuring")
    parser.add_argument("--markdown", type=Path, help="write table and chart there, between their marks")
    parser.add_argument("--role", nargs=2, metavar=("ROLE", "HOST:PORT"), help="be one of the clients")
    given = parser.parse_args(arguments)
    if given.role:
        ROLES[given.role[0]](given.role[1], given.records, Work())
        return

    def keep(hour: Hour) -> None:
        if given.json:
            given.json.write_text(json.dumps(asdict(hour)) + "\n")

    if given.read:
        hour = Hour.read(given.read)
    else:
        hour = Hour(given.broker, given.minutes, given.records)
        with STARTS[given.broker]() as broker:
            measure(broker, hour, given.every, given.rest, keep)
    print("\n".join(hour.table()))
    print(", ".join(f"{role} {count:,} records" for role, count in hour.done.items()))
    if given.markdown:
        broker_option = "" if hour.broker == "fencepost" else f" --broker {hour.broker}"
        hour.put(given.markdown, f"python -m bench.memory_over_time --minutes {hour.minutes:g}{broker_option}")


if __name__ == "__main__":
    main()
