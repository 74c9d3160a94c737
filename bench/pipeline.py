"""Kafka -> Spark -> Kafka: rows per second exactly once, beside Spark's built-in connector, which is at least once.

The same query (key and value from topic to topic) on the same broker with the same session settings; the contestants
are `format("kafka")` with its jars from Maven Central, `format("fencepost")` at least once and exactly once, and
`arrow_pipeline`. Each run is a driver process of its own; start-up and the first micro-batch (workers starting, code
compiling) do not count. All run on PySpark 4.2: it is the newest for which Maven Central has the built-in connector.

python -m bench.pipeline [--broker kafka|fencepost|HOST:PORT] [--records N] [--size BYTES] [--rounds N]
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import psutil
import pyarrow as pa

import fencepost
from bench import common
from fencepost.spark import arrow_pipeline
from fencepost.spark.java import java_home
from fencepost_lab.benchmark.contest import Contest, Row, others_share
from fencepost_lab.demo.query import rows_of

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

PARTITIONS = 2
BATCHES = 6
SAMPLE_S = 0.05
BUILT_IN = "Spark's own, at least once"
AT_LEAST, EXACTLY = "fencepost, at least once", "fencepost, exactly once"
IN_ARROW = "fencepost in Arrow, exactly once"
CONTESTANTS = {
    BUILT_IN: ("kafka", ""),
    AT_LEAST: ("fencepost", "at-least-once"),
    EXACTLY: ("fencepost", "exactly-once"),
    IN_ARROW: ("arrow", "exactly-once"),
}
MARKS = {EXACTLY: "3x", IN_ARROW: "5x"}
# The connector of Spark 4.2.0 and, by name, what it needs beyond Spark's own jars: its parent's list of repositories
# begins with a mirror that is not reachable everywhere, and would be asked for everything transitive.
ARTIFACTS = {
    "org.apache.spark:spark-sql-kafka-0-10_2.13": "4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13": "4.0.0",  # not every mirror has a later one
    "org.apache.kafka:kafka-clients": "3.9.2",
    "org.apache.commons:commons-pool2": "2.13.1",
}


def pom() -> str:
    """A Maven project that depends on ARTIFACTS and nothing else."""
    wanted = "".join(
        f"<dependency><groupId>{name.split(':')[0]}</groupId><artifactId>{name.split(':')[1]}</artifactId>"
        f"<version>{version}</version><exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion>"
        "</exclusions></dependency>"
        for name, version in ARTIFACTS.items()
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>fencepost.bench</groupId><artifactId>spark-kafka</artifactId><version>1</version>"
        f"<packaging>pom</packaging><dependencies>{wanted}</dependencies></project>"
    )


def built_in_jars(folder: Path) -> str:
    """The connector and what it needs beyond Spark's own jars."""
    from tests.support.apache_kafka import jars_folder

    project = folder / "spark-kafka.pom.xml"
    project.write_text(pom())
    found = sorted(jars_folder(project).glob("*.jar"))
    if len(found) < len(ARTIFACTS):
        raise RuntimeError(f"Maven gave only {[jar.name for jar in found]}")
    return ",".join(map(str, found))


