"""Two stateful queries over the numbers in a topic: counts per window, and a stream-stream join.

Each value is "name number"; the record's timestamp is `number` seconds after START. The windows go to the target as
"window <start> <count>", the pairs of the join (of the topic with itself) as "pair <number>".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

WINDOW_S = 10


def numbers(spark: SparkSession, arguments: dict[str, str]) -> DataFrame:
    reader = (
        spark.readStream.format("fencepost")
        .option("kafka.bootstrap.servers", arguments["servers"])
        .option("subscribe", arguments["source"])
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "150")
    )
    number = fn.split_part(fn.col("value").cast("string"), fn.lit(" "), fn.lit(-1)).alias("number")
    return reader.load().select(number, fn.col("timestamp").alias("at")).withWatermark("at", "60 seconds")


def windows(spark: SparkSession, arguments: dict[str, str]) -> Any:
    counts = numbers(spark, arguments).groupBy(fn.window("at", f"{WINDOW_S} seconds")).count()
    start = fn.unix_timestamp(fn.col("window.start")).cast("string")
    value = fn.concat_ws(" ", start, fn.col("count").cast("string")).alias("value")
    return written(counts.select(fn.lit("window").alias("key"), value), arguments)


def pairs(spark: SparkSession, arguments: dict[str, str]) -> Any:
    left = numbers(spark, arguments)
    right = numbers(spark, arguments).select(fn.col("number").alias("other"), fn.col("at").alias("then"))
    near = fn.expr("number = other AND then BETWEEN at - INTERVAL 5 SECONDS AND at + INTERVAL 5 SECONDS")
    found = left.join(right, near).select(fn.lit("pair").alias("key"), fn.col("number").alias("value"))
    return written(found, arguments)


def written(frame: DataFrame, arguments: dict[str, str]) -> Any:
    return (
        frame.writeStream.format("fencepost")
        .outputMode("append")
        .option("kafka.bootstrap.servers", arguments["servers"])
        .option("topic", arguments["target"])
        .option("sink.id", arguments["sink"])
        .option("checkpointLocation", arguments["checkpoint"])
        .option("require.guarantee", arguments["guarantee"])
    )


QUERIES: dict[str, Callable[[SparkSession, dict[str, str]], Any]] = {"windows": windows, "pairs": pairs}
