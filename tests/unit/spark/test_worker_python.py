"""Spark's workers run on the Python that has the package."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fencepost.spark import worker_python


@pytest.mark.parametrize(
    ("environ", "wanted"),
    [
        ({"PATH": "/nowhere"}, "/venv/bin/python"),
        ({"PATH": "/nowhere", "PYSPARK_PYTHON": "./env/bin/python"}, "./env/bin/python"),
        ({"PATH": "/nowhere", "PYSPARK_DRIVER_PYTHON": "python3.12"}, None),
    ],
)
def test_it_is_set_only_where_nobody_has_set_it(environ: dict[str, str], wanted: str | None) -> None:
    worker_python.ensure(environ, "/venv/bin/python")
    assert environ.get("PYSPARK_PYTHON") == wanted


def test_it_is_left_alone_where_spark_would_find_the_same(tmp_path: Path) -> None:
    same = tmp_path / "python3"
    same.symlink_to(sys.executable)
    environ = {"PATH": str(tmp_path)}
    worker_python.ensure(environ, str(same))
    assert environ == {"PATH": str(tmp_path)}


def test_importing_the_package_is_enough() -> None:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}
    program = "import fencepost.spark, os; print(os.environ['PYSPARK_PYTHON'])"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env={**environ, "PATH": "/nowhere"}, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == sys.executable
