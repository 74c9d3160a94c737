"""Every Python block of README.md and docs/ runs as it stands there.

A block with a query makes its own session, and finds a broker in place of localhost:9092 and topics with a few records;
what it writes is read back. The recipe uses the session there is. These blocks run in the tests' process, since a
session takes long to start. All others are whole programs, each in a process of its own, forked from one that has
imported the client; tests/typing looks at their types.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib
import io
import os
import re
import runpy
import subprocess
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tests.spark.session_here import SparkHere
from tests.support.readme import ROOT

SPARK_PRELUDE = """
import fencepost

broker = fencepost.Broker().start()
with fencepost.Admin(broker.bootstrap_servers) as admin:
    for topic in (SOURCE, SINK):
        admin.create_topic(topic, 2)
"""

# The source starts at the end of its topic by default, so the records come when the query runs.
SPARK_END = """
query.processAllAvailable()
with fencepost.Producer(broker.bootstrap_servers) as producer:
    for number in range(20):
        producer.send(SOURCE, b"%d" % number, key=b"key")
query.processAllAvailable()
query.stop()
with fencepost.Consumer(broker.bootstrap_servers, auto_offset_reset="earliest") as consumer:
    consumer.assign([(SINK, 0), (SINK, 1)])
    values = []
    while len(values) < 20:
        found = consumer.poll(20_000)
        if not found:
            break
        values += [record.value for record in found]
print("rows written:", len(values), len(set(values)))
broker.stop()
"""

# A batch of which a part is lost: of twenty records five are in the topic, together with one of an earlier batch.
RECIPE_PRELUDE = """
servers = {"kafka.bootstrap.servers": broker.bootstrap_servers}
source = {"subscribe": SOURCE, **servers}
with fencepost.Producer(broker.bootstrap_servers) as producer:
    for number in range(30):
        producer.send(SOURCE, b"%d" % number, key=b"key", partition=0)
    for number in (0, *range(10, 15)):
        producer.send(SINK, b"%d" % number, key=b"key", partition=0)
START = '{"%s":{"0":10,"1":0}}' % SOURCE
END = '{"%s":{"0":30,"1":0}}' % SOURCE
"""

RECIPE_END = """
with fencepost.Consumer(broker.bootstrap_servers, auto_offset_reset="earliest") as consumer:
    consumer.assign([(SINK, 0), (SINK, 1)])
    values = []
    while len(values) < 21:
        found = consumer.poll(20_000)
        if not found:
            break
        values += [int(record.value) for record in found]
