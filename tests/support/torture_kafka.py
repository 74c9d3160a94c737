"""The torture of `fencepost torture` against an Apache Kafka that is killed: `python -m tests.support.torture_kafka`.

The control: the same clients, faults and checks as against our broker.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from fencepost.check.history.file import operations_of
from fencepost.check.history.model import History
from fencepost.check.history.timeline import page
from fencepost.check.history.verdict import judge, text_of
from fencepost.torture.supervisor import FAULTS, Options, Torture
from tests.support.apache_kafka import ApacheKafka


class Killable(ApacheKafka):
    """Under the names that the torture knows."""

    def kill(self) -> None:
        self.kill9()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--client", default="fencepost")
    parser.add_argument("--faults", nargs="*", default=FAULTS, choices=FAULTS)
    parser.add_argument("--history", type=Path, default=Path("history.jsonl"))
    parser.add_argument("--html", type=Path)
    given = parser.parse_args()
    began = time.monotonic()

    def say(line: str) -> None:
        print(f"{time.monotonic() - began:6.1f} s  {line}", flush=True)

    with Killable() as kafka, tempfile.TemporaryDirectory(prefix="fencepost-torture-") as work:
        options = Options(
            bootstrap_servers=kafka.bootstrap_servers,
            minutes=given.minutes,
            seed=given.seed,
            client=given.client,
            prefix="torture-",
            keep=False,
            work=Path(work),
            broker=kafka,
            faults=tuple(given.faults),
        )
        Torture(options, say).run(given.history)
    with given.history.open(encoding="utf-8") as lines:
        verdict = judge(History(operations_of(lines)), 5)
    print(text_of(verdict))
    if given.html is not None:
        given.html.write_text(page(verdict, "Apache Kafka"), encoding="utf-8")
    return 0 if verdict.clean else 1


if __name__ == "__main__":
    sys.exit(main())
