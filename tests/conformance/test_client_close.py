"""close() of a consumer with and without a commit, on both brokers and beside kafka-python."""

from __future__ import annotations

import asyncio
from typing import Any

import kafka
import pytest

import fencepost
from fencepost.client.net.io_thread import io_thread
from fencepost.errors import GroupFencedError, KafkaTimeoutError, UsageError
from tests.support.brokers import BrokerUnderTest, Killable
from tests.support.waiting import until

TP = fencepost.TopicPartition


@pytest.fixture
def topic(broker: BrokerUnderTest, admin: fencepost.Admin) -> str:
    name = broker.name("t")
    admin.create_topic(name, 1)
    with fencepost.Producer(broker.bootstrap_servers) as producer:
        for _ in range(3):
            producer.send(name, b"v")
        producer.flush()
    return name


def read_all(consumer: fencepost.Consumer, topic: str) -> None:
    consumer.subscribe([topic])
    count = 0
    while count < 3:
        count += len(consumer.poll(1000))


@pytest.mark.parametrize(
    ("automatic", "commit", "expected"),
    [(False, None, False), (False, True, True), (True, None, True), (True, False, False), (True, True, True)],
)
def test_close_commits_if_it_is_asked_to(
    broker: BrokerUnderTest, admin: fencepost.Admin, topic: str, automatic: bool, commit: bool | None, expected: bool
) -> None:
    settings: dict[str, Any] = {"enable_auto_commit": automatic, "auto_commit_interval_ms": 60_000}
    consumer = fencepost.Consumer(
        broker.bootstrap_servers, group_id=broker.name("g"), auto_offset_reset="earliest", **settings
    )
    read_all(consumer, topic)
    group = consumer.group_metadata().group_id
    consumer.close(commit=commit)
    consumer.close(commit=commit)
    assert (admin.group_offsets(group) != {}) is expected
    if expected:
        assert admin.group_offsets(group)[TP(topic, 0)].offset == 3


@pytest.mark.parametrize("protocol", ["classic", "consumer", "share"])
def test_a_close_without_time_leaves_the_group(
    broker: BrokerUnderTest, admin: fencepost.Admin, topic: str, protocol: str
) -> None:
    """The request is sent, and nobody waits for its response."""
    group = broker.name("g")
    consumer: Any = (
        fencepost.ShareConsumer(broker.bootstrap_servers, group_id=group)
        if protocol == "share"
        else fencepost.Consumer(broker.bootstrap_servers, group_id=group, group_protocol=protocol)
    )
    consumer.subscribe([topic])
    while not consumer.assignment():
        consumer.poll(50)
    assert admin.describe_group(group).members
    consumer.close(timeout_ms=0)
    until(lambda: not admin.describe_group(group).members, within_s=20)
    assert admin.describe_group(group).members == ()


def test_an_automatic_commit_is_left_out_as_in_kafka_python(
    broker: BrokerUnderTest, admin: fencepost.Admin, topic: str
) -> None:
    group = broker.name("g")
    peer = kafka.KafkaConsumer(
        topic,
        bootstrap_servers=broker.bootstrap_servers,
        group_id=group,
        auto_offset_reset="earliest",
        auto_commit_interval_ms=60_000,
    )
    count = 0
    while count < 3:
        count += sum(map(len, peer.poll(timeout_ms=1000).values()))
    peer.close(autocommit=False)
    assert admin.group_offsets(group) == {}


class Refusing(fencepost.RebalanceListener):
    def on_partitions_revoked(self, partitions: list[fencepost.TopicPartition]) -> None:
        raise ZeroDivisionError(str(partitions))


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("ending", ["close", "unsubscribe"])
@pytest.mark.asyncio
async def test_a_listener_that_raises_does_not_keep_the_member_in_its_group(
    broker: BrokerUnderTest, admin: fencepost.Admin, topic: str, protocol: str, ending: str
) -> None:
    """The others would wait for its partitions until its session ends."""
    group = broker.name("g")
    consumer = fencepost.AsyncConsumer(
        broker.bootstrap_servers, group_id=group, group_protocol=protocol, auto_offset_reset="earliest"
    )
    await consumer.subscribe([topic], Refusing())
    while not await consumer.poll(1_000):
        pass
    assert len(admin.describe_groups([group])[group].members) == 1
    with pytest.raises(ZeroDivisionError, match=topic):
        await (consumer.close() if ending == "close" else consumer.unsubscribe())
    assert list(admin.describe_groups([group])[group].members) == []
    if ending == "unsubscribe":
        assert consumer.assignment() == []
        await consumer.close()
    await asyncio.sleep(0)  # cancelled tasks end
    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.asyncio
