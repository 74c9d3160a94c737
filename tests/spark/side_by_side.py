"""Runs queries in one Spark session that has both Spark's own Kafka connector and ours.

python side_by_side.py JARS       objects from stdin, one a line; the answer to each is one line on stdout

{"do": "read", "format": "kafka", "options": {...}}
    a batch read: {"rows": [[topic, partition, offset, key, value], ...]} or {"error": "..."}
{"do": "stream", "format": ..., "options": {...}, "checkpoint": "...", "query": "plain", ...}
    a stream up to its end: {"batches": [{"end": {...}, "rows": 3}, ...], "rows": [...], "dropped": 0}, and "error"
    "trigger": "processing time": a stream that would go on, until it has read what there is
    "cut": {"0": 4}: the first batch deletes the topic's records before these offsets, when it has read its own
{"do": "limits", "asked": [[100, {...}, {...}], ...]}
    the ends of batches that Spark's own connector computes from maxOffsetsPerTrigger, start and end: [{...}, ...]
{"do": "stateful", "query": "outer", "arguments": {...}}
    a query of stateful.py up to its end: {"error": null}, or the error
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from fencepost import Admin
from tests.spark import stateful
from tests.spark.session import session

COLUMNS = ("topic", "partition", "offset", "key", "value")
PATIENCE_S = 20
SPARKS_STREAM = "org.apache.spark.sql.kafka010.KafkaMicroBatchStream"


def load(spark: SparkSession, asked: dict[str, Any], *, stream: bool) -> DataFrame:
    reader = (spark.readStream if stream else spark.read).format(asked["format"])
    return reader.options(**asked["options"]).load()


def rows_of(frame: DataFrame) -> list[list[Any]]:
    texts = [fn.col(name).cast("string") if name in ("key", "value") else fn.col(name) for name in COLUMNS]
    return sorted([list(row) for row in frame.select(*texts).collect()])


def read(spark: SparkSession, asked: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"rows": rows_of(load(spark, asked, stream=False))}
    except Exception as error:  # noqa: BLE001 - whatever the connector raises is what it does
        return {"error": f"{type(error).__name__}: {error}"}


def windows(frame: DataFrame) -> DataFrame:
    late = frame.withWatermark("timestamp", "10 minutes")
    counted = late.groupBy(fn.window("timestamp", "10 seconds"), fn.col("value").cast("string").alias("value")).count()
    return counted.select("value", "count", fn.col("window.start").cast("string").alias("start"))


def distinct(frame: DataFrame) -> DataFrame:
    return frame.select(fn.col("value").cast("string").alias("value")).dropDuplicates(["value"])


QUERIES: dict[str, Callable[[DataFrame], DataFrame]] = {
    "plain": lambda frame: frame.select("topic", "partition", "offset", "key", "value"),
    "windows": windows,
    "distinct": distinct,
}


def cut(asked: dict[str, Any]) -> None:
    options = asked["options"]
    with Admin(options["kafka.bootstrap.servers"]) as admin:
        admin.delete_records({(options["subscribe"], int(number)): before for number, before in asked["cut"].items()})


def run_stateful(spark: SparkSession, asked: dict[str, Any]) -> dict[str, Any]:
    query = stateful.QUERIES[asked["query"]](spark, asked["arguments"]).trigger(availableNow=True).start()
    try:
        query.awaitTermination()
    except Exception as error:  # noqa: BLE001 - see above
        return {"error": str(error)}
    return {"error": None}


def stream(spark: SparkSession, asked: dict[str, Any]) -> dict[str, Any]:
    frame = QUERIES[asked.get("query", "plain")](load(spark, asked, stream=True))
    seen: list[list[Any]] = []

    def keep(batch: DataFrame, batch_id: int) -> None:
        rows = rows_of(batch) if asked.get("query", "plain") == "plain" else [list(row) for row in batch.collect()]
        seen.extend(rows)
        if batch_id == 0 and "cut" in asked:
            cut(asked)

    sink = asked.get("sink")
    if sink is None:
        writer = frame.writeStream.foreachBatch(keep)
    else:
        writer = frame.select("value").writeStream.format(sink["format"]).options(**sink["options"])
    writer = writer.option("checkpointLocation", asked["checkpoint"])
    trigger = asked.get("trigger", "availableNow")
    if trigger == "availableNow":
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime="200 milliseconds")
    answer: dict[str, Any] = {}
    query = writer.start()
    try:
        if trigger == "availableNow":
            query.awaitTermination()
        elif trigger == "processing time":
            query.processAllAvailable()
        else:
            query.awaitTermination(asked["seconds"])
            answer["active"] = query.isActive
    except Exception as error:  # noqa: BLE001 - see above
        answer["error"] = f"{type(error).__name__}: {error}"
    finally:
        query.stop()
    progress = [json.loads(report.json) for report in query.recentProgress]
    answer["batches"] = [
        {"batch": batch["batchId"], "end": plain(batch["sources"][0]["endOffset"]), "rows": batch["numInputRows"]}
        for batch in progress
        if batch["numInputRows"]
    ]
    answer["dropped"] = sum(
        state["numRowsDroppedByWatermark"] for batch in progress for state in batch["stateOperators"]
    )
    answer["rows"] = sorted(seen)
    return answer


def limits(spark: SparkSession, asked: dict[str, Any]) -> list[Any]:
    """By its private method, because a stream has these ends only with as many records."""
    gateway: Any = spark.sparkContext._gateway
    jvm, array = gateway.jvm, gateway.new_array
    its, form = SPARKS_STREAM, jvm.org.apache.spark.sql.kafka010.JsonUtils
    found = jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(its)
    (constructor,) = found.getConstructors()
    options = jvm.org.apache.spark.sql.util.CaseInsensitiveStringMap(jvm.java.util.HashMap())
    arguments = array(jvm.java.lang.Object, 6)
    for number, argument in enumerate((None, jvm.java.util.HashMap(), options, "", None, True)):
        arguments[number] = argument
    stream = constructor.newInstance(arguments)
    (method,) = (candidate for candidate in found.getDeclaredMethods() if candidate.getName() == "rateLimit")
    method.setAccessible(True)

    def ends(most: int, start: Any, end: Any) -> Any:
        arguments = array(jvm.java.lang.Object, 3)
        arguments[0] = jvm.java.lang.Long.valueOf(most)
        arguments[1], arguments[2] = (form.partitionOffsets(json.dumps(offsets)) for offsets in (start, end))
        return json.loads(form.partitionOffsets(method.invoke(stream, arguments)))

    return [ends(*pair) for pair in asked["asked"]]


def plain(offsets: Any) -> Any:
    """Without what ours adds: the topics' ids."""
    found = json.loads(offsets) if isinstance(offsets, str) else offsets
    return {topic: parts for topic, parts in (found or {}).items() if parts}


def main(jars: str) -> None:
    settings = {"spark.jars": jars, "spark.sql.streaming.numRecentProgressUpdates": "1000"}
    spark = session("local[2]", settings)
    spark.sparkContext.setLogLevel("OFF")
    print(json.dumps({"answer": "ready"}), flush=True)
    doors = {"read": read, "stream": stream, "stateful": run_stateful, "limits": limits}
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            answer: Any = {"answer": doors[asked["do"]](spark, asked)}
        except Exception as error:  # noqa: BLE001 - the test tells it
            answer = {"failed": "".join(traceback.format_exception(error))}
        print(json.dumps(answer), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
