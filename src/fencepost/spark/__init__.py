"""Exactly once on Spark: `format("fencepost")` as source and sink, and what goes with it.

    arrow_pipeline(spark, ...)  a query from topic to topic whose records stay in Arrow; arrow_batch(...): a batch write
    local_session(master)       a session whose processes start faster
    register(spark)             makes format("fencepost") known where Spark does not find it
    exactly_once(options)       a function for foreachBatch with the sink's guarantee
    behind_latest(progress)     how far each source of a query is behind, from the query's progress
    resolve_sink(servers, id)   finish a sink that nobody runs any more
    repair_checkpoint(...)      make a restored checkpoint go on where its sink is
    describe_batch(path)        the rows of a batch that another sink has begun, for `fencepost spark adopt`
    settle_lost_batch(...)      let a query go on that has lost a part of a batch

They are loaded when they are first used: Spark's Python workers import this package all the time. Imported before the
session is made, it lets these workers run on the Python that imports it (PYSPARK_PYTHON), unless that is set.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fencepost.on_first_use import loaded_from
from fencepost.spark import worker_python

if TYPE_CHECKING:
    from fencepost.spark.adoption.batch_rows import describe_batch
    from fencepost.spark.datasource import register
    from fencepost.spark.pipeline import arrow_batch, arrow_pipeline
    from fencepost.spark.session import local_session
    from fencepost.spark.sink.foreach import exactly_once
    from fencepost.spark.sink.repair import repair_checkpoint, settle_lost_batch
    from fencepost.spark.sink.runner import resolve_sink
    from fencepost.spark.source.progress import behind_latest

__all__ = [
    "arrow_batch",
    "arrow_pipeline",
    "behind_latest",
    "describe_batch",
    "exactly_once",
    "local_session",
    "register",
    "repair_checkpoint",
    "resolve_sink",
    "settle_lost_batch",
]

__getattr__, __dir__ = loaded_from(
    globals(),
    {
        "arrow_batch": "fencepost.spark.pipeline",
        "arrow_pipeline": "fencepost.spark.pipeline",
        "behind_latest": "fencepost.spark.source.progress",
        "describe_batch": "fencepost.spark.adoption.batch_rows",
        "exactly_once": "fencepost.spark.sink.foreach",
        "local_session": "fencepost.spark.session",
        "register": "fencepost.spark.datasource",
        "repair_checkpoint": "fencepost.spark.sink.repair",
        "resolve_sink": "fencepost.spark.sink.runner",
        "settle_lost_batch": "fencepost.spark.sink.repair",
    },
    extra="spark",
)

worker_python.ensure()
