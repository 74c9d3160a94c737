"""A notebook: sessions, queries and threads come and go in one interpreter, and cells are interrupted."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from fencepost import Admin, Consumer, Producer, TopicPartition
from fencepost.broker.embedded import Broker
from tests.spark.copying import HERE, environment

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

RECORDS = 40
ADDED = 20


def values(servers: str, topic: str) -> Counter[int]:
    with Consumer(servers, auto_offset_reset="earliest", isolation_level="read_committed") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        found: Counter[int] = Counter()
        while records := consumer.poll(2000):
            found.update(int(record.value or b"-1") for record in records)
    return found


def test_cells_that_are_interrupted_and_sessions_that_are_made_anew(pyspark_python: str, tmp_path: Path) -> None:
    with Broker() as broker:
        servers, topics = broker.bootstrap_servers, ("in", "out", "each")
        with Admin(servers) as admin:
            for topic in topics:
                admin.create_topic(topic, 1)
        with Producer(servers) as producer:
            for number in range(RECORDS):
                producer.send("in", b"%d" % number)
        command = [sys.executable, str(HERE / "notebook.py"), servers, str(tmp_path)]
        surroundings = environment() | {"PYSPARK_PYTHON": pyspark_python}
        done = subprocess.run(command, env=surroundings, capture_output=True, text=True, timeout=800, check=False)
        assert done.returncode == 0, done.stderr[-6000:]
        seen = next(json.loads(line)["seen"] for line in done.stdout.splitlines() if line.startswith('{"seen"'))
        without_a_session = seen.pop("a thread")
        assert "DATA_SOURCE_NOT_FOUND" in without_a_session, (
            "Spark finds it now: docs/spark.md and faq.md say otherwise"
        )
        assert seen == {
            "interrupted": True,
            "goes on": "",
            "another session": "",
            "a thread that registers": "",
            "interrupted in foreachBatch": True,
            "foreachBatch goes on": "",
        }, done.stderr[-6000:]
        for topic in ("out", "each"):
            assert values(servers, topic) == Counter(range(RECORDS + ADDED)), topic
