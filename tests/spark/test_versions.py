"""The connector on older PySparks, and through Spark Connect: the same short life on each.

The older ones are installed once, by pip, into a folder of their own in the cache, which goes first on the path.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from fencepost import Admin
from fencepost.broker.embedded import Broker

HERE = Path(__file__).parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "fencepost"

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(290)]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker({"transaction.two.phase.commit.enable": True}) as broker:
        yield broker


def installed(minor: str) -> Path:
    """PySpark's newest release of that minor version, alone in a folder."""
    folder = CACHE / f"pyspark-{minor}"
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"pyspark-{minor}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / ".complete").exists():
            command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--upgrade"]
            command += ["--target", str(folder), f"pyspark=={minor}.*"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=270, check=False)
            if "No matching distribution" in done.stderr:
                pytest.skip(f"the package registry does not offer PySpark {minor}")
            assert done.returncode == 0, done.stderr[-3000:]
            (folder / ".complete").touch()
    return folder


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
        environment = dict(os.environ, PYSPARK_PYTHON=sys.executable, SPARK_LOCAL_IP="127.0.0.1")
        environment["PYTHONPATH"] = os.pathsep.join([*path, str(HERE.parents[1] / "src")])
        command = [sys.executable, str(HERE / "smoke.py"), json.dumps(arguments)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)
        assert done.returncode == 0, done.stderr[-6000:]
        assert admin.list_transactions(states=("Ongoing",)) == []
    seen: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return seen


@pytest.mark.parametrize("minor", ["4.1", "4.2"])
def test_an_older_pyspark_copies_every_row_once(broker: Broker, tmp_path: Path, minor: str) -> None:
    seen = live(broker, tmp_path, [str(installed(minor))])
    assert str(seen.pop("version")).startswith(f"{minor}.")
    assert seen == {"copied": [540, 500], "by foreach": [540, 500]}


def test_spark_connect_copies_every_row_once(broker: Broker, tmp_path: Path) -> None:
    seen = live(broker, tmp_path, [], connect=True)
    seen.pop("version")
    assert seen == {"copied": [540, 500], "by foreach": [540, 500]}
