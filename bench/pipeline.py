"""The demo's pipeline without kills: rows per second through our source and sink, exactly once beside at least once.

The yardstick is the same query with `delivery=at-least-once`: the ratio is what exactly once costs. Each run is a
driver process of its own; start-up and the first micro-batch (workers starting, code compiling) are not counted.

python -m bench.pipeline
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import fencepost
from bench.common import Contest, own_broker
from fencepost.demo import flights
from fencepost.demo.processes import DriverProcess
from fencepost.demo.query import Job
from fencepost.spark.java import java_home

PARTITIONS = 2
BATCHES = 6
DELIVERIES = ("at-least-once", "exactly-once")


def fill(servers: str, topic: str, rows: int) -> None:
    """The flights, over and over until there are so many rows."""
    table = flights.to_table(flights.load())
    with fencepost.Producer(servers) as producer:
        while rows > 0:
            for batch in table.slice(0, min(rows, len(table))).to_batches(max_chunksize=10_000):
                producer.send_arrow(topic, batch)
            rows -= len(table)


def rate(servers: str, source: str, delivery: str, rows: int, folder: Path) -> float:
    """Rows per second of one run, over all micro-batches but the first."""
    sink = f"{source}-{folder.name}"
    with fencepost.Admin(servers) as admin:
        admin.create_topic(sink, PARTITIONS)
    job = Job(servers, source, sink, str(folder / "checkpoint"), sink, delivery, rows // BATCHES, jvm_options="")
    driver = DriverProcess(job, folder / "driver.log", java_home(install=True).environment())
    driver.process.wait()
    events: list[dict[str, Any]] = []
    while not events or events[-1]["event"] != "done":
        found = driver.drain()
        events += found
        if not found:
            time.sleep(0.1)
        if driver.process.returncode:
            raise RuntimeError((folder / "driver.log").read_text()[-2000:])
    counted = [event for event in events if event["event"] == "batch"][1:]
    return float(sum(event["rows"] for event in counted) / sum(event["seconds"] for event in counted))


def measure(*, quick: bool) -> Contest:
    """Rows per second; rounds in turn."""
    rows, rounds = (200_000, 1) if quick else (2_000_000, 2)
    contest = Contest("rows/s", DELIVERIES[0])
    with own_broker() as servers, tempfile.TemporaryDirectory() as name:
        with fencepost.Admin(servers) as admin:
            admin.create_topic("flights", PARTITIONS)
        fill(servers, "flights", rows)
        for number in range(rounds):
            for delivery in DELIVERIES:
                folder = Path(name) / f"{delivery}-{number}"
                folder.mkdir()
                contest.rates.setdefault(delivery, []).append(rate(servers, "flights", delivery, rows, folder))
    return contest


if __name__ == "__main__":
    print(measure(quick=False).report())
