"""A consumer's metrics by partition and topic, on both brokers."""

from __future__ import annotations

import fencepost
from tests.support.brokers import BrokerUnderTest


def test_lag_and_lead_are_distances_of_the_position(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    topic = broker.name("t")
    place, labels = fencepost.TopicPartition(topic, 1), f'{{topic="{topic}",partition="1"}}'
    admin.create_topic(topic, 2)
    with fencepost.Producer(broker.bootstrap_servers) as producer:
        for number in range(10):
            producer.send(topic, b"%d" % number, partition=1)
    admin.delete_records({place: 2})
    with fencepost.Consumer(broker.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, 0), place])
        got = 0
        while got < 3:
            got += len(consumer.poll(60_000, 3 - got))
        found = consumer.metrics()
        position = consumer.position(place)
        start, end = consumer.beginning_offsets([place]), consumer.end_offsets([place])
    assert position == 5
    assert found[f"partition_records_lag{labels}"] == end[place] - position == 5
    assert found[f"partition_records_lead{labels}"] == position - start[place] == 3
    assert found["records_lag_max"] == 5
    assert found[f'topic_records_consumed_total{{topic="{topic}"}}'] == 3
