"""The query under test, as a program: copies topic to topic, exactly once, until all that is there is copied.

python copy_topic.py '{"servers": "...", "source": "in", "target": "out", "sink": "s", "checkpoint": "...", ...}'
python copy_topic.py --serve      such objects from stdin, one a line; the answer to each is one line on stdout
python copy_topic.py --doomed '[{...}, ...]' [await | stop]
    One after the other is begun and runs until a process of its own stands still (see killer/sitecustomize.py), or
    tells in the file `failed` of its folder why none does. After the last one the file `all-stand` is made in the
    current folder, and the driver waits to be killed: asleep, in awaitAnyTermination, or in a query's stop().
"""

from __future__ import annotations

import json
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from pyspark.sql import SparkSession

from fencepost.spark import arrow_pipeline, exactly_once
from tests.spark import checkpoints, stateful
from tests.spark.session import CHECKPOINT_MANAGER, QUICK_MANAGER, session

if TYPE_CHECKING:
    import pyarrow as pa

Through: TypeAlias = "Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]"


def query_of(spark: SparkSession, arguments: dict[str, str], through: Through | None = None) -> Any:
    """Return the writer of the query. The rows go `through` the function, if there is one."""
    if "query" in arguments:
        return stateful.QUERIES[arguments["query"]](spark, arguments)
    source = {
        "kafka.bootstrap.servers": arguments["servers"],
        "subscribe": arguments["source"],
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": arguments.get("rows_per_batch", "500"),
        **({"minPartitions": arguments["tasks"]} if "tasks" in arguments else {}),
    }
    sink = {
        "kafka.bootstrap.servers": arguments["servers"],
        "topic": arguments["target"],
        "sink.id": arguments["sink"],
        "checkpointLocation": arguments["checkpoint"],
        **({"require.guarantee": arguments["guarantee"]} if "guarantee" in arguments else {}),
        **json.loads(arguments.get("options", "{}")),
    }
    if "arrow" in arguments:
        return arrow_pipeline(spark, source=source, transform=lambda rows: rows.select(["key", "value"]), sink=sink)
    rows = spark.readStream.format("fencepost").options(**source).load().select("key", "value")
    if "shuffled_to" in arguments:
        rows = rows.repartition(int(arguments["shuffled_to"]), "value")
    if through is not None:
        rows = rows.mapInArrow(through, rows.schema)
    writer = rows.writeStream
    if "foreach" in arguments:
        return writer.foreachBatch(exactly_once(sink)).option("checkpointLocation", arguments["checkpoint"])
    return writer.format("fencepost").options(**sink)


def copy(spark: SparkSession, arguments: dict[str, str], through: Through | None = None) -> str:
    """Copy, and return the report of the run."""
    reported = ""
    spark.conf.set(CHECKPOINT_MANAGER, arguments.get("checkpoint_manager", QUICK_MANAGER))
    writer = query_of(spark, arguments, through)
    if "for_ever" in arguments:
        writer.trigger(processingTime="0 seconds").start().awaitTermination()
    stops = [float(seconds) for seconds in arguments.get("stops", "").split(",") if seconds]
    for seconds in stops:  # at whatever the query is doing then
        started = writer.trigger(processingTime="0 seconds").start()
        time.sleep(seconds)
        started.stop()
        checkpoints.delete_unwritten_plan(Path(arguments["checkpoint"]))
    if stops:
        reported += f"stopped {len(stops)} times\n"
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    progress = [json.loads(report.json) for report in query.recentProgress]
    return reported + f"batches {sum(1 for batch in progress if batch['numInputRows'])}\n"


def main(arguments: dict[str, str]) -> None:
    spark = session(arguments.get("master", "local[2]"), json.loads(arguments.get("settings", "{}")))
    print(copy(spark, arguments), end="", flush=True)
    if "rests_in" in arguments:  # until Spark has given all executors up, and there is more to copy
        folder = Path(arguments["rests_in"])
        while not spark.sparkContext._jsc.sc().getExecutorIds().isEmpty():
            time.sleep(0.1)
        (folder / "rests").touch()
        while not (folder / "go-on").exists():
            time.sleep(0.1)
        print(copy(spark, arguments), end="", flush=True)
    spark.stop()


def serve() -> None:
    spark = session()
    print(json.dumps({"answer": "ready"}), flush=True)
    for line in sys.stdin:
        try:
            reported = {"answer": copy(spark, json.loads(line))}
        except Exception as error:  # noqa: BLE001 - whatever it is, the test tells it
            reported = {"failed": "".join(traceback.format_exception(error))}
        print(json.dumps(reported), flush=True)
    spark.stop()


def doomed(several: list[dict[str, str]], waits: str = "asleep") -> None:
    # Two slots more than tasks that may stand still: each keeps its slot.
    spark = session(f"local[{2 + len(several)}]")
    for arguments in several:
        try:
            run_until_it_stands(spark, arguments)
        except Exception as error:  # noqa: BLE001 - whatever it is, the test tells it
            Path(arguments["folder"], "failed").write_text("".join(traceback.format_exception(error)))
    Path("all-stand").touch()
    if waits == "await":
        spark.streams.awaitAnyTermination()
    for query in spark.streams.active if waits == "stop" else ():
        query.stop()
    time.sleep(1800)


def run_until_it_stands(spark: SparkSession, arguments: dict[str, str]) -> None:
    query = query_of(spark, arguments).trigger(availableNow=True).start()
    until = time.monotonic() + 300
    while not Path(arguments["folder"], "standing").exists():
        if time.monotonic() > until:
            raise TimeoutError(f"{arguments['sink']} did not come to its step: {query.status}")
        if query.awaitTermination(0.05):  # which raises what the query has failed with
            raise RuntimeError(f"{arguments['sink']} ended before any of its processes stood still")


if __name__ == "__main__":
    if sys.argv[1] == "--serve":
        serve()
    elif sys.argv[1] == "--doomed":
        doomed(json.loads(sys.argv[2]), *sys.argv[3:])
    else:
        main(json.loads(sys.argv[1]))
