"""Tests under each of the two engines that work on many records (fencepost.protocol.records.engine)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from unittest import mock

from fencepost.protocol.records.engine import VARIABLE, is_compiled

__all__ = ["ENGINES", "ROUND_TRIP", "engine"]

ENGINES: Final = ("compiled", "plain")

# A program that produces and consumes in a transaction, with enough records to ask for an engine. Its arguments are
# modules that cannot be imported there.
ROUND_TRIP: Final = """
import logging, sys

class Refuse:
    def find_spec(self, name, path, target=None):
        if name in sys.argv[1:]:
            raise ImportError(f"no {name} here")

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
print(sorted({"numba", "numpy", "pyarrow"} & sys.modules.keys()))
"""


@contextmanager
def engine(name: str) -> Iterator[None]:
    """What runs inside uses this one. The compiled one has to be there: a test of it must not pass without it."""
    with mock.patch.dict(os.environ, {VARIABLE: "0" if name == "plain" else "1"}):
        is_compiled.cache_clear()
        try:
            assert is_compiled() == (name == "compiled"), "numba is not installed"
            yield
        finally:
            is_compiled.cache_clear()