print("rows:", sorted(values) == [0, *range(10, 30)])
broker.stop()
"""


def python_blocks() -> list[tuple[str, str]]:
    """(file:line, code) of every ```python block."""
    found = []
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        text = path.read_text()
        for match in re.finditer(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
            line = text.count("\n", 0, match.start()) + 1
            found.append((f"{path.relative_to(ROOT)}:{line}", match.group(1)))
    return found


BLOCKS = python_blocks()
PROGRAMS = [block for block in BLOCKS if "spark." not in block[1]]
SPARK_BLOCKS = [block for block in BLOCKS if "writeStream" in block[1] or "arrow_pipeline(" in block[1]]
RECIPES = [block for block in BLOCKS if "spark." in block[1] and block not in SPARK_BLOCKS]


def run(*command: str, cwd: Path, **environment: str) -> str:
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=480,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def unimported(code: str) -> Iterator[str]:
    """Yield the modules that other code must import first, or that need this folder on the path."""
    tree = ast.parse(code)
    imports = [alias for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    sources = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    imported = {alias.name for alias in imports} | set(sources)
    yield from (name for name in imported if (ROOT / name.partition(".")[0]).is_dir())
    bound = {alias.asname or alias.name.partition(".")[0]: alias.name for alias in imports}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in bound:
            package, full = bound[node.value.id], f"{bound[node.value.id]}.{node.attr}"
            is_module = isinstance(getattr(importlib.import_module(package), node.attr, None), ModuleType)
            named = any(f"{module}.".startswith(f"{full}.") for module in imported)
            if is_module and not named and not comes_with(package, full):
                yield full


@functools.cache
def comes_with(package: str, module: str) -> bool:
    """In a process that has imported nothing else."""
    command = [sys.executable, "-c", f"import {package}\n{module}"]
    return subprocess.run(command, stderr=subprocess.DEVNULL, check=False).returncode == 0


def test_there_are_blocks_of_both_kinds() -> None:
    assert len(PROGRAMS) >= 3
    assert SPARK_BLOCKS
    assert len(RECIPES) == 1


@pytest.mark.parametrize(("where", "code"), SPARK_BLOCKS, ids=[where for where, _ in SPARK_BLOCKS])
def test_a_query_lets_workers_find_the_package(where: str, code: str) -> None:
    """With another Python in PATH, a session made without that import knows no data source of ours."""
    assert "SparkSession.builder" in code, where
    assert "import fencepost.spark" in code.partition("SparkSession.builder")[0], where


@pytest.mark.parametrize(("where", "code"), PROGRAMS, ids=[where for where, _ in PROGRAMS])
def test_a_program_runs(where: str, code: str, pyspark_python: str, tmp_path: Path) -> None:
    assert list(unimported(code)) == [], where
    (tmp_path / "snippet.py").write_text(code)
    run(pyspark_python, "-m", "snippet", cwd=tmp_path)


@pytest.mark.parametrize(
    ("code", "wanting"),
    [
        ("import fencepost\nfencepost.testing", ["fencepost.testing"]),
        ("import fencepost\nfencepost.errors", []),
        ("import pyarrow as pa\npa.parquet", ["pyarrow.parquet"]),
        ("import fencepost.testing\nfencepost.testing, fencepost.Broker", []),
        ("from examples.dual_write import main", ["examples.dual_write"]),
    ],
)
def test_an_import_that_is_wanting_is_seen(code: str, wanting: list[str]) -> None:
    for name in ("fencepost.testing", "pyarrow.parquet"):
        importlib.import_module(name)
    assert list(unimported(code)) == wanting


def query_program(code: str, folder: Path) -> str:
    source, sink = re.search(r'"subscribe"[,:] "(.*?)"', code), re.search(r'"topic"[,:] "(.*?)"', code)
    assert source, "which topic is read?"
    assert sink, "which topic is written?"
    program, wait, rest = code.partition("query.awaitTermination()\n")
    assert wait, "a program that does not wait for its query ends it"
    assert not rest
    local = program.replace('"localhost:9092"', "broker.bootstrap_servers")
    local = re.sub(r'("checkpointLocation"[,:] )".*?"', rf"\1{str(folder / 'checkpoint')!r}", local)
    assert local.count("broker.bootstrap_servers") == 2, "does the block still name localhost:9092?"
    return f"SOURCE, SINK = {source[1]!r}, {sink[1]!r}\n{SPARK_PRELUDE}{local}{SPARK_END}"


@pytest.fixture(scope="module")
def reported(spark_here: SparkHere, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the output of each block with `spark`, by its place."""
    spark = spark_here.session()
    found = {}
    for where, code in [*SPARK_BLOCKS, *RECIPES]:
        folder = tmp_path_factory.mktemp("block")
        recipe = f"SOURCE, SINK = 'orders', 'orders-copy'\n{SPARK_PRELUDE}{RECIPE_PRELUDE}{code}{RECIPE_END}"
        is_recipe = (where, code) in RECIPES
        (folder / "block.py").write_text(recipe if is_recipe else query_program(code, folder))
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            try:
                runpy.run_path(str(folder / "block.py"), {"spark": spark} if is_recipe else {}, "__main__")
            except Exception as error:  # noqa: BLE001 - whatever it is, the block's test tells it
                print("".join(traceback.format_exception(error)))
        spark_here.end_queries()
        found[where] = printed.getvalue()
    return found


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("where", [where for where, _ in SPARK_BLOCKS])
def test_a_query_runs(where: str, reported: dict[str, str]) -> None:
    assert "rows written: 20 20" in reported[where], reported[where]


@pytest.mark.spark
@pytest.mark.slow
def test_what_a_batch_has_lost_is_written_by_the_recipe(reported: dict[str, str]) -> None:
    ((where, _),) = RECIPES
    assert "rows: True" in reported[where], reported[where]
