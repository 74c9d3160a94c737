"""Runs queries from topic to topic with Spark's own connector and with ours, so that they can be moved between the two.

python moving.py JARS       objects from stdin, one a line; the answer to each is one line on stdout

{"servers": ..., "input": ..., "output": ..., "checkpoint": ..., "source": "kafka", "sink": "fencepost", ...}
    up to the end of the input: {"error": null}, or the error that ended the query
    "sink": "describe" with "path": fencepost.spark.describe_batch
    "query": "distinct": keys that were seen are in the state; "windows": counts behind a watermark
    "breaks": 2: the task raises after so many rows; "hangs": a task of partition 1 waits for ever, before its rows
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from fencepost.spark import describe_batch
from tests.spark.session import session

Batches = Iterator[pa.RecordBatch]


def breaking(rows: int) -> Callable[[Batches], Batches]:
    def broken(batches: Batches) -> Batches:
        for batch in batches:
            if rows:
                yield batch.slice(0, rows)
            raise RuntimeError("the task breaks, as it was asked to")

    return broken


def hanging(batches: Batches) -> Batches:
    context = TaskContext.get()
    if context is not None and context.partitionId() == 1:
        time.sleep(3600)
    yield from batches


def windows(frame: DataFrame) -> DataFrame:
    late = frame.withWatermark("timestamp", "10 minutes")
    counts = late.groupBy(fn.window("timestamp", "5 minutes"), fn.col("value").cast("string").alias("value")).count()
    return counts.select(fn.concat_ws(" ", fn.col("window.start").cast("string"), "value", "count").alias("value"))


def frame_of(spark: SparkSession, asked: dict[str, Any]) -> DataFrame:
    options = {"kafka.bootstrap.servers": asked["servers"], "subscribe": asked["input"], "startingOffsets": "earliest"}
    frame = spark.readStream.format(asked["source"]).options(**options).load()
    if asked.get("query") == "windows":
        return windows(frame)
    frame = frame.select(fn.col("value").cast("string").alias("value"))
    if asked.get("query") == "distinct":
        frame = frame.dropDuplicates(["value"])
    if "breaks" in asked:
        frame = frame.mapInArrow(breaking(asked["breaks"]), "value string")
    return frame.mapInArrow(hanging, "value string") if asked.get("hangs") else frame


def run(spark: SparkSession, asked: dict[str, Any]) -> dict[str, Any]:
    writer = frame_of(spark, asked).writeStream.option("checkpointLocation", asked["checkpoint"])
    if asked["sink"] == "describe":
        writer = writer.foreachBatch(describe_batch(asked["path"], topic=asked["output"], keep_rows=True))
    else:
        options = {"kafka.bootstrap.servers": asked["servers"], "topic": asked["output"]}
        writer = writer.format(asked["sink"]).options(**options)
    query = writer.trigger(availableNow=True).start()
    try:
        query.awaitTermination()
    except Exception as error:  # noqa: BLE001 - the test looks at it
        return {"error": str(error)}
    finally:
        query.stop()
    return {"error": None}


def main(jars: str) -> None:
    spark = session("local[2]", {"spark.jars": jars})
    spark.sparkContext.setLogLevel("OFF")
    print(json.dumps({"answer": "ready"}), flush=True)
    for line in sys.stdin:
        print(json.dumps({"answer": run(spark, json.loads(line))}), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
