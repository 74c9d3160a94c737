"""Limit on the partitions that one request creates. Expected: Apache Kafka 4.4; both arms are asked."""

from __future__ import annotations

import pytest

from fencepost.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from fencepost.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tests.support.brokers import BrokerUnderTest
from tests.support.raw_client import RawClient

POLICY_VIOLATION = 44


@pytest.mark.parametrize("validate_only", [False, True])
@pytest.mark.parametrize("counts", [(10_001,), (6000, 6000), (6000, -5, 0, 5000), (9_999, -1, -1)])
def test_too_many_for_one_request(
    broker: BrokerUnderTest, client: RawClient, counts: tuple[int, ...], validate_only: bool
) -> None:
    topics = [CreatableTopic(name=broker.name("t"), num_partitions=count, replication_factor=1) for count in counts]
    answer = client.call(CreateTopicsRequest(topics=topics, timeout_ms=60_000, validate_only=validate_only), 7)
    expected = [(POLICY_VIOLATION, "Excessively large number of partitions per request.")] * len(counts)
    assert [(result.error_code, result.error_message) for result in answer.topics] == expected


def test_too_many_for_a_topic_that_is_there(broker: BrokerUnderTest, client: RawClient) -> None:
    topic = client.create_topic(broker.name("t"))

    def grow(count: int) -> int:
        wanted = CreatePartitionsTopic(name=topic, count=count, assignments=None)
        request = CreatePartitionsRequest(topics=[wanted], timeout_ms=60_000, validate_only=True)
        return int(client.call(request, 3).results[0].error_code)

    assert grow(10_002) == (-1 if broker.is_before(4, 4) else 44)  # Kafka 4.3 stumbles
    assert grow(10_001) == 0
