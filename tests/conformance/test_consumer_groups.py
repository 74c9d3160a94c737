"""Consumer groups of the newer protocol (KIP-848), one heartbeat at a time, as Apache Kafka 4.4 answers them.

Kafka makes assignments and looks regular expressions up in the background, so what a heartbeat leads to may be told
with a later one: the tests send heartbeats until it is.
"""

from __future__ import annotations

from typing import Any

import pytest

from fencepost.broker.coordinator.group.consumer.group import ConsumerGroup
from fencepost.broker.coordinator.group.consumer.membership import ConsumerGroups
from fencepost.broker.coordinator.group.coordinator import GroupCoordinator
from fencepost.broker.coordinator.group.log import decode_record
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.logs.partitioning import coordinator_partition
from fencepost.protocol.messages.consumer_group_heartbeat import TopicPartitions
from fencepost.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from fencepost.protocol.messages.delete_groups import DeleteGroupsRequest
from fencepost.protocol.messages.describe_groups import DescribeGroupsRequest
from fencepost.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from fencepost.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from fencepost.protocol.records.decoding import decode_batches
from tests.conformance.consumer_groups import alone, commit_as, listed, stable
from tests.conformance.test_groups import join, sync
from tests.conformance.test_offsets import commit, fetch
from tests.support.brokers import BrokerUnderTest
from tests.support.group_member import RawMember, describe, topic_id, until
from tests.support.raw_client import RawClient
from tests.unit.broker.coordinator.group.group_driver import FakeSettings, FakeTopics

# Coming and going


def test_a_member_gets_everything_and_is_shown(broker: BrokerUnderTest, client: RawClient) -> None:
    member, topic = alone(broker, client)
    assert member.owned == {(topic_id(client, topic), index) for index in range(4)}
    member.until(lambda: stable(client, member.group))
    group = describe(client, member.group)
    assert (group.error_code, group.group_state, group.assignor_name) == (0, "Stable", "uniform")
    assert group.group_epoch == group.assignment_epoch == member.epoch > 0
    (shown,) = group.members
    assert (shown.member_id, shown.member_epoch, shown.instance_id) == (member.member_id, member.epoch, None)
    assert (list(shown.subscribed_topic_names), shown.member_type) == ([topic], 1)
    assert shown.client_id == "raw" and shown.client_host == "/127.0.0.1"
    assert shown.assignment is not None and shown.target_assignment is not None
    for has in (shown.assignment, shown.target_assignment):
        assert [(entry.topic_name, sorted(entry.partitions)) for entry in has.topic_partitions] == [
            (topic, [0, 1, 2, 3])
        ]


def test_a_heartbeat_that_changes_nothing_is_answered_without_an_assignment(
    broker: BrokerUnderTest, client: RawClient
) -> None:
    member, _ = alone(broker, client)
    member.until(lambda: stable(client, member.group))
    answer = member.beat(topic_partitions=None)
    assert (answer.member_epoch, answer.assignment, answer.member_id) == (member.epoch, None, member.member_id)
    assert answer.heartbeat_interval_ms == 5_000
    full = member.beat(rebalance_timeout_ms=60_000, subscribed_topic_names=member.topics)
    assert full.assignment is not None and member.assigned == member.owned


def test_partitions_are_given_back_before_somebody_else_gets_them(broker: BrokerUnderTest, client: RawClient) -> None:
    first, topic = alone(broker, client)
    second = RawMember(client, first.group, [topic])
    until(lambda: len(first.assigned) == 2, first.beat, second.beat)
    assert not second.assigned
    epoch = first.epoch
    first.beat()  # it still says that it has all four
    assert first.epoch == epoch and len(first.assigned) == 2
    for _ in range(3):
        second.beat()
        assert not second.assigned
    assert describe(client, first.group).group_state == "Reconciling"
    first.take()
    first.until(lambda: len(second.owned) == 2, second)
    assert not first.owned & second.owned and len(first.owned | second.owned) == 4
    first.until(lambda: stable(client, first.group), second)
    assert first.epoch == second.epoch > epoch


def test_who_leaves_is_gone_and_the_others_share(broker: BrokerUnderTest, client: RawClient) -> None:
    first, topic = alone(broker, client)
    second = RawMember(client, first.group, [topic])
    first.until(lambda: len(second.owned) == 2, second)
    answer = first.ask(member_epoch=-1, topic_partitions=None)
    assert (answer.error_code, answer.member_epoch, answer.member_id) == (0, -1, first.member_id)
    assert first.ask().error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert first.leave() == ErrorCode.UNKNOWN_MEMBER_ID
    second.until(lambda: len(second.owned) == 4)
    assert second.leave() == 0
    assert describe(client, first.group).group_state == "Empty"


