"""Every API asked once: the answer reduced to its error codes, or to what stands for them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from fencepost.broker.security.acls import Operation, ResourceType
from fencepost.protocol import fetch_wire, produce_wire
from fencepost.protocol.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_configs,
    alter_partition_reassignments,
    alter_user_scram_credentials,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_acls,
    create_delegation_token,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_topics,
    describe_acls,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_quorum,
    describe_topic_partitions,
    describe_transactions,
    describe_user_scram_credentials,
    elect_leaders,
    end_txn,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    sync_group,
    txn_offset_commit,
    unregister_broker,
    update_features,
    write_txn_markers,
)
from fencepost.protocol.records.encoding import encode_batch
from tests.support.raw_client import Producer, RawClient

UNKNOWN_PRODUCER = Producer(987_654, 3)

Codes = Sequence[int]


@dataclass(frozen=True)
class Names:
    """Names that the requests use. The topic and a topic "shared" exist. `topic_id` is the topic's."""

    topic: str
    group: str
    txn: str
    topic_id: Any = None


def produce(transactional: bool) -> Callable[[RawClient, Names], Codes]:
    def ask(client: RawClient, names: Names) -> Codes:
        if not transactional:
            return [client.produce(names.topic, [b"v"]).error_code]
        result = client.produce(
            names.topic, [b"v"], transactional_id=names.txn, producer=UNKNOWN_PRODUCER, sequence=0, version=11
        )
        return [result.error_code]

    return ask


def produce_to_two(client: RawClient, names: Names) -> Codes:
    """One request for two topics."""
    records = encode_batch(keys=[None], values=[b"v"], timestamps=int(time.time() * 1000))
    wanted = [produce_wire.ProducePartition(name, None, 0, records) for name in (names.topic, "shared")]
    body = b"".join(produce_wire.encode_request(produce_wire.ProduceRequest(None, -1, 30_000, wanted), 12))
    answer = produce_wire.decode_response(client.exchange(0, 12, body), 12)
    codes = {result.topic: result.error_code for result in answer.partitions}
    return [codes[names.topic], codes["shared"]]


def produce_by_id(client: RawClient, names: Names) -> Codes:
    records = encode_batch(keys=[None], values=[b"v"], timestamps=int(time.time() * 1000))
    wanted = [produce_wire.ProducePartition(None, names.topic_id, 0, records)]
    body = b"".join(produce_wire.encode_request(produce_wire.ProduceRequest(None, -1, 30_000, wanted), 13))
    return [produce_wire.decode_response(client.exchange(0, 13, body), 13).partitions[0].error_code]


def fetch_from_two(client: RawClient, names: Names) -> Codes:
    wanted = [
        fetch_wire.FetchTopic(name, None, [fetch_wire.FetchPartition(0, 0, 1000)]) for name in (names.topic, "shared")
    ]
    body = b"".join(fetch_wire.encode_request(fetch_wire.FetchRequest(max_wait_ms=0, topics=wanted), 12))
    answer = fetch_wire.decode_response(client.exchange(1, 12, body), 12)
    codes = {topic.topic: topic.partitions[0].error_code for topic in answer.topics}
    return [codes[names.topic], codes["shared"]]


class FetchSession:
    """An incremental fetch session (KIP-227) over partition 0 of these topics, v12."""

    def __init__(self, client: RawClient, topics: Sequence[str]) -> None:
        self._client = client
        self._topics = [fetch_wire.FetchTopic(name, None, [fetch_wire.FetchPartition(0, 0, 1000)]) for name in topics]
        self._id = self._epoch = 0

    def fetch(self) -> dict[str | None, int]:
        """The next request; the error codes of the partitions that the answer lists."""
        request = fetch_wire.FetchRequest(
            max_wait_ms=0, session_id=self._id, session_epoch=self._epoch, topics=[] if self._epoch else self._topics
        )
        body = b"".join(fetch_wire.encode_request(request, 12))
        answer = fetch_wire.decode_response(self._client.exchange(1, 12, body), 12)
        if answer.error_code or not answer.session_id:
            raise ValueError(answer)
        self._id, self._epoch = answer.session_id, self._epoch + 1
        return {topic.topic: topic.partitions[0].error_code for topic in answer.topics}


def fetch(client: RawClient, names: Names) -> Codes:
    return [client.fetch(names.topic).result.error_code]


