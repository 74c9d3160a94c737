"""The broker serves while the compiled check of records is loaded, which may have to be compiled first."""

from __future__ import annotations

import subprocess
import sys

# The kernel's module is held up until the broker has taken batches that want it.
PROGRAM = """
import sys, threading, time
from importlib.abc import MetaPathFinder

import fencepost

held, wanted = threading.Event(), threading.Event()

class Slow(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "fencepost.protocol.records.check_kernel":
            wanted.set()
            assert held.wait(60)

sys.meta_path.insert(0, Slow())
from fencepost.protocol.records import check

with fencepost.Broker() as broker, fencepost.Producer(broker.bootstrap_servers, linger_ms=50) as producer:
    for _ in range(3):
        sent = [producer.send("t", b"v", partition=0) for _ in range(200)]
        print(sent[-1].result(30).offset)
    assert wanted.wait(30)
    print(bool(check._kernel))
    held.set()
    deadline = time.monotonic() + 60
    while not check._kernel:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    print([producer.send("t", b"v", partition=0) for _ in range(200)][-1].result(30).offset)
"""


def test_batches_are_taken_before_the_kernel_is_there() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["199", "399", "599", "False", "799"]