async def test_a_callback_that_raises_in_close_leaves_nothing_open(broker: BrokerUnderTest, topic: str) -> None:
    def callback(_error: Exception | None, _offsets: object) -> None:
        raise LookupError("in the callback")

    group = broker.name("g")
    consumer = fencepost.AsyncConsumer(broker.bootstrap_servers, group_id=group, auto_offset_reset="earliest")
    await consumer.subscribe([topic], Refusing())
    while not await consumer.poll(1_000):
        pass
    consumer.commit_async(callback=callback)
    with pytest.raises(ZeroDivisionError, match=topic) as raised:
        await consumer.close()
    assert raised.value.__notes__ == ["then LookupError: in the callback"]
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.asyncio
async def test_an_async_consumer_commits_at_its_end(
    broker: BrokerUnderTest, admin: fencepost.Admin, topic: str
) -> None:
    group = broker.name("g")
    consumer = fencepost.AsyncConsumer(broker.bootstrap_servers, group_id=group, auto_offset_reset="earliest")
    await consumer.subscribe([topic])
    for _ in range(2):
        await anext(consumer)
    await consumer.close(commit=True)
    assert admin.group_offsets(group)[TP(topic, 0)].offset == 2, "of an iteration, what it returned counts"


def test_a_consumer_without_a_group_stays_open(broker: BrokerUnderTest, topic: str) -> None:
    with fencepost.Consumer(broker.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([TP(topic, 0)])
        with pytest.raises(UsageError, match="needs a group_id"):
            consumer.close(commit=True)
        assert next(consumer).value == b"v"


def test_a_commit_that_fails_at_the_end_is_raised(killable: tuple[BrokerUnderTest, Killable]) -> None:
    broker, running = killable
    name = broker.name("t")
    with fencepost.Admin(broker.bootstrap_servers) as admin:
        admin.create_topic(name, 1)
    with fencepost.Producer(broker.bootstrap_servers) as producer:
        for _ in range(3):
            producer.send(name, b"v")
        producer.flush()
    consumer = fencepost.Consumer(
        broker.bootstrap_servers, group_id=broker.name("g"), auto_offset_reset="earliest", default_api_timeout_ms=60_000
    )
    read_all(consumer, name)
    running.kill()
    with pytest.raises(KafkaTimeoutError):
        consumer.close(1000, commit=True)
    assert consumer.closed


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_no_heartbeats_follow_an_interrupted_close(broker: BrokerUnderTest, topic: str, protocol: str) -> None:
    class Interrupted(fencepost.RebalanceListener):
        def on_partitions_revoked(self, partitions: list[fencepost.TopicPartition]) -> None:
            raise KeyboardInterrupt

    settings: dict[str, Any] = {"heartbeat_interval_ms": 100} if protocol == "classic" else {}
    consumer = fencepost.Consumer(
        broker.bootstrap_servers,
        group_id=broker.name("g"),
        group_protocol=protocol,
        auto_offset_reset="earliest",
        **settings,
    )
    consumer.subscribe([topic], Interrupted())
    while not consumer.poll(1_000):
        pass
    assert beating()
    with pytest.raises(KeyboardInterrupt):
        consumer.close()
    until(lambda: not beating())


class CommitsLast(fencepost.RebalanceListener):
    def __init__(self, consumer: fencepost.Consumer) -> None:
        self._consumer = consumer

    def on_partitions_revoked(self, partitions: list[fencepost.TopicPartition]) -> None:
        self._consumer.commit()


@pytest.mark.parametrize("last", ["nothing", "automatic", "asynchronous", "listener"])
def test_a_member_that_was_removed_closes_without_an_error_unless_its_listener_raises_one(
    broker: BrokerUnderTest, admin: fencepost.Admin, topic: str, last: str
) -> None:
    """As in Java, where close() raises the exceptions of the listener, and nothing else of a group that was lost."""
    reported: list[object] = []
    consumer = fencepost.Consumer(
        broker.bootstrap_servers,
        group_id=broker.name("g"),
        group_instance_id="removed",
        auto_offset_reset="earliest",
        enable_auto_commit=last == "automatic",
        heartbeat_interval_ms=14_000,  # it does not hear of its removal before it closes
    )
    read_all(consumer, topic)
    if last == "listener":
        consumer.set_rebalance_listener(CommitsLast(consumer))
    admin.remove_group_members(consumer.group_metadata().group_id, ["removed"])
    if last == "asynchronous":
        consumer.commit_async(callback=lambda error, _: reported.append(error))
    if last == "listener":
        with pytest.raises(GroupFencedError):
            consumer.close()
    else:
        consumer.close()
    assert consumer.closed
    assert [type(error) for error in reported] == ([GroupFencedError] if last == "asynchronous" else [])


def beating() -> list[str]:
    """Return the tasks of all clients of the process that send heartbeats."""

    async def tasks() -> list[str]:
        return [name for name in map(repr, asyncio.all_tasks()) if "_beat" in name]

    return io_thread().call(tasks)