def fetch_by_id(client: RawClient, names: Names) -> Codes:
    wanted = fetch_wire.FetchTopic(None, names.topic_id, [fetch_wire.FetchPartition(0, 0, 1000)])
    request = fetch_wire.FetchRequest(max_wait_ms=0, topics=[wanted])
    body = b"".join(fetch_wire.encode_request(request, 13))
    answer = fetch_wire.decode_response(client.exchange(1, 13, body), 13)
    return [answer.topics[0].partitions[0].error_code]


def list_offsets_(client: RawClient, names: Names) -> Codes:
    partition = list_offsets.ListOffsetsPartition(partition_index=0, timestamp=-1)
    topics = [list_offsets.ListOffsetsTopic(name=names.topic, partitions=[partition])]
    answer = client.call(list_offsets.ListOffsetsRequest(replica_id=-1, topics=topics), 7)
    return [answer.topics[0].partitions[0].error_code]


def leader_epoch(client: RawClient, names: Names) -> Codes:
    asked = offset_for_leader_epoch.OffsetForLeaderPartition(partition=0, leader_epoch=0)
    topics = [offset_for_leader_epoch.OffsetForLeaderTopic(topic=names.topic, partitions=[asked])]
    answer = client.call(offset_for_leader_epoch.OffsetForLeaderEpochRequest(topics=topics), 4)
    return [answer.topics[0].partitions[0].error_code]


def metadata_(client: RawClient, names: Names) -> Codes:
    topics = [metadata.MetadataRequestTopic(name=name) for name in (names.topic, names.topic + "-absent")]
    request = metadata.MetadataRequest(topics=topics, allow_auto_topic_creation=False)
    answers = {topic.name: topic.error_code for topic in client.call(request, 12).topics}
    return [answers[topic.name] for topic in topics]


def metadata_creating(client: RawClient, names: Names) -> Codes:
    topics = [metadata.MetadataRequestTopic(name=names.topic + "-new")]
    return [client.call(metadata.MetadataRequest(topics=topics), 12).topics[0].error_code]


def metadata_by_id(client: RawClient, names: Names) -> Codes:
    topics = [metadata.MetadataRequestTopic(name=None, topic_id=names.topic_id)]
    (topic,) = client.call(metadata.MetadataRequest(topics=topics), 12).topics
    return [topic.error_code, int(topic.name == names.topic)]


def metadata_of_all(client: RawClient, names: Names) -> Codes:
    """Count the topics in Metadata, of the two that a case may or may not see."""
    answer = client.call(metadata.MetadataRequest(topics=None), 12)
    return [len({topic.name for topic in answer.topics} & {names.topic, "shared"})]


def operations(client: RawClient, names: Names) -> Codes:
    topics = [metadata.MetadataRequestTopic(name=names.topic)]
    request = metadata.MetadataRequest(
        topics=topics, include_topic_authorized_operations=True, include_cluster_authorized_operations=True
    )
    answer = client.call(request, 10)
    return [answer.topics[0].topic_authorized_operations, answer.cluster_authorized_operations]


def operations_of(client: RawClient, topics: Sequence[str]) -> dict[str, int]:
    """By topic the bits of what the client may do with it, or an error code."""
    asked = [metadata.MetadataRequestTopic(name=name) for name in topics]
    request = metadata.MetadataRequest(
        topics=asked, include_topic_authorized_operations=True, allow_auto_topic_creation=False
    )
    answer = client.call(request, 10).topics
    return {topic.name: topic.error_code or topic.topic_authorized_operations for topic in answer}


def describe_cluster_(client: RawClient, names: Names) -> Codes:
    request = describe_cluster.DescribeClusterRequest(include_cluster_authorized_operations=True, endpoint_type=1)
    answer = client.call(request, 1)
    return [answer.error_code, answer.cluster_authorized_operations]


def topic_partitions(client: RawClient, names: Names) -> Codes:
    topics = [describe_topic_partitions.TopicRequest(name=names.topic)]
    request = describe_topic_partitions.DescribeTopicPartitionsRequest(topics=topics, response_partition_limit=10)
    (topic,) = client.call(request, 0).topics
    return [topic.error_code, topic.topic_authorized_operations]