def test_new_partitions_and_new_topics_are_assigned(broker: BrokerUnderTest, client: RawClient) -> None:
    missing = broker.name("later")
    topic = client.create_topic(broker.name("t"), 1)
    member = RawMember(client, broker.name("g"), [topic, missing])
    member.until(lambda: len(member.owned) == 1)
    request = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=topic, count=3, assignments=None)], timeout_ms=30_000
    )
    assert client.call(request, 3).results[0].error_code == 0
    member.until(lambda: len(member.owned) == 3)
    client.create_topic(missing, 2)
    member.until(lambda: len(member.owned) == 5)


def test_range_gives_runs_in_order_of_member_ids(broker: BrokerUnderTest, client: RawClient) -> None:
    topics = [client.create_topic(broker.name("t"), 5) for _ in range(2)]
    group = broker.name("g")
    low = RawMember(client, group, topics, assignor="range", member_id="a" * 22)
    high = RawMember(client, group, topics, assignor="range", member_id="b" * 22)
    low.until(lambda: len(low.owned) == 6 and len(high.owned) == 4, high)
    ids = [topic_id(client, topic) for topic in topics]
    assert low.owned == {(topic, index) for topic in ids for index in (0, 1, 2)}
    assert high.owned == {(topic, index) for topic in ids for index in (3, 4)}
    assert describe(client, group).assignor_name == "range"


def test_uniform_is_even_where_subscriptions_differ(broker: BrokerUnderTest, client: RawClient) -> None:
    wide, narrow = client.create_topic(broker.name("t"), 4), client.create_topic(broker.name("t"), 2)
    group = broker.name("g")
    both = RawMember(client, group, [wide, narrow])
    wide_only = RawMember(client, group, [wide])
    both.until(lambda: (len(both.owned), len(wide_only.owned)) == (3, 3), wide_only)
    assert {(topic_id(client, narrow), index) for index in (0, 1)} < both.owned


# Regular expressions


def test_a_regular_expression_finds_topics_also_later_ones(broker: BrokerUnderTest, client: RawClient) -> None:
    stem = broker.name("regex")
    client.create_topic(f"{stem}-a", 2)
    client.create_topic(f"x{stem}-a", 2)
    member = RawMember(client, broker.name("g"), [], regex=f"{stem}-[ab]")
    member.until(lambda: len(member.owned) == 2)
    assert {topic for topic, _ in member.owned} == {topic_id(client, f"{stem}-a")}
    (shown,) = describe(client, member.group).members
    assert (shown.subscribed_topic_regex, list(shown.subscribed_topic_names)) == (f"{stem}-[ab]", [])
    if broker.is_ours:  # Kafka looks again after ten minutes
        client.create_topic(f"{stem}-b", 1)
        member.until(lambda: len(member.owned) == 3)


def test_names_can_be_traded_for_an_expression(broker: BrokerUnderTest, client: RawClient) -> None:
    member, topic = alone(broker, client, 2)
    other = client.create_topic(broker.name("other"), 1)
    member.beat(subscribed_topic_names=[], subscribed_topic_regex=f"{other}.*")
    member.until(lambda: {topic for topic, _ in member.owned} == {topic_id(client, other)})
    member.beat(subscribed_topic_names=[topic], subscribed_topic_regex="")
    member.until(lambda: len(member.owned) == 2)


# Requests that make no sense


