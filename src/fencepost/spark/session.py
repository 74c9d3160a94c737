"""Create a local session that starts processes faster, and passes rows in larger batches, than Spark's defaults.

It shows no progress bars: a bar is written over the last line of the program's output, also into a file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from fencepost.spark import spark_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["SETTINGS", "local_session"]

SETTINGS: Final[Mapping[str, str]] = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
"""Settings of a session, unless the caller sets them."""


def local_session(master: str = "local[*]", settings: Mapping[str, str] | None = None) -> SparkSession:
    """Create or return a SparkSession in this process, with SETTINGS and then `settings`.

    Its Python processes import the installed PySpark instead of the zip that Spark puts on their path: see
    spark_home.py.
    """
    from pyspark.sql import SparkSession

    with spark_home.unpacked():
        builder = SparkSession.builder.master(master)
        return builder.config(map={**SETTINGS, **(settings or {})}).getOrCreate()
