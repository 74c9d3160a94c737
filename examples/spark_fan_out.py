"""Spark, one topic to many: each record goes to the topic of its kind, exactly once, in one sink.

A value is JSON with a field `kind`. The column `topic` says where a row goes; the topics have to exist. Records whose
kind is none of these, or that are no JSON, go to a topic of their own and hold nothing up.

    python examples/spark_fan_out.py --bootstrap-servers localhost:9092 --checkpoint /data/checkpoints/fan-out
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from pyspark.sql import SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.streaming.readwriter import DataStreamWriter

import fencepost.spark


def fan_out(
    spark: SparkSession, servers: str, checkpoint: str, source: str, kinds: Sequence[str], others: str
) -> DataStreamWriter:
    """The query, ready to be started."""
    rows = spark.readStream.format("fencepost").options(
        **{"kafka.bootstrap.servers": servers, "subscribe": source, "startingOffsets": "earliest"}
    )
    kind = fn.get_json_object(fn.col("value").cast("string"), "$.kind")
    topic = fn.when(kind.isin(*kinds), fn.concat(fn.lit(f"{source}-"), kind)).otherwise(fn.lit(others))
    sent = rows.load().select("key", "value", topic.alias("topic"))
    return sent.writeStream.format("fencepost").options(
        **{"kafka.bootstrap.servers": servers, "sink.id": f"{source}-fan-out", "checkpointLocation": checkpoint}
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Run until the process is ended."""
    parser = argparse.ArgumentParser(description="Send each record to the topic of its kind.")
    parser.add_argument("--bootstrap-servers", required=True)
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--source", default="events")
    parser.add_argument("--kinds", nargs="+", default=["order", "payment"])
    parser.add_argument("--others", default="events-unknown")
    options = parser.parse_args(arguments)
    spark = fencepost.spark.local_session()
    query = fan_out(spark, options.bootstrap_servers, options.checkpoint, options.source, options.kinds, options.others)
    query.start().awaitTermination()


if __name__ == "__main__":
    main()
