"""The torture of `fencepost torture` against an Apache Kafka that is killed: `python -m tests.support.torture_kafka`.

The control: the same clients, faults and checks as against our broker.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from fencepost_lab.check.history.file import operations_of
from fencepost_lab.check.history.model import History
from fencepost_lab.check.report.verdict import judge
from fencepost_lab.cli.check import report
from fencepost_lab.torture.access import Access
from fencepost_lab.torture.supervisor import FAULTS, Torture, TortureOptions
from fencepost_lab.torture.two_phase import LEVELS
from tests.support.apache_kafka import ApacheKafka
from tests.support.apache_kafka_cluster import ApacheKafkaCluster, ClusterNode
from tests.support.certificates import Authority
from tests.support.rolling_kafka import RollingCluster
from tests.support.secure_kafka import USER, secure_kafka


class KillableCluster:
    """Three nodes, one of which goes at a time: in turn it is killed and asked to stop, each node after the other."""

    def __init__(self, cluster: ApacheKafkaCluster) -> None:
        self._cluster = cluster
        self._turn = 0

    @property
    def _node(self) -> ClusterNode:
        return self._cluster.nodes[self._turn % len(self._cluster.nodes)]

    @property
    def pid(self) -> int | None:
        return self._node.pid

    def start(self) -> None:
        self._node.start()
        self._cluster.wait_until_whole()
        self._turn += 1

    def kill(self) -> None:
        if self._turn % 2:
            self._node.stop(keep_data=True)
        else:
            self._node.kill()

    def stop(self) -> None:
        self._cluster.stop()


def by_tls_and_scram(kafka: ApacheKafka, authority: Authority) -> Access:
    """Return the access to a Kafka of `secure_kafka`, through a proxy that speaks TLS on both sides."""
    settings = {
        "security.protocol": "SASL_SSL",
        "ssl.truststore.location": str(authority.path),
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": USER,
        "sasl.password": "secret",
    }
    return Access(kafka.address_of("SASLTLS"), settings, str(authority.issue("proxy").keystore))


def started(
    given: argparse.Namespace, work: Path, stack: contextlib.ExitStack, say: Callable[[str], None]
) -> tuple[ApacheKafka | KillableCluster | RollingCluster, Access]:
    """Start the Kafka that the options name, until the stack is closed. Return it with the access to it."""
    if given.roll:
        cluster = ApacheKafkaCluster({"unstable.api.versions.enable": False}, release=given.roll[0])
        stack.enter_context(cluster)
        return RollingCluster(cluster, given.roll[1:], say), Access(cluster.bootstrap_servers)
    if given.cluster:
        cluster = stack.enter_context(ApacheKafkaCluster())
        return KillableCluster(cluster), Access(cluster.bootstrap_servers)
    if not given.secure:
        kafka = stack.enter_context(ApacheKafka())
        return kafka, Access(kafka.bootstrap_servers)
    authority = Authority(work)
    kafka = stack.enter_context(secure_kafka(work / "secure", authority))
    return kafka, by_tls_and_scram(kafka, authority)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--client", default="fencepost")
    parser.add_argument("--faults", nargs="*", default=FAULTS, choices=FAULTS)
    parser.add_argument("--secure", action="store_true", help="TLS and SCRAM")
    parser.add_argument("--cluster", action="store_true", help="three nodes, with three replicas of everything")
    parser.add_argument(
        "--roll",
        nargs="+",
        metavar="RELEASE",
        help="three nodes of the first release that go to the others, one by one: 3.9.1 4.1.1 3.9.1 4.3.1",
    )
    parser.add_argument("--two-phase", default="", choices=("", *LEVELS))
    parser.add_argument("--history", type=Path, default=Path("history.jsonl"))
    parser.add_argument("--html", type=Path)
    given = parser.parse_args()
    began = time.monotonic()

    def say(line: str) -> None:
        print(f"{time.monotonic() - began:6.1f} s  {line}", flush=True)

    with tempfile.TemporaryDirectory(prefix="fencepost-torture-") as work, contextlib.ExitStack() as stack:
        broker, access = started(given, Path(work), stack, say)
        options = TortureOptions(
            access=access,
            minutes=given.minutes,
            seed=given.seed,
            client=given.client,
            prefix="torture-",
            keep=False,
            work=Path(work),
            broker=broker,
            faults=tuple(given.faults),
            two_phase=given.two_phase,
        )
        Torture(options, say).run(given.history)
        left = len(broker.left) if isinstance(broker, RollingCluster) else 0
    with given.history.open(encoding="utf-8") as lines:
        verdict = judge(History(operations_of(lines)), 5)
    report(verdict, given.html, "Apache Kafka", as_json=False)
    if left:
        print(f"{left} steps of the way are left: give it more minutes")
    return 0 if verdict.clean and not left else 1


if __name__ == "__main__":
    sys.exit(main())
