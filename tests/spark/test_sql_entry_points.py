"""The SQL and session doors: each works, or its error says why not and what to do instead."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import uuid
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fencepost import Admin, Producer
from fencepost.broker.embedded import Broker
from fencepost.spark import register
from tests.spark.copying import SOURCES

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1800)]
RECORDS = 9


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with Broker() as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def topic(servers: str) -> str:
    name = f"doors_{uuid.uuid4().hex[:8]}"
    with Admin(servers) as admin:
        admin.create_topic(name, 2)
    with Producer(servers) as producer:
        for number in range(RECORDS):
            producer.send(name, b"%d" % number, partition=number % 2)
    return name


@pytest.fixture
def table(spark: Any, topic: str) -> Iterator[str]:
    """The name of a table that a test may make."""
    yield topic
    spark.sql(f"DROP TABLE IF EXISTS {topic}")


def options(servers: str, **more: str) -> str:
    return ", ".join(f"'{name}' '{text}'" for name, text in {"kafka.bootstrap.servers": servers, **more}.items())


def count(spark: Any, table: str, clause: str = "") -> int:
    return int(spark.sql(f"SELECT count(*) FROM {table} {clause}").collect()[0][0])  # noqa: S608 - names of our own


def test_a_view_hands_its_options_over(spark: Any, servers: str, table: str) -> None:
    spark.sql(f"CREATE TEMPORARY VIEW {table}_view USING fencepost OPTIONS ({options(servers, subscribe=table)})")
    assert count(spark, f"{table}_view") == RECORDS


def test_a_table_does_not_and_its_errors_say_so(spark: Any, servers: str, table: str) -> None:
    spark.sql(f"CREATE TABLE {table} USING fencepost OPTIONS ({options(servers, subscribe=table)})")
    reported = "Spark passed no option.*CREATE TEMPORARY VIEW.*WITH"
    with pytest.raises(Exception, match=reported):
        count(spark, table)
    with pytest.raises(Exception, match=reported):
        spark.readStream.table(table).writeStream.format("noop").start().processAllAvailable()
    assert count(spark, table, f"WITH ({options(servers, subscribe=table)})") == RECORDS


def test_a_stream_of_a_table_is_given_its_options_by_the_reader(
    spark: Any, servers: str, table: str, tmp_path: Path
) -> None:
    spark.sql(f"CREATE TABLE {table} USING fencepost OPTIONS ({options(servers, subscribe=table)})")
    reader = spark.readStream.option("kafka.bootstrap.servers", servers).option("subscribe", table)
    writer = reader.option("startingOffsets", "earliest").table(table).writeStream.format("memory")
    query = writer.queryName(f"{table}_seen").option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
    query.start().awaitTermination()
    assert count(spark, f"{table}_seen") == RECORDS


def test_an_insert_says_how_to_write(spark: Any, servers: str, table: str) -> None:
    sink = options(servers, topic=table, **{"sink.id": table})
    spark.sql(f"CREATE TABLE {table} (value STRING) USING fencepost OPTIONS ({sink})")
    with pytest.raises(Exception, match=r"Spark passed no option.*INSERT INTO t WITH \(\.\.\.\)"):
        spark.sql(f"INSERT INTO {table} SELECT 'a'")
    spark.sql(f"INSERT INTO {table} WITH ({sink}) SELECT 'a'")
    read = {"kafka.bootstrap.servers": servers, "subscribe": table}
    assert spark.read.format("fencepost").options(**read).load().count() == RECORDS + 1


def test_a_write_without_a_mode_is_refused_by_spark_and_one_that_overwrites_by_us(
    spark: Any, servers: str, topic: str
) -> None:
    where = {"kafka.bootstrap.servers": servers, "topic": topic, "sink.id": topic}
    writer = spark.range(1).selectExpr("'a' AS value").write.format("fencepost").options(**where)
    with pytest.raises(Exception, match="UNSUPPORTED_DATA_SOURCE_SAVE_MODE"):
        writer.save()
    with pytest.raises(Exception, match=r"append"):
        writer.mode("overwrite").save()


def test_options_that_are_wrong_are_refused_when_the_frame_is_made(spark: Any, servers: str, topic: str) -> None:
    wrong = {"kafka.bootstrap.servers": servers, "subscribe": topic, "failOnDataLoss": "perhaps"}
    for reader in (spark.read, spark.readStream):
        with pytest.raises(Exception, match="option failOnDataLoss='perhaps': true or false") as raised:
            reader.format("fencepost").options(**wrong).load()
        assert "UnboundLocalError" not in str(raised.value)


def test_a_sink_is_found_in_another_thread_that_has_registered_it(
    spark: Any, servers: str, topic: str, tmp_path: Path
) -> None:
    """Spark looks for sinks, unlike for sources, in the active session of the thread, and a new one has none."""
    outcomes: list[str] = []

    def start(name: str, is_registered: bool) -> None:
        if is_registered:
            register(spark)
        writer = spark.readStream.format("rate").load().selectExpr("'v' AS value").writeStream.format("fencepost")
        writer = writer.option("kafka.bootstrap.servers", servers).option("topic", topic)
        writer = writer.option("checkpointLocation", str(tmp_path / name)).trigger(availableNow=True)
        try:
            writer.start().awaitTermination()
            outcomes.append("found")
        except Exception as error:  # noqa: BLE001 (judged)
            outcomes.append("not found" if "DATA_SOURCE_NOT_FOUND" in str(error) else repr(error))

    for name, is_registered in (("first", False), ("second", True)):
        thread = threading.Thread(target=start, args=(name, is_registered))
        thread.start()
        thread.join()
    assert outcomes == ["not found", "found"]


PROGRAM = """
import sys

from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
spark.sparkContext.setLogLevel("OFF")
reader = spark.read.format("fencepost").option("kafka.bootstrap.servers", sys.argv[1]).option("subscribe", sys.argv[2])
try:
    reader.load()
    print("found by itself")
except Exception as error:
    print("DATA_SOURCE_NOT_FOUND" in str(error))
import fencepost.spark

fencepost.spark.register(spark)
print(reader.load().count())
"""


def test_a_package_that_came_by_py_files_is_registered_by_hand(servers: str, topic: str, tmp_path: Path) -> None:
    """A Python without the package, as on a cluster where only the driver's host has it: its path has no .pth files."""
    import pyspark

    with zipfile.ZipFile(tmp_path / "fencepost.zip", "w") as archive:
        for file in sorted((SOURCES / "fencepost").rglob("*.py")):
            archive.write(file, file.relative_to(SOURCES))
    packages = Path(pyspark.__file__).parents[1]
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec env PYTHONPATH="$PYTHONPATH:{packages}" {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    submit = [str(packages / "pyspark" / "bin" / "spark-submit"), "--py-files", str(tmp_path / "fencepost.zip")]
    surroundings = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    surroundings |= {"PYSPARK_PYTHON": str(python), "PYSPARK_DRIVER_PYTHON": str(python), "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(
        [*submit, str(program), servers, topic],
        env=surroundings,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=1500,
        check=False,
    )
    assert done.stdout.split() == ["True", str(RECORDS)], done.stderr[-4000:]
