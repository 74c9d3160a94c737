"""A consumer's metrics by partition and topic, on both brokers."""

from __future__ import annotations

import fencepost
from tests.support.brokers import BrokerUnderTest


def test_lag_and_lead_are_distances_of_the_position(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    topic = broker.name("t")
    partition, labels = fencepost.TopicPartition(topic, 1), f'{{topic="{topic}",partition="1"}}'
    admin.create_topic(topic, 2)
    with fencepost.Producer(broker.bootstrap_servers) as producer:
        for number in range(10):
            producer.send(topic, b"%d" % number, partition=1)
    admin.delete_records({partition: 2})
    with fencepost.Consumer(broker.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, 0), partition])
        got = 0
        while got < 3:
            got += len(consumer.poll(60_000, 3 - got))
        found = consumer.metrics()
        position = consumer.position(partition)
        start, end = consumer.beginning_offsets([partition]), consumer.end_offsets([partition])
    assert position == 5
    assert found[f"partition_records_lag{labels}"] == end[partition] - position == 5
    assert found[f"partition_records_lead{labels}"] == position - start[partition] == 3
    assert found["records_lag_max"] == 5
    assert found[f'topic_records_consumed_total{{topic="{topic}"}}'] == 3
