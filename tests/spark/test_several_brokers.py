"""The sink on three Apache Kafkas one of which goes: the one that has the decision, and one that is written to.

At the weakest level, which has the least to ask the brokers. `python -m tests.support.torture.several_machines` does
the same to the others, for as long as one likes.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fencepost import Admin
from fencepost.protocol.logs.partitioning import coordinator_partition
from fencepost.spark.sink import names
from tests.spark.copying import Copy, SharedDriver
from tests.spark.doomed import Kill, kill_where_they_stand
from tests.support.apache_kafka_cluster import ApacheKafkaCluster, ClusterNode

RECORDS, MORE = 1000, 300
LEVEL = "resume-v1"
COORDINATORS = "__transaction_state"

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[ApacheKafkaCluster]:
    as_most_are = {"transaction.two.phase.commit.enable": False, "unstable.api.versions.enable": False}
    with ApacheKafkaCluster(as_most_are, format_arguments=("--feature", "transaction.version=0")) as running:
        yield running


def leader(cluster: ApacheKafkaCluster, topic: str, partition: int) -> ClusterNode:
    with Admin(cluster.bootstrap_servers) as admin:
        number = admin.describe_topics([topic])[topic].partitions[partition].leader
    return next(node for node in cluster.nodes if node.node_id == number)


def coordinator(cluster: ApacheKafkaCluster, sink: str) -> ClusterNode:
    with Admin(cluster.bootstrap_servers) as admin:
        count = len(admin.describe_topics([COORDINATORS])[COORDINATORS].partitions)
    return leader(cluster, COORDINATORS, coordinator_partition(names.sink_id(sink), count))


def test_nodes_are_killed_and_every_record_is_there_once(
    cluster: ApacheKafkaCluster, shared_driver: SharedDriver, tmp_path: Path
) -> None:
    copy = Copy(cluster.bootstrap_servers, tmp_path, level=LEVEL, driver=shared_driver)
    copy.create()
    copy.produce(0, RECORDS)

    # The first batch is decided and none of it committed when the driver dies, and the sink's coordinator with it.
    kill_where_they_stand([(Kill("WriteDecision", "after", 1), copy)], tmp_path)
    assert not (copy.folder / "failed").exists(), (copy.folder / "failed").read_text()
    lost = coordinator(cluster, copy.name)
    lost.kill9()
    copy.run_to_the_end(rows_per_batch="1500")
    lost.start()
    cluster.wait_until_whole()

    copy.produce(RECORDS, MORE)
    batches = len(copy.batches())
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(copy.run_to_the_end, rows_per_batch="60")
        while len(copy.batches()) == batches and not running.done():
            time.sleep(0.05)
        lost = leader(cluster, copy.target, 0)
        lost.kill9()
        assert not running.done(), "the query had copied everything before the node was killed"
        try:
            running.result()
        except AssertionError as error:  # which docs/spark.md tells of, for this level
            if "SupersededError" not in str(error):
                raise
            copy.run_to_the_end()
    lost.start()
    cluster.wait_until_whole()
    copy.check(RECORDS + MORE)
