"""Runs cells in one Spark session that has both Spark's own Kafka connector and ours.

python driver.py JARS THREADS     questions from stdin, one a line; the answer to each is one line on stdout

{"do": "begin", "cells": [...]}   run these cells, many at a time, as far as there are records
{"do": "go on", "cells": [...]}   the streams among them once more: started again, or still running
{"do": "end", "cells": [...]}     {"answer": {name: what was seen}}
{"do": "write", "cells": [...]}   write a frame each, in a stream or a batch, and answer as to "end"

A cell is {"name": ..., "format": "kafka", "way": "batch", "options": {...}, "then": {...}, "checkpoint": folder}, where
"then" has the options of a stream that is started again. A cell that is written has {"frame": query in SQL, "mode":
null or a batch write's mode} as well; its way is "write" (a stream) or "save".
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as fn

from fencepost.spark import register
from tests.spark.session import session

PATIENCE_S = 180  # a query that finishes no batch for so long hangs
TRIGGERS: dict[str, dict[str, Any]] = {
    "available now": {"availableNow": True},
    "once": {"once": True},
    "processing time": {"processingTime": "0 seconds"},
}


def in_text(row: Row) -> list[Any]:
    """A row in JSON's types: bytes as Latin-1, moments in seconds."""
    return [_plain(value) for value in row]


def _plain(value: Any) -> Any:
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("latin-1")
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value.timestamp() if hasattr(value, "timestamp") else value


def tasks_of(rows: list[Row]) -> list[list[list[Any]]]:
    """The records that each task has read."""
    found: dict[int, list[list[Any]]] = {}
    for row in rows:
        found.setdefault(row["task"], []).append([row["topic"], row["partition"], row["offset"]])
    return sorted(sorted(lines) for lines in found.values())


class Cell:
    """One connector, asked one thing."""

    def __init__(self, spark: SparkSession, asked: dict[str, Any]) -> None:
        self._spark, self._asked = spark, asked
        self._query: Any = None
        self._progress: list[dict[str, Any]] = []
        self._rows: list[list[Any]] = []
        self._tasks: list[Any] = []
        self._errors: list[str] = []
        self._schema = ""

    def begin(self) -> None:
        """Read, or start the query and let it read what there is."""
        if self._asked["way"] != "batch":
            return self._run()
        return self._catching(self._read)

    def write(self) -> None:
        """Write the frame, as a batch or as a stream with one batch."""

        def save() -> None:
            register(self._spark)  # in this thread, which has no active session
            writer = self._spark.sql(self._asked["frame"]).write.format(self._asked["format"])
            if self._asked["mode"] is not None:
                writer = writer.mode(self._asked["mode"])
            writer.options(**self._asked["options"]).save()

        def start() -> None:
            frame = self._spark.sql(self._asked["frame"])
            files = self._asked["checkpoint"] + "-input"
            frame.write.parquet(files)
            register(self._spark)  # as above
            writer = self._spark.readStream.schema(frame.schema).parquet(files).writeStream
            writer = writer.format(self._asked["format"]).options(**self._asked["options"])
            writer = writer.option("checkpointLocation", self._asked["checkpoint"])
            self._query = writer.trigger(availableNow=True).start()
            self._await_end()

        self._catching(save if self._asked["way"] == "save" else start)

    def go_on(self) -> None:
        """A query that runs goes on; one that has ended starts again."""
        if self._asked["way"] == "batch":
            return
        if self._query is None or not self._query.isActive:
            self._keep_progress()
            self._asked["options"] = self._asked["then"]
            self._run()
        else:
            self._catching(self._query.processAllAvailable)

    def end(self) -> dict[str, Any]:
        """Stop the query and return the outcome."""
        if self._query is not None:
            self._query.stop()
        if "frame" not in self._asked:
            self._keep_progress()
        return {
            "errors": self._errors,
            "schema": self._schema,
            "rows": self._rows,
            "tasks": self._tasks,
            "batches": self._progress,
        }

    def _catching(self, do: Callable[[], object]) -> None:
        try:
            do()
        except Exception as error:  # noqa: BLE001 - whatever the connector raises is what it does
            self._errors.append(f"{type(error).__name__}: {self._causes()}{error}")

    def _causes(self) -> str:
        """The classes of what the query has failed with, which Spark's own message leaves out."""
        failed = self._query._jsq.exception() if self._query is not None else None
        found, names = (failed.get().getCause() if failed is not None and failed.isDefined() else None), ""
        while found is not None:
            names += f"{found.getClass().getSimpleName()}: "
            found = found.getCause()
        return names

    def _load(self, reader: Any) -> DataFrame:
        frame: DataFrame = reader.format(self._asked["format"]).options(**self._asked["options"]).load()
        self._schema = frame.schema.json()
        return frame.withColumn("task", fn.spark_partition_id())

    def _take(self, frame: DataFrame) -> None:
        found = frame.collect()
        self._tasks.append(tasks_of(found))
        self._rows.append(sorted((in_text(row)[:-1] for row in found), key=repr))

    def _read(self) -> None:
        self._take(self._load(self._spark.read))

    def _run(self) -> None:
        def start() -> None:
            self._query = None
            frame = self._load(self._spark.readStream)
            writer = frame.writeStream.foreachBatch(lambda batch, _: self._take(batch))
            writer = writer.option("checkpointLocation", self._asked["checkpoint"])
            trigger = TRIGGERS[self._asked["way"]]
            self._query = writer.trigger(**trigger).start()
            if "processingTime" in trigger:
                self._query.processAllAvailable()
            else:
                self._await_end()

        self._catching(start)

    def _await_end(self) -> None:
        """Wait for the query's end, as long as it finishes batches. One that hangs is stopped."""
        finished = None
        while not self._query.awaitTermination(PATIENCE_S):
            before, last = finished, self._query.lastProgress
            finished = None if last is None else last["batchId"]
            if finished == before:
                self._query.stop()
                self._errors.append("it did not end")

    def _keep_progress(self) -> None:
        if self._query is None:
            return
        reported = [json.loads(report.json) for report in self._query.recentProgress]
        self._progress += [
            {
                "batch": batch["batchId"],
                "end": without_ids(batch["sources"][0]["endOffset"]),
                "rows": batch["numInputRows"],
            }
            for batch in reported
            if "addBatch" in batch["durationMs"]
        ]


