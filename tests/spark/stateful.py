"""Two stateful queries over the numbers in a topic, one after the other: counts per window, and a stream-stream join.

python stateful.py '{"servers": "...", "source": "in", "target": "out", "sink": "s", "checkpoint": "...", ...}'

Each value is "name number"; the record's timestamp is `number` seconds after START. The windows go to the target as
"window <start> <count>", the pairs of the join (of the topic with itself) as "pair <number>".
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from tests.spark.session import session

WINDOW_S = 10


def main(arguments: dict[str, str]) -> None:
    if "folder" in arguments:
        Path(arguments["folder"], "driver.pid").write_text(str(os.getpid()))
    spark = session()

    def numbers() -> DataFrame:
        reader = (
            spark.readStream.format("fencepost")
            .option("kafka.bootstrap.servers", arguments["servers"])
            .option("subscribe", arguments["source"])
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", "150")
        )
        number = fn.split_part(fn.col("value").cast("string"), fn.lit(" "), fn.lit(-1)).alias("number")
        return reader.load().select(number, fn.col("timestamp").alias("at")).withWatermark("at", "60 seconds")

    def write(frame: DataFrame, name: str) -> Any:
        writer = (
            frame.writeStream.format("fencepost")
            .outputMode("append")
            .option("kafka.bootstrap.servers", arguments["servers"])
            .option("topic", arguments["target"])
            .option("sink.id", f"{arguments['sink']}/{name}")
            .option("checkpointLocation", f"{arguments['checkpoint']}-{name}")
            .option("require.level", arguments["level"])
        )
        writer.trigger(availableNow=True).start().awaitTermination()

    counts = numbers().groupBy(fn.window("at", f"{WINDOW_S} seconds")).count()
    start = fn.unix_timestamp(fn.col("window.start")).cast("string")
    write(
        counts.select(
            fn.lit("window").alias("key"), fn.concat_ws(" ", start, fn.col("count").cast("string")).alias("value")
        ),
        "windows",
    )
    print("windows are done", flush=True)
    left, right = numbers(), numbers().select(fn.col("number").alias("other"), fn.col("at").alias("then"))
    near = fn.expr("number = other AND then BETWEEN at - INTERVAL 5 SECONDS AND at + INTERVAL 5 SECONDS")
    write(left.join(right, near).select(fn.lit("pair").alias("key"), fn.col("number").alias("value")), "pairs")
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
