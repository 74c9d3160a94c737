"""The query under test, as a program: copies topic to topic, exactly once, until all that is there is copied.

python copy_topic.py '{"servers": "...", "source": "in", "target": "out", "sink": "s", "checkpoint": "...", ...}'
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession


def main(arguments: dict[str, str]) -> None:
    if "folder" in arguments:
        Path(arguments["folder"], "driver.pid").write_text(str(os.getpid()))
    spark = (
        SparkSession.builder.master(arguments.get("master", "local[2]"))
        .config("spark.ui.enabled", "false")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")  # starts sooner
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config(map=json.loads(arguments.get("settings", "{}")))
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    reader = (
        spark.readStream.format("fencepost")
        .option("kafka.bootstrap.servers", arguments["servers"])
        .option("subscribe", arguments["source"])
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", arguments.get("rows_per_batch", "500"))
    )
    if "tasks" in arguments:
        reader = reader.option("minPartitions", arguments["tasks"])
    writer = (
        reader.load()
        .select("key", "value")
        .writeStream.format("fencepost")
        .option("kafka.bootstrap.servers", arguments["servers"])
        .option("topic", arguments["target"])
        .option("sink.id", arguments["sink"])
        .option("checkpointLocation", arguments["checkpoint"])
    )
    if "level" in arguments:
        writer = writer.option("require.level", arguments["level"])
    stops = [float(seconds) for seconds in arguments.get("stops", "").split(",") if seconds]
    for seconds in stops:  # at whatever the query is doing then
        started = writer.trigger(processingTime="0 seconds").start()
        time.sleep(seconds)
        started.stop()
    if stops:
        print(f"stopped {len(stops)} times", flush=True)
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    progress = [json.loads(one.json) for one in query.recentProgress]
    print("batches", sum(1 for one in progress if one["numInputRows"]), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
