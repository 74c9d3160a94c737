"""Spark's Python processes take PySpark from where its compiled modules are."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from fencepost.spark import spark_home

PACKAGE = Path(pyspark.__file__).parent


def path_of_workers(home: Path) -> str:
    """As org.apache.spark.api.python.PythonUtils puts it together from SPARK_HOME."""
    zips = [path.name for path in (PACKAGE / "python" / "lib").glob("*.zip")]
    assert len(zips) == 2
    return os.pathsep.join(str(home / "python" / "lib" / name) for name in zips)


def loaders(home: Path) -> set[str]:
    """Return the loaders of PySpark's modules in a daemon that starts with this home."""
    script = "import sys, pyspark.daemon; print(*{type(m.__loader__).__name__ for n, m in sys.modules.items() "
    script += "if n.split('.')[0] in ('pyspark', 'py4j')})"
    environment = {**os.environ, "PYTHONPATH": path_of_workers(home)}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_no_module_of_pyspark_comes_from_a_zip(tmp_path: Path) -> None:
    assert loaders(PACKAGE) == {"zipimporter"}  # what is to be avoided
    home = spark_home.compiled_home(tmp_path)
    assert home is not None
    assert loaders(home) == {"SourceFileLoader"}
    assert (home / "python" / "lib" / "pyspark.zip" / "pyspark").resolve() == PACKAGE.resolve()
    assert {path.name for path in (home / "jars").iterdir()} == {path.name for path in (PACKAGE / "jars").iterdir()}
    assert (home / "bin" / "spark-submit").is_file()
    assert spark_home.compiled_home(tmp_path) == home
    assert list(tmp_path.iterdir()) == [home]


def test_it_is_set_only_while_a_jvm_is_started(tmp_path: Path) -> None:
    environ: dict[str, str] = {}
    with spark_home.unpacked(environ, tmp_path):
        assert environ == {"SPARK_HOME": str(spark_home.compiled_home(tmp_path))}
    assert environ == {}


def test_a_home_that_is_set_is_left_alone(tmp_path: Path) -> None:
    environ = {"SPARK_HOME": "/opt/spark"}
    with spark_home.unpacked(environ, tmp_path):
        assert environ == {"SPARK_HOME": "/opt/spark"}
    assert environ == {"SPARK_HOME": "/opt/spark"}
    assert list(tmp_path.iterdir()) == []


def test_spark_starts_as_by_itself_where_no_home_can_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    environ: dict[str, str] = {}
    with spark_home.unpacked(environ, tmp_path / "file"):
        assert environ == {}
    with monkeypatch.context() as nobody:
        nobody.delenv("HOME", raising=False)
        nobody.delenv("XDG_CACHE_HOME", raising=False)
        nobody.setattr("pwd.getpwuid", {}.__getitem__)  # no line in /etc/passwd
        with spark_home.unpacked(environ):
            assert environ == {}
    for name in ("pyspark", "py4j"):  # a PySpark that is not laid out as pip does it
        module_file = tmp_path / "other" / name / "__init__.py"
        module_file.parent.mkdir(parents=True)
        module_file.touch()
    monkeypatch.syspath_prepend(tmp_path / "other")
    monkeypatch.delitem(sys.modules, "pyspark")
    monkeypatch.delitem(sys.modules, "py4j", raising=False)
    assert spark_home.compiled_home(tmp_path) is None
