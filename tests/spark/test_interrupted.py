"""Ctrl-C in each phase of a micro-batch: the driver ends, nothing of ours prints a traceback, a restart goes on.

A terminal sends SIGINT to the driver, its JVM and all their processes at once.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest

from fencepost.broker.embedded import Broker
from tests.spark.copying import HERE, RECORDS, Copy, with_killer
from tests.spark.doomed import Kill
from tests.spark.session_here import SparkHere
from tests.support.waiting import until

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1500)]

MORE = 100
# The second batch of each query stands at its step when the signal comes, and then goes on. A query of foreachBatch
# stands in the driver itself.
PHASES = {
    "planning": Kill("Claim", "before", 2),
    "tasks": Kill("BeginTask", "after", 4),
    "commit worker": Kill("WriteDecision", "before", 2),
    "between decision and commit": Kill("WriteDecision", "after", 2),
}
OURS = re.compile(r'File ".*/src/fencepost/')
# py4j and Spark both log the traceback of a foreachBatch function that fails. Ours fails if its driver ends under it.
# Such a traceback begins where py4j calls the function, and may have causes before it.
FRAMES = r"(?: .*\n)+\S.*\n"
CAUSES = rf"(?:Traceback \(most recent call last\):\n{FRAMES}\n(?:During|The above) .*:\n\n)*"
OF_A_CALL = re.compile(
    rf'{CAUSES}Traceback \(most recent call last\):\n  File ".*/py4j/clientserver\.py", .*_call_proxy\n{FRAMES}'
)


def shown_of_ours(reported: str) -> str:
    """Return the text around a traceback of our files, except of a call by py4j; "" if there is none."""
    others = OF_A_CALL.sub("", reported)
    ours = OURS.search(others)
    return "" if ours is None else others[max(0, ours.start() - 4000) : ours.end() + 4000]


CALLED = """\
There was an exception while executing the Python Proxy on the Python Side.
Traceback (most recent call last):
  File "/repo/src/fencepost/client/net/io_thread.py", line 131, in get
    raise self.error
concurrent.futures._base.CancelledError

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/venv/lib/python3.11/site-packages/py4j/clientserver.py", line 644, in _call_proxy
    return_value = getattr(self.pool[obj_id], method)(*params)
  File "/repo/src/fencepost/spark/sink/foreach.py", line 104, in _write_once
    _write_batch(options, batch.query_id, frame, batch_id)
py4j.protocol.Py4JNetworkError: Error while sending or receiving
"""
OWN = """\
Traceback (most recent call last):
  File "/repo/src/fencepost/spark/sink/writer.py", line 212, in open
KeyboardInterrupt
"""


def test_a_traceback_of_ours_is_found_unless_py4j_has_called_us() -> None:
    assert shown_of_ours(f"before\n{CALLED}after\n") == ""
    for reported in (OWN, CALLED + OWN, OWN + CALLED):
        assert "writer.py" in shown_of_ours(reported)


def interrupt(copies: Sequence[tuple[Kill, Copy, dict[str, str]]], folder: Path, waits: str) -> str:
    """Send SIGINT to a driver when its queries stand, let them go on, and return what it and its processes printed."""
    orders = [
        {"step": kill.step, "when": kill.when, "nth": kill.nth, "mode": "stand", "sink": copy.name}
        | {"folder": str(copy.folder)}
        for kill, copy, _ in copies
    ]
    arguments = [copy.arguments(folder=str(copy.folder), **more) for _, copy, more in copies]
    command = [sys.executable, str(HERE / "copy_topic.py"), "--doomed", json.dumps(arguments), waits]
    reported = folder / "output"
    with reported.open("w") as output:
        driver = subprocess.Popen(
            command, env=with_killer(orders), cwd=folder, stdout=output, stderr=output, start_new_session=True
        )
    family: list[psutil.Process] = []
    try:
        until(lambda: (folder / "all-stand").exists() or driver.poll() is not None, within_s=900)
        failed = [text.read_text() for _, copy, _ in copies if (text := copy.folder / "failed").exists()]
        assert driver.poll() is None and not failed, reported.read_text()[-4000:] + "".join(failed)
        family = psutil.Process(driver.pid).children(recursive=True)
        os.killpg(driver.pid, signal.SIGINT)
        for _, copy, _ in copies:
            (copy.folder / "go").touch()
        assert driver.wait(120) == -signal.SIGINT
        assert psutil.wait_procs(family, 120)[1] == []
    finally:
        driver.kill()
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
    return reported.read_text()


@pytest.mark.parametrize("waits", ["await", "stop"])
def test_a_query_that_is_interrupted_goes_on_exactly_once(
    own_broker: Broker, spark_here: SparkHere, tmp_path: Path, waits: str
) -> None:
    runs: dict[str, tuple[Kill, Copy, dict[str, str]]] = {}
    for phase, kill in {**PHASES, "foreachBatch": PHASES["commit worker"]}.items():
        folder = tmp_path / phase
        folder.mkdir()
        copy = Copy(own_broker.bootstrap_servers, folder, driver=spark_here)
        copy.create()
        copy.fill()
        runs[phase] = kill, copy, {"foreach": "yes"} if phase == "foreachBatch" else {}
    reported = interrupt(list(runs.values()), tmp_path, waits)
    assert "KeyboardInterrupt" in reported
    ours = shown_of_ours(reported)
    assert not ours, ours
    for phase, (_, copy, more) in runs.items():
        copy.produce(RECORDS, MORE)
        copy.run_to_the_end(rows_per_batch="4000", **more)
        copy.check(RECORDS + MORE)
        assert copy.batches(), phase
