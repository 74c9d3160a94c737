"""Decisions do not depend on the clock of the driver's host."""

from __future__ import annotations

import asyncio

import pytest

import fencepost
from fencepost.client.net.asyncio_runtime import runtime_for
from fencepost.client.net.cluster import Cluster
from fencepost.config import AdminConfig
from fencepost.spark.cluster_calls import ClusterCalls
from fencepost.spark.sink.decision import Beginning, Decision, Pair
from fencepost.spark.sink.decision_store import DEFAULT_TOPIC, PARTITIONS, DecisionStore
from fencepost.spark.sink.names import sink_id
from tests.support.brokers import HasAddress

HOUR_MS = 3_600_000
EARLIER = {"cleanup.policy": "compact", "segment.bytes": "16777216", "min.cleanable.dirty.ratio": "0.1"}


async def decide(servers: str, topic: str, ahead_ms: int) -> None:
    config = AdminConfig.make({"bootstrap_servers": servers})
    runtime = runtime_for(config)
    real = runtime.wall_ms
    runtime.wall_ms = lambda: real() + ahead_ms  # type: ignore[method-assign]
    cluster = Cluster(runtime, config)
    calls = ClusterCalls(cluster)
    store = DecisionStore(calls, topic)
    try:
        deadline_ms = runtime.now_ms() + 60_000
        await store.begin(Beginning("clocked", f"query {ahead_ms}", 0), deadline_ms)
        claim = await calls.init_producer_id(sink_id("clocked"), timeout_ms=60_000)
        decision = Decision("clocked", f"query {ahead_ms}", 0, ())
        pair = Pair(claim.producer_id, claim.producer_epoch)
        assert await store.write(pair, decision, deadline_ms) == 0
        await calls.init_producer_id(sink_id("clocked"), timeout_ms=60_000)  # ends the transaction
    finally:
        cluster.close()


def check(servers: str, name: str) -> None:
    with fencepost.Admin(servers) as admin:
        admin.create_topic(f"{name}-earlier", PARTITIONS, configs=EARLIER)  # as earlier releases made it
        for ahead_h in (-48, 0, 2, 48):
            for topic in (f"{name}-earlier", f"{name}-new"):
                asyncio.run(decide(servers, topic, ahead_h * HOUR_MS))
        assert admin.describe_configs(f"{name}-new")["message.timestamp.type"] == "LogAppendTime"


def test_a_driver_whose_clock_is_wrong_may_decide() -> None:
    with fencepost.Broker() as broker:
        check(broker.bootstrap_servers, DEFAULT_TOPIC)


@pytest.mark.kafka
def test_a_driver_whose_clock_is_wrong_may_decide_on_apache_kafka(apache_kafka: HasAddress) -> None:
    check(apache_kafka.bootstrap_servers, "decisions-by-the-clock")
