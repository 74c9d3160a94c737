"""Spark's own Kafka connector, to be loaded into a session beside ours.

There is no release of it for PySpark 4.3.0 on Maven Central; 4.2.0 runs there.
"""

from __future__ import annotations

from pathlib import Path

from tests.support.apache_kafka import jars_folder

__all__ = ["RELEASE", "jars"]

RELEASE = "4.2.0"
POM = Path(__file__).with_name("spark-kafka.pom.xml")


def jars() -> str:
    """The value of `spark.jars`. Fetched by Maven the first time; raises `Unavailable`."""
    return ",".join(map(str, sorted(jars_folder(POM).glob("*.jar"))))
