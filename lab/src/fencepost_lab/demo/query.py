"""Driver process of the demo: a Structured Streaming query with Fencepost's source and sink.

The process reports events as JSON lines on stdout. It may be killed at any moment: all its state is in the checkpoint
and in Kafka. After a failure (a killed Python worker or broker) it restarts the query from the checkpoint.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Job", "main"]

QUERY_RESTARTS_AT_MOST = 30
POLL_INTERVAL_SECONDS = 0.2
# The JVM lives for minutes at most: the client compiler and the serial collector halve its start-up time.
SHORT_RUN = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@dataclass(frozen=True, slots=True)
class Job:
    """Arguments of the driver, passed as one JSON text."""

    bootstrap_servers: str
    source_topic: str
    sink_topic: str
    checkpoint: str
    sink_id: str
    delivery: str
    rows_per_batch: int
    arrow: bool = False
    jvm_options: str = SHORT_RUN

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def report(event: str, **values: object) -> None:
    """Print one event for the supervisor."""
    print(json.dumps({"event": event, **values}), flush=True)


def classify(flights: Any) -> Any:
    """Return one output row per flight, with its delay class."""
    from pyspark.sql import functions as sf

    from fencepost_lab.demo.flights import CLASSES, NEVER_ARRIVED

    schema = "flight_id long, carrier string, arr_delay double"
    parsed = flights.select(sf.from_json(sf.col("value").cast("string"), schema).alias("flight")).select("flight.*")
    delay_class = sf.when(sf.col("arr_delay").isNull(), NEVER_ARRIVED)
    for name, highest in CLASSES[:-1]:
        delay_class = delay_class.when(sf.col("arr_delay") <= highest, name)
    delay_class = delay_class.otherwise(CLASSES[-1][0])
    row = sf.struct("flight_id", "carrier", "arr_delay", delay_class.alias("delay_class"))
    return parsed.select(sf.col("carrier").cast("binary").alias("key"), sf.to_json(row).cast("binary").alias("value"))


def classify_in_arrow(flights: pa.RecordBatch) -> pa.RecordBatch:
    """Return one output row per flight, like `classify`, for Arrow batches."""
    import io

    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.json

    from fencepost_lab.demo.flights import CLASSES, NEVER_ARRIVED

    schema = pa.schema([("flight_id", pa.int64()), ("carrier", pa.string()), ("arr_delay", pa.float64())])
    if not flights.num_rows:
        return flights.select(["key", "value"])
    parsed = pyarrow.json.read_json(
        io.BytesIO(b"\n".join(flights["value"].to_pylist())),
        parse_options=pyarrow.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
    ).combine_chunks()
    flight_id, carrier, delay = (parsed[name].combine_chunks() for name in schema.names)
    conditions = [pc.is_null(delay), *(pc.less_equal(delay, highest) for _, highest in CLASSES)]
    choices = [pa.scalar(name) for name in (NEVER_ARRIVED, *(name for name, _ in CLASSES))]
    delay_class = pc.case_when(pc.make_struct(*(pc.fill_null(each, False) for each in conditions)), *choices)
    pieces = [
        '{"flight_id":',
        flight_id.cast(pa.string()),
        ',"carrier":"',
        carrier,
        '","delay_class":"',
        delay_class,
        '"}',
    ]
    value = pc.binary_join_element_wise(*pieces, "").cast(pa.binary())
    return pa.record_batch({"key": carrier.cast(pa.binary()), "value": value})


def start_query(spark: Any, job: Job) -> Any:
    """Start or resume the query. It processes what is in the source topic, in micro-batches, and stops."""
    source = {
        "kafka.bootstrap.servers": job.bootstrap_servers,
        "subscribe": job.source_topic,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": str(job.rows_per_batch),
    }
    sink = {
        "kafka.bootstrap.servers": job.bootstrap_servers,
        "topic": job.sink_topic,
        "sink.id": job.sink_id,
        "delivery": job.delivery,
        "checkpointLocation": job.checkpoint,
    }
    if job.arrow:
        from fencepost.spark import arrow_pipeline

        writer = arrow_pipeline(spark, source=source, transform=classify_in_arrow, sink=sink)
    else:
        flights = spark.readStream.format("fencepost").options(**source).load()
        writer = classify(flights).writeStream.format("fencepost").options(**sink)
    return writer.trigger(availableNow=True).start()


def rows_of(progress: Any) -> int:
    """Return the number of offsets in a micro-batch.

    If records stay in Arrow, Spark's own count is of offset ranges.
    """
    from fencepost.spark.source.ranges import from_json

    (source,) = progress["sources"]
    begin, end = (from_json(json.loads(source[name] or "null") or {}) for name in ("startOffset", "endOffset"))
    return sum(at - begin.get(partition, 0) for partition, at in end.items())


def follow(query: Any) -> None:
    """Report each finished micro-batch until the query ends. Raises the query's exception if it failed."""
    reported = -1
    while True:
        active = query.isActive
        for progress in query.recentProgress:
            if progress["batchId"] > reported and rows_of(progress) > 0:
                reported = progress["batchId"]
                report(
                    "batch",
                    id=reported,
                    rows=rows_of(progress),
                    seconds=progress["durationMs"].get("triggerExecution", 0) / 1000,
                )
        if not active:
            break
        time.sleep(POLL_INTERVAL_SECONDS)
    query.awaitTermination()


def run(job: Job) -> None:
    """Run the query to its end, with a restart after each failure."""
    from pyspark.errors import StreamingQueryException

    from fencepost.spark import local_session

    settings = {
        "spark.app.name": "fencepost-demo",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": job.jvm_options,
        "spark.sql.streaming.numRecentProgressUpdates": "1000",
    }
    spark = local_session("local[2,4]", settings)
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
    """Run `python -m fencepost_lab.demo.query JOB`."""
    run(Job(**json.loads(sys.argv[1])))


if __name__ == "__main__":
    main()
