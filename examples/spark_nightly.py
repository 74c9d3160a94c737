"""Spark under a scheduler: a job that copies what there is when it starts, exactly once, and ends.

Cron, a systemd timer or Airflow starts it; Spark's checkpoint remembers how far it came. The status is 0 when all of
it is in the target, also when there was nothing to do, and 1 when the query failed: the scheduler then starts the job
again, as often as it likes, because a batch that was written is not written again. If two runs meet, one of them fails
and nothing is doubled.

    15 3 * * *  python examples/spark_nightly.py --bootstrap-servers localhost:9092 --checkpoint /data/checkpoints/night
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

import fencepost.spark

ROWS_AT_A_TIME = 100_000  # a first run may find years of records: each batch has to end within the brokers' time limit


def copy_what_is_there(spark: SparkSession, servers: str, checkpoint: str, source: str, target: str) -> int:
    """Return the number of records that were copied. Raises StreamingQueryException."""
    where = {"kafka.bootstrap.servers": servers}
    read = {"subscribe": source, "startingOffsets": "earliest", "maxOffsetsPerTrigger": str(ROWS_AT_A_TIME)}
    rows = spark.readStream.format("fencepost").options(**where, **read).load().select("key", "value")
    write = {"topic": target, "sink.id": target, "checkpointLocation": checkpoint}
    query = rows.writeStream.format("fencepost").options(**where, **write).trigger(availableNow=True).start()
    query.awaitTermination()
    return sum(progress.numInputRows for progress in query.recentProgress)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run once and return the status for the scheduler."""
    parser = argparse.ArgumentParser(description="Copy what is there, and end.")
    parser.add_argument("--bootstrap-servers", required=True)
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--source", default="orders")
    parser.add_argument("--target", default="orders-copy")
    options = parser.parse_args(arguments)
    spark = fencepost.spark.local_session()
    try:
        copied = copy_what_is_there(
            spark, options.bootstrap_servers, options.checkpoint, options.source, options.target
        )
    except StreamingQueryException as error:
        print(f"the query failed: {error}", file=sys.stderr)
        return 1
    print(f"copied {copied} records")
    return 0


if __name__ == "__main__":
    sys.exit(main())