def delete_records_(client: RawClient, names: Names) -> Codes:
    partitions = [delete_records.DeleteRecordsPartition(partition_index=0, offset=0)]
    topics = [delete_records.DeleteRecordsTopic(name=names.topic, partitions=partitions)]
    answer = client.call(delete_records.DeleteRecordsRequest(topics=topics, timeout_ms=30_000), 2)
    return [answer.topics[0].partitions[0].error_code]


def create_topic(client: RawClient, names: Names) -> Codes:
    wanted = create_topics.CreatableTopic(name=names.topic + "-made", num_partitions=1, replication_factor=1)
    (topic,) = client.call(create_topics.CreateTopicsRequest(topics=[wanted], validate_only=True), 7).topics
    return [topic.error_code, topic.topic_config_error_code]


def delete_topic(client: RawClient, names: Names) -> Codes:
    wanted = [delete_topics.DeleteTopicState(name=name) for name in (names.topic, names.topic + "-absent")]
    answer = client.call(delete_topics.DeleteTopicsRequest(topics=wanted, timeout_ms=30_000), 6)
    codes = {response.name: response.error_code for response in answer.responses}
    return [codes[topic.name] for topic in wanted]


def delete_topic_by_id(client: RawClient, names: Names) -> Codes:
    """(error, whether the name is told)."""
    wanted = [delete_topics.DeleteTopicState(topic_id=names.topic_id, name=None)]
    answer = client.call(delete_topics.DeleteTopicsRequest(topics=wanted, timeout_ms=30_000), 6)
    return [answer.responses[0].error_code, int(answer.responses[0].name == names.topic)]


def create_partitions_(client: RawClient, names: Names) -> Codes:
    topics = [create_partitions.CreatePartitionsTopic(name=names.topic, count=1, assignments=None)]
    request = create_partitions.CreatePartitionsRequest(topics=topics, timeout_ms=30_000)
    return [client.call(request, 3).results[0].error_code]


def describe_configs_(client: RawClient, names: Names) -> Codes:
    resources = [
        describe_configs.DescribeConfigsResource(resource_type=2, resource_name=names.topic, configuration_keys=None),
        describe_configs.DescribeConfigsResource(resource_type=4, resource_name="1", configuration_keys=None),
        describe_configs.DescribeConfigsResource(resource_type=32, resource_name=names.group, configuration_keys=None),
    ]
    answer = client.call(describe_configs.DescribeConfigsRequest(resources=resources), 4)
    codes = {result.resource_type: result.error_code for result in answer.results}
    return [codes[2], codes[4], codes[32]]


def alter_configs_(client: RawClient, names: Names) -> Codes:
    config = alter_configs.AlterableConfig(name="retention.ms", value="100000")
    resource = alter_configs.AlterConfigsResource(resource_type=2, resource_name=names.topic, configs=[config])
    answer = client.call(alter_configs.AlterConfigsRequest(resources=[resource], validate_only=True), 2)
    return [answer.responses[0].error_code]


def incremental_alter_configs_(client: RawClient, names: Names) -> Codes:
    resources = [
        incremental_alter_configs.AlterConfigsResource(
            resource_type=kind,
            resource_name=name,
            configs=[incremental_alter_configs.AlterableConfig(name=key, config_operation=0, value="50000")],
        )
        for kind, name, key in (
            (2, names.topic, "retention.ms"),
            (4, "1", "log.retention.ms"),
            (32, names.group, "consumer.session.timeout.ms"),
        )
    ]
    request = incremental_alter_configs.IncrementalAlterConfigsRequest(resources=resources, validate_only=True)
    codes = {response.resource_type: response.error_code for response in client.call(request, 1).responses}
    return [codes[2], codes[4], codes[32]]


def log_dirs(client: RawClient, names: Names) -> Codes:
    answer = client.call(describe_log_dirs.DescribeLogDirsRequest(topics=None), 4)
    return [answer.error_code, len(answer.results)]


def offset_commit_(client: RawClient, names: Names) -> Codes:
    partition = offset_commit.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    topics = [
        offset_commit.OffsetCommitRequestTopic(name=name, partitions=[partition]) for name in (names.topic, "shared")
    ]
    request = offset_commit.OffsetCommitRequest(group_id=names.group, topics=topics)
    codes = {topic.name: topic.partitions[0].error_code for topic in client.call(request, 8).topics}
    return [codes[names.topic], codes["shared"]]


