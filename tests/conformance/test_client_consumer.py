"""The consumer against both brokers: positions, isolation, ranges, waiting."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

import fencepost
from fencepost.errors import OffsetOutOfRangeError, WakeupError
from tests.support.brokers import BrokerUnderTest
from tests.support.consumers import FILLED_MS, fill, poll_values
from tests.support.waiting import until

TP = fencepost.TopicPartition


def test_seeking(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    topic = broker.name("t")
    admin.create_topic(topic, 1)
    fill(broker, topic, 100)
    partition = TP(topic, 0)
    with fencepost.Consumer(broker.bootstrap_servers, auto_offset_reset="earliest", max_poll_records=30) as consumer:
        consumer.assign([partition])
        assert poll_values(consumer, 30) == list(range(30))
        assert consumer.position(partition) == 30
        consumer.seek(partition, 90)
        assert poll_values(consumer, 10) == list(range(90, 100))
        consumer.seek_to_timestamp(FILLED_MS + 50)
        assert consumer.poll(5000)[0].offset == 50
        consumer.seek_to_end()
        assert consumer.position(partition) == 100
        assert consumer.poll(50) == []
        consumer.seek_to_beginning()
        consumer.pause([partition])
        assert consumer.poll(50) == []
        consumer.resume([partition])
        assert len(consumer.poll(5000, 7)) == 7
        assert consumer.positions() == {partition: fencepost.OffsetAndMetadata(7, "", 0)}


def test_no_position_and_no_rule(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    topic = broker.name("t")
    admin.create_topic(topic, 1)
    with fencepost.Consumer(broker.bootstrap_servers, auto_offset_reset="none") as consumer:
        consumer.assign([TP(topic, 0)])
        with pytest.raises(OffsetOutOfRangeError):
            consumer.poll(1000)


@pytest.mark.parametrize("reset", ["earliest", "none"])
def test_records_that_are_gone(broker: BrokerUnderTest, admin: fencepost.Admin, reset: str) -> None:
    topic = broker.name("t")
    admin.create_topic(topic, 1)
    fill(broker, topic, 10)
    assert admin.delete_records({TP(topic, 0): 4}) == {TP(topic, 0): 4}
    with fencepost.Consumer(broker.bootstrap_servers, auto_offset_reset=reset, group_id=broker.name("g")) as consumer:
        consumer.assign([TP(topic, 0)])
        consumer.commit({TP(topic, 0): 1})
        if reset == "earliest":
            assert poll_values(consumer, 6) == [4, 5, 6, 7, 8, 9]
        else:
            with pytest.raises(OffsetOutOfRangeError):  # noqa: PT012 (the first polls may come too early)
                while True:
                    consumer.poll(1000)
        with pytest.raises(OffsetOutOfRangeError):
            list(consumer.fetch_range(topic, 0, 2, 8))


def test_only_what_is_committed(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    topic, name = broker.name("t"), broker.name("x")
    admin.create_topic(topic, 1)
    fill(broker, topic, 2)
    with (
        fencepost.Producer(broker.bootstrap_servers, transactional_id=name) as producer,
        fencepost.Consumer(broker.bootstrap_servers, auto_offset_reset="earliest") as committed,
        fencepost.Consumer(
            broker.bootstrap_servers, auto_offset_reset="earliest", isolation_level="read_uncommitted"
        ) as everything,
    ):
        committed.assign([TP(topic, 0)])
        everything.assign([TP(topic, 0)])
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"2").result(120)
        assert poll_values(committed, 2) == [0, 1]
        assert poll_values(everything, 3) == [0, 1, 2]
        assert committed.poll(200) == []
        producer.abort_transaction()
        with producer.transaction():
            producer.send(topic, b"4")
        assert poll_values(committed, 1) == [4]
        assert poll_values(everything, 1) == [4]


def test_a_range_ends_exactly_whatever_the_gaps(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    """Offsets 0 1 (aborted) 2 (marker) 3 (plain) 4 5 (committed) 6 (marker): every range of them."""
    topic, name = broker.name("t"), broker.name("x")
    admin.create_topic(topic, 1)
    with (
        fencepost.Producer(broker.bootstrap_servers, transactional_id=name) as producer,
        fencepost.Producer(broker.bootstrap_servers) as plain,
    ):
        producer.init_transactions()
        latest = {TP(topic, 0): -1}
        producer.begin_transaction()
        for value in (b"a0", b"a1"):
            producer.send(topic, value).result(120)
        producer.abort_transaction()
        until(lambda: admin.list_offsets(latest)[TP(topic, 0)].offset >= 3)
        plain.send(topic, b"p3").result(120)
        with producer.transaction():
            for value in (b"c4", b"c5"):
                producer.send(topic, value).result(120)
        committed = fencepost.Isolation.READ_COMMITTED
        until(lambda: admin.list_offsets(latest, isolation=committed)[TP(topic, 0)].offset >= 7)
    seen = {3: b"p3", 4: b"c4", 5: b"c5"}
    checked = 0
    with fencepost.Consumer(broker.bootstrap_servers) as consumer:
        for start in range(8):
            for end in range(start, 8):
                found: dict[int, bytes | None] = {}
                for fetched in consumer.fetch_range(topic, 0, start, end, timeout_ms=5000):
                    found |= dict(zip(fetched.columns.offsets.tolist(), fetched.columns.values(), strict=True))
                assert found == {at: value for at, value in seen.items() if start <= at < end}, (start, end)
                checked += 1
    assert checked == 36


def test_arrow_has_sparks_columns(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    topic = broker.name("t")
    admin.create_topic(topic, 1)
    with fencepost.Producer(broker.bootstrap_servers) as producer:
        producer.send(topic, b"v", key=b"k", headers=[("h", b"1")], timestamp_ms=FILLED_MS)
        producer.send(topic, None, timestamp_ms=FILLED_MS + 1)
    with fencepost.Consumer(broker.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([TP(topic, 0)])
        table = consumer.poll_arrow(5000, headers=True)
        while len(table) < 2:
            consumer.seek_to_beginning()
            table = consumer.poll_arrow(5000, headers=True)
    first, second = table.to_pylist()
    assert list(first) == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"]
    assert (first["key"], first["value"], first["topic"], first["partition"], first["offset"]) == (
        b"k",
        b"v",
        topic,
        0,
        0,
    )
    assert first["timestamp"].timestamp() == FILLED_MS / 1000
    assert (first["timestampType"], first["headers"]) == (0, [{"key": "h", "value": b"1"}])
    assert (second["key"], second["value"], second["offset"]) == (None, None, 1)


def test_auto_commit_and_coming_back(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    topic, group = broker.name("t"), broker.name("g")
    admin.create_topic(topic, 1)
    fill(broker, topic, 10)
    for expected in ([0, 1, 2, 3], [4, 5, 6, 7]):
        with fencepost.Consumer(
            broker.bootstrap_servers,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=True,
            max_poll_records=4,
        ) as consumer:
            consumer.subscribe([topic])
            assert poll_values(consumer, 4) == expected
    assert admin.group_offsets(group) == {TP(topic, 0): fencepost.OffsetAndMetadata(8, "", 0)}


def test_going_back_to_what_was_committed(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    """The two-phase template of KIP-691: after an abort, start again from the committed positions."""
    source, target, group = broker.name("in"), broker.name("out"), broker.name("g")
    admin.create_topic(source, 1)
    admin.create_topic(target, 1)
    fill(broker, source, 20)
    with (
        fencepost.Consumer(
            broker.bootstrap_servers, group_id=group, auto_offset_reset="earliest", max_poll_records=5
        ) as consumer,
        fencepost.Producer(broker.bootstrap_servers, transactional_id=broker.name("x")) as producer,
    ):
        consumer.subscribe([source])
        producer.init_transactions()
        copied, failures = 0, 0
        while copied < 20:
            records = consumer.poll(500)
            if not records:
                continue
            try:
                with producer.transaction(consumer):
                    for record in records:
                        producer.send(target, record.value)
                    if failures < 3:
                        failures += 1
                        raise ZeroDivisionError
            except ZeroDivisionError:
                continue
            copied += len(records)
        assert (copied, failures) == (20, 3)
    with fencepost.Consumer(broker.bootstrap_servers, auto_offset_reset="earliest") as check:
        check.assign([TP(target, 0)])
        assert poll_values(check, 20) == list(range(20))
        assert check.poll(200) == []


def poll_until_disturbed(consumer: fencepost.Consumer, timer: threading.Timer) -> None:
    timer.start()
    consumer.poll(3_600_000)


def test_wakeup(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    topic = broker.name("t")
    admin.create_topic(topic, 1)
    with fencepost.Consumer(broker.bootstrap_servers) as consumer:
        consumer.assign([TP(topic, 0)])
        consumer.poll(100)
        timer = threading.Timer(0.2, consumer.wakeup)
        with pytest.raises(WakeupError):
            poll_until_disturbed(consumer, timer)
        timer.join()


def test_ctrl_c_ends_a_poll_and_the_consumer_goes_on(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    topic = broker.name("t")
    admin.create_topic(topic, 1)
    fill(broker, topic, 3)
    with fencepost.Consumer(broker.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([TP(topic, 0)])
        assert poll_values(consumer, 3) == [0, 1, 2]
        timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            poll_until_disturbed(consumer, timer)
        timer.join()
        fill(broker, topic, 2)
        assert poll_values(consumer, 2) == [0, 1]


def test_a_topic_that_comes_later(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    """A poll keeps to its time meanwhile, assigned or subscribed."""
    topic, group = broker.name("later"), broker.name("g")
    settings = {"auto_offset_reset": "earliest", "allow_auto_create_topics": False, "metadata_max_age_ms": 500}
    with (
        fencepost.Consumer(broker.bootstrap_servers, **settings) as assigned,  # type: ignore[arg-type]
        fencepost.Consumer(broker.bootstrap_servers, group_id=group, **settings) as subscribed,  # type: ignore[arg-type]
    ):
        assigned.assign([TP(topic, 0)])
        subscribed.subscribe([topic])
        begun = time.monotonic()
        assert assigned.poll(300) == []
        assert time.monotonic() - begun < 30  # a poll that waited for the topic would take 60
        while subscribed.group_metadata().generation_id < 0:
            assert subscribed.poll(100) == []
        admin.create_topic(topic, 1)
        fill(broker, topic, 3)
        assert poll_values(assigned, 3) == [0, 1, 2]
        assert poll_values(subscribed, 3) == [0, 1, 2]
