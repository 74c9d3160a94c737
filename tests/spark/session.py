"""The Spark session of the tests: one that is soon there."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from fencepost.spark import spark_home
from fencepost.spark.java import java_home
from tests.support.class_archive import archived

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JVM_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For a JVM that lives for some tests: it compiles less, and takes half the CPU time to start and to warm up."""

UNVERIFIED = "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
"""For a JVM without an archive of its classes: those of an archive have been verified, and these need not be."""

_MANAGERS = "org.apache.spark.sql.execution.streaming.checkpointing"
CHECKPOINT_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
USUAL_MANAGER = f"{_MANAGERS}.FileContextBasedCheckpointFileManager"
QUICK_MANAGER = f"{_MANAGERS}.FileSystemBasedCheckpointFileManager"
"""The usual one starts `readlink` 18 times in a micro-batch. Both write a file and rename it; only the usual one's
rename tells two queries that are at the same checkpoint from each other."""

MAKING = "FENCEPOST_TESTS_CLASS_ARCHIVE"
"""The option with which a session's JVM writes the archive of its classes."""


def session(
    master: str = "local[2]", settings: Mapping[str, str] | None = None, *, connect: bool = False
) -> SparkSession:
    """A SparkSession in this process; `connect`: one that speaks Spark Connect with a server in this process's JVM."""
    from pyspark.sql import SparkSession  # not when tests are collected

    builder = SparkSession.builder.remote(master) if connect else SparkSession.builder.master(master)
    builder = (
        builder.config("spark.ui.enabled", "false")
        .config("spark.driver.extraJavaOptions", jvm_options())
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config(CHECKPOINT_MANAGER, QUICK_MANAGER)
        .config("spark.python.authenticate.socketTimeout", "2m")  # 15 s are not enough on a busy machine
        .config(map=dict(settings or {}))
    )
    with spark_home.unpacked():  # as in the sessions that Fencepost makes
        new_session: SparkSession = builder.getOrCreate()
    if not connect:  # which has no context
        new_session.sparkContext.setLogLevel("ERROR")
    return new_session


def jvm_options() -> str:
    """Return the options of a driver or an executor of the tests' own PySpark."""
    return " ".join([JVM_OPTIONS, *(class_archive() or [UNVERIFIED])])


@functools.cache
def class_archive() -> tuple[str, ...]:
    """The option of a JVM of the tests' own PySpark; others start too seldom to be worth an archive."""
    import pyspark

    making = os.environ.get(MAKING)
    jars = Path(pyspark.__file__).parent / "jars"
    if making or not jars.is_relative_to(sys.prefix):
        return (making,) if making else ()

    def run_once(option: str) -> None:
        with tempfile.TemporaryDirectory(prefix="fencepost-classes-") as folder:
            environment = {**os.environ, MAKING: option, "PYSPARK_PYTHON": sys.executable}
            command = [sys.executable, "-m", "tests.spark.session", folder]
            root = Path(__file__).parents[2]
            subprocess.run(command, cwd=root, env=environment, capture_output=True, timeout=500, check=True)

    return archived(str(Path(java_home().home) / "bin" / "java"), jars, run_once)


def main(folder: str) -> None:
    """Copy one topic to another with a stream, as most tests do."""
    import fencepost

    with fencepost.Broker() as broker:
        servers = broker.bootstrap_servers
        with fencepost.Producer(servers) as producer:
            producer.send("source", b"a record")
        spark = session()
        rows = spark.readStream.format("fencepost").option("kafka.bootstrap.servers", servers)
        rows = rows.option("subscribe", "source").option("startingOffsets", "earliest")
        stream = rows.load().select("key", "value").writeStream.format("fencepost")
        stream = stream.option("kafka.bootstrap.servers", servers).option("topic", "target")
        stream.option("checkpointLocation", folder).trigger(availableNow=True).start().awaitTermination()
        spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
