"""Uses every door of format("fencepost") in one Spark session."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from fencepost.spark import behind_latest, exactly_once


def text_of(attempt: Callable[[], Any]) -> str:
    try:
        attempt()
    except Exception as error:  # noqa: BLE001 - whatever Spark makes of it
        return str(error)
    return ""


def rows_of(spark: SparkSession) -> DataFrame:
    """A thousand rows with all columns that the sink takes from them."""
    return spark.range(1000).select(
        fn.concat(fn.lit("k"), fn.col("id") % 7).alias("key"),
        fn.col("id").cast("string").alias("value"),
        fn.array(fn.struct(fn.lit("n").alias("key"), fn.col("id").cast("string").cast("binary").alias("value"))).alias(
            "headers"
        ),
        fn.timestamp_millis(fn.lit(1_600_000_000_123) + fn.col("id")).alias("timestamp"),
    )


def several_frames(spark: SparkSession, arguments: dict[str, str], write: Callable[..., None]) -> dict[str, str]:
    """foreachBatch with two frames of each batch, and with a batch write."""
    common = {"kafka.bootstrap.servers": arguments["servers"]}
    first, folder = arguments["first"], arguments["folder"]
    seen: dict[str, str] = {}

    def stream_of(topic: str) -> DataFrame:
        found = spark.readStream.format("fencepost").options(**common, subscribe=topic, startingOffsets="earliest")
        return found.load().select("key", "value")

    def run(writer: Any, name: str) -> None:
        writer.option("checkpointLocation", f"{folder}/{name}").trigger(availableNow=True).start().awaitTermination()

    def twice(*sinks: str) -> Callable[[DataFrame, int], None]:
        doors = [exactly_once({**common, "topic": arguments["third"], "sink.id": sink}) for sink in sinks]

        def write_both(frame: DataFrame, batch_id: int) -> None:
            for door in doors:
                door(frame.where("cast(key as string) = 'k1'"), batch_id)

        return write_both

    def write_plainly(frame: DataFrame, batch_id: int) -> None:
        write(frame.limit(20), **{"sink.id": f"plain-{batch_id}"})

    def broken_row(frame: DataFrame, batch_id: int) -> None:
        rows = frame.withColumn("value", fn.expr("if(cast(value as string) = '999', raise_error('broken'), value)"))
        exactly_once({**common, "topic": arguments["third"], "sink.id": "doors/broken"})(rows, batch_id)

    # Nobody opens this sink again: what its other tasks have written must not stay open.
    seen["failed frame"] = text_of(lambda: run(stream_of(first).writeStream.foreachBatch(broken_row), "broken"))
    twice_to_sink = stream_of(first).writeStream.foreachBatch(twice("doors/a", "doors/a"))
    seen["one sink twice"] = text_of(lambda: run(twice_to_sink, "twice"))
    # The batch comes again in the same process, after its first frame is written: now to two sinks.
    seen["two sinks"] = text_of(
        lambda: run(stream_of(first).writeStream.foreachBatch(twice("doors/a", "doors/b")), "twice")
    )
    plainly = stream_of(first).writeStream.foreachBatch(write_plainly)
    seen["batch write in a batch"] = text_of(lambda: run(plainly, "plainly"))
    return seen


def read_by_all(spark: SparkSession, arguments: dict[str, str]) -> dict[str, Any]:
    """`arguments`: `servers`, the topics `first`, `second` and `third`, and a `folder`."""
    first, second, folder = arguments["first"], arguments["second"], arguments["folder"]
    common = {"kafka.bootstrap.servers": arguments["servers"]}
    seen: dict[str, Any] = {}

    frame = rows_of(spark)

    def write(frame: Any, **options: str) -> None:
        frame.write.format("fencepost").mode("append").options(**common, topic=first, **options).save()

    write(frame, **{"sink.id": "doors"})
    write(frame.limit(10), **{"sink.id": "doors"})
    write(frame.limit(5), delivery="at-least-once")
    # All or nothing: one row fails in the last task, the others have written theirs by then.
    broken = frame.withColumn("value", fn.expr("if(value = '999', raise_error('a broken row'), value)"))
    seen["failed job"] = text_of(lambda: write(broken, **{"sink.id": "doors"}))
    seen["no name"] = text_of(lambda: write(frame))
    seen["wrong column"] = text_of(lambda: write(frame.withColumnRenamed("key", "colour"), **{"sink.id": "doors"}))

    def read(**options: str) -> Any:
        return spark.read.format("fencepost").options(**common, **options).load()

    everything = read(subscribe=first, includeHeaders="true")
    seen["columns"] = everything.dtypes
    seen["rows"] = everything.count()
    row = everything.where(fn.col("value") == b"7").orderBy("offset").first()
    seen["one"] = {
        "key": row.key.decode(),
        "topic": row.topic,
        "headers": [[header.key, header.value.decode()] for header in row.headers],
        "ms": int(everything.where(fn.col("value") == b"7").select(fn.unix_millis("timestamp").alias("t")).first().t),
        "timestampType": row.timestampType,
    }
    seen["by pattern, split"] = read(subscribePattern=f"{first[:-1]}.", minPartitions="9").rdd.getNumPartitions()
    seen["assigned"] = read(assign=json.dumps({first: [0]})).select("partition").distinct().collect()[0][0]
    ends = json.dumps({first: {"0": 5, "1": 5, "2": 5}})
    seen["up to five"] = read(subscribe=first, endingOffsets=ends).count()
    late = read(subscribe=first, startingTimestamp="1600000001122", startingOffsetsByTimestampStrategy="latest")
    seen["projected"] = [row.value.decode() for row in late.select("value").collect()][:1]

    def copy() -> list[list[int]]:
        stream = spark.readStream.format("fencepost").options(**common, subscribe=first, startingOffsets="earliest")
        door = exactly_once({**common, "topic": second, "sink.id": "doors/foreach"})
        rows = stream.option("maxOffsetsPerTrigger", "400").load().select("key", "value")
        query = rows.writeStream.foreachBatch(door).option("checkpointLocation", f"{folder}/checkpoint")
        started = query.trigger(availableNow=True).start()
        started.awaitTermination()
        return [
            [lag.max_offsets_behind_latest for lag in behind_latest(reported)] for reported in started.recentProgress
        ]

    seen.update(several_frames(spark, arguments, write))
    written = [
        read(subscribe=topic).where("cast(key as string) = 'k1'").count() for topic in (first, arguments["third"])
    ]
    seen["rows of a frame, rows of two sinks"] = written
    seen["behind"] = copy()
    write(frame.limit(3), **{"sink.id": "doors"})
    copy()
    seen["copied"] = read(subscribe=second).count()
    return seen
