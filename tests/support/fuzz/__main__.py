"""Long runs, one seed after the other: python -m tests.support.fuzz broker|clients --seed 1 --minutes 15"""

from __future__ import annotations

import argparse
import time
from random import Random

from tests.support.fuzz.runs import attack_broker, mutate_responses


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.support.fuzz", description=__doc__)
    parser.add_argument("victim", choices=("broker", "clients"))
    parser.add_argument("--seed", type=int, default=1, help="the first one")
    parser.add_argument("--minutes", type=float, default=15, help="no seed is begun after them")
    options = parser.parse_args()
    end, seed = time.monotonic() + options.minutes * 60, options.seed
    while time.monotonic() < end:
        size = Random(seed)
        if options.victim == "broker":
            report = attack_broker(seed, deeds=size.choice((300, 1_000, 3_000)), crowd=size.choice((500, 2_000, 9_000)))
        else:
            report = mutate_responses(seed, applications=100)
        taken = f"{report.taken_bytes >> 20} MiB taken, {report.transactions} transactions beside it"
        print(f"seed {seed}: {taken}, {dict(report.happened)}", flush=True)
        seed += 1


if __name__ == "__main__":
    main()