def without_ids(offsets: Any) -> Any:
    """Without the topics' ids, which ours adds."""
    found = json.loads(offsets) if isinstance(offsets, str) else offsets
    return {topic: parts for topic, parts in (found or {}).items() if parts}


class Cells:
    """Those that have begun and not ended, by name."""

    def __init__(self, spark: SparkSession, threads: int) -> None:
        self._spark = spark
        self._pool = ThreadPoolExecutor(threads)
        self._cells: dict[str, Cell] = {}

    def do(self, asked: dict[str, Any]) -> dict[str, Any]:
        """The answer to a question."""
        if asked["do"] == "begin":
            self._cells.update({cell["name"]: Cell(self._spark, cell) for cell in asked["cells"]})
            list(self._pool.map(lambda cell: self._cells[cell["name"]].begin(), asked["cells"]))
            return {}
        if asked["do"] == "write":
            written = {cell["name"]: Cell(self._spark, cell) for cell in asked["cells"]}
            list(self._pool.map(Cell.write, written.values()))
            return {name: cell.end() for name, cell in written.items()}
        if asked["do"] == "go on":
            list(self._pool.map(lambda cell: self._cells[cell["name"]].go_on(), asked["cells"]))
            return {}
        return {cell["name"]: self._cells.pop(cell["name"]).end() for cell in asked["cells"]}


def main(jars: str, threads: int) -> None:
    settings = {
        "spark.jars": jars,
        "spark.sql.streaming.numRecentProgressUpdates": "1000",
        "spark.sql.session.timeZone": "UTC",
        # Two seconds after a failed job Spark kills the Python worker of each task that has not ended, without asking
        # if the worker has gone to a task of another cell.
        "spark.python.task.killTimeout": "10m",
    }
    spark = session(f"local[{threads}]", settings)
    spark.sparkContext.setLogLevel("OFF")
    cells = Cells(spark, threads)
    print(json.dumps({"answer": "ready"}), flush=True)
    for line in sys.stdin:
        try:
            answer: Any = {"answer": cells.do(json.loads(line))}
        except Exception as error:  # noqa: BLE001 - the test tells it
            answer = {"failed": "".join(traceback.format_exception(error))}
        print(json.dumps(answer), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
