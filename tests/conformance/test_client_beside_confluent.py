"""The consumer beside confluent-kafka's, on both brokers: the same program sees and leaves the same."""

from __future__ import annotations

from typing import Any

import confluent_kafka
import pytest

import fencepost
from fencepost.errors import ConfigurationError, UsageError
from tests.support.brokers import BrokerUnderTest
from tests.support.waiting import until

TP = fencepost.TopicPartition


def test_records_are_equal_to_those_of_confluent_kafka(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    topic = broker.name("t")
    admin.create_topic(topic, 1)
    with fencepost.Producer(broker.bootstrap_servers) as producer:
        producer.send(topic, b"v", b"k", headers=[("h", b"1")], timestamp_ms=1_700_000_000_000)
        producer.send(topic, None)
        producer.flush()
    peer = confluent_kafka.Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": broker.name("g")})
    peer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    theirs = peer.consume(2, 60)
    peer.close()
    with fencepost.Consumer(broker.bootstrap_servers) as consumer:
        consumer.assign([TP(topic, 0)])
        consumer.seek(TP(topic, 0), 0)
        ours = [next(consumer) for _ in range(2)]
        assert consumer.positions() == {TP(topic, 0): fencepost.OffsetAndMetadata(2, "", ours[-1].leader_epoch)}
    assert [
        (
            message.topic,
            message.partition,
            message.offset,
            message.key,
            message.value,
            message.timestamp_ms,
            message.leader_epoch,
        )
        for message in ours
    ] == [
        (
            message.topic(),
            message.partition(),
            message.offset(),
            message.key(),
            message.value(),
            message.timestamp()[1],
            message.leader_epoch(),
        )
        for message in theirs
    ]
    assert [list(message.headers) for message in ours] == [message.headers() or [] for message in theirs]
    assert [record.leader_epoch for record in ours] == [0, 0]


@pytest.mark.parametrize("moment", ["interval", "close", "commit"])
def test_only_stored_positions_are_committed(broker: BrokerUnderTest, admin: fencepost.Admin, moment: str) -> None:
    """Three of five records are processed. Each client leaves the position behind them, and not that of its reading."""
    topic = broker.name("t")
    admin.create_topic(topic, 2)
    with fencepost.Producer(broker.bootstrap_servers) as producer:
        for number in range(5):
            producer.send(topic, b"%d" % number, partition=0)
        producer.send(topic, b"other", partition=1)
        producer.flush()
    settings = {
        "bootstrap.servers": broker.bootstrap_servers,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": moment != "commit",
        "auto.commit.interval.ms": 100 if moment == "interval" else 60_000,
        "enable.auto.offset.store": False,
    }
    groups = {"ours": broker.name("ours"), "theirs": broker.name("theirs")}

    peer = confluent_kafka.Consumer({**settings, "group.id": groups["theirs"]})
    peer.subscribe([topic])
    theirs: list[confluent_kafka.Message] = []
    while len(theirs) < 6:
        theirs += peer.consume(10, 1)
    peer.store_offsets(message=next(each for each in theirs if each.value() == b"2"))
    ours = fencepost.Consumer.from_config({**settings, "group.id": groups["ours"]})
    ours.subscribe([topic])
    records: list[fencepost.Record] = []
    while len(records) < 6:
        records += ours.poll(1000)
    ours.store_offsets({(topic, 0): fencepost.OffsetAndMetadata(3, "", records[2].leader_epoch)})

    match moment:
        case "commit":
            peer.commit(asynchronous=False)
            ours.commit()
        case "close":
            peer.close()
            ours.close()
    expected = {name: {TP(topic, 0): fencepost.OffsetAndMetadata(3, "", 0)} for name in groups}

    def committed() -> dict[str, dict[fencepost.TopicPartition, fencepost.OffsetAndMetadata]]:
        if moment == "interval":
            peer.poll(0.1)
            ours.poll(100)
        return {name: admin.group_offsets(group) for name, group in groups.items()}

    until(lambda: committed() == expected)
    ours.close()
    peer.close()
    moment = "closed"
    assert committed() == expected


def test_stored_positions_are_of_assigned_partitions(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    topic = broker.name("t")
    admin.create_topic(topic, 1)
    settings: dict[str, Any] = {"group_id": broker.name("g"), "auto_offset_reset": "earliest"}
    with fencepost.Consumer(broker.bootstrap_servers, enable_auto_offset_store=False, **settings) as consumer:
        consumer.assign([TP(topic, 0)])
        with pytest.raises(UsageError, match="is not assigned"):
            consumer.store_offsets({TP(topic, 0): 1, TP(topic, 1): 1})
        consumer.commit()
        assert consumer.committed([TP(topic, 0)]) == {}, "nothing was stored"
        consumer.store_offsets({TP(topic, 0): 1})
        consumer.assign([])
        consumer.assign([TP(topic, 0)])
        consumer.commit()
        assert consumer.committed([TP(topic, 0)]) == {}, "it went with the partition"
        with (
            fencepost.Producer(broker.bootstrap_servers, transactional_id=broker.name("x")) as producer,
            pytest.raises(ConfigurationError, match="enable_auto_offset_store"),
            producer.transaction(consumer),
        ):
            pass
    with fencepost.Consumer(broker.bootstrap_servers, **settings) as consumer:
        consumer.assign([TP(topic, 0)])
        with pytest.raises(UsageError, match="needs enable_auto_offset_store=False"):
            consumer.store_offsets({TP(topic, 0): 1})


@pytest.mark.parametrize("how", ["unsubscribe", "close"])
def test_positions_that_a_listener_stores_are_committed(
    broker: BrokerUnderTest, admin: fencepost.Admin, how: str
) -> None:
    """The automatic commit of partitions that go has them. confluent-kafka's on_revoke does the same."""
    topic, group = broker.name("t"), broker.name("g")
    admin.create_topic(topic, 2)

    class Listener(fencepost.RebalanceListener):
        def on_partitions_revoked(self, partitions: list[fencepost.TopicPartition]) -> None:
            consumer.store_offsets({TP(topic, 1): 2})

    settings: dict[str, Any] = {"enable_auto_commit": True, "enable_auto_offset_store": False}
    consumer = fencepost.Consumer(broker.bootstrap_servers, group_id=group, **settings)
    consumer.subscribe([topic], Listener())
    until(lambda: consumer.poll(100) == [] and len(consumer.assignment()) == 2)
    consumer.store_offsets({TP(topic, 0): 1, TP(topic, 1): 1})
    consumer.unsubscribe() if how == "unsubscribe" else consumer.close()
    consumer.close()
    committed = {partition: at.offset for partition, at in admin.group_offsets(group).items()}
    assert committed == {TP(topic, 0): 1, TP(topic, 1): 2}
