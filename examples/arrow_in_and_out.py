"""Arrow in and out: read columns, compute with pyarrow, write columns, in transactions. No Python object per record.

python examples/arrow_in_and_out.py --bootstrap-servers localhost:9092 --source words --target lengths
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from fencepost import Consumer, Producer
from fencepost.errors import AbortableError, ApplicationRecoverableError, RetriableError


def lengths(table: pa.Table) -> pa.Table:
    """One row for each record with a value: its key, and the value's length in bytes as text."""
    table = table.filter(pc.is_valid(table["value"]))
    return pa.table(
        {"key": table["key"], "value": pc.cast(pc.cast(pc.binary_length(table["value"]), pa.string()), pa.binary())}
    )


def copy(
    bootstrap_servers: str,
    source: str,
    target: str,
    group: str,
    idle_s: float,
    transform: Callable[[pa.Table], pa.Table] = lengths,
    *,
    transaction_timeout_ms: int = 60_000,
) -> int:
    """Transform until nothing new came for `idle_s` seconds; returns the number of rows written."""
    written = 0
    with Consumer(bootstrap_servers, group_id=group, auto_offset_reset="earliest") as consumer:
        consumer.subscribe([source])
        last = time.monotonic()
        while time.monotonic() - last < idle_s:
            try:
                with Producer(
                    bootstrap_servers,
                    transactional_id=f"{group}-arrow",
                    compression_type="zstd",
                    transaction_timeout_ms=transaction_timeout_ms,
                ) as producer:
                    producer.init_transactions()
                    while time.monotonic() - last < idle_s:
                        rows = copy_once(consumer, producer, target, transform)
                        if rows is not None:
                            written += rows
                            last = time.monotonic()
            except (ApplicationRecoverableError, RetriableError) as error:
                print(f"a new producer goes on, from what is committed: {error}")
                last = time.monotonic()
    return written


def copy_once(
    consumer: Consumer, producer: Producer, target: str, transform: Callable[[pa.Table], pa.Table]
) -> int | None:
    """One poll and its transaction; returns the number of rows written, None when nothing came."""
    table = consumer.poll_arrow(500)
    if len(table) == 0:
        return None
    try:
        with producer.transaction(consumer):
            result = transform(table)
            producer.send_arrow(target, result)
    except (AbortableError, RetriableError) as error:
        print(f"not committed, the rows will be read again: {error}")
        return 0
    return len(result)


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
