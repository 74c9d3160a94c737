"""A client of a Spark Connect session with a pipeline of its own; it goes on by a line from stdin.

python connect_client.py '{"remote": "sc://...", "servers": "...", "source": "...", "target": "...",
                           "checkpoint": "...", "mark": "A:"}'

It prints `ready` when the pipeline is made, and `ended` when its query has copied all there is.
"""

from __future__ import annotations

import json
import sys

import pyarrow as pa
from pyspark.sql import SparkSession

from fencepost.spark import arrow_pipeline


def main(asked: dict[str, str]) -> None:
    spark = SparkSession.builder.remote(asked["remote"]).create()
    mark = asked["mark"].encode()

    def marked(rows: pa.RecordBatch) -> pa.RecordBatch:
        return pa.record_batch({"value": pa.array([mark + value.as_py() for value in rows["value"]], pa.binary())})

    servers = {"kafka.bootstrap.servers": asked["servers"]}
    pipeline = arrow_pipeline(
        spark,
        source={**servers, "subscribe": asked["source"], "startingOffsets": "earliest"},
        transform=marked,
        sink={**servers, "topic": asked["target"], "checkpointLocation": asked["checkpoint"]},
    ).trigger(availableNow=True)
    print("ready", flush=True)
    for _ in sys.stdin:
        pipeline.start().awaitTermination()
        print("ended", flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
