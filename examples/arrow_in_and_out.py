"""Arrow in and out: read columns, compute with pyarrow, write columns, in transactions. No Python object per record.

python examples/arrow_in_and_out.py --bootstrap-servers localhost:9092 --source words --target lengths
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from fencepost import Consumer, Producer
from fencepost.errors import AbortableError, RetriableError


def lengths(table: pa.Table) -> pa.Table:
    """One row for each record with a value: its key, and the value's length in bytes as text."""
    table = table.filter(pc.is_valid(table["value"]))
    return pa.table(
        {"key": table["key"], "value": pc.cast(pc.cast(pc.binary_length(table["value"]), pa.string()), pa.binary())}
    )


def copy(bootstrap_servers: str, source: str, target: str, group: str, idle_s: float) -> int:
    """Transform until nothing new came for `idle_s` seconds; returns the number of rows written."""
    written = 0
    with (
        Consumer(bootstrap_servers, group_id=group, auto_offset_reset="earliest") as consumer,
        Producer(bootstrap_servers, transactional_id=f"{group}-arrow", compression_type="zstd") as producer,
    ):
        consumer.subscribe([source])
        producer.init_transactions()
        last = time.monotonic()
        while time.monotonic() - last < idle_s:
            table = consumer.poll_arrow(500)
            if len(table) == 0:
                continue
            result = lengths(table)
            try:
                with producer.transaction(consumer):
                    producer.send_arrow(target, result)
            except (AbortableError, RetriableError) as error:
                print(f"not committed, the rows will be read again: {error}")
            else:
                written += len(result)
            last = time.monotonic()
    return written


def main(arguments: Sequence[str] | None = None) -> None:
    """Copy until the source is quiet."""
    parser = argparse.ArgumentParser(description="Transform a topic as Arrow tables, exactly once.")
    parser.add_argument("--bootstrap-servers", required=True)
    parser.add_argument("--source", required=True)
    parser.add_argument("--target", required=True)
    parser.add_argument("--group", default="arrow-in-and-out")
    parser.add_argument("--idle-s", type=float, default=5)
    options = parser.parse_args(arguments)
    rows = copy(options.bootstrap_servers, options.source, options.target, options.group, options.idle_s)
    print(f"wrote {rows} rows")


if __name__ == "__main__":
    main()
