"""Both brokers, killed (-9) and started again under their clients: what was promised holds, and everybody goes on."""

from __future__ import annotations

from typing import Any

import pytest

import fencepost
from fencepost import TopicPartition
from fencepost.errors import KafkaError
from fencepost.protocol.codes import ErrorCode
from tests.conformance.consumer_groups import commit_as, stable
from tests.conformance.test_client_consumer_groups import KEEPING, member
from tests.conformance.test_client_shares import group_with, nothing_left, polled, topic_with, values
from tests.conformance.test_client_shares import member as share_member
from tests.conformance.test_two_phase import NEVER_MS
from tests.support.brokers import BrokerUnderTest, Killable
from tests.support.consumers import fill, poll_until, poll_values
from tests.support.group_member import RawMember, describe

TP = TopicPartition


def test_a_restarted_broker_is_found_again(killable: tuple[BrokerUnderTest, Killable]) -> None:
    """Producer and consumer live through kill -9 and a restart: nothing lost, nothing twice, in order."""
    broker, running = killable
    topic = broker.name("t")
    with fencepost.Admin(broker.bootstrap_servers) as admin:
        admin.create_topic(topic, 1)
    with (
        fencepost.Producer(broker.bootstrap_servers, linger_ms=1) as producer,
        fencepost.Consumer(broker.bootstrap_servers, auto_offset_reset="earliest") as consumer,
    ):
        consumer.assign([TP(topic, 0)])
        sent = [producer.send(topic, b"%d" % number) for number in range(200)]
        assert poll_values(consumer, 200) == list(range(200))
        running.kill()
        sent += [producer.send(topic, b"%d" % number) for number in range(200, 400)]
        assert consumer.poll(300) == []
        running.restart()
        assert [future.result(120).offset for future in sent] == list(range(400))
        assert poll_values(consumer, 200, 60) == list(range(200, 400))


@pytest.mark.slow
def test_what_is_prepared_survives_kill_9(killable: tuple[BrokerUnderTest, Killable]) -> None:
    """K30: Ongoing without timeout, invisible, then committed or aborted by the stored pair."""
    broker, process = killable
    names = {commit: broker.name("txn") for commit in (True, False)}
    with broker.connect() as client:
        topic = client.create_topic(broker.name("t"), partitions=2)
        pairs = {}
        for commit, name in names.items():
            pairs[commit] = client.start_producer(name, two_phase=True)
            answer = client.produce(
                topic,
                [b"durable"],
                partition=int(commit),
                transactional_id=name,
                producer=pairs[commit],
                sequence=0,
            )
            assert answer.error_code == 0
    process.kill()
    process.restart()
    with broker.connect_again() as client:
        for commit, name in names.items():
            state = client.describe_transaction(name)
            assert (state.transaction_state, state.transaction_timeout_ms) == ("Ongoing", NEVER_MS)
            assert client.end_transaction(name, pairs[commit], commit=commit).error_code == 0
            client.wait_for_state(name, "CompleteCommit" if commit else "CompleteAbort")
        assert client.fetch(topic, partition=1, committed=True).values == [b"durable"]
        assert client.fetch(topic, partition=0, committed=True).values == []
        assert client.fetch(topic, partition=0).values == [b"durable"]


@pytest.mark.parametrize("settings", KEEPING)
def test_a_group_outlives_its_broker(killable: tuple[BrokerUnderTest, Killable], settings: dict[str, Any]) -> None:
    """The broker is killed and comes back: the same members go on, with what they had committed."""
    broker, running = killable
    topic, group = broker.name("t"), broker.name("g")
    with fencepost.Admin(broker.bootstrap_servers) as admin:
        admin.create_topic(topic, 2)
    fill(broker, topic, 10, 2)
    with member(broker, group, settings, hurried=False) as consumer:
        consumer.subscribe([topic])
        assert sorted(poll_values(consumer, 10)) == list(range(10))
        consumer.commit()
        running.kill()
        assert consumer.poll(200) == []
        running.restart()
        fill(broker, topic, 10, 2, first=10)
        assert sorted(poll_values(consumer, 10)) == list(range(10, 20))
        poll_until([consumer], lambda: len(consumer.assignment()) == 2)
        consumer.commit()


def test_a_group_survives_kill_9(killable: tuple[BrokerUnderTest, Killable]) -> None:
    broker, process = killable
    with broker.connect() as client:
        topic = client.create_topic(broker.name("t"), 4)
        group = broker.name("g")
        first = RawMember(client, group, [topic], instance="one")
        second = RawMember(client, group, [topic])
        first.until(lambda: len(first.owned) == 2 and len(second.owned) == 2, second)
        first.until(lambda: stable(client, group), second)
        before = describe(client, group)
        assert commit_as(first, topic, 0, 1, first.epoch) in (0, ErrorCode.STALE_MEMBER_EPOCH)
    process.kill()
    process.restart()
    with broker.connect() as client:
        first.client = second.client = client
        for member in (first, second):
            epoch = member.epoch
            member.beat()
            assert member.epoch == epoch
        after = describe(client, group)
        assert (after.group_epoch, after.assignment_epoch) == (before.group_epoch, before.assignment_epoch)
        by_id = {member.member_id: (member.member_epoch, member.assignment) for member in before.members}
        assert {member.member_id: (member.member_epoch, member.assignment) for member in after.members} == by_id
        second.leave()
        first.until(lambda: len(first.owned) == 4)


@pytest.mark.slow
def test_locks_go_with_a_killed_broker(killable: tuple[BrokerUnderTest, Killable]) -> None:
    """The locks go with it, and that is told; nothing is lost, and nothing that was accepted comes again."""
    broker, running = killable
    topic = topic_with(broker, 10)
    group = group_with(broker)
    with share_member(broker, group, topic, explicit=True) as consumer:
        records = polled(consumer)
        for record in records[:5]:
            consumer.acknowledge(record)
        assert consumer.commit() == {TopicPartition(topic, 0): None}
        running.kill()
        for record in records[5:]:
            consumer.acknowledge(record)
        results = consumer.commit()
        assert isinstance(results[TopicPartition(topic, 0)], KafkaError)
        running.restart()
        again = polled(consumer)
        assert values(again) == [5, 6, 7, 8, 9]
        for record in again:
            consumer.acknowledge(record)
        assert consumer.commit() == {TopicPartition(topic, 0): None}
        assert nothing_left(broker, consumer, topic)
