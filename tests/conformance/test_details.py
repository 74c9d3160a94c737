"""Answers that few clients ever see. Expected: Apache Kafka 4.4, and beside it ours where it differs on purpose."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fencepost.broker.embedded import Broker
from fencepost.broker.security.acls import Operation, Pattern, Permission, ResourceType
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages import alter_share_group_offsets as alter
from fencepost.protocol.messages import api_versions, create_acls, delete_acls, describe_acls, metadata, offset_fetch
from fencepost.protocol.messages import delete_share_group_offsets as delete
from fencepost.protocol.messages import describe_configs as dc
from fencepost.protocol.messages import describe_share_group_offsets as describe
from tests.conformance.conftest import ARMS
from tests.support.brokers import BrokerUnderTest
from tests.support.group_member import until
from tests.support.raw_client import Producer, RawClient
from tests.support.secured import ADMIN, Secured, secured
from tests.support.txn_requests import add_partition, commit_offsets

# --- topics and settings ---


def test_no_topic_is_made_by_asking_whose_name_collides(broker: BrokerUnderTest, client: RawClient) -> None:
    """Metrics cannot tell names apart that differ in dots and underscores only."""
    there = client.create_topic(broker.name("a") + ".b_c")
    for name in (there.replace(".", "_"), there.replace("_", ".")):
        for _ in range(3):
            asked = metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name=name)])
            (found,) = client.call(asked, 12).topics
            assert (found.error_code, found.name) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name)
    topics = {topic.name for topic in client.call(metadata.MetadataRequest(topics=None), 12).topics}
    assert topics & {there, there.replace(".", "_"), there.replace("_", ".")} == {there}


@pytest.mark.parametrize("version", [1, 4])
def test_no_keys_are_all_keys(broker: BrokerUnderTest, client: RawClient, version: int) -> None:
    topic = client.create_topic(broker.name("t"))
    answers = []
    every: tuple[list[str] | None, ...] = (None, [])
    for keys in every:
        resource = dc.DescribeConfigsResource(resource_type=2, resource_name=topic, configuration_keys=keys)
        answers.append(client.call(dc.DescribeConfigsRequest(resources=[resource]), version).results[0].configs)
    assert len(answers[0]) > 20
    assert answers[0] == answers[1]


# --- who is asking ---


@pytest.mark.parametrize("version", [3, 4])
@pytest.mark.parametrize(
    ("name", "software_version", "code"),
    [
        ("a", "1", 0),
        ("apache-kafka-java", "4.3.1", 0),
        ("A.b-9", "v1.0-rc.1", 0),
        ("", "1", 42),
        ("a", "", 42),
        ("-a", "1", 42),
        ("a-", "1", 42),
        (".a", "1", 42),
        ("a b", "1", 42),
        ("a", "1 (debug)", 42),
        ("a_b", "1", 42),
        ("a", "1\n", 42),
        ("é", "1", 42),
        ("x" * 1000, "1", 0),
    ],
)
def test_a_client_s_name(
    broker: BrokerUnderTest, client: RawClient, name: str, software_version: str, code: int, version: int
) -> None:
    request = api_versions.ApiVersionsRequest(client_software_name=name, client_software_version=software_version)
    answer = client.call(request, version)
    assert answer.error_code == code
    assert bool(answer.api_keys) == (code == 0)
    assert client.api_versions().error_code == 0, "the connection goes on"


@pytest.fixture(scope="module", params=ARMS)
def open_world(request: pytest.FixtureRequest) -> Iterator[Secured]:
    with secured(request.param, {"allow.everyone.if.no.acl.found": True}) as running:
        with running.connect(ADMIN) as admin:
            admin.find_coordinators()
        yield running


def test_what_is_open_to_everybody_makes_idempotent_producers(open_world: Secured) -> None:
    """Check the right to write to any topic: the authorizer asks about one name, which a prefix can cover."""
    user, other = open_world.user(), open_world.user()

    def bind(admin: RawClient, kind: ResourceType, pattern: Pattern, name: str) -> None:
        operation = Operation.WRITE if kind == ResourceType.TOPIC else Operation.IDEMPOTENT_WRITE
        creation = create_acls.AclCreation(
            resource_type=kind, resource_name=name, resource_pattern_type=pattern, principal=f"User:{other}",
            host="*", operation=operation, permission_type=Permission.ALLOW,
        )  # fmt: skip
        assert admin.call(create_acls.CreateAclsRequest(creations=[creation]), 3).results[0].error_code == 0
        request = describe_acls.DescribeAclsRequest(
            resource_type_filter=kind, resource_name_filter=name, pattern_type_filter=pattern,
            operation=Operation.ANY, permission_type=Permission.ANY,
        )  # fmt: skip
        until(lambda: len(admin.call(request, 3).resources) == 1)

    with open_world.connect(ADMIN) as admin, open_world.connect(user) as client:
        bind(
            admin, ResourceType.CLUSTER, Pattern.LITERAL, "kafka-cluster"
        )  # so that the right on the cluster is not everybody's
        assert client.settled(lambda: client.init_producer_id(None)).error_code == 0
        for prefix, code in (("a", 0), ("any", 0), ("hard", 31)):
            bind(admin, ResourceType.TOPIC, Pattern.PREFIXED, prefix)
            assert client.init_producer_id(None).error_code == code, prefix


def test_filters_that_name_what_nobody_knows(open_world: Secured) -> None:
    """They find nothing, and nothing is deleted by them."""
    with open_world.connect(ADMIN) as admin:
        for strange in ((20, 3, 3, 3), (2, 20, 3, 3), (2, 3, 20, 3), (2, 3, 3, 20)):
            kind, pattern, operation, permission = strange
            asked = describe_acls.DescribeAclsRequest(
                resource_type_filter=kind,
                pattern_type_filter=pattern,
                operation=operation,
                permission_type=permission,
            )
            found = admin.call(asked, 3)
            assert (found.error_code, found.error_message, list(found.resources)) == (0, "", [])
            wanted = delete_acls.DeleteAclsFilter(
                resource_type_filter=kind,
                pattern_type_filter=pattern,
                operation=operation,
                permission_type=permission,
            )
            deleted = admin.call(delete_acls.DeleteAclsRequest(filters=[wanted]), 3).filter_results
            assert [result.error_code for result in deleted] == [ErrorCode.INVALID_REQUEST]


# --- sequences ---


def first_batch(client: RawClient, topic: str, name: str, version: int) -> tuple[int, int]:
    """(code, log start offset) of a transaction's first batch, which begins at sequence 5."""
    me = client.start_producer(name)
    if version < 12:
        assert add_partition(client, name, me, topic) == 0
    answer = client.produce(topic, [b"x"], transactional_id=name, producer=me, sequence=5, version=version)
    return answer.error_code, answer.log_start_offset


