"""Requests at the end of a run, and again after a restart of both brokers, about all state that must survive."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from fencepost.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from fencepost.protocol.messages.describe_acls import DescribeAclsRequest
from fencepost.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest
from fencepost.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from fencepost.protocol.messages.describe_groups import DescribeGroupsRequest
from fencepost.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from fencepost.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from fencepost.protocol.messages.describe_transactions import DescribeTransactionsRequest
from fencepost.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from fencepost.protocol.messages.list_groups import ListGroupsRequest
from fencepost.protocol.messages.list_transactions import ListTransactionsRequest
from fencepost.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from fencepost.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from fencepost.protocol.messages.share_group_describe import ShareGroupDescribeRequest

GROUPS = ("classic", "consumer", "plain", "share")
PRODUCERS = ("txn-1", "txn-2")


def left_behind(run: str, topics: Sequence[str]) -> Iterator[tuple[Any, int]]:
    """(request, version)"""
    groups = [f"{run}-{group}" for group in GROUPS]
    ids = [f"{run}-{producer}" for producer in PRODUCERS]
    named = [MetadataRequestTopic(name=topic) for topic in topics]
    yield MetadataRequest(topics=named, allow_auto_topic_creation=False), 12
    for topic in topics:
        yield DescribeConfigsRequest(resources=[DescribeConfigsResource(resource_type=2, resource_name=topic)]), 4
        yield DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[0, 1])]), 0
    yield ListGroupsRequest(), 5
    yield DescribeGroupsRequest(groups=groups), 6
    yield ConsumerGroupDescribeRequest(group_ids=groups), 1
    yield ShareGroupDescribeRequest(group_ids=groups), 1
    for group in groups:
        yield OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)]), 8
        share = DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=None)
        yield DescribeShareGroupOffsetsRequest(groups=[share]), 0
    yield ListTransactionsRequest(), 1
    yield DescribeTransactionsRequest(transactional_ids=ids), 0
    yield DescribeAclsRequest(resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1), 3
    yield DescribeClientQuotasRequest(components=[]), 1
    yield DescribeUserScramCredentialsRequest(users=None), 0
