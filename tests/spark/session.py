"""The Spark session of the tests: one that is soon there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JVM_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For a JVM that lives for some tests: it compiles less, and takes half the CPU time to start and to warm up."""


def session(master: str = "local[2]", settings: Mapping[str, str] | None = None) -> SparkSession:
    """A SparkSession in this process."""
    from pyspark.sql import SparkSession  # not when tests are collected

    made: SparkSession = (
        SparkSession.builder.master(master)
        .config("spark.ui.enabled", "false")
        .config("spark.driver.extraJavaOptions", JVM_OPTIONS)
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.python.authenticate.socketTimeout", "2m")  # 15 s are not enough on a busy machine
        .config(map=dict(settings or {}))
        .getOrCreate()
    )
    made.sparkContext.setLogLevel("ERROR")
    return made
