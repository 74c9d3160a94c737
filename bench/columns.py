"""Rates of encoding records into batches and of decoding them, in million records per second.

    python bench/columns.py

One thread, best of several rounds. aiokafka's own builder and reader (Cython) run side by side where aiokafka is
installed.
"""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from fencepost.protocol.records.arrow import columns_to_arrow, encode_arrow
from fencepost.protocol.records.decoding import decode_batches
from fencepost.protocol.records.encoding import encode_batch

ROUNDS = 9
BATCH_BYTES = 1_000_000
FIRST_USE = """
import time
start = time.perf_counter()
import numpy
numpy_there = time.perf_counter()
from fencepost.protocol.records.encoding import encode_batch
from fencepost.protocol.records.decoding import decode_batches
decode_batches(encode_batch(values=[b"x"])).values()
print(f"{numpy_there - start:.3f} {time.perf_counter() - numpy_there:.3f}")
"""


def best_rate(records: int, work: Callable[[], Any]) -> float:
    """Million records per second in the fastest round."""
    fastest = float("inf")
    for _ in range(ROUNDS):
        start = time.perf_counter()
        work()
        fastest = min(fastest, time.perf_counter() - start)
    return records / fastest / 1e6


def ours(size: int) -> dict[str, float]:
    rows = BATCH_BYTES // size
    values = [os.urandom(size // 2).hex().encode() for _ in range(rows)]
    keys = [None] * rows
    times = [1_600_000_000_000 + row for row in range(rows)]
    stamps = np.array(times, np.int64)
    array = pa.array(values, pa.binary())
    batch = bytes(encode_batch(keys=keys, values=values, timestamps=times))
    columns = decode_batches(batch)
    rates = {
        "encode lists": best_rate(rows, lambda: encode_batch(keys=keys, values=values, timestamps=times)),
        "encode Arrow": best_rate(rows, lambda: encode_arrow(None, array, stamps)),
        "encode columns": best_rate(rows, lambda: encode_batch(columns)),
        "decode": best_rate(rows, lambda: decode_batches(batch)),
        "decode to Arrow": best_rate(rows, lambda: columns_to_arrow(decode_batches(batch))),
        "decode to Arrow views": best_rate(rows, lambda: columns_to_arrow(decode_batches(batch), views=True)),
        "decode to records": best_rate(rows, lambda: [None for _ in decode_batches(batch).records()]),
    }
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        compressed = bytes(encode_batch(values=values, timestamps=times, compression=codec))
        rates[f"encode Arrow, {codec}"] = best_rate(
            rows,
            lambda codec=codec: encode_arrow(None, array, stamps, compression=codec),  # type: ignore[misc]
        )
        rates[f"decode, {codec}"] = best_rate(rows, lambda data=compressed: decode_batches(data))  # type: ignore[misc]
    return rates


def aiokafkas(size: int) -> dict[str, float]:
    """The same through aiokafka's internal builder and reader; nothing where it is not installed."""
    try:
        default_records = importlib.import_module("aiokafka.record.default_records")
        memory_records = importlib.import_module("aiokafka.record.memory_records")
    except ImportError:
        return {}
    rows = BATCH_BYTES // size
    values = [os.urandom(size // 2).hex().encode() for _ in range(rows)]

    def build() -> bytes:
        builder = default_records.DefaultRecordBatchBuilder(
            magic=2,
            compression_type=0,
            is_transactional=0,
            producer_id=-1,
            producer_epoch=-1,
            base_sequence=-1,
            batch_size=2 * BATCH_BYTES,
        )
        for offset, value in enumerate(values):
            builder.append(offset, 1_600_000_000_000 + offset, None, value, [])
        return bytes(builder.build())

    batch = build()

    def read() -> list[Any]:
        found = memory_records.MemoryRecords(batch).next_batch()
        return [(each.offset, each.timestamp, each.key, each.value, each.headers) for each in found]

    return {"encode lists": best_rate(rows, build), "decode to records": best_rate(rows, read)}


def main() -> None:
    for size in (100, 1_000):
        theirs = aiokafkas(size)
        print(f"{size} byte values, batches of 1 MB: million records/s")
        for name, rate in ours(size).items():
            other = f"   aiokafka {theirs[name]:6.2f}" if name in theirs else ""
            print(f"  {name:24} {rate:7.2f}{other}")
    done = subprocess.run([sys.executable, "-c", FIRST_USE], capture_output=True, text=True, check=True)
    print("a fresh process: seconds to import numpy, then to the first batch encoded and decoded:", done.stdout.strip())


if __name__ == "__main__":
    main()
