"""Random requests to this broker and to Apache Kafka, their answers compared.

After each run both are restarted on what is left (ours every other time as after `kill -9`), and that is compared.
With `--odd-fields` the requests are not random: each is the usual one of its API, with one odd field.

python -m tests.support.differential --seed 1 --runs 20
python -m tests.support.differential --odd-fields --api 19
"""

from __future__ import annotations

import argparse
import secrets
import time
from collections import Counter
from collections.abc import Sequence

from fencepost.broker.api.apis import SERVED
from fencepost.broker.embedded import Broker
from tests.support.apache_kafka import AUTHORIZER_PROPERTIES, ApacheKafka
from tests.support.differential.comparing import LEFT_OUT, Comparison, Outcome
from tests.support.differential.known import unknown
from tests.support.differential.odd_fields import OddFields
from tests.support.differential.side import Side
from tests.support.raw_client import RawClient

SETTINGS = {
    **AUTHORIZER_PROPERTIES,
    "transaction.two.phase.commit.enable": True,
    "producer.state.check": "kafka",
    "offsets.topic.num.partitions": 5,
    "transaction.state.log.num.partitions": 5,
}


def common_versions(ours: str, kafka: str) -> dict[int, tuple[int, int]]:
    """Return the range of versions that both brokers serve, by API key."""
    served = []
    for servers in (ours, kafka):
        with RawClient(servers) as client:
            served.append({api.api_key: (api.min_version, api.max_version) for api in client.api_versions().api_keys})
    both = {key: (max(served[0][key][0], served[1][key][0]), min(served[0][key][1], served[1][key][1]))
            for key in served[0].keys() & served[1].keys()}  # fmt: skip
    return {key: (low, high) for key, (low, high) in both.items() if low <= high}


def comparison(ours: str, kafka: str, seed: int, only: Sequence[int] = ()) -> Comparison:
    """A run with this seed, to be carried out."""
    run = f"d{seed}-{secrets.token_hex(3)}"  # a seed may run twice on one Kafka
    return Comparison(seed, run, Side("ours", run, ours), Side("kafka", run, kafka), common_versions(ours, kafka), only)


def looked_again(run: Comparison) -> Outcome:
    """Kafka opens its port before its coordinators have loaded all partitions, and lists what it has so far."""
    deadline = time.monotonic() + 60
    while unknown((again := run.look_again()).differences) and time.monotonic() < deadline:
        time.sleep(1)
    return again


def show(what: str, outcome: Outcome) -> None:
    print(f"{what}: {outcome.asked.total()} asked, {len(outcome.differences)} answered otherwise", flush=True)
    if outcome.hung:
        print(f"  ended early: {outcome.hung}", flush=True)
    for difference in unknown(outcome.differences):
        print(f"  {difference}", flush=True)


def odd_fields(ours: str, kafka: str, run: str) -> OddFields:
    """A comparison of requests with odd fields, to be carried out."""
    name = f"{run}-{secrets.token_hex(3)}"
    return OddFields(1, name, Side("ours", name, ours), Side("kafka", name, kafka), common_versions(ours, kafka))


def show_odd_fields(ours: str, kafka: str, only: Sequence[int]) -> None:
    for api_key in only or sorted(common_versions(ours, kafka).keys() - LEFT_OUT):
        run = odd_fields(ours, kafka, f"o{api_key}")
        show(f"API {api_key}", run.run_api(api_key))
        run.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.support.differential", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--odd-fields", action="store_true", help="of these APIs, or of all")
    parser.add_argument("--api", type=int, action="append", default=[], metavar="KEY", help="only this one; repeatable")
    options = parser.parse_args()
    if foreign := set(options.api) - (SERVED.keys() - LEFT_OUT):
        parser.error(f"APIs that are not compared: {sorted(foreign)}")
    asked: Counter[int] = Counter()
    accepted: Counter[int] = Counter()
    with Broker(SETTINGS, fsync="commit") as broker, ApacheKafka(authorizer=True) as kafka:
        if options.odd_fields:
            show_odd_fields(broker.bootstrap_servers, kafka.bootstrap_servers, options.api)
            return
        for seed in range(options.seed, options.seed + options.runs):
            run = comparison(broker.bootstrap_servers, kafka.bootstrap_servers, seed, options.api)
            outcome = run.run(options.steps)
            show(f"seed {seed}", outcome)
            asked += outcome.asked
            accepted += outcome.accepted
            broker.restart(clean=seed % 2 == 0)
            kafka.restart()  # a kill could cost it markers (K31)
            show(f"seed {seed}, restarted", looked_again(run))
            run.close()
    print({key: (accepted[key], asked[key]) for key in sorted(asked)})


if __name__ == "__main__":
    main()
