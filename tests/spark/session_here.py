"""The Spark session of tests that use it themselves: in their process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.spark.session import session

SLOTS = 3


class SparkHere:
    """One session for all tests of this process, since a JVM takes longer to start than most tests take.

    The JVM stays: other settings only take another context in it.
    """

    def __init__(self, python: str) -> None:
        self._python = python
        self._session: Any = None
        self._has: tuple[str, dict[str, str]] | None = None

    def session(self, master: str = f"local[{SLOTS}]", settings: Mapping[str, str] | None = None) -> Any:
        """The one there is, when it has just these settings. It says nothing of what fails on purpose."""
        wanted = (master, dict(settings or {}))
        if self._has != wanted:
            self.stop()
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("PYSPARK_PYTHON", self._python)
                patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
                self._session, self._has = session(master, settings), wanted
            self._session.sparkContext.setLogLevel("FATAL")
        return self._session

    def copy(self, arguments: dict[str, str]) -> str:
        """Copy as copy_topic.py does, in this process, and return its report."""
        from tests.spark.copy_topic import copy  # with PySpark, which is not for the collection of tests

        return copy(self.session(), arguments)

    def end_queries(self) -> None:
        """Those that a test which failed has left."""
        for query in self._session.streams.active if self._session is not None else ():
            query.stop()

    def stop(self) -> None:
        if self._session is None or self._has is None:
            return
        properties = self._session.sparkContext._jvm.System
        self._session.stop()
        for name in self._has[1]:  # the JVM's first session leaves its settings there, for all that follow
            properties.clearProperty(name)
        self._session = self._has = None
