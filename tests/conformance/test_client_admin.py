"""Admin against both brokers: topics, offsets, settings, groups, and the transaction calls a resolver needs."""

from __future__ import annotations

import itertools
import threading
import time

import pytest

import fencepost
from fencepost import errors as fencepost_errors
from fencepost.client.admin.configs import ConfigSource
from fencepost.client.admin.topics import NewTopic
from fencepost.client.admin.transactions import EndResult
from fencepost.client.net.list_offsets import MAX_TIMESTAMP
from fencepost.errors import (
    ProducerFencedError,
    RetriableBrokerError,
    TopicAlreadyExistsError,
    TransactionCommittedError,
)
from tests.support.brokers import BrokerUnderTest
from tests.support.waiting import until

TP = fencepost.TopicPartition


def wait_for_state(admin: fencepost.Admin, name: str, state: str) -> None:
    until(lambda: admin.describe_transactions([name])[0].state == state, within_s=120)


def test_topics(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    topic = broker.name("t")
    admin.create_topic(topic, 2, 1, {"retention.ms": "123456"})
    with pytest.raises(TopicAlreadyExistsError, match="TOPIC_ALREADY_EXISTS"):
        admin.create_topic(topic, 2)
    admin.create_topic(topic, 2, exist_ok=True)
    assert topic in admin.list_topics()
    described = admin.describe_topics([topic, broker.name("nothing")])
    assert set(described) == {topic}
    assert sorted(described[topic].partitions) == [0, 1]
    assert described[topic].topic_id is not None
    assert admin.describe_configs(topic)["retention.ms"] == "123456"
    admin.create_partitions(topic, 3)
    assert admin.partitions_of([topic]) == [TP(topic, 0), TP(topic, 1), TP(topic, 2)]
    admin.delete_topic(topic)
    assert topic not in admin.list_topics()
    with pytest.raises(RetriableBrokerError):
        admin.delete_topic(topic)
    admin.delete_topic(topic, missing_ok=True)


def test_offsets_by_time(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    topic = broker.name("t")
    admin.create_topic(topic, 1)
    with fencepost.Producer(broker.bootstrap_servers, linger_ms=0) as producer:
        for number in range(5):
            producer.send(topic, b"v", timestamp_ms=1000 * number).result(120)
    partition = TP(topic, 0)

    def at(timestamp: int) -> int:
        return admin.list_offsets({partition: timestamp})[partition].offset

    assert [at(-2), at(-1), at(0), at(2500), at(4000), at(4001)] == [0, 5, 0, 3, 4, -1]
    with pytest.raises(RetriableBrokerError):
        admin.list_offsets({TP(topic, 7): -1}, api_timeout_ms=300)
    some = {TP(broker.name("absent"), 0): -1, TP(topic, 7): -1, partition: -1}
    with pytest.raises(fencepost_errors.ItemsFailedError) as failed:
        admin.list_offsets(some, api_timeout_ms=2_000)
    assert {each: at.offset for each, at in failed.value.results.items()} == {partition: 5}
    assert set(failed.value.errors) == set(some) - {partition}


def test_features_and_cluster(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    assert admin.features()["transaction.version"] == 2
    assert admin.api_versions()[22] == (0, 6)
    assert admin.fences_by_group()
    described = admin.describe_cluster()
    assert [node.id for node in described.brokers] == [1]
    assert f"{described.brokers[0].host}:{described.brokers[0].port}" == broker.bootstrap_servers


def test_ending_a_transaction_from_elsewhere(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    topic, name = broker.name("t"), broker.name("x")
    admin.create_topic(topic, 1)
    producer = fencepost.Producer(broker.bootstrap_servers, transactional_id=name)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(topic, b"v").result(120)
    me = (producer.producer_id, producer.producer_epoch)
    (known,) = admin.describe_producers([TP(topic, 0)])[TP(topic, 0)]
    assert (known.producer_id, known.producer_epoch, known.transaction_start_offset) == (*me, 0)
    assert admin.end_transaction(name, *me, True) == EndResult(0, me[0], me[1] + 1)
    wait_for_state(admin, name, "CompleteCommit")
    assert admin.end_transaction(name, *me, True) == EndResult(0, me[0], me[1] + 1), "repeatable"
    assert admin.end_transaction(name, *me, False).error_code == 48
    assert admin.end_transaction(broker.name("nobody"), *me, True).error_code == 49
    with pytest.raises(TransactionCommittedError):
        admin.complete(name, fencepost.PreparedTransaction(*me), commit=False)
    producer.close(0)


def test_claims(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    name = broker.name("x")
    first = admin.init_producer_id(name)
    second = admin.init_producer_id(name)
    assert (second.producer_id, second.producer_epoch) == (first.producer_id, first.producer_epoch + 1)
    assert second.ongoing_producer_id == -1
    with pytest.raises(ProducerFencedError):
        admin.init_producer_id(name, producer_id=first.producer_id, producer_epoch=first.producer_epoch + 5)
    owner = admin.end_transaction(name, second.producer_id, second.producer_epoch, False)
    assert owner == EndResult(0, second.producer_id, second.producer_epoch + 1)
    assert admin.end_transaction(name, first.producer_id, first.producer_epoch, False).error_code == 90


def test_listing(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    prefix = broker.name("l")
    names = [f"{prefix}-{number}" for number in range(20)]
    for name in names:
        admin.init_producer_id(name, two_phase=True)
    listed = admin.list_transactions(f"{prefix}-.*")
    assert sorted(listing.transactional_id for listing in listed) == sorted(names)
    assert admin.list_transactions(prefix) == []
    assert {listing.state for listing in listed} == {"Empty"}
    assert admin.list_transactions(f"{prefix}-.*", states=["Ongoing"]) == []
    described = admin.describe_transactions([*names, broker.name("nobody")])
    assert [description.transactional_id for description in described[:-1]] == names
    assert {description.timeout_ms for description in described[:-1]} == {2**31 - 1}
    assert described[-1].error_code == 105


def test_groups(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    topic, group = broker.name("t"), broker.name("g")
    admin.create_topic(topic, 2)
    with fencepost.Consumer(broker.bootstrap_servers, group_id=group, auto_offset_reset="earliest") as consumer:
        consumer.assign([TP(topic, 0), TP(topic, 1)])
        consumer.commit({TP(topic, 0): 5, TP(topic, 1): fencepost.OffsetAndMetadata(6, "note")})
    found = admin.group_offsets(group)
    assert found[TP(topic, 0)].offset == 5
    assert (found[TP(topic, 1)].offset, found[TP(topic, 1)].metadata) == (6, "note")
    assert set(admin.group_offsets(group, [TP(topic, 1)])) == {TP(topic, 1)}
    assert group in [listing.group_id for listing in admin.list_groups()]
    admin.delete_group(group)
    assert admin.group_offsets(group) == {}
    assert admin.describe_group(group).state == "Dead"


def test_settings_with_their_sources(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    topic = broker.name("t")
    admin.create_topic(topic, 1)
    admin.alter_configs(topic, {"retention.ms": "123456", "cleanup.policy": "compact"})
    found = admin.config_entries(topic)
    assert (found["retention.ms"].value, found["retention.ms"].source) == ("123456", ConfigSource.TOPIC)
    assert not found["retention.ms"].is_default
    assert set(admin.config_entries(topic, ["retention.ms"])) == {"retention.ms"}
    admin.alter_configs(topic, {"retention.ms": None})
    assert admin.config_entries(topic)["retention.ms"].source is not ConfigSource.TOPIC
    after = admin.config_entries(topic)
    assert after["cleanup.policy"].value == "compact", "what was not named stays"
    admin.alter_configs(topic, {"cleanup.policy": ""})  # no value of the list: kept for ever
    emptied = admin.config_entries(topic)["cleanup.policy"]
    assert (emptied.value, emptied.is_default) == ("", False)
    with pytest.raises(fencepost_errors.KafkaError, match=r"retention\.ms"):
        admin.alter_configs(topic, {"retention.ms": ""})
    with pytest.raises(fencepost_errors.KafkaError):
        admin.alter_configs(topic, {"no.such.setting": "1"})
    with pytest.raises(fencepost_errors.KafkaError):
        admin.config_entries(broker.name("nothing"))


def test_log_directories(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    topic = broker.name("t")
    admin.create_topic(topic, 2)
    with fencepost.Producer(broker.bootstrap_servers, linger_ms=0) as producer:
        producer.send(topic, b"v" * 1000, partition=1).result(120)
    if not broker.is_ours:  # Kafka's metadata show a partition a moment before its directory is there
        until(lambda: TP(topic, 0) in admin.describe_log_dirs()[0].replicas)
    (directory,) = admin.describe_log_dirs()
    assert (directory.broker, directory.error_code) == (1, 0)
    assert directory.path
    if TP(topic, 0) in directory.replicas or not broker.is_ours:  # ours makes a partition's directory when it is needed
        assert directory.replicas[TP(topic, 0)].size_bytes == 0
    assert 1000 < directory.replicas[TP(topic, 1)].size_bytes < 2000
    assert not directory.replicas[TP(topic, 1)].is_future


def test_records_are_deleted_below_an_offset(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    topic = broker.name("t")
    admin.create_topic(topic, 2)
    with fencepost.Producer(broker.bootstrap_servers, linger_ms=0) as producer:
        for _ in range(5):
            producer.send(topic, b"v", partition=0).result(120)
    assert admin.delete_records({TP(topic, 0): 3}) == {TP(topic, 0): 3}
    assert admin.list_offsets({TP(topic, 0): -2})[TP(topic, 0)].offset == 3
    with pytest.raises(fencepost_errors.ItemsFailedError, match=r"1 of 2 failed: .*OFFSET_OUT_OF_RANGE") as raised:
        admin.delete_records({TP(topic, 0): 4, TP(topic, 1): 99})
    assert raised.value.results == {TP(topic, 0): 4}
    assert type(raised.value.errors[TP(topic, 1)]) is fencepost_errors.OffsetOutOfRangeError
    assert raised.value.__cause__ is raised.value.errors[TP(topic, 1)]
    assert admin.delete_records({TP(topic, 0): -1}) == {TP(topic, 0): 5}


def test_the_record_with_the_highest_timestamp_is_one_that_is_there(
    broker: BrokerUnderTest, admin: fencepost.Admin
) -> None:
    """Kafka remembers it by segment, and names it after it was deleted; a fetch from there is out of range."""
    topic = broker.name("t")
    partition = TP(topic, 0)
    admin.create_topic(topic, 1)
    with fencepost.Producer(broker.bootstrap_servers, linger_ms=0) as producer:
        for timestamp_ms in (1000, 5000, 3000, 2000):
            producer.send(topic, b"v", timestamp_ms=timestamp_ms).result(120)
    found = {}
    for before in (0, 2, 3, 4):
        assert admin.delete_records({partition: before}) == {partition: before}
        at = admin.list_offsets({partition: MAX_TIMESTAMP})[partition]
        found[before] = (at.offset, at.timestamp_ms)
    there = {0: (1, 5000), 2: (2, 3000), 3: (3, 2000), 4: (-1, -1)}
    assert found == (there if broker.is_ours else dict.fromkeys(there, (1, 5000)))


def test_the_highest_timestamp_of_committed_records(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    """Kafka looks for the highest timestamp of all records, and answers with none if that record is not committed."""
    topic = broker.name("t")
    partition = TP(topic, 0)
    admin.create_topic(topic, 1)
    with fencepost.Producer(broker.bootstrap_servers, linger_ms=0) as producer:
        producer.send(topic, b"v", timestamp_ms=1000).result(120)
    with fencepost.Producer(broker.bootstrap_servers, linger_ms=0, transactional_id=broker.name("x")) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"v", timestamp_ms=2000).result(120)
        found = [
            admin.list_offsets({partition: MAX_TIMESTAMP}, isolation=isolation)[partition].offset
            for isolation in fencepost.Isolation
        ]
        producer.abort_transaction()
    assert found == [1, 0 if broker.is_ours else -1]


def test_committed_offsets_are_altered_reset_and_deleted(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    topic, group = broker.name("t"), broker.name("g")
    admin.create_topics([NewTopic(topic, 2), NewTopic(f"{topic}-other", 1)])
    with fencepost.Producer(broker.bootstrap_servers, linger_ms=0) as producer:
        for number in range(4):
            producer.send(topic, b"v", partition=0, timestamp_ms=1000 * number).result(120)
    first, second, free = TP(topic, 0), TP(topic, 1), TP(f"{topic}-other", 0)
    admin.alter_group_offsets(group, {first: 2, second: fencepost.OffsetAndMetadata(0, "by hand")})
    assert admin.group_offsets(group)[second].metadata == "by hand"
    assert admin.reset_group_offsets(group, "latest") == {first: 4, second: 0}
    assert admin.reset_group_offsets(group, 1500) == {first: 2, second: 0}
    assert admin.reset_group_offsets(group, 10**15, [first]) == {first: 4}
    assert admin.reset_group_offsets(group, "earliest") == {first: 0, second: 0}
    assert admin.group_offsets(group)[first].offset == 0
    with pytest.raises(fencepost_errors.UsageError):
        admin.reset_group_offsets(group, "yesterday")
    admin.delete_group_offsets(group, [second])
    assert set(admin.group_offsets(group)) == {first}
    admin.alter_group_offsets(group, {free: 0})
    with fencepost.Consumer(broker.bootstrap_servers, group_id=group) as consumer:
        consumer.subscribe([topic])
        until_assigned(consumer)
        with pytest.raises(fencepost_errors.UsageError, match="has members"):
            admin.alter_group_offsets(group, {first: 1})
        with pytest.raises(fencepost_errors.ItemsFailedError, match="GROUP_SUBSCRIBED_TO_TOPIC") as raised:
            admin.delete_group_offsets(group, [first, free])
        assert (set(raised.value.results), set(raised.value.errors)) == ({free}, {first})
    assert set(admin.group_offsets(group)) == {first}


@pytest.mark.parametrize("named", [True, False], ids=["named", "all"])
def test_stable_offsets_of_a_group_that_always_commits(
    broker: BrokerUnderTest, admin: fencepost.Admin, named: bool
) -> None:
    """At each moment a transaction holds one of the two offsets, and at no moment both are free."""
    topic, group, stopping = broker.name("t"), broker.name("g"), threading.Event()
    admin.create_topic(topic, 2)
    partitions = [TP(topic, 0), TP(topic, 1)]
    admin.alter_group_offsets(group, dict.fromkeys(partitions, 1))
    producers = [
        fencepost.Producer(broker.bootstrap_servers, transactional_id=broker.name(f"id-{number}"))
        for number in range(2)
    ]

    def hold(number: int, offset: int) -> None:
        producers[number].begin_transaction()
        producers[number].send_offsets_to_transaction({partitions[number]: offset}, fencepost.GroupMetadata(group))

    def in_turn() -> None:
        for offset in itertools.count(2):
            hold(1, offset)
            producers[0].commit_transaction()
            hold(0, offset)
            producers[1].commit_transaction()
            if stopping.is_set():
                return

    with producers[0], producers[1]:
        for producer in producers:
            producer.init_transactions()
        hold(0, 2)
        turns = threading.Thread(target=in_turn)
        turns.start()
        try:
            found = admin.group_offsets(group, partitions if named else None, api_timeout_ms=60_000)
        finally:
            stopping.set()
            turns.join()
        producers[0].commit_transaction()
    assert found.keys() == set(partitions)
    assert all(at.offset >= 1 for at in found.values())


def until_assigned(consumer: fencepost.Consumer) -> None:
    deadline = time.monotonic() + 120
    while not consumer.assignment():
        consumer.poll(100)
        assert time.monotonic() < deadline


def test_a_classic_group_and_its_members(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    topic, group = broker.name("t"), broker.name("g")
    admin.create_topic(topic, 2)
    with fencepost.Consumer(
        broker.bootstrap_servers, group_id=group, group_instance_id="desk-1", client_id="reader"
    ) as consumer:
        consumer.subscribe([topic])
        until_assigned(consumer)
        found = admin.describe_group(group)
        assert (found.group_type, found.state, found.protocol_type) == ("classic", "Stable", "consumer")
        (member,) = found.members
        assert (member.group_instance_id, member.client_id) == ("desk-1", "reader")
        assert member.subscribed == (topic,)
        assert set(member.assigned) == {TP(topic, 0), TP(topic, 1)}
        assert [listing.state for listing in admin.list_groups(states=["Stable"]) if listing.group_id == group] == [
            "Stable"
        ]
        with pytest.raises(fencepost_errors.ItemsFailedError, match="1 of 2 failed: member 'somebody-else'") as raised:
            admin.remove_group_members(group, ["somebody-else", "desk-1"])
        assert (set(raised.value.results), set(raised.value.errors)) == ({"desk-1"}, {"somebody-else"})
        assert admin.describe_group(group).members == ()


def test_a_dynamic_member_is_removed_by_its_member_id(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    topic, group = broker.name("t"), broker.name("g")
    admin.create_topic(topic, 2)
    with fencepost.Consumer(broker.bootstrap_servers, group_id=group) as consumer:
        consumer.subscribe([topic])
        until_assigned(consumer)
        (member,) = admin.describe_group(group).members
        assert member.group_instance_id is None
        with pytest.raises(fencepost_errors.ItemsFailedError) as raised:
            admin.remove_group_members(group, member_ids=["somebody-else"])
        assert type(raised.value.errors["somebody-else"]) is fencepost_errors.GroupFencedError
        admin.remove_group_members(group, member_ids=[member.member_id])
        assert admin.describe_group(group).members == ()
        with pytest.raises(fencepost_errors.GroupFencedError):
            consumer.commit({(topic, 0): 0})


def test_removing_no_member_is_refused(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    with pytest.raises(fencepost_errors.UsageError, match="names no member"):
        admin.remove_group_members(broker.name("g"))


def test_a_static_member_of_the_new_protocol_is_removed_by_its_instance_id(
    broker: BrokerUnderTest, admin: fencepost.Admin
) -> None:
    topic, group = broker.name("t"), broker.name("g")
    admin.create_topic(topic, 2)
    with fencepost.Consumer(
        broker.bootstrap_servers, group_id=group, group_protocol="consumer", group_instance_id="desk-1"
    ) as consumer:
        consumer.subscribe([topic])
        until_assigned(consumer)
        with pytest.raises(fencepost_errors.KafkaError):
            admin.remove_group_members(group, ["somebody-else"])
        assert [member.group_instance_id for member in admin.describe_group(group).members] == ["desk-1"]
        admin.remove_group_members(group, ["desk-1"])
        assert admin.describe_group(group).members == ()
        with pytest.raises(fencepost_errors.GroupFencedError):
            consumer.commit({(topic, 0): 0})


def test_producers_are_fenced_and_transactions_terminated(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    topic = broker.name("t")
    admin.create_topic(topic, 1)
    names = [broker.name("x") for _ in range(3)]
    producers = [
        fencepost.Producer(broker.bootstrap_servers, transactional_id=name, two_phase_commit=name == names[2])
        for name in names
    ]
    for producer in producers:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"v")
        producer.flush()
    prepared = producers[2].prepare_transaction()
    fenced = admin.fence_producers(names[:2])
    assert [fenced[name].producer_id for name in names[:2]] == [producer.producer_id for producer in producers[:2]]
    for producer in producers[:2]:
        with pytest.raises(fencepost_errors.KafkaError):
            producer.commit_transaction()
    admin.force_terminate_transaction(names[2])
    # Kafka does not remember it: the producer that took over may have come after a commit.
    lost, unknown = fencepost_errors.PreparedTransactionLostError, fencepost_errors.TransactionOutcomeUnknownError
    with pytest.raises(lost if broker.is_ours else unknown):
        admin.complete(names[2], prepared, commit=True)
    for name in names:
        wait_until_over(admin, name)
    partition = TP(topic, 0)
    latest = admin.list_offsets({partition: -1}, isolation=fencepost.Isolation.READ_COMMITTED)[partition].offset
    assert latest == 6, "three records and three abort markers: nothing is open any more"
    for producer in producers:
        producer.close(0)


def wait_until_over(admin: fencepost.Admin, name: str) -> None:
    deadline = time.monotonic() + 120
    while admin.describe_transactions([name])[0].state not in {"CompleteAbort", "Empty"}:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_group_of_the_consumer_protocol(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    """KIP-848: the coordinator assigns, and tells epochs."""
    topic, group = broker.name("t"), broker.name("g")
    admin.create_topic(topic, 2)
    with fencepost.Consumer(broker.bootstrap_servers, group_id=group, group_protocol="consumer") as consumer:
        consumer.subscribe([topic])
        until_assigned(consumer)
        deadline = time.monotonic() + 120
        while (found := admin.describe_group(group)).state != "Stable":
            consumer.poll(50)
            assert time.monotonic() < deadline
        assert (found.group_type, found.protocol_type, found.protocol) == ("consumer", "consumer", "uniform")
        assert found.epoch == found.assignment_epoch >= 1
        (member,) = found.members
        assert member.subscribed == (topic,)
        assert set(member.assigned) == set(member.target) == {TP(topic, 0), TP(topic, 1)}
        assert member.epoch == found.epoch
        assert [
            listing.group_type.lower() for listing in admin.list_groups(types=["consumer"]) if listing.group_id == group
        ] == ["consumer"]
        assert group not in [listing.group_id for listing in admin.list_groups(types=["classic"])]
