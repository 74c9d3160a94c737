"""What only a broken client sends in the name of a producer: answered otherwise than by Kafka, as the docs say."""

from __future__ import annotations

from fencepost.broker.embedded import Broker
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from tests.support.raw_client import Producer, RawClient


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
