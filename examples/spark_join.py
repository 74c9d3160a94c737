"""Spark, topic to topic with a join: each payment goes out with its order, exactly once.

Both topics have the order's id as key. A payment comes at most an hour after its order; after that, and ten minutes
for records that are late, Spark forgets the order. Records without a partner are dropped.

    python examples/spark_join.py --bootstrap-servers localhost:9092 --checkpoint /data/checkpoints/paid-orders
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.streaming.readwriter import DataStreamWriter

import fencepost.spark


def records(spark: SparkSession, servers: str, topic: str, prefix: str) -> DataFrame:
    """Key, value and time of a topic's records, under names that a join can tell apart."""
    source = {"kafka.bootstrap.servers": servers, "subscribe": topic, "startingOffsets": "earliest"}
    rows = spark.readStream.format("fencepost").options(**source).load()
    columns = [rows[name].alias(f"{prefix}_{name}") for name in ("key", "value", "timestamp")]
    return rows.select(*columns).withWatermark(f"{prefix}_timestamp", "10 minutes")


def paid_orders(
    spark: SparkSession, servers: str, checkpoint: str, orders: str, payments: str, target: str
) -> DataStreamWriter:
    """The query, ready to be started."""
    soon = fn.expr(
        "order_key = payment_key AND payment_timestamp BETWEEN order_timestamp AND order_timestamp + INTERVAL 1 HOUR"
    )
    pairs = records(spark, servers, orders, "order").join(records(spark, servers, payments, "payment"), soon)
    paid = pairs.select(
        fn.col("order_key").alias("key"),
        fn.to_json(
            fn.struct(
                fn.col("order_value").cast("string").alias("order"),
                fn.col("payment_value").cast("string").alias("payment"),
            )
        ).alias("value"),
    )
    writer = paid.writeStream.format("fencepost").outputMode("append")
    return writer.options(
        **{"kafka.bootstrap.servers": servers, "topic": target, "sink.id": target, "checkpointLocation": checkpoint}
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Run until the process is ended."""
    parser = argparse.ArgumentParser(description="Join orders with their payments.")
    parser.add_argument("--bootstrap-servers", required=True)
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--orders", default="orders")
    parser.add_argument("--payments", default="payments")
    parser.add_argument("--target", default="paid-orders")
    options = parser.parse_args(arguments)
    spark = fencepost.spark.local_session()
    query = paid_orders(
        spark, options.bootstrap_servers, options.checkpoint, options.orders, options.payments, options.target
    )
    query.start().awaitTermination()


if __name__ == "__main__":
    main()
