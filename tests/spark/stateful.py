"""Stateful queries over the numbers in a topic: windows, joins, duplicates, and states of Python functions.

Each value is "name number"; the record's timestamp is `number` seconds after START_S. What each query
writes is in stateful_answers.py. `arguments` may name another `format` than ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from tests.spark.stateful_answers import START_S, WINDOW_S

LATENESS_S = 60
STORE = "spark.sql.streaming.stateStore.providerClass"
ROCKS_DB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"  # transformWithState needs it


def numbers(spark: SparkSession, arguments: dict[str, str]) -> DataFrame:
    reader = (
        spark.readStream.format(arguments.get("format", "fencepost"))
        .option("kafka.bootstrap.servers", arguments["servers"])
        .option("subscribe", arguments["source"])
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "150")
    )
    number = fn.split_part(fn.col("value").cast("string"), fn.lit(" "), fn.lit(-1)).alias("number")
    return reader.load().select(number, fn.col("timestamp").alias("at")).withWatermark("at", f"{LATENESS_S} seconds")


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


def outer(spark: SparkSession, arguments: dict[str, str]) -> Any:
    """Odd numbers have no partner, and come when the watermark has passed them."""
    left = numbers(spark, arguments)
    right = numbers(spark, arguments).where("number % 2 = 0")
    right = right.select(fn.col("number").alias("other"), fn.col("at").alias("then"))
    near = fn.expr("number = other AND then BETWEEN at - INTERVAL 5 SECONDS AND at + INTERVAL 5 SECONDS")
    value = fn.concat_ws(" ", "number", fn.coalesce("other", fn.lit("alone"))).alias("value")
    return written(left.join(right, near, "left_outer").select(fn.lit("outer").alias("key"), value), arguments)


def within(spark: SparkSession, arguments: dict[str, str]) -> Any:
    """Two numbers in a row are the same."""
    halves = numbers(spark, arguments).select(fn.expr("cast(number AS int) div 2").alias("half"), "at")
    found = halves.dropDuplicatesWithinWatermark(["half"])
    return written(found.select(fn.lit("within").alias("key"), fn.col("half").cast("string").alias("value")), arguments)


def tens(spark: SparkSession, arguments: dict[str, str]) -> DataFrame:
    return numbers(spark, arguments).withColumn("ten", fn.expr(f"cast(number AS int) div {WINDOW_S}"))


def end_ms(ten: int) -> int:
    return (START_S + (int(ten) + 1) * WINDOW_S) * 1000  # pandas hands over a number of its own


def counted(key: tuple[int], frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    if state.hasTimedOut:
        yield pd.DataFrame({"key": ["counted"], "value": [f"{key[0]} {state.get[0]}"]})
        state.remove()
        return
    state.update(((state.get[0] if state.exists else 0) + sum(map(len, frames)),))
    state.setTimeoutTimestamp(end_ms(key[0]))


def function_with_state(spark: SparkSession, arguments: dict[str, str]) -> Any:
    groups = tens(spark, arguments).groupBy("ten")
    timeout = GroupStateTimeout.EventTimeTimeout
    frame = groups.applyInPandasWithState(counted, "key string, value string", "n long", "append", timeout)
    return written(frame, arguments)


class Counting(StatefulProcessor):
    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle, self._count = handle, handle.getValueState("count", "n long")

    def handleInputRows(  # type: ignore[override]  # noqa: N802 - PySpark's name; only of pandas
        self,
        key: Any,
        rows: Iterator[pd.DataFrame],
        timerValues: Any,  # noqa: N803 - PySpark's name
    ) -> Iterator[pd.DataFrame]:
        count = (self._count.get() or (0,))[0]
        if not count:
            self._handle.registerTimer(end_ms(key[0]))
        self._count.update((count + sum(map(len, rows)),))
        return iter(())

    def handleExpiredTimer(  # noqa: N802 - PySpark's name
        self,
        key: Any,
        timerValues: Any,  # noqa: N803 - PySpark's name
        expiredTimerInfo: Any,  # noqa: N803 - PySpark's name
    ) -> Iterator[pd.DataFrame]:
        yield pd.DataFrame({"key": ["counted"], "value": [f"{key[0]} {(self._count.get() or (0,))[0]}"]})
        self._count.clear()

    def close(self) -> None:
        """Nothing is open."""


def processor(spark: SparkSession, arguments: dict[str, str]) -> Any:
    spark.conf.set(STORE, ROCKS_DB)
    groups = tens(spark, arguments).groupBy("ten")
    frame = groups.transformWithStateInPandas(Counting(), "key string, value string", "Append", "EventTime")
    return written(frame, arguments)


def written(frame: DataFrame, arguments: dict[str, str]) -> Any:
    writer = (
        frame.writeStream.format(arguments.get("format", "fencepost"))
        .outputMode("append")
        .option("kafka.bootstrap.servers", arguments["servers"])
        .option("topic", arguments["target"])
        .option("checkpointLocation", arguments["checkpoint"])
    )
    if "format" in arguments:
        return writer
    return writer.option("sink.id", arguments["sink"]).option("require.guarantee", arguments["guarantee"])


QUERIES: dict[str, Callable[[SparkSession, dict[str, str]], Any]] = {
    "windows": windows,
    "pairs": pairs,
    "outer": outer,
    "within": within,
    "function with state": function_with_state,
    "processor": processor,
}
