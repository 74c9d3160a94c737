"""`make bench`: every benchmark, side by side with its peer in one run, reported as ratios.

python -m bench [--quick] [--records 1000000] [--rounds 5] [--broker fencepost --broker kafka]
                [--only produce --only pipeline ...] [--json FILE] [--markdown docs/performance.md]
python -m bench --sweep record-size [--values 10,1000] [--sweep ...] [--sweep all]

Without --sweep the table is measured, with it what is named, and the table only if --only says so.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench import brokers, columns, common, connections, demo, messages, pipeline, processes, raw, report
from bench.sweep import Effort, Swept, run
from bench.sweeps import SWEEPS
from fencepost_lab.benchmark.clients import MEASURES, Load
from fencepost_lab.benchmark.contest import BUSY, Row
from fencepost_lab.torture.access import Access

SIZES = (100, 1_000)
GROUPS = ["columns", "messages", "brokers", "connections", "processes", "produce", "consume", "pipeline", "demo"]
# The tables of the page. A run replaces those of which it has measured something.
TABLES = {
    "brokers": ("brokers", "connections"),
    "clients": ("processes", "produce", "consume"),
    "spark": ("pipeline",),
    "demo": ("demo",),
}
BROKERS = {"fencepost": "Fencepost's broker", "kafka": "Apache Kafka 4.3.1"}

# What is aimed at, by the broker, the contestant and the size of the values.
MARKS = {
    ("kafka", "fencepost send_arrow()", 100): "1/8 of the time",
    ("fencepost", "fencepost send_arrow()", 100): "12x",
    **{("kafka", f"fencepost send(){keys}", 100): "1.8x" for keys in ("", " with keys")},
    **{("fencepost", f"fencepost send(){keys}", 100): "2x" for keys in ("", " with keys")},
    ("kafka", "fencepost poll_arrow()", 1_000): "3x",
    ("fencepost", "fencepost poll_arrow()", 1_000): "4x",
    ("kafka", "fencepost poll()", 1_000): "1.6x",
    ("fencepost", "fencepost poll()", 1_000): "2x",
}


def produce_and_consume(which: str, records: int, rounds: int, only: Sequence[str]) -> Iterator[Row]:
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
                limit = raw.records_s(name, size)
                for contestant in contest.rates:
                    if contestant != contest.yardstick:
                        mark = MARKS.get((which, contestant, size), "")
                        yield contest.row(f"{title}: {contestant}", contestant, mark=mark, raw=limit)


def table(options: argparse.Namespace, only: Sequence[str]) -> list[Row]:
    """The rows that are asked for, told as they come."""
    rows: list[Row] = []
    records, rounds = (100_000, 1) if options.quick else (1_000_000, 5)
    records, rounds = options.records or records, options.rounds or rounds
    if "columns" in only:
        print("record batches in memory, beside aiokafka's")
        columns.main()
    if "messages" in only:
        print("\nmessages of the control plane, beside kio's")
        messages.main()
    if "brokers" in only:
        print("\nthe two brokers, asked by the same client")
        print(f"{'':44} {'ours':>12} {'Kafka':>12}")
        rows += _printed(brokers.measure(options.quick, rounds))
    if "connections" in only:
        rows += _printed(connections.rows(quick=options.quick, rounds=rounds))
    if "processes" in only:
        print("\na process of our client, beside confluent-kafka's")
        rows += _printed(processes.rows(quick=options.quick, rounds=rounds))
    for which in options.broker or list(BROKERS):
        rows += produce_and_consume(which, records, rounds, only)
    if "pipeline" in only:
        print("\na stream from topic to topic (Kafka -> Spark -> Kafka)")
        rows += pipeline.rows(quick=options.quick, rounds=rounds)
    if "demo" in only:
        print("\nthe demo")
        rows += _printed(demo.rows(quick=options.quick))
    return rows


def put(page: Path, name: str, rows: list[Row]) -> None:
    """Write a table into the page."""
    busiest = max(row.busy for row in rows)
    lines = [report.provenance(command(), report.machine()), "", report.busy_line(busiest), "", *report.table(rows)]
    report.put(page, f"measured {name}", lines)


def _printed(rows: Iterator[Row]) -> Iterator[Row]:
    """Print each row as it comes."""
    for row in rows:
        print(brokers.row_text(row), flush=True)
        yield row


def swept(options: argparse.Namespace) -> list[Swept]:
    """Each sweep that is asked for; what it found is in the page before the next begins."""
    done = []
    effort = Effort(options.rounds or (1 if options.quick else 3), 10 if options.quick else 1)
    for name in list(SWEEPS) if "all" in options.sweep else options.sweep:
        sweep = SWEEPS[name]
        values = sweep.quick if options.quick else sweep.values
        if options.values:
            values = [int(value) if value.isdigit() else value for value in options.values.split(",")]
        done.append(run(sweep, options.broker or list(BROKERS), values, effort))
        if options.markdown:
            done[-1].put(options.markdown, command(), report.machine())
    return done


def command() -> str:
    return report.command_of(sys.argv[1:], without=("--json", "--markdown"))


def positive(text: str) -> int:
    """Raises ArgumentTypeError."""
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no number above 0")
    return int(text)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="make bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a tenth of the records, one round: shows that it works")
    parser.add_argument(
        "--records", type=positive, help="to produce and to consume, of 100 bytes; of larger ones so many fewer"
    )
    parser.add_argument("--rounds", type=positive, help="that many, in turn")
    parser.add_argument("--broker", action="append", choices=list(BROKERS), help="measure only against this one")
    parser.add_argument("--only", action="append", choices=GROUPS, help="of the table")
    parser.add_argument("--sweep", action="append", choices=["all", *SWEEPS])
    parser.add_argument("--values", help="of the sweep, with commas, in the place of its own")
    parser.add_argument("--json", type=Path, help="write all figures there")
    parser.add_argument("--markdown", type=Path, help="write tables and charts there, between their marks")
    options = parser.parse_args()
    if options.values and (options.sweep is None or len(options.sweep) != 1 or "all" in options.sweep):
        parser.error("--values are those of one sweep")
    return options


def main() -> None:
    options = arguments()
    only = options.only or ([] if options.sweep else GROUPS)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # brokers start as an installed package does
    rows: list[Row] = []
    for name, groups in TABLES.items():
        if found := table(options, [group for group in groups if group in only]):
            rows += found
            if options.markdown:
                put(options.markdown, name, found)
    rows += table(options, [group for group in ("columns", "messages") if group in only])
    busiest = max((row.busy for row in rows), default=0.0)
    sweeps = swept(options) if options.sweep else []
    busiest = max((busiest, *(each.busiest for each in sweeps)))
    if busiest > BUSY:
        print(f"\nothers took up to {busiest:.0%} of the machine: believe the ratios, not the figures")
    if options.json:
        reported = [*map(report.row_values, rows), *(row for each in sweeps for row in each.rows())]
        report.write_json(options.json, command(), report.machine(), reported)


if __name__ == "__main__":
    main()
