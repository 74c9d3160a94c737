"""Names that are loaded on first use are those that the type checker sees, and what nobody uses is not loaded."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest


def seen_by_the_type_checker(package: str) -> dict[str, str]:
    """The module of each name that is imported under TYPE_CHECKING."""
    tree = ast.parse(Path(str(import_module(package).__file__)).read_text())
    (block,) = [one for one in tree.body if isinstance(one, ast.If) and ast.unparse(one.test) == "TYPE_CHECKING"]
    return {alias.name: str(one.module) for one in block.body if isinstance(one, ast.ImportFrom) for alias in one.names}


@pytest.mark.parametrize("package", ["fencepost", "fencepost.client.admin", "fencepost.spark"])
def test_names_are_found_where_the_type_checker_sees_them(package: str) -> None:
    made, seen = import_module(package), seen_by_the_type_checker(package)
    assert len(seen) > 3
    for name, home in seen.items():
        assert getattr(made, name) is getattr(import_module(home), name)
        assert name in dir(made)
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'Brocker'"):
        made.Brocker  # noqa: B018 - the access is what is tested


def test_a_process_of_spark_loads_no_calls_that_the_sink_does_not_make() -> None:
    code = (
        "import sys, fencepost.spark.sink.writer;"
        "print(*(name for name in sys.modules if name.startswith('fencepost.client.admin.')), 'numba' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    *loaded, numba = done.stdout.split()
    assert {name.removeprefix("fencepost.client.admin.") for name in loaded} == {
        "base",
        "configs",
        "topics",
        "transactions",
    }
    assert numba == "False"