def offset_fetch_(client: RawClient, names: Names) -> Codes:
    topics = [offset_fetch.OffsetFetchRequestTopics(name=names.topic, partition_indexes=[0])]
    group = offset_fetch.OffsetFetchRequestGroup(group_id=names.group, topics=topics)
    (answer,) = client.call(offset_fetch.OffsetFetchRequest(groups=[group]), 8).groups
    return [answer.error_code, *(topic.partitions[0].error_code for topic in answer.topics)]


def offset_fetch_old(client: RawClient, names: Names) -> Codes:
    topics = [offset_fetch.OffsetFetchRequestTopic(name=names.topic, partition_indexes=[0])]
    answer = client.call(offset_fetch.OffsetFetchRequest(group_id=names.group, topics=topics), 5)
    return [answer.error_code, *(topic.partitions[0].error_code for topic in answer.topics)]


def join_group_(client: RawClient, names: Names) -> Codes:
    protocol = join_group.JoinGroupRequestProtocol(name="range", metadata=b"")
    request = join_group.JoinGroupRequest(
        group_id=names.group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[protocol],
    )
    return [client.call(request, version).error_code for version in (5, 9)]


def sync_group_(client: RawClient, names: Names) -> Codes:
    request = sync_group.SyncGroupRequest(group_id=names.group, generation_id=1, member_id="nobody")
    return [client.call(request, 4).error_code]


def heartbeat_(client: RawClient, names: Names) -> Codes:
    request = heartbeat.HeartbeatRequest(group_id=names.group, generation_id=1, member_id="nobody")
    return [client.call(request, 4).error_code]


def leave_group_(client: RawClient, names: Names) -> Codes:
    members = [leave_group.MemberIdentity(member_id="nobody")]
    answer = client.call(leave_group.LeaveGroupRequest(group_id=names.group, members=members), 4)
    return [answer.error_code, *(member.error_code for member in answer.members)]


def describe_group(client: RawClient, names: Names) -> Codes:
    request = describe_groups.DescribeGroupsRequest(groups=[names.group], include_authorized_operations=True)
    (group,) = client.call(request, 5).groups
    return [group.error_code, group.authorized_operations]


def list_groups_(client: RawClient, names: Names) -> Codes:
    """Return the error code and the number of listed groups with the own id. Committing creates the group."""
    answer = client.call(list_groups.ListGroupsRequest(), 4)
    return [answer.error_code, sum(group.group_id == names.group for group in answer.groups)]


def delete_group(client: RawClient, names: Names) -> Codes:
    names_asked = [names.group, names.group + "-other"]
    answer = client.call(delete_groups.DeleteGroupsRequest(groups_names=names_asked), 2)
    codes = {result.group_id: result.error_code for result in answer.results}
    return [codes[name] for name in names_asked]


def offset_delete_(client: RawClient, names: Names) -> Codes:
    partition = offset_delete.OffsetDeleteRequestPartition(partition_index=0)
    topics = [offset_delete.OffsetDeleteRequestTopic(name=names.topic, partitions=[partition])]
    answer = client.call(offset_delete.OffsetDeleteRequest(group_id=names.group, topics=topics), 0)
    return [answer.error_code, *(topic.partitions[0].error_code for topic in answer.topics)]


def find(key_type: int, version: int) -> Callable[[RawClient, Names], Codes]:
    def ask(client: RawClient, names: Names) -> Codes:
        key = names.txn if key_type else names.group
        request = find_coordinator.FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key], key=key)
        answer = client.call(request, version)
        return [answer.coordinators[0].error_code if version >= 4 else answer.error_code]

    return ask


def init(transactional: bool, *, two_phase: bool = False, keep: bool = False) -> Callable[[RawClient, Names], Codes]:
    def ask(client: RawClient, names: Names) -> Codes:
        named = names.txn if transactional else None
        given = client.settled(lambda: client.init_producer_id(named, two_phase=two_phase, keep_prepared=keep))
        return [given.error_code]

    return ask


def end_txn_(client: RawClient, names: Names) -> Codes:
    request = end_txn.EndTxnRequest(
        transactional_id=names.txn,
        producer_id=UNKNOWN_PRODUCER.producer_id,
        producer_epoch=UNKNOWN_PRODUCER.epoch,
        committed=True,
    )
    answer = client.call(request, 5)
    return [answer.error_code, answer.producer_id]


