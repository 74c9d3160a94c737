"""The driver process of the demo: one Structured Streaming query, flights -> delay classes, through Fencepost's source
and sink.

It tells the supervisor what happens as JSON lines on stdout, and is meant to be killed at any moment: all it knows is
in the checkpoint and in Kafka. A query that fails (a Python worker or the broker was killed) is started again from the
checkpoint.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["Job", "main"]

QUERY_RESTARTS_AT_MOST = 30
POLL_INTERVAL_SECONDS = 0.2
# For a JVM that lives for minutes at most: the quick compiler and the plain collector start it in half the time.
SHORT_RUN = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@dataclass(frozen=True, slots=True)
class Job:
    """Everything the driver is told, as one JSON argument."""

    bootstrap_servers: str
    source_topic: str
    sink_topic: str
    checkpoint: str
    sink_id: str
    delivery: str
    rows_per_batch: int
    jvm_options: str = SHORT_RUN

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def report(event: str, **values: object) -> None:
    """One line for the supervisor."""
    print(json.dumps({"event": event, **values}), flush=True)


def classify(flights: Any) -> Any:
    """The transformation: one output row per flight, with its delay class."""
    from pyspark.sql import functions as sf

    from fencepost.demo.flights import CLASSES, NEVER_ARRIVED

    schema = "flight_id long, carrier string, arr_delay double"
    parsed = flights.select(sf.from_json(sf.col("value").cast("string"), schema).alias("flight")).select("flight.*")
    delay_class = sf.when(sf.col("arr_delay").isNull(), NEVER_ARRIVED)
    for name, highest in CLASSES[:-1]:
        delay_class = delay_class.when(sf.col("arr_delay") <= highest, name)
    delay_class = delay_class.otherwise(CLASSES[-1][0])
    row = sf.struct("flight_id", "carrier", "arr_delay", delay_class.alias("delay_class"))
    return parsed.select(sf.col("carrier").cast("binary").alias("key"), sf.to_json(row).cast("binary").alias("value"))


def start_query(spark: Any, job: Job) -> Any:
    """Start (or go on with) the query: all that is in the source topic now, in micro-batches, then stop."""
    flights = (
        spark.readStream.format("fencepost")
        .option("kafka.bootstrap.servers", job.bootstrap_servers)
        .option("subscribe", job.source_topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", job.rows_per_batch)
        .load()
    )
    return (
        classify(flights)
        .writeStream.format("fencepost")
        .option("kafka.bootstrap.servers", job.bootstrap_servers)
        .option("topic", job.sink_topic)
        .option("sink.id", job.sink_id)
        .option("delivery", job.delivery)
        .option("checkpointLocation", job.checkpoint)
        .trigger(availableNow=True)
        .start()
    )


def follow(query: Any) -> None:
    """Report each finished micro-batch until the query ends; raises what ended it, if it failed."""
    reported = -1
    while True:
        active = query.isActive
        for progress in query.recentProgress:
            if progress["batchId"] > reported and progress["numInputRows"] > 0:
                reported = progress["batchId"]
                report(
                    "batch",
                    id=reported,
                    rows=progress["numInputRows"],
                    seconds=progress["durationMs"].get("triggerExecution", 0) / 1000,
                )
        if not active:
            break
        time.sleep(POLL_INTERVAL_SECONDS)
    query.awaitTermination()


def run(job: Job) -> None:
    """Run the query to its end, through as many failures as the supervisor causes."""
    from pyspark.errors import StreamingQueryException
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master("local[2,4]")
        .appName("fencepost-demo")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.extraJavaOptions", job.jvm_options)
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "100000")
        .config("spark.sql.streaming.numRecentProgressUpdates", "1000")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    report("spark", version=spark.version)
    for _ in range(QUERY_RESTARTS_AT_MOST):
        try:
            query = start_query(spark, job)
            report("query")
            follow(query)
            break
        except StreamingQueryException as error:
            report("failed", reason=str(error).strip().splitlines()[0][:300])
            time.sleep(0.5)
    else:
        raise RuntimeError(f"the query failed {QUERY_RESTARTS_AT_MOST} times")
    report("done")
    spark.stop()


def main() -> None:
    """`python -m fencepost.demo.query JOB`."""
    run(Job(**json.loads(sys.argv[1])))


if __name__ == "__main__":
    main()
