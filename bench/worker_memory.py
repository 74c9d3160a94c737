"""Resident memory of the Spark worker that writes one task of so many rows: `python -m bench.worker_memory 1000000`.

The rows are made by Spark, with values of 90 bytes; the broker is a process of its own. What matters is that more rows
do not take more.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time

import psutil

import fencepost
from bench import common
from fencepost.spark.java import java_home

LOOK_S = 0.05


class Peak(threading.Thread):
    """The most that any one Python process below this one has had, in bytes."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.most = 0

    def run(self) -> None:
        """Look again and again; it ends with the program."""
        me = psutil.Process()
        while True:
            for child in me.children(recursive=True):
                try:
                    if "python" in child.name():
                        self.most = max(self.most, child.memory_info().rss)
                except psutil.Error:
                    continue  # it has ended
            time.sleep(LOOK_S)


def main() -> None:
    from pyspark.sql import SparkSession

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", type=int, nargs="+")
    options = parser.parse_args()
    os.environ |= {**java_home(install=True).environment(), "PYSPARK_PYTHON": sys.executable}
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.driver.host", "127.0.0.1").getOrCreate()
    peak = Peak()
    peak.start()
    with common.broker("fencepost") as servers:
        with fencepost.Admin(servers) as admin:
            admin.create_topic("out", 2)
        for rows in options.rows:
            peak.most = 0
            frame = spark.range(0, rows, 1, 1).selectExpr("cast(id as string) as key", "repeat('x', 90) as value")
            writer = frame.write.format("fencepost").mode("append").option("kafka.bootstrap.servers", servers)
            writer.options(topic="out", **{"sink.id": f"rows-{rows}"}).save()
            print(f"{rows:>12,} rows in a task: {peak.most / 1e6:4.0f} MB", flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
