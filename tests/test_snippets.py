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
SPARK_BLOCKS = [block for block in BLOCKS if "spark." in block[1]]


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


@pytest.mark.parametrize(("where", "code"), PROGRAMS, ids=[where for where, _ in PROGRAMS])
def test_a_program_runs(where: str, code: str, tmp_path: Path) -> None:
    assert where
    run(code, tmp_path)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(300)
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