def add_partitions(client: RawClient, names: Names) -> Codes:
    topics = [
        add_partitions_to_txn.AddPartitionsToTxnTopic(name=name, partitions=[0]) for name in (names.topic, "shared")
    ]
    request = add_partitions_to_txn.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=names.txn,
        v3_and_below_producer_id=UNKNOWN_PRODUCER.producer_id,
        v3_and_below_producer_epoch=UNKNOWN_PRODUCER.epoch,
        v3_and_below_topics=topics,
    )
    answer = client.call(request, 3).results_by_topic_v3_and_below
    codes = {topic.name: topic.results_by_partition[0].partition_error_code for topic in answer}
    return [codes[names.topic], codes["shared"]]


def add_partitions_of_brokers(client: RawClient, names: Names) -> Codes:
    topics = [add_partitions_to_txn.AddPartitionsToTxnTopic(name=names.topic, partitions=[0])]
    transaction = add_partitions_to_txn.AddPartitionsToTxnTransaction(
        transactional_id=names.txn,
        producer_id=UNKNOWN_PRODUCER.producer_id,
        producer_epoch=3,
        verify_only=True,
        topics=topics,
    )
    return [client.call(add_partitions_to_txn.AddPartitionsToTxnRequest(transactions=[transaction]), 4).error_code]


def add_offsets(client: RawClient, names: Names) -> Codes:
    request = add_offsets_to_txn.AddOffsetsToTxnRequest(
        transactional_id=names.txn, producer_id=UNKNOWN_PRODUCER.producer_id, producer_epoch=3, group_id=names.group
    )
    return [client.call(request, 3).error_code]


def txn_offset_commit_(client: RawClient, names: Names) -> Codes:
    partition = txn_offset_commit.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    topics = [txn_offset_commit.TxnOffsetCommitRequestTopic(name=names.topic, partitions=[partition])]
    request = txn_offset_commit.TxnOffsetCommitRequest(
        transactional_id=names.txn,
        group_id=names.group,
        producer_id=UNKNOWN_PRODUCER.producer_id,
        producer_epoch=3,
        topics=topics,
    )
    return [client.call(request, 3).topics[0].partitions[0].error_code]


def describe_producers_(client: RawClient, names: Names) -> Codes:
    topics = [describe_producers.TopicRequest(name=names.topic, partition_indexes=[0])]
    answer = client.call(describe_producers.DescribeProducersRequest(topics=topics), 0)
    return [answer.topics[0].partitions[0].error_code]


def describe_transaction(client: RawClient, names: Names) -> Codes:
    request = describe_transactions.DescribeTransactionsRequest(transactional_ids=[names.txn])
    return [client.call(request, 0).transaction_states[0].error_code]


def list_transactions_(client: RawClient, names: Names) -> Codes:
    answer = client.call(list_transactions.ListTransactionsRequest(), 0)
    return [answer.error_code, sum(each.transactional_id == names.txn for each in answer.transaction_states)]


def write_markers(client: RawClient, names: Names) -> Codes:
    topics = [write_txn_markers.WritableTxnMarkerTopic(name=names.topic + "-absent", partition_indexes=[0])]
    marker = write_txn_markers.WritableTxnMarker(producer_id=1, producer_epoch=1, topics=topics)
    answer = client.call(write_txn_markers.WriteTxnMarkersRequest(markers=[marker]), 1)
    return [answer.markers[0].topics[0].partitions[0].error_code]


def describe_acls_(client: RawClient, names: Names) -> Codes:
    request = describe_acls.DescribeAclsRequest(
        resource_type_filter=ResourceType.TRANSACTIONAL_ID,
        resource_name_filter=names.txn,
        pattern_type_filter=3,
        operation=1,
        permission_type=1,
    )
    answer = client.call(request, 3)
    return [answer.error_code, len(answer.resources)]


def create_acl(client: RawClient, names: Names) -> Codes:
    creation = create_acls.AclCreation(
        resource_type=ResourceType.TOPIC,
        resource_name=names.topic,
        principal="User:somebody-else",
        host="*",
        operation=Operation.READ,
        permission_type=3,
    )
    return [client.call(create_acls.CreateAclsRequest(creations=[creation]), 3).results[0].error_code]