def fill(servers: str, topic: str, rows: int, size: int) -> None:
    """Values of `size` random-looking bytes with short keys, in both partitions."""
    with fencepost.Admin(servers) as admin:
        admin.create_topic(topic, PARTITIONS)
    with fencepost.Producer(servers) as producer:
        for start in range(0, rows, 10_000):
            numbers = range(start, min(start + 10_000, rows))
            table = pa.record_batch(
                {
                    "key": [b"key-%d" % (number % 997) for number in numbers],
                    "value": [(b"%d " % number).ljust(size, b"x") for number in numbers],
                }
            )
            producer.send_arrow(topic, table, partition=start // 10_000 % PARTITIONS)


def used_s() -> float:
    """Processor time of this process and of all processes below it: the JVM and Spark's workers."""
    used = 0.0
    for process in (own := psutil.Process(), *own.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            used += times.user + times.system + times.children_user + times.children_system
    return used


def drive(job: dict[str, str]) -> None:
    """In the driver process: copy what is there.

    Prints (rows, seconds) of each micro-batch, and the processor time in us of a row after the first micro-batch.
    """
    from pyspark.sql import SparkSession

    builder = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "2g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "100000")
        .config("spark.sql.streaming.numRecentProgressUpdates", "1000")
    )
    spark = (builder.config("spark.jars", job["jars"]) if job["jars"] else builder).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    source = {
        "kafka.bootstrap.servers": job["servers"],
        "subscribe": job["source"],
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": job["rows_per_batch"],
        # Spark's own connector learns from Spark which columns a query reads; a source in Python has to be told.
        **({"columns": "key,value"} if job["format"] == "fencepost" else {}),
    }
    sink = {
        "kafka.bootstrap.servers": job["servers"],
        "topic": job["target"],
        "checkpointLocation": job["checkpoint"],
        **({"sink.id": job["target"], "delivery": job["delivery"]} if job["delivery"] else {}),
    }
    if job["format"] == "arrow":
        writer = arrow_pipeline(spark, source=source, transform=lambda rows: rows.select(["key", "value"]), sink=sink)
    else:
        rows = spark.readStream.format(job["format"]).options(**source).load().select("key", "value")
        writer = rows.writeStream.format(job["format"]).options(**sink)
    query = writer.trigger(availableNow=True).start()
    while query.isActive and not (before := _batches(query)):
        time.sleep(SAMPLE_S)
    begun_s = used_s()
    query.awaitTermination()
    us = (used_s() - begun_s) * 1e6
    batches = _batches(query)
    us /= sum(rows for rows, _ in batches) - sum(rows for rows, _ in before)
    print(json.dumps({"batches": batches, "us": us}), flush=True)
    spark.stop()


def _batches(query: StreamingQuery) -> list[tuple[int, float]]:
    """Rows and seconds of each micro-batch that is complete and had rows."""
    found: list[Any] = [progress for progress in query.recentProgress if progress["numInputRows"]]
    return [(rows_of(progress), progress["durationMs"]["triggerExecution"] / 1000) for progress in found]


class Ran(NamedTuple):
    """One run: seconds of its first micro-batch; rows per second and processor time of a row in us of the others."""

    first_s: float
    rate: float
    us: float


def ran(job: dict[str, str]) -> Ran:
    """The job in a driver process of its own."""
    from tests.spark.versions import installed

    environment = {**os.environ, **java_home(install=True).environment(), "PYSPARK_PYTHON": sys.executable}
    environment["PYTHONPATH"] = os.pathsep.join([str(installed("4.2")), environment.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "bench.pipeline", "--drive", json.dumps(job)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(done.stderr[-3000:])
    printed = json.loads(done.stdout.splitlines()[-1])
    (_, first_s), *measured = printed["batches"]
    rate = sum(rows for rows, _ in measured) / sum(seconds for _, seconds in measured)
    return Ran(first_s, float(rate), printed["us"])


def contests(servers: str, rows: int, size: int, rounds: int) -> tuple[Contest, Contest]:
    """The contestants in turn, round after round: rows per second, and the first micro-batch."""
    rates, first = Contest("rows/s", BUILT_IN), Contest("s", BUILT_IN)
    rates.busy = others_share()
    source = f"pipeline-{uuid.uuid4().hex[:8]}"
    fill(servers, source, rows, size)
    with tempfile.TemporaryDirectory() as name:
        jars = built_in_jars(Path(name))
        for number in range(rounds):
            for title, (kind, delivery) in CONTESTANTS.items():
                target = f"{source}-{kind}-{delivery}-{number}"
                with fencepost.Admin(servers) as admin:
                    admin.create_topic(target, PARTITIONS)
                job = {
                    "servers": servers,
                    "source": source,
                    "target": target,
                    "format": kind,
                    "delivery": delivery,
                    "jars": jars if kind == "kafka" else "",
                    "rows_per_batch": str(rows // BATCHES),
                    "checkpoint": str(Path(name) / target),
                }
                result = ran(job)
                rates.rates.setdefault(title, []).append(result.rate)
                rates.used_us.setdefault(title, []).append(result.us)
                first.rates.setdefault(title, []).append(result.first_s)
    rates.busy = first.busy = max(rates.busy, others_share())
    return rates, first


def rows(*, quick: bool, rounds: int) -> Iterator[Row]:
    """The rows of the table: with 100-byte values, at Apache Kafka."""
    with common.broker("kafka") as servers:
        rates, first = contests(servers, 200_000 if quick else 2_000_000, 100, rounds)
    print(f"{rates.report()}\n\nthe first micro-batch of a driver\n{first.report()}", flush=True)
    for name in CONTESTANTS:
        if name != BUILT_IN:
            yield rates.row(f"Kafka to Kafka with Spark: {name}", name, mark=MARKS.get(name, ""))
    yield rates.row("the same: what exactly once costs", EXACTLY, beside=AT_LEAST, mark="0.9x")
    for name in (EXACTLY, IN_ARROW):
        yield first.row(f"first micro-batch of a fresh driver: {name}", name, mark="1x")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--drive"]:
        drive(json.loads(sys.argv[2]))
    else:
        options = common.arguments(__doc__ or "", 2_000_000)
        with common.broker(options.broker) as address:
            for each in contests(address, options.records, options.size, options.rounds):
                print(each.report())
