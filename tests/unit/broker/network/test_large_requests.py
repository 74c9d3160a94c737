"""Requests that do not fit in the broker's common receive buffer, over real sockets."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from fencepost import Admin, Broker, Consumer, GroupMetadata, Producer, TopicPartition
from fencepost.broker.api.apis import SERVED
from fencepost.protocol.codec import decode_response, encode_request
from fencepost.protocol.frame import encode_request_frame, is_flexible
from fencepost.protocol.messages.describe_transactions import DescribeTransactionsRequest
from fencepost.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from fencepost.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from fencepost.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteRequestTopic
from fencepost.protocol.messages.sasl_handshake import SaslHandshakeRequest
from fencepost.protocol.receiver import common_buffer
from fencepost.protocol.varint import write_unsigned_varint
from tests.support.broker_driver import plain_request
from tests.support.raw_client import RawClient

COMMON_BYTES = len(common_buffer())
WIDE = 5_000


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(fsync="never") as running:
        with Admin(running.bootstrap_servers) as admin:
            admin.create_topic("wide", WIDE)
        yield running


def test_messages_larger_than_the_common_buffer_are_answered(broker: Broker) -> None:
    many = [f"name-{n:08}" for n in range(8_000)]
    with RawClient(broker.bootstrap_servers) as client:
        client.find_coordinators()
        described = client.call(DescribeTransactionsRequest(transactional_ids=many), 0)
        assert [state.error_code for state in described.transaction_states] == [105] * len(many)
        topics = [MetadataRequestTopic(name=name) for name in many]
        looked_up = client.call(MetadataRequest(topics=topics, allow_auto_topic_creation=False), 9)
        assert sorted(topic.name for topic in looked_up.topics) == many
        metadata = bytes(2 * COMMON_BYTES)
        protocols = [JoinGroupRequestProtocol(name="range", metadata=metadata)]
        joined = client.call(
            JoinGroupRequest(
                group_id="g", session_timeout_ms=10_000, rebalance_timeout_ms=10_000, member_id="",
                protocol_type="consumer", protocols=protocols,
            ),
            3,
        )  # fmt: skip
        assert (joined.error_code, joined.members[0].metadata) == (0, metadata)


def test_our_client_commits_thousands_of_partitions(broker: Broker) -> None:
    offsets = {TopicPartition("wide", partition): partition + 1 for partition in range(WIDE)}
    with Consumer(broker.bootstrap_servers, group_id="plain") as consumer:
        consumer.commit(offsets)
        assert {key: it.offset for key, it in consumer.committed(list(offsets)).items()} == offsets
    with Producer(broker.bootstrap_servers, transactional_id="wide") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send_offsets_to_transaction(offsets, GroupMetadata("in-a-transaction"))
        producer.commit_transaction()
    with Admin(broker.bootstrap_servers) as admin:
        for group in ("plain", "in-a-transaction"):
            assert {key: it.offset for key, it in admin.group_offsets(group).items()} == offsets


@pytest.mark.parametrize("spare", [-9, -1, 0, 1, 9])
def test_a_frame_that_just_fits_or_just_does_not(broker: Broker, spare: int) -> None:
    def whole(metadata: bytes) -> bytes:
        request = JoinGroupRequest(
            group_id=f"fits{spare:+}", session_timeout_ms=10_000, rebalance_timeout_ms=10_000,
            protocol_type="consumer", protocols=[JoinGroupRequestProtocol(name="range", metadata=metadata)],
        )  # fmt: skip
        return encode_request_frame(11, 3, 5, None, encode_request(request, 3))[4:]

    metadata = bytes(COMMON_BYTES - 4 - len(whole(b"")) - spare)
    assert len(whole(metadata)) == COMMON_BYTES - 4 - spare
    with RawClient(broker.bootstrap_servers) as client:
        client.find_coordinators()
        answer = decode_response(11, 3, client.exchange_bare(whole(metadata))[4:])
    assert (answer.error_code, answer.members[0].metadata) == (0, metadata)


def large_body(key: int, version: int) -> bytes:
    """A request with what no schema knows of: a tagged field that is larger than the broker's common buffer."""
    body = plain_request(key, version)
    assert body[-1] == 0, "no tagged fields"
    return body[:-1] + b"\x01" + b"".join(map(write_unsigned_varint, (9_999, COMMON_BYTES))) + bytes(COMMON_BYTES)


@pytest.mark.parametrize("key", SERVED, ids=lambda key: SERVED[key].name)
def test_every_api_takes_large_frames_and_tagged_fields_of_the_future(broker: Broker, key: int) -> None:
    versions = range(SERVED[key].min_version, min(SERVED[key].max_version, 12) + 1)
    taken = 0
    for version in filter(partial(is_flexible, key), versions):
        with RawClient(broker.bootstrap_servers) as client:
            plain = client.exchange(key, version, plain_request(key, version))
            assert len(client.exchange(key, version, large_body(key, version))) == len(plain), version
        taken += 1
    assert taken > 0 or key in {17, 47}, "these two have no flexible version"


def test_large_frames_of_the_apis_without_tagged_fields(broker: Broker) -> None:
    with RawClient(broker.bootstrap_servers, client_id="x" * 32_767) as client:
        refused = client.call(SaslHandshakeRequest(mechanism="y" * 32_767), 1)
        assert refused.error_code == 34  # the listener has no SASL: it is answered as such
    topics = [OffsetDeleteRequestTopic(name=f"missing-{n:05}") for n in range(COMMON_BYTES // 10)]
    with RawClient(broker.bootstrap_servers) as client:
        client.find_coordinators()
        assert client.call(OffsetDeleteRequest(group_id="nobody", topics=topics), 0).error_code == 69
