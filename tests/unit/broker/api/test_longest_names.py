"""Names as long as the protocol lets them be: what the broker makes of them, ids and messages, still fits an answer."""

from __future__ import annotations

from typing import Any

import pytest

from fencepost.broker.embedded import Broker
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResource
from fencepost.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from fencepost.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from fencepost.protocol.messages.describe_groups import DescribeGroupsRequest
from fencepost.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from tests.support.raw_client import RawClient

LONGEST = "n" * 32_767


def join(instance_id: str | None, member_id: str = "") -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id="g",
        member_id=member_id,
        group_instance_id=instance_id,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )


@pytest.mark.parametrize("instance_id", [None, LONGEST])
def test_a_member_with_a_long_name_can_be_shown(instance_id: str | None) -> None:
    """It could not: every answer that named it closed the connection that had asked."""
    with Broker() as broker:
        with RawClient(broker.bootstrap_servers, LONGEST) as client:
            joined = client.call(join(instance_id), 5)
            if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                joined = client.call(join(instance_id, joined.member_id), 5)
        assert joined.error_code == 0
        assert joined.member_id.startswith("nnn")
        with RawClient(broker.bootstrap_servers) as other:
            (group,) = other.call(DescribeGroupsRequest(groups=["g"]), 5).groups
        assert [member.member_id for member in group.members] == [joined.member_id]


SETTING = CreatableTopicConfig(name="retention.ms", value=LONGEST)


@pytest.mark.parametrize(
    ("request_", "version", "listed"),
    [
        (DescribeGroupsRequest(groups=[LONGEST]), 6, "groups"),
        (ConsumerGroupDescribeRequest(group_ids=[LONGEST]), 0, "groups"),
        (AlterConfigsRequest(resources=[AlterConfigsResource(resource_type=4, resource_name=LONGEST)]), 2, "responses"),
        (
            CreateTopicsRequest(
                topics=[CreatableTopic(name="t", num_partitions=1, replication_factor=1, configs=[SETTING])]
            ),
            7,
            "topics",
        ),
    ],
)
def test_a_refusal_that_names_it_is_told(request_: Any, version: int, listed: str) -> None:
    with Broker() as broker, RawClient(broker.bootstrap_servers) as client:
        (result,) = getattr(client.call(request_, version), listed)
    assert result.error_code != 0
    assert 500 < len(result.error_message) < 1_100
