"""A stream from topic to topic, killed at chosen steps of the protocol and started again: every record once.

Also when a process of the killed driver goes on after another has long taken over, when brokers are killed as well, and
when the stream keeps a state (the queries of stateful.py).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import pytest
from confluent_kafka import Producer
from pyspark.errors import StreamingQueryException

from fencepost import Admin
from fencepost.protocol.logs.partitioning import coordinator_partition
from fencepost.spark.sink import names
from tests.spark.copying import PARTITIONS, RECORDS, Copy, make_copy
from tests.spark.doomed import Kill, Killed
from tests.spark.session_here import SparkHere
from tests.spark.stateful_answers import EVENTS, START_S, expected
from tests.support.apache_kafka_cluster import ApacheKafkaCluster, ClusterNode

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1500)]


MORE = 300
COORDINATORS = "__transaction_state"

# Which step, when, at its how-many-eth time. A batch has one Claim, three BeginTask, one WriteDecision, and
# EndTransactions in Open (from the second batch on) and in Commit.
KILLS = [
    Kill("WriteDecision", "after", 2),
    Kill("WriteDecision", "before", 3),
    Kill("EndTransactions", "after", 1),
    Kill("EndTransactions", "before", 3),
    Kill("BeginTask", "after", 5),
    Kill("Claim", "after", 2),
    Kill("ReadDecisions", "after", 3),
    Kill("ListTransactions", "after", 2),  # of what the first batch's losers left
]
ZOMBIES = [
    Kill("WriteDecision", "before", 2, zombie=True),
    Kill("EndTransactions", "before", 3, zombie=True),
    Kill("ReadDecisions", "before", 2, zombie=True),
    Kill("ListTransactions", "before", 2, zombie=True),
]
# With the guarantee `timed` no row is lost if the restart comes before the transactions time out. These arms come
# first, and are killed last.
OF_AN_ARM = {
    "kafka without two-phase commit": [
        Kill("DescribeWinners", "after", 2),
        Kill("WriteDecision", "after", 2),
        Kill("EndTransactions", "before", 3),
    ],
    "fencepost of transaction.version 0": [
        Kill("BeginTask", "after", 5),
        Kill("WriteDecision", "after", 2),
        Kill("Claim", "after", 2),
        Kill("EndTransactions", "before", 3),
        Kill("WriteDecision", "before", 2, zombie=True),
    ],
    "fencepost": [
        *KILLS,
        Kill("KeepWinners", "before", 2),
        Kill("KeepWinners", "after", 2),
        *ZOMBIES,
        Kill("KeepWinners", "before", 2, zombie=True),
    ],
    "fencepost in Arrow": [
        Kill("BeginTask", "after", 5),
        Kill("KeepWinners", "after", 2),
        Kill("WriteDecision", "before", 3),
        Kill("EndTransactions", "after", 1),
    ],
    "kafka": [*KILLS, *ZOMBIES],
}
# The first batch is decided and none of it committed, on brokers with the fewest abilities.
WITH_ITS_COORDINATOR = ("three kafkas", Kill("WriteDecision", "after", 1))
# The first decision is the first batch that emits something; the kill comes before it is known to Spark.
OF_A_STATE = {
    "windows": Kill("WriteDecision", "after", 2),
    "pairs": Kill("EndTransactions", "before", 4),
    "outer": Kill("WriteDecision", "after", 3),
    "within": Kill("KeepWinners", "before", 2),
    "function with state": Kill("WriteDecision", "after", 2),
    "processor": Kill("EndTransactions", "before", 2),
    "windows at kafka": Kill("EndTransactions", "before", 3),
    "function with state at kafka": Kill("WriteDecision", "after", 2),
    "processor at kafka": Kill("WriteDecision", "before", 3),
}


def case(arm: str, kill: Kill) -> object:
    return pytest.param(arm, kill, id=f"{arm}-{kill}", marks=[pytest.mark.kafka] if "kafka" in arm else [])


def cases(*, zombie: bool) -> list[object]:
    return [case(arm, kill) for arm, kills in OF_AN_ARM.items() for kill in kills if kill.zombie is zombie]


@dataclass
class StatefulCopy(Copy):
    """Of a query of stateful.py."""

    query: str = ""

    def arguments(self, **more: str) -> dict[str, str]:
        return super().arguments(query=self.query, **more)

    def fill(self) -> None:
        """One record a second, in turn to both partitions, so that both have the same event time."""
        producer = Producer({"bootstrap.servers": self.servers})
        for number in EVENTS:
            at_ms = (START_S + number) * 1000
            value = f"{self.name} {number}"
            producer.produce(self.source, value=value, partition=number % PARTITIONS, timestamp=at_ms)
        assert producer.flush(120) == 0


@pytest.fixture(scope="module")
def killed(
    request: pytest.FixtureRequest, spark_here: SparkHere, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Killed]:
    """Only what this run of pytest asks for."""

    def make(arm: str) -> Copy:
        kind = partial(StatefulCopy, query=arm.removesuffix(" at kafka")) if arm in OF_A_STATE else Copy
        return make_copy(request, arm, tmp_path_factory.mktemp("copy"), spark_here, kind)

    asked = {item.name.partition("[")[2].removesuffix("]") for item in request.session.items}
    all_keys = [WITH_ITS_COORDINATOR, *OF_A_STATE.items()]
    all_keys += [(arm, kill) for arm, kills in OF_AN_ARM.items() for kill in kills]
    keys = [(arm, kill) for arm, kill in all_keys if f"{arm}-{kill}" in asked]
    queries = Killed(reversed(keys), make, tmp_path_factory.mktemp("doomed"))
    yield queries
    queries.close()


def leader(cluster: ApacheKafkaCluster, topic: str, partition: int) -> ClusterNode:
    with Admin(cluster.bootstrap_servers) as admin:
        number = admin.describe_topics([topic])[topic].partitions[partition].leader
    return next(node for node in cluster.nodes if node.node_id == number)


def coordinator(cluster: ApacheKafkaCluster, sink: str) -> ClusterNode:
    with Admin(cluster.bootstrap_servers) as admin:
        count = len(admin.describe_topics([COORDINATORS])[COORDINATORS].partitions)
    return leader(cluster, COORDINATORS, coordinator_partition(names.sink_id(sink), count))


def kill_a_leader_after_a_batch(cluster: ApacheKafkaCluster, copy: Copy) -> tuple[ClusterNode, float]:
    """The node, and when."""
    batches = len(copy.batches())
    until = time.monotonic() + 300
    while len(copy.batches()) == batches and time.monotonic() < until:
        time.sleep(0.05)
    node = leader(cluster, copy.target, 0)
    node.kill()
    return node, time.monotonic()


@pytest.mark.kafka
@pytest.mark.parametrize(("arm", "kill"), [case(*WITH_ITS_COORDINATOR)])
def test_nodes_are_killed_and_every_record_is_there_once(
    killed: Killed, three_kafkas: ApacheKafkaCluster, arm: str, kill: Kill
) -> None:
    """The one that has the decision, and one that is written to. `python -m tests.support.torture.several_machines`
    does the same to the others, for as long as one likes."""
    copy = killed.take(arm, kill)
    lost = coordinator(three_kafkas, copy.name)
    lost.kill()
    copy.run_to_the_end(rows_per_batch="1500")
    lost.start()
    three_kafkas.wait_until_whole()

    copy.produce(RECORDS, MORE)
    with ThreadPoolExecutor(1) as pool:  # the query stays in this thread, in which Spark knows the session
        killing = pool.submit(kill_a_leader_after_a_batch, three_kafkas, copy)
        try:
            copy.run_to_the_end(rows_per_batch="60")
            ended = time.monotonic()
        except StreamingQueryException as error:  # which docs/spark.md tells of, for this level
            if "SupersededError" not in str(error):
                raise
            ended = time.monotonic()
            copy.run_to_the_end()
        lost, killed_at = killing.result()
    assert killed_at < ended, "the query had copied everything before the node was killed"
    lost.start()
    three_kafkas.wait_until_whole()
    copy.check(RECORDS + MORE)
    three_kafkas.stop()  # which would be busy with each other for the rest of this file


@pytest.mark.parametrize(("arm", "kill"), [case(arm, kill) for arm, kill in OF_A_STATE.items()])
def test_queries_with_a_state_survive_kills(killed: Killed, arm: str, kill: Kill) -> None:
    copy = killed.take(arm, kill)
    copy.run_to_the_end()
    copy.check_values(expected(arm.removesuffix(" at kafka")))


@pytest.mark.parametrize(("arm", "kill"), cases(zombie=True))
def test_a_zombie_that_goes_on_after_the_restart_changes_nothing(killed: Killed, arm: str, kill: Kill) -> None:
    copy = killed.take(arm, kill)
    copy.run_to_the_end(rows_per_batch="4000")
    (copy.folder / "go").touch()
    until = time.monotonic() + 300
    while not (copy.folder / "zombie.done").exists() and time.monotonic() < until:
        time.sleep(0.1)
    assert (copy.folder / "zombie.done").exists(), "the zombie did not go on"
    copy.produce(RECORDS, 100)
    copy.run_to_the_end()
    copy.check(RECORDS + 100)


@pytest.mark.parametrize(("arm", "kill"), cases(zombie=False))
def test_killed_at_a_step_and_restarted(killed: Killed, arm: str, kill: Kill) -> None:
    copy = killed.take(arm, kill)
    copy.produce(RECORDS, 100)
    # With other numbers of tasks and slots: the batch that is replayed is cut otherwise than it was before the kill.
    copy.run_to_the_end(tasks="5", rows_per_batch="4000")
    copy.check(RECORDS + 100)
