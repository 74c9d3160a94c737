"""What tasks write down where brokers do not list transactions: a driver runs for months, and keeps none for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import fencepost
from fencepost.client.net.asyncio_runtime import runtime_for
from fencepost.client.net.cluster import Cluster
from fencepost.config import AdminConfig
from fencepost.spark.cluster_calls import ClusterCalls
from fencepost.spark.sink import names
from fencepost.spark.sink.decision_store import GRACE_MS, DecisionStore, partition_of

SINK, PATIENCE_MS, TIMEOUT_MS = "orders", 30_000, 5_000
NEIGHBOUR = next(name for name in map("sink-{}".format, range(1_000)) if partition_of(name) == partition_of(SINK))


def with_store(body: Callable[[DecisionStore, Callable[[int], None]], Awaitable[None]]) -> None:
    """Run the body with a store on a broker of its own, and with what moves the store's clock and the broker's on."""

    async def main(broker: fencepost.Broker) -> None:
        config = AdminConfig.make({"bootstrap_servers": broker.bootstrap_servers})
        runtime = runtime_for(config)
        later = [0]
        real = runtime.wall_ms
        runtime.wall_ms = lambda: real() + later[0]  # type: ignore[method-assign]
        cluster = Cluster(runtime, config)

        def sleep(by_ms: int) -> None:
            later[0] += by_ms
            broker.clock.advance(by_ms / 1000)

        try:
            await body(DecisionStore(ClusterCalls(cluster)), sleep)
        finally:
            cluster.close()

    with fencepost.Broker() as broker:
        asyncio.run(main(broker))


def test_what_has_timed_out_is_not_kept() -> None:
    async def body(store: DecisionStore, sleep: Callable[[int], None]) -> None:
        deadline_ms = store._cluster.runtime.now_ms() + PATIENCE_MS
        first = [names.task_id(SINK, bytes([n]) * 16) for n in range(3)]
        neighbours = names.task_id(NEIGHBOUR, b"n" * 16)
        for one in [*first, neighbours]:
            await store.register(one, TIMEOUT_MS, deadline_ms)
        assert await store.registered(SINK, deadline_ms) == tuple(first)
        store.settle(first[0])
        store.settle(neighbours)
        assert await store.registered(SINK, deadline_ms) == tuple(first[1:])
        sleep(TIMEOUT_MS)  # the second half of the time until they have timed out is the grace
        late = names.task_id(SINK, b"l" * 16)
        await store.register(late, TIMEOUT_MS, deadline_ms)
        assert await store.registered(SINK, deadline_ms) == (*first[1:], late)
        assert store._settled == {first[0], neighbours}
        sleep(GRACE_MS)
        assert await store.registered(SINK, deadline_ms) == (late,)
        assert {owner: [*ids] for owner, ids in store._seen[partition_of(SINK)].registered.items()} == {
            SINK: [late],
            NEIGHBOUR: [],
        }
        assert store._settled == {neighbours}
        assert await store.registered(NEIGHBOUR, deadline_ms) == ()
        assert store._settled == set()
        assert await store.sinks(deadline_ms) == sorted([NEIGHBOUR, SINK])

    with_store(body)
