"""Requests that only a broken client sends. The answers differ from Kafka's, as the docs say."""

from __future__ import annotations

from fencepost.broker.embedded import Broker
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages import alter_client_quotas as quotas
from fencepost.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from fencepost.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tests.support.batches import batch
from tests.support.raw_client import Producer, RawClient
from tests.support.txn_requests import commit_offsets


def test_a_transactional_batch_needs_a_producer_and_an_epoch() -> None:
    with Broker() as broker, RawClient(broker.bootstrap_servers) as client:
        client.create_topic("t")
        nobody = client.produce("t", [b"v"], transactional_id="txn", producer=Producer(-1, -1), sequence=-1)
        assert nobody.error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        without_epoch = client.produce("t", [b"v"], producer=Producer(7, -1), sequence=0)
        assert without_epoch.error_code == ErrorCode.INVALID_PRODUCER_EPOCH
        assert client.end_offset("t") == 0


def test_a_transaction_without_partitions_is_none() -> None:
    with Broker() as broker, RawClient(broker.bootstrap_servers) as client:
        producer = client.start_producer("txn")
        nothing = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="txn",
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.epoch,
        )
        assert client.call(nothing, 3).results_by_topic_v3_and_below == []
        assert client.describe_transaction("txn").transaction_state == "Empty"


def test_a_transactional_id_that_stands_twice() -> None:
    with Broker() as broker, RawClient(broker.bootstrap_servers) as client:
        producer = client.start_producer("txn")
        parts = [
            AddPartitionsToTxnTransaction(
                transactional_id="txn",
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                topics=[AddPartitionsToTxnTopic(name=client.create_topic(name), partitions=[0])],
            )
            for name in ("a", "b")
        ]
        answer = client.call(AddPartitionsToTxnRequest(transactions=parts), 5).results_by_transaction
        assert [result.topic_results[0].name for result in answer] == ["a", "b"]


def test_offsets_under_another_transactional_id() -> None:
    with Broker() as broker, RawClient(broker.bootstrap_servers) as client:
        topic, producer = client.create_topic("t"), client.start_producer("txn")
        assert commit_offsets(client, "txn", producer, "g", topic, 1) == 0
        assert commit_offsets(client, "another", producer, "g", topic, 2) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert commit_offsets(client, "", producer, "g", topic, 2) == ErrorCode.INVALID_REQUEST


def test_bytes_behind_a_batch() -> None:
    with Broker() as broker, RawClient(broker.bootstrap_servers) as client:
        assert client.produce(client.create_topic("t"), batch(b"v") + b"xx").error_code == ErrorCode.INVALID_RECORD


def test_names_that_collide_within_a_request() -> None:
    with Broker() as broker, RawClient(broker.bootstrap_servers) as client:
        named = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in ("a.b", "a_b")]
        codes = [topic.error_code for topic in client.call(CreateTopicsRequest(topics=named), 7).topics]
        assert codes == [0, ErrorCode.INVALID_TOPIC_EXCEPTION]


def test_a_quota_that_is_no_number() -> None:
    with Broker() as broker, RawClient(broker.bootstrap_servers) as client:
        op = quotas.OpData(key="producer_byte_rate", value=float("nan"), remove=False)
        entry = quotas.EntryData(entity=[quotas.EntityData(entity_type="user", entity_name="u")], ops=[op])
        (answer,) = client.call(quotas.AlterClientQuotasRequest(entries=[entry]), 1).entries
        assert answer.error_code == ErrorCode.INVALID_REQUEST
