"""`make bench`: every benchmark, side by side with its peer in one run, reported as ratios.

python -m bench [--quick] [--rounds 5] [--broker fencepost --broker kafka] [--only produce --only pipeline ...]
                [--json FILE] [--markdown docs/performance.md]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from bench import brokers, columns, common, messages, pipeline, raw, report
from fencepost.benchmark.clients import MEASURES, Load
from fencepost.benchmark.contest import BUSY, Row
from fencepost.torture.access import Access

SIZES = (100, 1_000)
GROUPS = ["columns", "messages", "brokers", "produce", "consume", "pipeline"]
BROKERS = {"fencepost": "Fencepost's broker", "kafka": "Apache Kafka 4.3.1"}
FRAMING_BYTES = 7  # of a small record in a batch
REQUEST_BYTES, ANSWER_BYTES = 1_000_000, 60

# What is aimed at, by the broker, the contestant and the size of the values.
MARKS = {
    ("kafka", "fencepost send_arrow()", 100): "10x",
    ("fencepost", "fencepost send_arrow()", 100): "12x",
    ("kafka", "fencepost send_arrow()", 1_000): "2.5x",
    ("fencepost", "fencepost send_arrow()", 1_000): "5x",
    **{(which, f"fencepost send(){keys}", 100): "1.5x" for which in BROKERS for keys in ("", " with keys")},
    **{(which, "fencepost poll_arrow()", 1_000): "4x" for which in BROKERS},
    **{(which, "fencepost poll()", 1_000): "1.5x" for which in BROKERS},
}
PIPELINE_MARKS = {"fencepost, exactly once": "3x", "fencepost in Arrow, exactly once": "10x"}


def produce_and_consume(which: str, records: int, rounds: int, only: list[str]) -> Iterator[Row]:
    """Both directions through one broker, for both sizes."""
    chosen = [name for name in ("produce", "consume") if name in only]
    if not chosen:
        return
    with common.broker(which) as servers:
        for name in chosen:
            for size in SIZES:
                title = f"{name}, {size} B values, {BROKERS[which]}"
                print(f"\n{title}")
                contest = MEASURES[name](Load(Access(servers), size), records * 100 // size, rounds)
                print(contest.report(), flush=True)
                limit = raw_rate(name, size)
                for contestant in contest.rates:
                    if contestant != contest.yardstick:
                        mark = MARKS.get((which, contestant, size), "")
                        yield contest.row(f"{title}: {contestant}", contestant, mark=mark, raw=limit)


def raw_rate(name: str, size: int) -> float:
    """Records per second whose bytes go through a socket, to somebody who discards them or out of a file."""
    if name == "produce":
        moved = raw.through(REQUEST_BYTES, ANSWER_BYTES, "discard", 300) * REQUEST_BYTES
    else:
        moved = raw.through(ANSWER_BYTES, REQUEST_BYTES, "sendfile", 300, in_flight=2) * REQUEST_BYTES
    return moved / (size + FRAMING_BYTES)


def main() -> None:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the records, one round: shows that it works")
    parser.add_argument("--rounds", type=int, help="that many, in turn")
    parser.add_argument("--broker", action="append", choices=list(BROKERS), help="measure only against this one")
    parser.add_argument("--only", action="append", choices=GROUPS)
    parser.add_argument("--json", type=Path, help="write all figures there")
    parser.add_argument("--markdown", type=Path, help="write the table there, between the marks")
    options = parser.parse_args()
    rows: list[Row] = []
    only = options.only or GROUPS
    records, rounds = (100_000, 1) if options.quick else (1_000_000, 3)
    rounds = options.rounds or rounds
    if "columns" in only:
        print("record batches in memory, beside aiokafka's")
        columns.main()
    if "messages" in only:
        print("\nmessages of the control plane, beside kio's")
        messages.main()
    if "brokers" in only:
        print("\nthe two brokers, asked by the same client")
        print(f"{'':44} {'ours':>12} {'Kafka':>12}")
        for row in brokers.measure(options.quick, rounds):
            print(brokers.told(row), flush=True)
            rows.append(row)
    for which in options.broker or list(BROKERS):
        rows += produce_and_consume(which, records, rounds, only)
    if "pipeline" in only:
        print("\na stream from topic to topic (Kafka -> Spark -> Kafka)")
        streams = pipeline.measure(quick=options.quick)
        print(streams.report(), flush=True)
        for name in streams.rates:
            title = f"Kafka to Kafka with Spark: {name}"
            rows.append(streams.row(title, name, mark=PIPELINE_MARKS.get(name, "")))
    busiest = max((row.busy for row in rows), default=0.0)
    if busiest > BUSY:
        print(f"\nothers took up to {busiest:.0%} of the machine: believe the ratios, not the figures")
    command = report.command_of(sys.argv[1:], without=("--json", "--markdown"))
    where = report.machine()
    if options.json:
        report.write_json(options.json, command, where, rows)
    if options.markdown:
        report.write_markdown(options.markdown, command, where, rows)


if __name__ == "__main__":
    main()
