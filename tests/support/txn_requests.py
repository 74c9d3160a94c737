"""Transactional requests in any version, as one call each: error codes as they came, no retries but on passing ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fencepost.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from fencepost.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from fencepost.protocol.messages.describe_producers import DescribeProducersRequest, ProducerState, TopicRequest
from fencepost.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from fencepost.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from fencepost.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tests.support.raw_client import PASSING, Producer, RawClient


def add_partitions(
    client: RawClient, name: str, me: Producer, partitions: Sequence[tuple[str, int]], version: int = 3
) -> dict[tuple[str, int], int]:
    """AddPartitionsToTxn v0-3: the error code of each partition."""
    topics = [AddPartitionsToTxnTopic(name=topic, partitions=[index]) for topic, index in partitions]
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=me.producer_id,
        v3_and_below_producer_epoch=me.epoch,
        v3_and_below_topics=topics,
    )
    answer = client.call(request, version)
    return {
        (topic.name, partition.partition_index): partition.partition_error_code
        for topic in answer.results_by_topic_v3_and_below
        for partition in topic.results_by_partition
    }


def add_partition(client: RawClient, name: str, me: Producer, topic: str, version: int = 3, partition: int = 0) -> int:
    """The same for one partition, repeated while the answer is a passing one."""
    while (code := add_partitions(client, name, me, [(topic, partition)], version)[topic, partition]) in PASSING:
        continue
    return code


def batched(
    client: RawClient, asked: Sequence[tuple[str, Producer, str, bool]], version: int = 5
) -> dict[str, dict[str, int]]:
    """AddPartitionsToTxn v4-5 of (transactional id, producer, topic, verify only): codes by id and topic."""
    transactions = [
        AddPartitionsToTxnTransaction(
            transactional_id=name,
            producer_id=me.producer_id,
            producer_epoch=me.epoch,
            verify_only=verify_only,
            topics=[AddPartitionsToTxnTopic(name=topic, partitions=[0])],
        )
        for name, me, topic, verify_only in asked
    ]
    answer = client.call(AddPartitionsToTxnRequest(transactions=transactions), version)
    assert answer.error_code == 0
    return {
        result.transactional_id: {
            topic.name: topic.results_by_partition[0].partition_error_code for topic in result.topic_results
        }
        for result in answer.results_by_transaction
    }


def add_offsets(client: RawClient, name: str, me: Producer, group: str, version: int = 4) -> int:
    request = AddOffsetsToTxnRequest(
        transactional_id=name, producer_id=me.producer_id, producer_epoch=me.epoch, group_id=group
    )
    return int(client.settled(lambda: client.call(request, version)).error_code)


def commit_offsets(
    client: RawClient, name: str, me: Producer, group: str, topic: str, offset: int = 5, version: int = 5
) -> int:
    """TxnOffsetCommit of partition 0 without a member."""
    partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
    request = TxnOffsetCommitRequest(
        transactional_id=name,
        group_id=group,
        producer_id=me.producer_id,
        producer_epoch=me.epoch,
        topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=[partition])],
    )

    def ask() -> Any:
        return client.call(request, version).topics[0].partitions[0]

    return int(client.settled(ask).error_code)


def end_once(client: RawClient, name: str, me: Producer, *, commit: bool, version: int = 5) -> EndTxnResponse:
    """EndTxn, once: 51 as it comes."""
    request = EndTxnRequest(
        transactional_id=name, producer_id=me.producer_id, producer_epoch=me.epoch, committed=commit
    )
    answer: EndTxnResponse = client.call(request, version)
    return answer


def write_marker(
    client: RawClient,
    topic: str,
    me: Producer,
    *,
    commit: bool,
    partition: int = 0,
    version: int = 2,
    transaction_version: int = 0,
    coordinator_epoch: int = 0,
) -> int:
    """WriteTxnMarkers of one marker for one partition."""
    marker = WritableTxnMarker(
        producer_id=me.producer_id,
        producer_epoch=me.epoch,
        transaction_result=commit,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[partition])],
        coordinator_epoch=coordinator_epoch,
        transaction_version=transaction_version,
    )
    answer = client.call(WriteTxnMarkersRequest(markers=[marker]), version)
    return int(answer.markers[0].topics[0].partitions[0].error_code)


def producers(client: RawClient, topic: str, partition: int = 0) -> list[ProducerState]:
    """DescribeProducers of a partition that is there."""
    request = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[partition])])
    (found,) = client.call(request, 0).topics[0].partitions
    assert found.error_code == 0
    return list(found.active_producers)
