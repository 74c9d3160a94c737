"""The Spark session of tests that use it themselves: in their process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from tests.spark.session import session


@contextmanager
def session_here(python: str, master: str = "local[2]", settings: Mapping[str, str] | None = None) -> Iterator[Any]:
    """A session in this process, which says nothing of what fails on purpose. `python`: for PYSPARK_PYTHON."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", python)
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        made = session(master, settings)
        made.sparkContext.setLogLevel("FATAL")
        yield made
        made.stop()