@pytest.mark.parametrize(
    ("version", "fields", "error"),
    [
        (1, {"group_id": ""}, ErrorCode.INVALID_REQUEST),
        (1, {"member_id": ""}, ErrorCode.INVALID_REQUEST),
        (1, {"instance_id": ""}, ErrorCode.INVALID_REQUEST),
        (1, {"rack_id": ""}, ErrorCode.INVALID_REQUEST),
        (1, {"member_epoch": -3}, ErrorCode.INVALID_REQUEST),
        (1, {"member_epoch": -2}, ErrorCode.INVALID_REQUEST),
        (1, {"rebalance_timeout_ms": -1}, ErrorCode.INVALID_REQUEST),
        (1, {"topic_partitions": None}, ErrorCode.INVALID_REQUEST),
        (1, {"topic_partitions": [TopicPartitions(topic_id=None, partitions=[0])]}, ErrorCode.INVALID_REQUEST),
        (1, {"subscribed_topic_names": None}, ErrorCode.INVALID_REQUEST),
        (1, {"server_assignor": "none"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
        (1, {"subscribed_topic_regex": "("}, ErrorCode.INVALID_REGULAR_EXPRESSION),
        (1, {"member_epoch": 1}, ErrorCode.GROUP_ID_NOT_FOUND),
        (1, {"member_epoch": -1}, ErrorCode.GROUP_ID_NOT_FOUND),
        (1, {"member_epoch": -2, "instance_id": "i"}, ErrorCode.GROUP_ID_NOT_FOUND),
        (0, {"member_id": ""}, 0),
        (0, {"member_id": "", "member_epoch": 1}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_first_heartbeat_like_this(
    broker: BrokerUnderTest, client: RawClient, version: int, fields: dict[str, Any], error: int
) -> None:
    member = RawMember(client, broker.name("g"), ["t"])
    answer = member.ask(version, **fields)
    assert answer.error_code == error
    if error:
        assert answer.error_message
    else:
        assert answer.member_id


# Epochs


def test_a_member_in_another_epoch_is_fenced(broker: BrokerUnderTest, client: RawClient) -> None:
    member, topic = alone(broker, client)
    other = RawMember(client, member.group, [topic])
    member.until(lambda: len(other.owned) == 2 and stable(client, member.group), other)
    assert member.epoch >= 2
    assert member.ask(member_epoch=member.epoch + 1).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    alien = [TopicPartitions(topic_id=topic_id(client, topic), partitions=[0, 1, 2, 3])]
    previous = member.epoch - 1
    assert member.ask(member_epoch=previous, topic_partitions=alien).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert member.ask(member_epoch=previous, topic_partitions=None).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert member.ask(member_epoch=previous).member_epoch == member.epoch  # the answer may have been lost
    assert member.ask(member_id="stranger").error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_known_member_may_join_again_from_nothing(broker: BrokerUnderTest, client: RawClient) -> None:
    member, _ = alone(broker, client)
    member.until(lambda: stable(client, member.group))
    epoch, owned = member.epoch, member.owned
    member.epoch, member.owned, member.assigned = 0, frozenset(), frozenset()
    member.beat()
    assert (member.epoch, member.assigned) == (epoch, owned)


# Static members


def test_a_static_member_comes_back_to_its_partitions(broker: BrokerUnderTest, client: RawClient) -> None:
    topic = client.create_topic(broker.name("t"), 4)
    group = broker.name("g")
    first = RawMember(client, group, [topic], instance="one")
    second = RawMember(client, group, [topic], instance="two")
    first.until(lambda: len(first.owned) == 2 and len(second.owned) == 2, second)
    first.until(lambda: stable(client, group), second)
    epoch = describe(client, group).group_epoch
    early = RawMember(client, group, [topic], instance="one")
    assert early.ask().error_code == ErrorCode.UNRELEASED_INSTANCE_ID
    assert first.leave(-2) == 0
    assert second.beat().assignment is None or second.assigned == second.owned
    back = RawMember(client, group, [topic], instance="one")
    back.until(lambda: len(back.owned) == 2)
    assert back.owned == first.owned
    assert describe(client, group).group_epoch == epoch
    assert first.ask().error_code == ErrorCode.FENCED_INSTANCE_ID
    assert first.leave(-2) == ErrorCode.FENCED_INSTANCE_ID
    assert back.ask(instance_id="nobody").error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert back.leave(-1) == 0
    second.until(lambda: len(second.owned) == 4)


# Groups of the two kinds


def test_a_group_is_of_one_kind(broker: BrokerUnderTest, client: RawClient) -> None:
    member, _ = alone(broker, client)
    classic = broker.name("classic")
    joined = join(client, classic)
    assert sync(client, classic, joined)[0] == 0
    found = describe(client, classic)
    assert found.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert found.error_message == f"Group {classic} is not a consumer group."
    found = describe(client, broker.name("none"))
    assert found.error_code == ErrorCode.GROUP_ID_NOT_FOUND and "not found" in (found.error_message or "")
    (shown,) = client.call(DescribeGroupsRequest(groups=[member.group]), 6).groups
    assert (shown.error_code, shown.group_state) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")
    assert shown.error_message == f"Group {member.group} is not a classic group."
    (shown,) = client.call(DescribeGroupsRequest(groups=[member.group]), 5).groups
    assert (shown.error_code, shown.group_state) == (0, "Dead")


def test_groups_are_listed_by_type_and_state(broker: BrokerUnderTest, client: RawClient) -> None:
    member, _ = alone(broker, client)
    member.until(lambda: stable(client, member.group))
    classic = broker.name("classic")
    assert sync(client, classic, join(client, classic))[0] == 0
    everything = listed(client)
    shown = everything[member.group]
    assert (shown[0], shown[1], shown[2].lower()) == ("consumer", "Stable", "consumer")
    assert everything[classic][2].lower() == "classic"
    assert shown[2].istitle() == everything[classic][2].istitle()
    assert member.group in listed(client, types_filter=["consumer"], states_filter=["stable"])
    assert member.group not in listed(client, types_filter=["Classic"])
    assert member.group not in listed(client, states_filter=["Empty"])
    assert classic in listed(client, types_filter=["classic"]) and classic not in listed(
        client, types_filter=["consumer"]
    )
    assert not listed(client, types_filter=["no such type"])


def test_an_empty_group_becomes_one_of_the_other_kind_and_keeps_its_offsets(
    broker: BrokerUnderTest, client: RawClient
) -> None:
    topic = client.create_topic(broker.name("t"), 1)
    group = broker.name("g")
    assert commit(client, group, topic, 5) == 0
    member = RawMember(client, group, [topic])
    member.until(lambda: len(member.owned) == 1)
    assert describe(client, group).error_code == 0
    assert member.leave() == 0
    assert fetch(client, group, topic) == (0, 5)
    assert sync(client, group, join(client, group))[0] == 0
    assert describe(client, group).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert fetch(client, group, topic) == (0, 5)


def test_only_an_empty_group_is_deleted(broker: BrokerUnderTest, client: RawClient) -> None:
    member, topic = alone(broker, client)
    request = DeleteGroupsRequest(groups_names=[member.group])
    assert client.call(request, 2).results[0].error_code == ErrorCode.NON_EMPTY_GROUP
    assert member.leave() == 0
    assert commit(client, member.group, topic, 3) == 0
    assert client.call(request, 2).results[0].error_code == 0
    assert describe(client, member.group).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert fetch(client, member.group, topic) == (0, -1)
    assert client.call(request, 2).results[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_offsets_of_subscribed_topics_are_not_deleted(broker: BrokerUnderTest, client: RawClient) -> None:
    member, topic = alone(broker, client)
    other = client.create_topic(broker.name("other"), 1)
    assert commit_as(member, topic, 0, 4, member.epoch) == 0
    assert commit_as(member, other, 0, 4, member.epoch) == 0
    topics = [
        OffsetDeleteRequestTopic(name=name, partitions=[OffsetDeleteRequestPartition(partition_index=0)])
        for name in (topic, other)
    ]
    answer = client.call(OffsetDeleteRequest(group_id=member.group, topics=topics), 0)
    errors = {entry.name: entry.partitions[0].error_code for entry in answer.topics}
    assert (answer.error_code, errors) == (0, {topic: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, other: 0})


# Recovery


def logged(client: RawClient, group: str) -> ConsumerGroup:
    """The group as our code makes it from the records in the broker's `__consumer_offsets`."""
    (topic,) = client.call(MetadataRequest(topics=[MetadataRequestTopic(name="__consumer_offsets")]), 12).topics
    count = len(topic.partitions)
    fetched = client.fetch("__consumer_offsets", partition=coordinator_partition(group, count))
    columns = decode_batches(fetched.result.records)
    coordinator = GroupCoordinator(FakeSettings(), lambda: "unused", FakeTopics())
    for index in range(len(columns)):
        key = columns.key(index)
        record = decode_record(key, columns.value(index)) if key is not None else None
        if record is not None and record.group_id == group:
            coordinator.replay(record, index)
    found = coordinator.kind(ConsumerGroups).find(group)
    assert found is not None
    return found


def test_the_log_says_what_describe_says(broker: BrokerUnderTest, client: RawClient) -> None:
    topic = client.create_topic(broker.name("t"), 4)
    group = broker.name("g")
    first = RawMember(client, group, [topic], instance="one")
    second = RawMember(client, group, [], regex=topic)
    first.until(lambda: len(first.owned) == 2 and len(second.owned) == 2, second)
    first.until(lambda: stable(client, group), second)
    shown, read = describe(client, group), logged(client, group)
    assert (read.state, read.epoch, read.assignment_epoch) == ("Stable", shown.group_epoch, shown.assignment_epoch)
    assert set(read.members) == {first.member_id, second.member_id}
    for member in (first, second):
        stored = read.members[member.member_id]
        assert (stored.epoch, frozenset(stored.assigned)) == (member.epoch, member.owned)
        assert read.target_of(member.member_id) == member.owned
    assert read.members[first.member_id].wants.instance_id == "one"
    assert read.members[second.member_id].wants.topic_regex == topic
    assert read.regexes[topic].topics == (topic,)
    assert second.leave() == 0
    assert set(logged(client, group).members) == {first.member_id} and not logged(client, group).regexes
