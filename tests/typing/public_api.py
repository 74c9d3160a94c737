"""Not run: what users write, checked by mypy and pyright with their strictest settings. `reveal`s are assert_type."""

from __future__ import annotations

from typing import assert_type

import pyarrow as pa

import fencepost
from fencepost.client.admin import Acl, AclFilter, AclOperation, ConfigEntry, GroupDescription, LogDir, ResourceType
from fencepost.client.blocking import BulkDelivery, Delivery
from fencepost.client.interceptors import OutgoingRecord
from fencepost.client.metrics import PrometheusCollector
from fencepost.client.sasl import OAuthToken
from fencepost.errors import AbortableError, KafkaError, ProduceFailedError


def produce(table: pa.Table) -> None:
    with fencepost.Producer("localhost:9092", linger_ms=20, compression_type="zstd") as producer:
        assert_type(producer, fencepost.Producer)
        delivery = producer.send("t", b"v", key=b"k", headers=[("a", b"1"), ("b", None)], timestamp_ms=1)
        assert_type(delivery, Delivery)
        assert_type(delivery.result(10), fencepost.RecordMetadata)
        assert_type(delivery.result().offset, int)
        assert_type(delivery.exception(), KafkaError | None)
        assert_type(producer.send_arrow("t", table), BulkDelivery)
        assert_type(producer.metrics(), dict[str, float])
        assert_type(producer.partitions_for("t"), list[int])
        producer.flush(1000)


def callbacks(producer: fencepost.Producer) -> None:
    def reported(error: KafkaError | None, metadata: fencepost.RecordMetadata | None) -> None:
        if isinstance(error, ProduceFailedError):
            print(error.failure_type)

    producer.send("t", None, on_delivery=reported)


def transact(producer: fencepost.Producer, consumer: fencepost.Consumer) -> None:
    assert_type(producer.init_transactions(keep_prepared=True), fencepost.PreparedTransaction | None)
    try:
        with producer.transaction(consumer) as same:
            assert_type(same, fencepost.Producer)
            same.send("t", b"v")
    except AbortableError as error:
        assert_type(error.code, int | None)
    assert_type(producer.prepare_transaction(), fencepost.PreparedTransaction)
    assert_type(producer.complete_transaction("1:2"), bool)


def administer(admin: fencepost.Admin) -> None:
    admin.create_topic("t", 3, configs={"retention.ms": "1000"}, exist_ok=True)
    assert_type(admin.list_topics(), list[str])
    assert_type(admin.config_entries("t"), dict[str, ConfigEntry])
    assert_type(admin.describe_group("g"), GroupDescription)
    assert_type(admin.describe_log_dirs(), list[LogDir])
    assert_type(
        admin.reset_group_offsets("g", "earliest", [fencepost.TopicPartition("t", 0)]),
        dict[fencepost.TopicPartition, int],
    )
    assert_type(admin.describe_acls(AclFilter(ResourceType.TOPIC)), list[Acl])
    admin.create_acls([Acl(ResourceType.TOPIC, "t", "User:alice", AclOperation.READ)])


async def everything_async() -> None:
    async with fencepost.AsyncProducer("localhost:9092") as producer:
        delivery = await producer.send("t", b"v")
        assert_type(await delivery, fencepost.RecordMetadata)
    async with fencepost.AsyncAdmin("localhost:9092") as admin:
        assert_type(await admin.features(), dict[str, int])


def token() -> OAuthToken:
    return OAuthToken("abc", expires_at_ms=1)


class Audit:
    def on_send(self, record: OutgoingRecord) -> OutgoingRecord:
        return record._replace(headers=[("by", b"me")])

    def on_acknowledgement(self, metadata: fencepost.RecordMetadata | None, error: KafkaError | None) -> None:
        print(metadata, error)

    def close(self) -> None:
        print("closed")


def secured() -> None:
    producer = fencepost.Producer(
        ["a:9093", "b:9093"],
        security_protocol="SASL_SSL",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_provider=token,
        ssl_truststore_location="ca.pem",
        interceptors=[Audit()],
    )
    PrometheusCollector(orders=producer)
    fencepost.Producer.from_config({"bootstrap.servers": "localhost:9092", "linger.ms": "5"}).close()
