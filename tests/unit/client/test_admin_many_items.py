"""Admin calls about many items: retries, lost answers and refusals of some of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import fencepost
from fencepost.client.admin.core import AdminCore
from fencepost.errors import (
    AuthorizationError,
    BrokerError,
    ItemsFailedError,
    KafkaError,
    KafkaTimeoutError,
    ProtocolError,
    TopicAlreadyExistsError,
)
from fencepost.protocol.messages import alter_replica_log_dirs as al
from fencepost.protocol.messages import create_topics as ct
from fencepost.protocol.messages import delete_groups as dg
from fencepost.protocol.messages import metadata as md
from tests.unit.client.scripted import ScriptedBroker, World, cut, run, topic_id

CREATE, DELETE_GROUPS, METADATA, FIND_COORDINATOR, ALTER_REPLICA_LOG_DIRS = 19, 42, 3, 10, 34
EXISTS, THROTTLED, NOT_COORDINATOR, NOT_EMPTY = 36, 89, 16, 68
TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53


def created(codes: dict[str, int]) -> Callable[[int, Any], Any]:
    topics = [ct.CreatableTopicResult(name=name, error_code=code) for name, code in codes.items()]
    return lambda *_: ct.CreateTopicsResponse(topics=topics)


def shown(_: int, request: Any) -> Any:
    topics = [
        md.MetadataResponseTopic(
            name=topic.name,
            topic_id=topic_id(topic.name),
            partitions=[md.MetadataResponsePartition(partition_index=0, leader_id=1)],
        )
        for topic in request.topics or ()
    ]
    node = md.MetadataResponseBroker(node_id=1, host="broker-1", port=9092)
    return md.MetadataResponse(brokers=[node], controller_id=1, topics=topics)


def broker_that_answers(*answers: Callable[[int, Any], Any]) -> ScriptedBroker:
    broker = ScriptedBroker()
    broker.offered |= {CREATE: (2, 7)}
    broker.scripts[CREATE] = list(answers)
    broker.scripts[METADATA] = [shown] * 20
    return broker


def asked_for(broker: ScriptedBroker) -> list[list[str]]:
    return [[topic.name for topic in request.topics] for request in broker.asked(CREATE)]


def test_only_items_with_retriable_errors_are_asked_about_again() -> None:
    broker = broker_that_answers(created({"a": 0, "b": THROTTLED, "c": EXISTS}), created({"b": 0}))

    async def main(world: World) -> None:
        with pytest.raises(ItemsFailedError, match="create topics: 1 of 3 failed: create topic 'c'") as caught:
            await AdminCore(world.cluster()).create_topics(["a", "b", "c"])
        assert set(caught.value.results) == {"a", "b"}
        assert type(caught.value.errors["c"]) is TopicAlreadyExistsError
        assert not caught.value.outcome_unknown

    run(main, broker)
    assert asked_for(broker) == [["a", "b", "c"], ["b"]]


def test_after_a_lost_answer_a_refusal_is_in_doubt() -> None:
    broker = broker_that_answers(cut, created({"a": EXISTS, "b": 0}))

    async def main(world: World) -> None:
        with pytest.raises(ItemsFailedError) as caught:
            await AdminCore(world.cluster()).create_topics(["a", "b"])
        assert list(caught.value.results) == ["b"]
        assert caught.value.errors["a"].outcome_unknown
        assert caught.value.outcome_unknown

    run(main, broker)


def test_items_without_an_answer_in_time_do_not_hide_the_others() -> None:
    broker = broker_that_answers(created({"a": 0, "b": THROTTLED}), *[created({"b": THROTTLED})] * 50)

    async def main(world: World) -> None:
        with pytest.raises(ItemsFailedError) as caught:
            await AdminCore(world.cluster()).create_topics(["a", "b"], api_timeout_ms=5_000)
        assert list(caught.value.results) == ["a"]
        assert isinstance(caught.value.errors["b"], KafkaTimeoutError)

    run(main, broker)


def test_a_broker_without_an_answer_does_not_hide_the_outcomes_of_others() -> None:
    broker = broker_that_answers()
    broker.offered |= {ALTER_REPLICA_LOG_DIRS: (1, 2)}
    partition = al.AlterReplicaLogDirPartitionResult(partition_index=0)
    moved = al.AlterReplicaLogDirsResponse(
        results=[al.AlterReplicaLogDirTopicResult(topic_name="t", partitions=[partition])]
    )
    broker.scripts[ALTER_REPLICA_LOG_DIRS] = [lambda *_: moved]

    async def main(world: World) -> None:
        admin = AdminCore(world.cluster())
        with pytest.raises(ItemsFailedError) as caught:
            await admin.alter_replica_log_dirs({("t", 0, 1): "/a", ("t", 0, 2): "/a"}, api_timeout_ms=1_000)
        assert (list(caught.value.results), list(caught.value.errors)) == ([("t", 0, 1)], [("t", 0, 2)])
        with pytest.raises(KafkaError) as alone:
            await admin.alter_replica_log_dirs({("t", 0, 2): "/a"}, api_timeout_ms=1_000)
        assert not isinstance(alone.value, ItemsFailedError)

    run(main, broker)


def test_no_answer_at_all_is_the_error_of_the_call() -> None:
    broker = broker_that_answers(*[cut] * 100)

    async def main(world: World) -> None:
        with pytest.raises(KafkaTimeoutError) as caught:
            await AdminCore(world.cluster()).create_topics(["a", "b"], api_timeout_ms=2_000)
        assert caught.value.outcome_unknown

    run(main, broker)


def test_an_item_that_the_answer_leaves_out_is_a_failure() -> None:
    broker = broker_that_answers(created({"a": 0}))

    async def main(world: World) -> None:
        with pytest.raises(ItemsFailedError) as caught:
            await AdminCore(world.cluster()).create_topics(["a", "b"])
        assert isinstance(caught.value.errors["b"], ProtocolError)

    run(main, broker)


def test_a_topic_that_is_not_shown_in_time_fails() -> None:
    broker = broker_that_answers(created({"a": 0, "b": 0}))

    def first_topic(version: int, request: Any) -> Any:
        reply = shown(version, request)
        for topic in reply.topics:
            if topic.name == "b":
                topic.error_code, topic.partitions = 3, []
        return reply

    broker.scripts[METADATA] = [first_topic] * 200

    async def main(world: World) -> None:
        with pytest.raises(
            ItemsFailedError, match="the cluster has made the change, but broker 1 still shows"
        ) as caught:
            await AdminCore(world.cluster()).create_topics(["a", "b"], api_timeout_ms=3_000)
        assert (list(caught.value.results), list(caught.value.errors)) == (["a"], ["b"])

    run(main, broker)


def deleted(codes: dict[str, int]) -> Callable[[int, Any], Any]:
    results = [dg.DeletableGroupResult(group_id=name, error_code=code) for name, code in codes.items()]
    return lambda *_: dg.DeleteGroupsResponse(results=results)


def test_a_group_that_has_moved_is_looked_up_again() -> None:
    broker = ScriptedBroker()
    broker.offered |= {DELETE_GROUPS: (0, 2)}
    broker.scripts[DELETE_GROUPS] = [
        deleted({"a": 0, "b": NOT_COORDINATOR, "c": NOT_EMPTY}),
        deleted({"b": 0}),
    ]

    async def main(world: World) -> None:
        with pytest.raises(ItemsFailedError) as caught:
            await AdminCore(world.cluster()).delete_groups(["a", "b", "c"])
        assert set(caught.value.results) == {"a", "b"}
        assert type(caught.value.errors["c"]) is BrokerError

    run(main, broker)
    assert [list(request.groups_names) for request in broker.asked(DELETE_GROUPS)] == [["a", "b", "c"], ["b"]]
    looked_up = [list(request.coordinator_keys) for request in broker.asked(FIND_COORDINATOR)]
    assert looked_up == [["a", "b", "c"], ["b"]]


def test_a_producer_that_is_not_fenced_does_not_hide_the_fenced_ones() -> None:
    with fencepost.Broker() as broker, fencepost.Admin(broker.bootstrap_servers) as admin:
        with (
            broker.faults.fail("InitProducerId", TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
            pytest.raises(ItemsFailedError, match="fence producers: 1 of 2 failed: ") as raised,
        ):
            admin.fence_producers(["first", "second"])
        (fenced,), (failed,) = raised.value.results, raised.value.errors
        assert {fenced, failed} == {"first", "second"}
        assert isinstance(raised.value.errors[failed], AuthorizationError)
        assert [each.transactional_id for each in admin.list_transactions()] == [fenced]


def test_a_time_limit_names_the_partition_or_the_group() -> None:
    with fencepost.Broker() as broker, fencepost.Admin(broker.bootstrap_servers) as admin:
        admin.create_topic("t", 2)
        with (
            broker.faults.delay("DeleteRecords", 60, times=None),
            pytest.raises(ItemsFailedError, match="delete records of t-0: time is up") as raised,
        ):
            admin.delete_records({("t", 0): 0, ("t", 1): 0}, api_timeout_ms=300)
        assert raised.value.outcome_unknown
        with (
            broker.faults.delay("OffsetCommit", 60, times=None),
            pytest.raises(KafkaTimeoutError, match=r"^set offsets of group 'g': time is up"),
        ):
            admin.alter_group_offsets("g", {("t", 0): 0, ("t", 1): 0}, api_timeout_ms=300)
