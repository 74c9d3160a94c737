"""The cells of a notebook, in one interpreter. Prints what each has shown, as JSON.

python notebook.py SERVERS FOLDER       topic `in` has 40 records, numbered; `out` is empty
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from fencepost import Producer
from fencepost.spark import exactly_once, register
from tests.spark.session import session

FIRST, MORE = 40, 10
Seen = dict[str, Any]


class Notebook:
    """Its session and its queries, which begin where they have ended."""

    def __init__(self, servers: str, folder: str) -> None:
        self.at, self.folder = {"kafka.bootstrap.servers": servers}, folder
        self.spark: SparkSession = session()

    def rows(self) -> DataFrame:
        source = {**self.at, "subscribe": "in", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "10"}
        return self.spark.readStream.format("fencepost").options(**source).load().select("value")

    def start(self, **trigger: Any) -> Any:
        writer = self.rows().writeStream.format("fencepost").options(**self.at, topic="out")
        return writer.option("checkpointLocation", f"{self.folder}/sink").trigger(**trigger).start()

    def start_foreach(self, write: Callable[[DataFrame, int], None]) -> Any:
        writer = self.rows().writeStream.foreachBatch(write).option("checkpointLocation", f"{self.folder}/foreach")
        return writer.trigger(availableNow=True).start()

    def add(self, first: int) -> None:
        with Producer(self.at["kafka.bootstrap.servers"]) as producer:
            for number in range(first, first + MORE):
                producer.send("in", b"%d" % number)


def interrupted(wait: Callable[[], object]) -> bool:
    """Return True if the cell was interrupted, as by the notebook's stop button."""
    try:
        wait()
    except KeyboardInterrupt:
        return True
    return False


def error_of(cell: Callable[[], object]) -> str:
    try:
        cell()
    except Exception as error:  # noqa: BLE001 - whatever it is, the test looks at it
        return str(error)
    return ""


def interrupt_once_it_has_copied(query: Any) -> None:
    def press() -> None:
        while not (query.lastProgress and query.lastProgress["batchId"] >= 1):
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=press).start()


def in_a_thread(cell: Callable[[], object]) -> str:
    found: list[str] = []
    thread = threading.Thread(target=lambda: found.append(error_of(cell)))
    thread.start()
    thread.join()
    return found[0]


def cells(notebook: Notebook) -> Seen:
    seen: Seen = {}
    for _ in range(2):
        register(notebook.spark)
    query = notebook.start(processingTime="0 seconds")
    interrupt_once_it_has_copied(query)
    seen["interrupted"] = interrupted(query.awaitTermination)
    register(
        notebook.spark
    )  # the interrupt has closed this thread's connection to the JVM; the next one has no session
    seen["goes on"] = error_of(notebook.start(availableNow=True).awaitTermination)

    notebook.spark.stop()
    notebook.spark = session()
    register(notebook.spark)
    notebook.add(FIRST)
    seen["another session"] = error_of(notebook.start(availableNow=True).awaitTermination)

    notebook.add(FIRST + MORE)
    seen["a thread"] = in_a_thread(lambda: notebook.start(availableNow=True).awaitTermination())

    def registered() -> None:
        register(notebook.spark)
        notebook.start(availableNow=True).awaitTermination()

    seen["a thread that registers"] = in_a_thread(registered)

    to_press = {1}
    door = exactly_once({**notebook.at, "topic": "each", "sink.id": "each"})

    def write(frame: DataFrame, number: int) -> None:
        if number in to_press:
            to_press.clear()
            os.kill(os.getpid(), signal.SIGINT)
        door(frame, number)

    query = notebook.start_foreach(write)
    seen["interrupted in foreachBatch"] = interrupted(query.awaitTermination)
    register(notebook.spark)
    seen["foreachBatch goes on"] = error_of(notebook.start_foreach(write).awaitTermination)
    return seen


if __name__ == "__main__":
    book = Notebook(*sys.argv[1:])
    print(json.dumps({"seen": cells(book)}), flush=True)
    book.spark.stop()
