"""A short life of the connector on whatever PySpark is first on the path: batch write, stream, restart, batch read.

python smoke.py '{"servers": "...", "source": "topic", "target": "topic", "folder": "...", "connect": false}'
"""

from __future__ import annotations

import json
import sys
from typing import Any

import pyspark
from pyspark.sql import functions as fn

from fencepost.spark import exactly_once
from tests.spark.session import session


def main(arguments: dict[str, Any]) -> None:
    spark = session(connect=arguments["connect"])
    common = {"kafka.bootstrap.servers": arguments["servers"]}
    source, target, folder = arguments["source"], arguments["target"], arguments["folder"]

    def write(rows: int) -> None:
        frame = spark.range(rows).select(fn.col("id").cast("string").alias("value"))
        frame.write.format("fencepost").mode("append").options(**common, topic=source, **{"sink.id": source}).save()

    def stream() -> Any:
        reader = spark.readStream.format("fencepost").options(**common, subscribe=source, startingOffsets="earliest")
        return reader.load().select("key", "value").writeStream

    def copy() -> None:
        writer = stream().format("fencepost").options(**common, topic=target)
        writer = writer.option("sink.id", target).option("checkpointLocation", f"{folder}/copy")
        writer.trigger(availableNow=True).start().awaitTermination()

    def copy_by_foreach() -> None:
        door = exactly_once({**common, "topic": f"{target}-2", "sink.id": f"{target}-2"}, query_id="smoke")
        writer = stream().foreachBatch(door).option("checkpointLocation", f"{folder}/foreach")
        writer.trigger(availableNow=True).start().awaitTermination()

    def count(topic: str) -> list[int]:
        frame = spark.read.format("fencepost").options(**common, subscribe=topic).load()
        row = frame.select(fn.count("*").alias("rows"), fn.count_distinct("value").alias("values")).first()
        return [row.rows, row.values] if row is not None else []

    write(500)
    copy()
    write(40)
    copy()  # goes on where the first run ended
    copy_by_foreach()
    seen = {"version": pyspark.__version__, "copied": count(target), "by foreach": count(f"{target}-2")}
    print(json.dumps(seen), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
