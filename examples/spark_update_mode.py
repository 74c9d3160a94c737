"""Spark in update mode: the counts that a micro-batch has changed, exactly once.

A sink in Python has no update mode of its own, so the batches go through `foreachBatch` and `exactly_once`. The target
is a compacted topic: its last record of a key is that key's count.

    python examples/spark_update_mode.py --bootstrap-servers localhost:9092 --checkpoint /data/checkpoints/counts
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from pyspark.sql import SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.streaming.readwriter import DataStreamWriter

import fencepost.spark


def counts(spark: SparkSession, servers: str, checkpoint: str, source: str, target: str) -> DataStreamWriter:
    """The query, ready to be started."""
    rows = spark.readStream.format("fencepost").options(
        **{"kafka.bootstrap.servers": servers, "subscribe": source, "startingOffsets": "earliest"}
    )
    by_key = rows.load().groupBy("key").agg(fn.count("*").cast("string").alias("value"))
    write = fencepost.spark.exactly_once({"kafka.bootstrap.servers": servers, "topic": target, "sink.id": target})
    return by_key.writeStream.outputMode("update").foreachBatch(write).option("checkpointLocation", checkpoint)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run until the process is ended."""
    parser = argparse.ArgumentParser(description="Count the records of each key.")
    parser.add_argument("--bootstrap-servers", required=True)
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--source", default="orders")
    parser.add_argument("--target", default="order-counts")
    options = parser.parse_args(arguments)
    spark = fencepost.spark.local_session()
    query = counts(spark, options.bootstrap_servers, options.checkpoint, options.source, options.target)
    query.start().awaitTermination()


if __name__ == "__main__":
    main()