def delete_acl(client: RawClient, names: Names) -> Codes:
    doomed = delete_acls.DeleteAclsFilter(
        resource_type_filter=ResourceType.TRANSACTIONAL_ID,
        resource_name_filter=names.txn,
        pattern_type_filter=3,
        operation=1,
        permission_type=1,
    )
    answer = client.call(delete_acls.DeleteAclsRequest(filters=[doomed]), 3)
    return [answer.filter_results[0].error_code, len(answer.filter_results[0].matching_acls)]


def describe_users(client: RawClient, names: Names) -> Codes:
    users = [describe_user_scram_credentials.UserName(name=names.txn)]
    request = describe_user_scram_credentials.DescribeUserScramCredentialsRequest(users=users)
    answer = client.call(request, 0)
    return [answer.error_code, answer.results[0].error_code]


def alter_users(client: RawClient, names: Names) -> Codes:
    deletion = alter_user_scram_credentials.ScramCredentialDeletion(name=names.txn, mechanism=1)
    request = alter_user_scram_credentials.AlterUserScramCredentialsRequest(deletions=[deletion])
    return [client.call(request, 0).results[0].error_code]


def reassign(client: RawClient, names: Names) -> Codes:
    partition = alter_partition_reassignments.ReassignablePartition(partition_index=0, replicas=[1])
    topic = alter_partition_reassignments.ReassignableTopic(name=names.topic, partitions=[partition])
    answer = client.call(alter_partition_reassignments.AlterPartitionReassignmentsRequest(topics=[topic]), 1)
    return [answer.error_code, answer.responses[0].partitions[0].error_code]


def reassignments(client: RawClient, names: Names) -> Codes:
    request = list_partition_reassignments.ListPartitionReassignmentsRequest(topics=None)
    return [client.call(request, 0).error_code]


def quorum(client: RawClient, names: Names) -> Codes:
    partition = describe_quorum.PartitionData(partition_index=0)
    topic = describe_quorum.TopicData(topic_name="__cluster_metadata", partitions=[partition])
    answer = client.call(describe_quorum.DescribeQuorumRequest(topics=[topic]), 2)
    return [answer.error_code, len(answer.topics)]


def config_resources(client: RawClient, names: Names) -> Codes:
    answer = client.call(list_config_resources.ListConfigResourcesRequest(resource_types=[4]), 1)
    return [answer.error_code, len(answer.config_resources)]


def unregister(client: RawClient, names: Names) -> Codes:
    return [client.call(unregister_broker.UnregisterBrokerRequest(broker_id=2), 0).error_code]


def token(client: RawClient, names: Names) -> Codes:
    return [client.call(create_delegation_token.CreateDelegationTokenRequest(), 3).error_code]


def update_features_(client: RawClient, names: Names) -> Codes:
    request = update_features.UpdateFeaturesRequest(timeout_ms=30_000, validate_only=True)
    return [client.call(request, 1).error_code]


def elect_leaders_(client: RawClient, names: Names) -> Codes:
    wanted = [elect_leaders.TopicPartitions(topic=names.topic, partitions=[0])]
    answer = client.call(elect_leaders.ElectLeadersRequest(topic_partitions=wanted), 2)
    return [answer.error_code, answer.replica_election_results[0].partition_result[0].error_code]


def consumer_heartbeat(client: RawClient, names: Names) -> Codes:
    request = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
        group_id=names.group,
        member_id="m",
        member_epoch=7,
        subscribed_topic_names=[names.topic],
        topic_partitions=None,
    )
    return [client.call(request, 1).error_code]


def start_transaction(client: RawClient, names: Names) -> None:
    """Let there be a transactional id."""
    client.start_producer(names.txn)


def join_consumer_group(client: RawClient, names: Names) -> None:
    """Make a member of the group that subscribes to the topic."""
    request = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
        group_id=names.group,
        member_id="m",
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=[names.topic],
        topic_partitions=[],
    )
    answer = client.call(request, 1)
    if answer.error_code:
        raise ValueError(answer)


def consumer_describe(client: RawClient, names: Names) -> Codes:
    request = consumer_group_describe.ConsumerGroupDescribeRequest(group_ids=[names.group])
    (group,) = client.call(request, 0).groups
    return [group.error_code, len(group.members)]
