"""`make bench`: every benchmark, side by side with its peer in one run, reported as ratios.

python -m bench [--quick] [--broker fencepost --broker kafka] [--only produce --only pipeline ...]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

from bench import brokers, columns, common, consume, messages, pipeline, produce

SIZES = (100, 1_000)
ROWS = ["columns", "messages", "brokers", "produce", "consume", "pipeline"]
BROKERS = {"fencepost": "Fencepost's broker", "kafka": "Apache Kafka 4.3.1"}


def produce_and_consume(which: str, records: int, rounds: int, only: list[str]) -> None:
    """Both directions through one broker, for both sizes."""
    measures: dict[str, Callable[[str, int, int, int], common.Contest]] = {
        "produce": produce.measure,
        "consume": consume.measure,
    }
    chosen = {name: measure for name, measure in measures.items() if name in only}
    if not chosen:
        return
    with common.broker(which) as servers:
        for name, measure in chosen.items():
            for size in SIZES:
                print(f"\n{name}, {size} B values, {BROKERS[which]}")
                print(measure(servers, size, records * 100 // size, rounds).report(), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the records, one round: shows that it works")
    parser.add_argument("--broker", action="append", choices=list(BROKERS), help="measure only against this one")
    parser.add_argument("--only", action="append", choices=ROWS)
    options = parser.parse_args()
    only = options.only or ROWS
    records, rounds = (100_000, 1) if options.quick else (1_000_000, 3)
    if "columns" in only:
        print("record batches in memory, beside aiokafka's")
        columns.main()
    if "messages" in only:
        print("\nmessages of the control plane, beside kio's")
        messages.main()
    if "brokers" in only:
        print("\nthe two brokers, asked by the same client")
        print("\n".join(brokers.measure(options.quick)), flush=True)
    for which in options.broker or list(BROKERS):
        produce_and_consume(which, records, rounds, only)
    if "pipeline" in only:
        print("\na stream from topic to topic (Kafka -> Spark -> Kafka)")
        print(pipeline.measure(quick=options.quick).report(), flush=True)


if __name__ == "__main__":
    main()
