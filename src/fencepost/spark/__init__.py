"""Exactly once on Spark: `format("fencepost")` as source and sink, and what goes with it.

    exactly_once(options)       a function for foreachBatch with the sink's guarantee
    behind_latest(progress)     how far each source of a query is behind, from the query's progress
    resolve_sink(servers, id)   finish a sink that nobody runs any more

They are loaded when they are first used: Spark's Python workers import this package all the time.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fencepost.spark.foreach import exactly_once
    from fencepost.spark.progress import behind_latest
    from fencepost.spark.runner import resolve_sink

__all__ = ["behind_latest", "exactly_once", "resolve_sink"]

_WHERE = {"behind_latest": "progress", "exactly_once": "foreach", "resolve_sink": "runner"}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
