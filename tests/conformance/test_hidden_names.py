"""Answers to a user without the right to describe: no name is in them, and nothing shows what exists."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fencepost.broker.api.apis import SERVED
from fencepost.protocol.messages import (
    consumer_group_describe,
    consumer_group_heartbeat,
    describe_groups,
    describe_share_group_offsets,
    describe_topic_partitions,
    describe_transactions,
    list_groups,
    list_transactions,
    metadata,
    offset_commit,
    offset_fetch,
    share_group_describe,
    share_group_heartbeat,
)
from tests.conformance.conftest import ARMS
from tests.support.raw_client import RawClient
from tests.support.rights_cases import GROUP, TOPIC, TXN, Op
from tests.support.secured import ADMIN, Secured, secured
from tests.support.typical_requests import FOR_EVERYBODY, typical
from tests.support.typical_requests import GROUP as TYPICAL_GROUP
from tests.support.typical_requests import TOPIC as TYPICAL_TOPIC
from tests.support.typical_requests import TRANSACTION as TYPICAL_TRANSACTION
from tests.support.waiting import until

SECRET, SHOWN = "secret-topic", "shown-topic"
CONSUMERS, SHARES, TRANSACTION = "consumers", "shares", "transaction"


@pytest.fixture(scope="module", params=ARMS)
def world(request: pytest.FixtureRequest) -> Iterator[Secured]:
    with secured(request.param) as running:
        with running.connect(ADMIN) as admin:
            admin.find_coordinators()
        yield running


def plain(message: Any) -> str:
    """Return an answer without what differs from one call to the next: Kafka's texts have addresses of its objects."""
    fields = {name: value for name, value in dataclasses.asdict(message).items() if name != "throttle_time_ms"}
    return re.sub(r"Request\(processor=.*?\) needs", "needs", repr(fields))


def without_rights(client: RawClient) -> dict[str, str]:
    """Ask every API that needs a right about the topic, group and transactional id of `typical`."""
    asked = [
        key for key, api in SERVED.items() if api.name not in FOR_EVERYBODY and api.name not in ("produce", "fetch")
    ]
    return {SERVED[key].name: plain(client.call(*typical(key))) for key in asked}


def test_nothing_shows_whether_a_name_exists(world: Secured) -> None:
    with world.connect(world.user()) as client, world.connect(ADMIN) as admin:
        before = without_rights(client)
        assert len(before) > 55
        admin.create_topic(TYPICAL_TOPIC)
        producer = admin.start_producer(TYPICAL_TRANSACTION)
        admin.produce(TYPICAL_TOPIC, [b"v"], transactional_id=TYPICAL_TRANSACTION, producer=producer, sequence=0)
        commit(admin, TYPICAL_GROUP, TYPICAL_TOPIC)
        assert without_rights(client) == before


def commit(client: RawClient, group: str, *topics: str) -> None:
    """Commit an offset of a group without members in each topic."""
    partition = offset_commit.OffsetCommitRequestPartition(partition_index=0, committed_offset=0)
    request = offset_commit.OffsetCommitRequest(
        group_id=group,
        topics=[offset_commit.OffsetCommitRequestTopic(name=topic, partitions=[partition]) for topic in topics],
    )
    until(lambda: [each.partitions[0].error_code for each in client.call(request, 8).topics] == [0] * len(topics))


def join(client: RawClient, group: str, topics: list[str] | None, pattern: str | None = None) -> Any:
    """Send the first heartbeat of a member by the protocol `consumer`."""
    request = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id=f"{group}-member",
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=topics,
        subscribed_topic_regex=pattern,
        topic_partitions=[],
    )
    return client.settled(lambda: client.call(request, 1))


def share(client: RawClient, group: str, topics: list[str]) -> Any:
    """Send the first heartbeat of a member of a share group."""
    request = share_group_heartbeat.ShareGroupHeartbeatRequest(
        group_id=group, member_id=f"{group}-member", member_epoch=0, subscribed_topic_names=topics
    )
    return client.settled(lambda: client.call(request, 1))


