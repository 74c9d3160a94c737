"""The broker's own topics are closed to clients. Expected: what Apache Kafka 4.4 answers; both arms are asked."""

from __future__ import annotations

import pytest

from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from fencepost.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from fencepost.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from fencepost_lab.torture.broker_process import BrokerProcess
from tests.support.brokers import BrokerUnderTest
from tests.support.raw_client import Producer, RawClient
from tests.support.txn_requests import add_partitions, batched, write_marker

TRANSACTIONS, OFFSETS, METADATA = "__transaction_state", "__consumer_offsets", "__cluster_metadata"
DENIED, UNKNOWN, NOT_ATTEMPTED = 29, 3, 55


@pytest.mark.parametrize("version", [0, 1, 2, 3])
@pytest.mark.parametrize(("internal", "code"), [(TRANSACTIONS, DENIED), (OFFSETS, DENIED), (METADATA, UNKNOWN)])
def test_no_client_enlists_them(
    broker: BrokerUnderTest, client: RawClient, internal: str, code: int, version: int
) -> None:
    name, topic = broker.name("txn"), client.create_topic(broker.name("t"))
    client.find_coordinators()
    me = client.start_producer(name)
    asked = [(internal, 0), (internal, 999), (topic, 0)]
    expected = {(internal, 0): code, (internal, 999): code, (topic, 0): NOT_ATTEMPTED}
    assert add_partitions(client, name, me, asked, version) == expected
    assert client.describe_transaction(name).transaction_state == "Empty"


@pytest.mark.parametrize(("internal", "code"), [(TRANSACTIONS, 17), (OFFSETS, 17), (METADATA, 3)])
def test_no_client_writes_or_cuts_them(broker: BrokerUnderTest, client: RawClient, internal: str, code: int) -> None:
    client.find_coordinators()
    me = client.start_producer(name := broker.name("txn"))
    assert client.produce(internal, [b"x"]).error_code == code
    assert client.produce(internal, [b"x"], transactional_id=name, producer=me, sequence=0).error_code == code
    if broker.is_ours:  # Kafka refuses the batch, but has enlisted the partition by then
        assert client.describe_transaction(name).transaction_state == "Empty"
    partition = DeleteRecordsPartition(partition_index=0, offset=0)
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=internal, partitions=[partition])], timeout_ms=5000)
    assert client.call(request, 2).topics[0].partitions[0].error_code == code


@pytest.mark.parametrize(("internal", "code"), [(TRANSACTIONS, 36), (OFFSETS, 36), (METADATA, 42)])
def test_no_client_creates_them(client: RawClient, internal: str, code: int) -> None:
    client.find_coordinators()
    wanted = CreatableTopic(name=internal, num_partitions=1, replication_factor=1)
    assert client.call(CreateTopicsRequest(topics=[wanted], timeout_ms=5000), 7).topics[0].error_code == code


def test_metadata_does_not_create_the_metadata_log(client: RawClient) -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=METADATA)], allow_auto_topic_creation=True)
    assert client.call(request, 12).topics[0].error_code == UNKNOWN


@pytest.mark.parametrize("version", [1, 2])
def test_markers_for_offsets_only(broker: BrokerUnderTest, client: RawClient, version: int) -> None:
    """An operator may end a hanging transaction of offsets. Kafka lets a marker into the coordinator's log, too."""
    client.find_coordinators()
    unknown_producer = Producer(900_000 + version, 1)
    assert write_marker(client, OFFSETS, unknown_producer, commit=False, version=version) == 0
    assert write_marker(client, METADATA, unknown_producer, commit=False, version=version) == UNKNOWN
    if broker.is_ours:
        assert write_marker(client, TRANSACTIONS, unknown_producer, commit=False, version=version) == DENIED


@pytest.mark.parametrize("version", [4, 5])
def test_not_as_another_broker_either(broker: BrokerUnderTest, client: RawClient, version: int) -> None:
    """AddPartitionsToTxn v4-5 is for brokers; Kafka believes them, here they are anybody."""
    client.find_coordinators()
    me = client.start_producer(name := broker.name("txn"))
    if broker.is_ours:
        for internal in (TRANSACTIONS, OFFSETS):
            assert batched(client, [(name, me, internal, False)], version) == {name: {internal: DENIED}}
    assert batched(client, [(name, me, METADATA, False)], version) == {name: {METADATA: UNKNOWN}}
    assert client.describe_transaction(name).transaction_state == "Empty"


def test_a_broker_that_was_asked_for_all_this_starts_again() -> None:
    running = BrokerProcess({})
    running.start()
    try:
        broker = BrokerUnderTest("fencepost", running)
        with broker.connect() as client:
            client.find_coordinators()
            me = client.start_producer("shop")
            for internal in (TRANSACTIONS, OFFSETS):
                assert add_partitions(client, "shop", me, [(internal, 0)])[internal, 0] == DENIED
            assert write_marker(client, TRANSACTIONS, me, commit=True) == DENIED
            assert write_marker(client, OFFSETS, Producer(7, 1), commit=True) == 0
            assert client.end_transaction("shop", me, commit=True, version=3).error_code in (
                0,
                ErrorCode.INVALID_TXN_STATE,
            )
        running.kill()
        running.start()
        with broker.connect() as client:
            assert client.describe_transaction("shop").transaction_state in ("Empty", "CompleteCommit")
    finally:
        running.stop()