@pytest.mark.parametrize("version", [7, 9, 11, 12])
def test_how_a_transaction_may_begin_by_kafkas_rule(broker: BrokerUnderTest, client: RawClient, version: int) -> None:
    """`producer.state.check=kafka`: what nobody knows may begin anywhere, but not where Produce enlists by itself."""
    expected = (0 if version < 12 else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 0)
    if not broker.is_ours:
        assert first_batch(client, client.create_topic(broker.name("t")), broker.name("txn"), version) == expected
        return
    with Broker({"producer.state.check": "kafka"}) as kafkas, RawClient(kafkas.bootstrap_servers) as connected:
        connected.find_coordinators()
        assert first_batch(connected, connected.create_topic("t"), "txn", version) == expected


def test_the_log_start_of_a_gap_in_a_transaction(broker: BrokerUnderTest, client: RawClient) -> None:
    topic, name = client.create_topic(broker.name("t")), broker.name("txn")
    me = client.start_producer(name)
    assert client.produce(topic, [b"x"], transactional_id=name, producer=me, sequence=0).error_code == 0
    gap = client.produce(topic, [b"x"], transactional_id=name, producer=me, sequence=4)
    assert (gap.error_code, gap.log_start_offset) == (45, -1 if broker.is_ours else 0)
    plain = client.init_producer_id(None)
    other = Producer(plain.producer_id, plain.producer_epoch)
    assert client.produce(topic, [b"x"], producer=other, sequence=0).error_code == 0
    gap = client.produce(topic, [b"x"], producer=other, sequence=4)
    assert (gap.error_code, gap.log_start_offset) == (45, 0)


def test_a_part_of_a_batch_that_is_remembered(broker: BrokerUnderTest, client: RawClient) -> None:
    topic, plain = client.create_topic(broker.name("t")), client.init_producer_id(None)
    me = Producer(plain.producer_id, plain.producer_epoch)
    assert client.produce(topic, [b"a", b"b", b"c"], producer=me, sequence=0).error_code == 0
    for values, sequence in (([b"a"], 0), ([b"b", b"c"], 1), ([b"b"], 1)):
        answer = client.produce(topic, values, producer=me, sequence=sequence)
        assert answer.error_code == (46 if broker.is_ours else 45)
    assert client.end_offset(topic) == 3


