"""Spark, Parquet files beside Kafka: each micro-batch goes to a topic and to a folder of files, once to each.

The topic's part is `exactly_once`. The files' part is a folder for each batch that is written with `overwrite`: a
batch that Spark repeats after a crash replaces what is there. The files come first, so a record that is in the topic
is in the files as well. With Delta Lake, give the table's writer `txnAppId` and `txnVersion` instead of a folder.

    python examples/spark_parquet_beside.py --bootstrap-servers localhost:9092 \\
        --checkpoint /data/checkpoints/archive --files /data/archive
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

import fencepost.spark


def archive(
    spark: SparkSession, servers: str, checkpoint: str, source: str, target: str, files: str
) -> DataStreamWriter:
    """The query, ready to be started."""
    rows = spark.readStream.format("fencepost").options(
        **{"kafka.bootstrap.servers": servers, "subscribe": source, "startingOffsets": "earliest"}
    )
    send = fencepost.spark.exactly_once({"kafka.bootstrap.servers": servers, "topic": target, "sink.id": target})

    def write(batch: DataFrame, batch_id: int) -> None:
        batch.persist()  # the source is read once for both
        batch.write.mode("overwrite").parquet(f"{files}/batch={batch_id}")
        send(batch.select("key", "value"), batch_id)
        batch.unpersist()

    return rows.load().writeStream.foreachBatch(write).option("checkpointLocation", checkpoint)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run until the process is ended."""
    parser = argparse.ArgumentParser(description="Write a topic to another topic and to Parquet files.")
    parser.add_argument("--bootstrap-servers", required=True)
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--files", required=True)
    parser.add_argument("--source", default="orders")
    parser.add_argument("--target", default="orders-checked")
    options = parser.parse_args(arguments)
    spark = fencepost.spark.local_session()
    query = archive(spark, options.bootstrap_servers, options.checkpoint, options.source, options.target, options.files)
    query.start().awaitTermination()


if __name__ == "__main__":
    main()
