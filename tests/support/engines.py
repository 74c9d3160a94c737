"""Tests of the native loops and of their twins in plain Python (fencepost.protocol.records.engine)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from unittest import mock

import pytest

from fencepost.protocol.records import engine as chosen

__all__ = ["ENGINES", "ROUND_TRIP", "engine"]

ENGINES: Final = ("native", "plain")

# A program that produces and consumes in a transaction, with more than a few records. Its arguments are
# modules that cannot be imported there; with `:missing`, modules that are not installed.
ROUND_TRIP: Final = """
import logging, sys

class Refuse:
    def find_spec(self, name, path, target=None):
        if name in sys.argv[1:]:
            raise ImportError(f"no {name} here")
        if f"{name}:missing" in sys.argv[1:]:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Refuse())
logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
logging.getLogger("asyncio").setLevel(logging.ERROR)
import fencepost

with fencepost.Broker() as broker:
    with fencepost.Producer(broker.bootstrap_servers, transactional_id="once") as producer:
        producer.init_transactions()
        with producer.transaction():
            for number in range(200):
                producer.send("numbers", b"%d" % number, key=b"k%d" % number, headers=[("n", b"1")])
    with fencepost.Consumer(
        broker.bootstrap_servers, auto_offset_reset="earliest", isolation_level="read_committed"
    ) as consumer:
        consumer.assign([("numbers", 0)])
        got = []
        while len(got) < 200:
            got += consumer.poll(10_000)
assert [record.value for record in got] == [b"%d" % number for number in range(200)]
assert [list(record.headers) for record in got] == [[("n", b"1")]] * 200
print(sorted({"fencepost_native", "numpy", "pyarrow"} & sys.modules.keys()))
"""


@contextmanager
def engine(name: str) -> Iterator[None]:
    """Use this one inside. A test of the native loops is skipped where they are not installed; CI has them."""
    if name == "native" and not chosen.is_native:
        if os.environ.get("CI"):
            pytest.fail("CI runs without the native loops: `make venv` did not build them")
        pytest.skip("fencepost-native is not installed: `make native` builds it with a Rust toolchain")
    with mock.patch.object(chosen, "is_native", name == "native"):
        yield