# --- offsets that pend ---


def pending(broker: BrokerUnderTest, client: RawClient) -> tuple[str, str, str]:
    """(group, a topic with a committed offset, a topic with one that pends)."""
    group, name = broker.name("g"), broker.name("txn")
    done, pends = client.create_topic(broker.name("done")), client.create_topic(broker.name("pends"))
    first = client.start_producer(name)
    assert commit_offsets(client, name, first, group, done, 3) == 0
    assert client.end_transaction(name, first, commit=True).error_code == 0
    client.wait_for_state(name, "CompleteCommit")
    assert commit_offsets(client, name, client.start_producer(name), group, pends, 5) == 0
    return group, done, pends


@pytest.mark.parametrize("version", [1, 2, 5, 6])
def test_who_cannot_ask_for_stable_offsets_waits_for_them(
    broker: BrokerUnderTest, client: RawClient, version: int
) -> None:
    group, done, pends = pending(broker, client)
    topics = [offset_fetch.OffsetFetchRequestTopic(name=name, partition_indexes=[0]) for name in (done, pends)]
    answer = client.call(offset_fetch.OffsetFetchRequest(group_id=group, topics=topics), version)
    reported = {t.name: (t.partitions[0].error_code, t.partitions[0].committed_offset) for t in answer.topics}
    if broker.is_ours:
        assert reported == {done: (14, -1), pends: (14, -1)}
    else:
        assert reported == {done: (0, 3), pends: (0, -1)}
    assert answer.error_code == (14 if broker.is_ours and version >= 2 else 0)


@pytest.mark.parametrize("version", [7, 8, 9])
def test_all_stable_offsets(broker: BrokerUnderTest, client: RawClient, version: int) -> None:
    group, done, pends = pending(broker, client)
    if version == 7:
        request = offset_fetch.OffsetFetchRequest(group_id=group, topics=None, require_stable=True)
        topics = client.call(request, version).topics
    else:
        wanted = offset_fetch.OffsetFetchRequestGroup(group_id=group, topics=None)
        request = offset_fetch.OffsetFetchRequest(groups=[wanted], require_stable=True)
        topics = client.call(request, version).groups[0].topics
    reported = {topic.name: (topic.partitions[0].error_code, topic.partitions[0].committed_offset) for topic in topics}
    assert reported == ({done: (0, 3), pends: (88, -1)} if broker.is_ours else {done: (0, 3)})


def test_a_share_group_s_offsets_are_answered_by_topic(broker: BrokerUnderTest, client: RawClient) -> None:
    """A topic that is named twice is answered once, one without partitions only if it is there. Only of what was
    forgotten is the id told."""
    group, topic, other = broker.name("g"), client.create_topic(broker.name("t")), client.create_topic(broker.name("u"))
    first, second = (alter.AlterShareGroupOffsetsRequestPartition(partition_index=index) for index in (0, 7))
    topics = [(topic, [first]), (other, []), (topic, [second]), ("missing", []), (topic, [])]
    asked = [alter.AlterShareGroupOffsetsRequestTopic(topic_name=name, partitions=wanted) for name, wanted in topics]
    set_to = client.call(alter.AlterShareGroupOffsetsRequest(group_id=group, topics=asked), 0)
    answered = {
        found.topic_name: [(partition.partition_index, partition.error_code) for partition in found.partitions]
        for found in set_to.responses
    }
    assert set_to.error_code == 0
    assert len(set_to.responses) == len(answered)
    assert answered == {topic: [(0, 0), (7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)], other: []}
    ids = {found.topic_name: found.topic_id for found in set_to.responses}
    asked_twice = describe.DescribeShareGroupOffsetsRequestTopic(topic_name=topic, partitions=[0, 1, 0])
    asked_of = describe.DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=[asked_twice])
    (described,) = client.call(describe.DescribeShareGroupOffsetsRequest(groups=[asked_of]), 0).groups[0].topics
    assert [(partition.partition_index, partition.start_offset) for partition in described.partitions] == [
        (0, 0),
        (1, -1),
    ]
    names = [topic, other, "missing", topic]
    forget = [delete.DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in names]
    forgotten = client.call(delete.DeleteShareGroupOffsetsRequest(group_id=group, topics=forget), 0)
    unknown = (None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert sorted((found.topic_name, found.topic_id, found.error_code) for found in forgotten.responses) == sorted(
        [(topic, ids[topic], 0), (other, *unknown), ("missing", *unknown)]
    )
