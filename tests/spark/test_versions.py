"""The connector on older PySparks, and through Spark Connect: the same short life on each."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from fencepost import Admin
from fencepost.broker.embedded import Broker
from tests.spark.copying import HERE, environment
from tests.spark.versions import NotOffered, installed
from tests.support.forked_python import forked_python

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker({"transaction.two.phase.commit.enable": True}) as broker:
        yield broker


def live(broker: Broker, folder: Path, path: list[str], *, connect: bool = False) -> dict[str, object]:
    """Run the script; what it saw. Nothing may be left in doubt."""
    name = f"smoke-{uuid.uuid4().hex[:8]}"
    with Admin(broker.bootstrap_servers) as admin:
        for topic in (name, f"{name}-out", f"{name}-out-2"):
            admin.create_topic(topic, 2)
        arguments = {
            "servers": broker.bootstrap_servers,
            "source": name,
            "target": f"{name}-out",
            "folder": str(folder),
            "connect": connect,
        }
        command = [sys.executable, str(HERE / "smoke.py"), json.dumps(arguments)]
        surroundings = environment(*path)
        with forked_python(surroundings) as python:
            surroundings["PYSPARK_PYTHON"] = python.path
            done = subprocess.run(command, env=surroundings, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 0, done.stderr[-6000:]
        assert admin.list_transactions(states=("Ongoing",)) == []
    seen: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return seen


@pytest.mark.parametrize("minor", ["4.1", "4.2"])
def test_an_older_pyspark_copies_every_row_once(broker: Broker, tmp_path: Path, minor: str) -> None:
    try:
        folder = installed(minor)
    except NotOffered as reason:
        pytest.skip(str(reason))
    seen = live(broker, tmp_path, [str(folder)])
    assert str(seen.pop("version")).startswith(f"{minor}.")
    assert seen == {"copied": [540, 500], "by foreach": [540, 500]}


def test_spark_connect_copies_every_row_once(broker: Broker, tmp_path: Path) -> None:
    seen = live(broker, tmp_path, [], connect=True)
    seen.pop("version")
    assert seen == {"copied": [540, 500], "by foreach": [540, 500]}