QUESTIONS: dict[str, Callable[[RawClient], Any]] = {
    "metadata": lambda client: client.call(metadata.MetadataRequest(topics=None), 12),
    "topic partitions": lambda client: client.call(
        describe_topic_partitions.DescribeTopicPartitionsRequest(topics=[], response_partition_limit=2000), 0
    ),
    "offsets": lambda client: client.call(
        offset_fetch.OffsetFetchRequest(groups=[offset_fetch.OffsetFetchRequestGroup(group_id="offsets", topics=None)]),
        8,
    ),
    "consumer group": lambda client: client.call(
        consumer_group_describe.ConsumerGroupDescribeRequest(group_ids=[CONSUMERS]), 1
    ),
    "share group": lambda client: client.call(share_group_describe.ShareGroupDescribeRequest(group_ids=[SHARES]), 1),
    "share offsets": lambda client: client.call(
        describe_share_group_offsets.DescribeShareGroupOffsetsRequest(
            groups=[describe_share_group_offsets.DescribeShareGroupOffsetsRequestGroup(group_id=SHARES, topics=None)]
        ),
        0,
    ),
    "groups": lambda client: client.call(describe_groups.DescribeGroupsRequest(groups=[CONSUMERS, SHARES]), 6),
    "list": lambda client: client.call(list_groups.ListGroupsRequest(), 5),
    "transaction": lambda client: client.call(
        describe_transactions.DescribeTransactionsRequest(transactional_ids=[TRANSACTION]), 0
    ),
    "transactions": lambda client: client.call(list_transactions.ListTransactionsRequest(), 1),
    "named subscription": lambda client: join(client, "named", [SECRET, SHOWN]),
    "pattern": lambda client: join(client, "pattern", [], ".*-topic"),
    "shared subscription": lambda client: share(client, "shared", [SECRET, SHOWN]),
}


def test_an_answer_names_no_topic_that_the_user_may_not_describe(world: Secured) -> None:
    user = world.user()
    with world.connect(user) as client, world.connect(ADMIN) as admin:
        for topic in (SECRET, SHOWN):
            admin.create_topic(topic)
        answer = admin.call(metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name=SECRET)]), 12)
        secret_id = answer.topics[0].topic_id
        commit(admin, "offsets", SECRET, SHOWN)
        assert join(admin, CONSUMERS, [SECRET, SHOWN]).error_code == 0
        assert share(admin, SHARES, [SECRET, SHOWN]).error_code == 0
        producer = admin.start_producer(TRANSACTION)
        for topic in (SECRET, SHOWN):
            admin.produce(topic, [b"v"], transactional_id=TRANSACTION, producer=producer, sequence=0)
        groups = ("offsets", CONSUMERS, SHARES, "named", "pattern", "shared")
        rights = [(operation, GROUP, group) for group in groups for operation in (Op.READ, Op.DESCRIBE)]
        world.grant(admin, user, [*rights, (Op.DESCRIBE, TXN, TRANSACTION), (Op.DESCRIBE, TOPIC, SHOWN)])
        until(lambda: SHOWN in repr(QUESTIONS["offsets"](client)))
        reported = {name: repr(ask(client)) for name, ask in QUESTIONS.items()}
        by_admin = {
            name: repr(ask(admin)) for name, ask in QUESTIONS.items() if "subscri" not in name and name != "pattern"
        }
        assert SECRET in by_admin["consumer group"] and SECRET in by_admin["transaction"]
        asked = {"named subscription", "shared subscription"}  # the refusal may repeat the names of the request
        shown = {name for name, text in reported.items() if SECRET in text and name not in asked}
        by_id = {name for name, text in reported.items() if repr(secret_id) in text or str(secret_id) in text}
        # Kafka looks at the assigned topics of a share group only, and its members have none yet.
        assert shown <= (set() if world.is_ours else {"share group"})
        assert by_id == set()
