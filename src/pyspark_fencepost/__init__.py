"""Spark looks for top-level modules called pyspark_*: this one makes format("fencepost") known without registering.

It is imported whenever Spark first uses any Python data source, so it stays light.
"""

from fencepost.spark.datasource import FencepostDataSource as DefaultSource

__all__ = ["DefaultSource"]
