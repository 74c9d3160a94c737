"""Exactly-once Kafka source and sink for Spark, `format("fencepost")`, with helper functions.

    arrow_pipeline(spark, ...)  make a streaming query from topic to topic whose records stay in Arrow
    arrow_batch(spark, ...)     make the same pipeline as a batch write
    local_session(master)       create a local session whose processes start faster
    register(spark)             register format("fencepost") if Spark does not find the package by itself
    exactly_once(options)       make a function for foreachBatch with the sink's guarantee
    behind_latest(progress)     return the lag of each source of a query, from the query's progress
    resolve_sink(servers, id)   commit or abort the open transactions of a sink that no query uses any more
    repair_checkpoint(...)      make a restored checkpoint continue after the last batch of its sink
    describe_batch(path)        write checksums of a batch that another sink has begun, for `fencepost spark adopt`
    settle_lost_batch(...)      let a query continue after it has lost a part of a batch

Each name is loaded on first use, because Spark's Python workers import this package often. Import the package before
you create the session, so that the workers run on the importing Python: see worker_python.py.
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
