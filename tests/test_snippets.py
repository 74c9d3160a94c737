"""Every Python block of README.md and docs/ runs as it stands there.

A block that uses `spark` gets a session, a broker in place of localhost:9092 and topics with a few records; what it
writes is read back. All other blocks are whole programs.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.readme import ROOT

SPARK_PRELUDE = """
from pyspark.sql import SparkSession

import fencepost

broker = fencepost.Broker().start()
with fencepost.Admin(broker.bootstrap_servers) as admin:
    for topic in (SOURCE, SINK):
        admin.create_topic(topic, 2)
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
spark = builder.config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC").getOrCreate()
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
spark.stop()
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
spark.stop()
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
SPARK_BLOCKS = [block for block in BLOCKS if "writeStream" in block[1]]
RECIPES = [block for block in BLOCKS if "spark." in block[1] and "writeStream" not in block[1]]


def run(code: str, folder: Path) -> str:
    script = folder / "snippet.py"
    script.write_text(code)
    done = subprocess.run(
        [sys.executable, str(script)], cwd=folder, capture_output=True, text=True, check=False, timeout=240
    )
    assert done.returncode == 0, f"{code}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_there_are_blocks_of_both_kinds() -> None:
    assert len(PROGRAMS) >= 3
    assert SPARK_BLOCKS
    assert len(RECIPES) == 1


@pytest.mark.parametrize(("where", "code"), PROGRAMS, ids=[where for where, _ in PROGRAMS])
def test_a_program_runs(where: str, code: str, tmp_path: Path) -> None:
    assert where
    run(code, tmp_path)


def test_programs_are_well_typed(tmp_path: Path) -> None:
    """As an editor sees them: mypy without --strict, our types being the only ones that count."""
    names = []
    for number, (where, code) in enumerate(PROGRAMS):
        path = tmp_path / f"block_{number}.py"
        path.write_text(f"# {where}\n{code}")
        names.append(path.name)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file=", "--ignore-missing-imports", *names],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize(("where", "code"), SPARK_BLOCKS, ids=[where for where, _ in SPARK_BLOCKS])
def test_a_query_runs(where: str, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert where
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    source, sink = re.search(r'"subscribe", "(.*?)"', code), re.search(r'"topic", "(.*?)"', code)
    assert source, "which topic is read?"
    assert sink, "which topic is written?"
    local = code.replace('"localhost:9092"', "broker.bootstrap_servers")
    local = re.sub(r'("checkpointLocation", )".*?"', rf"\1{str(tmp_path / 'checkpoint')!r}", local)
    assert local.count("broker.bootstrap_servers") == 2, "does the block still name localhost:9092?"
    topics = f"SOURCE, SINK = {source[1]!r}, {sink[1]!r}\n"
    assert "rows written: 20 20" in run(topics + SPARK_PRELUDE + local + SPARK_END, tmp_path)


@pytest.mark.spark
@pytest.mark.slow
def test_what_a_batch_has_lost_is_written_by_the_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    ((_, code),) = RECIPES
    topics = "SOURCE, SINK = 'orders', 'orders-copy'\n"
    assert "rows: True" in run(topics + SPARK_PRELUDE + RECIPE_PRELUDE + code + RECIPE_END, tmp_path)
