"""The query of `spark_checkpoints`: copies topic to topic while some attempts of its tasks fail at their end.

python spark_query.py '{"servers": "...", "source": "in", "target": "out", "sink": "s", "checkpoint": "...", "seed": 1}'

With "repair" (JSON of `from` and `to` of `fencepost spark decisions`): writes what of that batch is missing.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql import SparkSession

from tests.spark.copy_topic import Through, copy
from tests.spark.session import USUAL_MANAGER, session

if TYPE_CHECKING:
    import pyarrow as pa


def failing(seed: int, share: float, attempts: int, slow_s: float) -> Through:
    """Passes rows on; after the last row the first `attempts` fail with the probability `share`.

    One task in two takes `slow_s` longer.
    """

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        context = TaskContext.get()
        if context is None:
            return
        if slow_s and context.partitionId() == 1:
            time.sleep(slow_s)
        if context.attemptNumber() < attempts:
            chance = random.Random(f"{seed} {context.taskAttemptId()}")
            if chance.random() < share:
                raise RuntimeError("this attempt fails on purpose, after its last row")

    return run


def main(arguments: dict[str, str]) -> None:
    if "folder" in arguments:
        Path(arguments["folder"], "driver.pid").write_text(str(os.getpid()))
    spark = session(arguments.get("master", "local[2,4]"), json.loads(arguments.get("settings", "{}")))
    if "repair" in arguments:
        write_what_is_missing(spark, arguments)
    else:
        fails = failing(
            int(arguments["seed"]),
            float(arguments.get("failing_share", "0.2")),
            int(arguments.get("failing_attempts", "1")),
            float(arguments.get("slow_s", "0")),
        )
        copy(spark, {"checkpoint_manager": USUAL_MANAGER, **arguments}, fails)
    spark.stop()


def write_what_is_missing(spark: SparkSession, arguments: dict[str, str]) -> None:
    """The recipe of docs/spark.md, "Recovery by hand"."""
    facts = json.loads(arguments["repair"])
    servers = {"kafka.bootstrap.servers": arguments["servers"]}
    ends: dict[str, Any] = {"endingOffsets": json.dumps(facts["to"][0])}
    ends["startingOffsets"] = json.dumps(facts["from"][0]) if facts["from"] else "earliest"
    batch = spark.read.format("fencepost").options(subscribe=arguments["source"], **ends, **servers).load()
    there = spark.read.format("fencepost").options(subscribe=arguments["target"], **servers).load()
    missing = batch.select("key", "value").exceptAll(there.select("key", "value"))
    options = {"topic": arguments["target"], "sink.id": "repair", **servers}
    missing.write.format("fencepost").mode("append").options(**options).save()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
