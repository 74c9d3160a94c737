"""A node that hangs keeps its connections open. What its cluster says about it decides how long a request waits."""

from __future__ import annotations

from typing import Any

import pytest

from fencepost.client.net.connection import SILENCE_MS
from fencepost.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tests.unit.client.scripted import ScriptedBroker, World, run, topic_id

HANGS, OTHER = 1, 2
REQUEST_TIMEOUT_MS = 30_000


class TwoNodes(ScriptedBroker):
    """Node 1 leads everything as long as the cluster lists it, then node 2."""

    def __init__(self) -> None:
        super().__init__()
        self.listed = [HANGS, OTHER]

    def answer_3(self, version: int, request: Any) -> Any:
        partition = MetadataResponsePartition(partition_index=0, leader_id=self.listed[0])
        topics = [
            MetadataResponseTopic(name=each.name, topic_id=topic_id(each.name), partitions=[partition])
            for each in request.topics or ()
        ]
        brokers = [MetadataResponseBroker(node_id=node, host=f"node-{node}", port=9092) for node in self.listed]
        return MetadataResponse(brokers=brokers, controller_id=OTHER, topics=topics)


def waited_ms(listed_after: list[int]) -> int:
    """Time for which a record waits whose leader does not answer."""
    broker, waited = TwoNodes(), list[int]()

    async def body(world: World) -> None:
        producer = world.producer(request_timeout_ms=REQUEST_TIMEOUT_MS)
        assert (await world.outcome(producer.append("t", b"u"))).offset == 0
        broker.scripts[0] += [lambda _, __: None]
        broker.listed = listed_after
        begun_ms = world.runtime.now_ms()
        assert (await world.outcome(producer.append("t", b"v"))).offset == 1
        waited.append(world.runtime.now_ms() - begun_ms)
        await producer.close()

    run(body, broker)
    return waited[0]


def test_a_node_that_the_cluster_has_lost_holds_up_nobody_for_long() -> None:
    """Without a look at the cluster, the record waits for `request_timeout_ms`, as with Java and librdkafka."""
    assert SILENCE_MS <= waited_ms([OTHER]) < SILENCE_MS + 500


@pytest.mark.parametrize("listed", [[HANGS, OTHER], [HANGS]], ids=str)
def test_a_node_that_the_cluster_still_has_may_take_its_time(listed: list[int]) -> None:
    assert REQUEST_TIMEOUT_MS <= waited_ms(listed) < REQUEST_TIMEOUT_MS + 500
