"""librdkafka, through confluent-kafka, against the embedded broker: what its users do, judged by what they see."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    ElectionType,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka import admin as _admin

from fencepost.broker.embedded import Broker

admin_api: Any = _admin  # its names are imported there without being exported, as type checkers see it

_numbers = itertools.count()


@pytest.fixture(scope="module", params=["never", "commit"])
def servers(request: pytest.FixtureRequest) -> Iterator[str]:
    with Broker({"log.retention.ms": -1}, fsync=request.param) as broker:
        yield broker.bootstrap_servers


class Kit:
    """Clients of one broker, closed at the end of the test."""

    def __init__(self, servers: str) -> None:
        self.servers = servers
        self.admin = admin_api.AdminClient({"bootstrap.servers": servers, "log_level": 0})
        self.consumers: list[Any] = []

    def name(self, prefix: str = "x") -> str:
        return f"{prefix}-{next(_numbers)}"

    def topic(self, partitions: int = 1, **config: str) -> str:
        name = self.name("topic")
        wanted = admin_api.NewTopic(
            name, partitions, 1, config={key.replace("_", "."): value for key, value in config.items()}
        )
        self.admin.create_topics([wanted])[name].result(120)
        return name

    def producer(self, **config: Any) -> Any:
        own = {"bootstrap.servers": self.servers, "linger.ms": 1, "log_level": 0}
        return Producer({**own, **{key.replace("_", "."): value for key, value in config.items()}})

    def consumer(self, **config: Any) -> Any:
        own = {
            "bootstrap.servers": self.servers,
            "group.id": self.name("group"),
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
        given = {key.replace("_", "."): value for key, value in config.items()}
        consumer = Consumer({**own, "enable.auto.commit": False, "fetch.wait.max.ms": 50, **given})
        self.consumers.append(consumer)
        return consumer

    def read(self, topic: str, partitions: int = 1, isolation: str = "read_committed") -> list[Any]:
        """Everything up to the end of each partition."""
        consumer = self.consumer(isolation_level=isolation, enable_partition_eof=True)
        consumer.assign([TopicPartition(topic, index, OFFSET_BEGINNING) for index in range(partitions)])
        found: list[Any] = []
        ended: set[int] = set()
        give_up = time.monotonic() + 120
        while len(ended) < partitions:
            assert time.monotonic() < give_up, "the end was not reached"
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                found.append(message)
            elif message is not None:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                ended.add(message.partition())
        return found


@pytest.fixture
def kit(servers: str) -> Iterator[Kit]:
    kit = Kit(servers)
    yield kit
    for consumer in kit.consumers:
        consumer.close()


def values(messages: list[Any]) -> list[bytes]:
    return [message.value() for message in messages]


def fails(action: Callable[[], object]) -> int:
    with pytest.raises(KafkaException) as caught:
        action()
    return int(caught.value.args[0].code())


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_round_trip(kit: Kit, codec: str) -> None:
    topic, producer = kit.topic(2), kit.producer(compression_type=codec)
    for number in range(500):
        headers = [("a", b"1"), ("b", None)]
        producer.produce(
            topic, str(number), key=f"k{number}", partition=number % 2, timestamp=1_700_000_000_000, headers=headers
        )
    assert producer.flush(120) == 0
    found = kit.read(topic, 2)
    assert sorted(int(message.value()) for message in found) == list(range(500))
    for message in found:
        assert int(message.value()) == 2 * message.offset() + message.partition()
        assert message.key() == b"k" + message.value()
        assert message.headers() == [("a", b"1"), ("b", None)]
        assert message.timestamp()[1] == 1_700_000_000_000


def test_nulls_and_empty_values_are_told_apart(kit: Kit) -> None:
    topic, producer = kit.topic(), kit.producer()
    producer.produce(topic)
    producer.produce(topic, b"", key=b"")
    assert producer.flush(120) == 0
    assert [(message.key(), message.value()) for message in kit.read(topic)] == [(None, None), (b"", b"")]


def test_idempotent_producer_keeps_order(kit: Kit) -> None:
    topic, producer = kit.topic(), kit.producer(enable_idempotence=True, linger_ms=0, batch_num_messages=7)
    for number in range(1000):
        producer.produce(topic, str(number))
    assert producer.flush(120) == 0
    assert values(kit.read(topic)) == [str(number).encode() for number in range(1000)]


def test_a_batch_that_is_too_large(kit: Kit) -> None:
    topic, producer, errors = kit.topic(max_message_bytes="2000"), kit.producer(), []
    producer.produce(topic, b"x" * 5000, on_delivery=lambda error, _: errors.append(error))
    producer.flush(120)
    assert [error.code() for error in errors] == [KafkaError.MSG_SIZE_TOO_LARGE]


def test_transactions(kit: Kit) -> None:
    topic, producer = kit.topic(2), kit.producer(transactional_id=kit.name())
    producer.init_transactions(10)
    for turn in range(6):
        producer.begin_transaction()
        for index in range(2):
            producer.produce(topic, f"{turn}", partition=index)
        if turn % 2:
            producer.flush(120)
            producer.abort_transaction(10)
        else:
            producer.commit_transaction(10)
    assert sorted(values(kit.read(topic, 2))) == [b"0", b"0", b"2", b"2", b"4", b"4"]
    assert len(kit.read(topic, 2, "read_uncommitted")) == 12


def test_an_open_transaction_is_not_seen_and_hides_what_follows(kit: Kit) -> None:
    topic, producer, other = kit.topic(), kit.producer(transactional_id=kit.name()), kit.producer()
    producer.init_transactions(10)
    producer.begin_transaction()
    producer.produce(topic, b"open")
    assert producer.flush(120) == 0
    other.produce(topic, b"after")
    assert other.flush(120) == 0
    assert kit.read(topic) == []
    assert values(kit.read(topic, isolation="read_uncommitted")) == [b"open", b"after"]
    producer.commit_transaction(10)
    assert values(kit.read(topic)) == [b"open", b"after"]


def test_a_second_producer_fences_the_first(kit: Kit) -> None:
    topic, name = kit.topic(), kit.name()
    first, second = kit.producer(transactional_id=name), kit.producer(transactional_id=name)
    first.init_transactions(10)
    first.begin_transaction()
    first.produce(topic, b"zombie")
    assert first.flush(120) == 0
    second.init_transactions(10)
    second.begin_transaction()
    second.produce(topic, b"new")
    assert fails(lambda: first.commit_transaction(10)) == KafkaError._FENCED
    second.commit_transaction(10)
    assert values(kit.read(topic)) == [b"new"]


def test_a_timed_out_producer_goes_on_after_an_abort(kit: Kit) -> None:
    """KIP-588: librdkafka bumps its epoch and its next transaction commits, on the same producer."""
    topic, producer = kit.topic(), kit.producer(transactional_id=kit.name(), transaction_timeout_ms=1000)
    producer.init_transactions(10)
    producer.begin_transaction()
    producer.produce(topic, b"late")
    assert producer.flush(120) == 0
    time.sleep(1.3)
    with pytest.raises(KafkaException) as caught:
        producer.commit_transaction(10)
    assert caught.value.args[0].txn_requires_abort()
    producer.abort_transaction(10)
    producer.begin_transaction()
    producer.produce(topic, b"again")
    producer.commit_transaction(10)
    assert values(kit.read(topic)) == [b"again"]


def test_offsets_are_committed_with_the_transaction(kit: Kit) -> None:
    source, target, group = kit.topic(), kit.topic(), kit.name("group")
    plain = kit.producer()
    for number in range(20):
        plain.produce(source, str(number))
    assert plain.flush(120) == 0
    consumer, producer = kit.consumer(group_id=group), kit.producer(transactional_id=kit.name())
    consumer.subscribe([source])
    producer.init_transactions(10)
    for commit in (False, True):
        messages: list[Any] = []
        while len(messages) < 20:
            messages += consumer.consume(20 - len(messages), 5)
        producer.begin_transaction()
        for message in messages:
            producer.produce(target, message.value())
        producer.send_offsets_to_transaction(
            consumer.position(consumer.assignment()), consumer.consumer_group_metadata()
        )
        if commit:
            producer.commit_transaction(10)
            break
        producer.abort_transaction(10)
        assert consumer.committed([TopicPartition(source, 0)], 10)[0].offset < 0
        consumer.seek(TopicPartition(source, 0, 0))
    assert consumer.committed([TopicPartition(source, 0)], 10)[0].offset == 20
    assert values(kit.read(target)) == [str(number).encode() for number in range(20)]


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_a_group_shares_partitions_and_moves_them(kit: Kit, strategy: str) -> None:
    topic, group = kit.topic(4), kit.name("group")
    config = {
        "group_id": group,
        "partition_assignment_strategy": strategy,
        "heartbeat_interval_ms": 100,
        "session_timeout_ms": 6000,
    }
    first, second = kit.consumer(**config), kit.consumer(**config)
    first.subscribe([topic])
    second.subscribe([topic])
    wait_for(lambda: sizes(first, second) == [2, 2])
    second.unsubscribe()
    wait_for(lambda: sizes(first, second) == [0, 4])


def sizes(*consumers: Any) -> list[int]:
    for consumer in consumers:
        consumer.poll(0.05)
    return sorted(len(consumer.assignment()) for consumer in consumers)


def wait_for(condition: Callable[[], bool], seconds: float = 15) -> None:
    give_up = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < give_up, "it did not come to that"


def test_admin(kit: Kit) -> None:
    admin, topic = kit.admin, kit.topic(2, retention_ms="100000")
    admin.create_partitions([admin_api.NewPartitions(topic, 3)])[topic].result(120)
    assert len(admin.list_topics(topic, timeout=300).topics[topic].partitions) == 3
    change = admin_api.ConfigEntry("retention.ms", "5", incremental_operation=admin_api.AlterConfigOpType.SET)
    resource = admin_api.ConfigResource(admin_api.ConfigResource.Type.TOPIC, topic, incremental_configs=[change])
    admin.incremental_alter_configs([resource])[resource].result(120)
    assert admin.describe_configs([resource])[resource].result(120)["retention.ms"].value == "5"
    assert (
        fails(lambda: admin.create_topics([admin_api.NewTopic(topic, 1, 1)])[topic].result(120))
        == KafkaError.TOPIC_ALREADY_EXISTS
    )
    admin.delete_topics([topic])[topic].result(120)
    wait_for(lambda: topic not in admin.list_topics(timeout=300).topics)


def test_offsets_by_time_and_deleted_records(kit: Kit) -> None:
    topic, producer = kit.topic(), kit.producer()
    for number in range(100):
        producer.produce(topic, str(number), timestamp=1_700_000_000_000 + 1000 * number)
    assert producer.flush(120) == 0
    partition = TopicPartition(topic, 0)
    found = kit.admin.list_offsets({partition: admin_api.OffsetSpec.for_timestamp(1_700_000_050_001)})[
        partition
    ].result(120)
    assert (found.offset, found.timestamp) == (51, 1_700_000_051_000)
    kit.admin.delete_records([TopicPartition(topic, 0, 40)])[TopicPartition(topic, 0, 40)].result(120)
    assert kit.consumer().get_watermark_offsets(partition, 10) == (40, 100)
    assert values(kit.read(topic))[0] == b"40"


def test_groups_are_listed_described_and_deleted(kit: Kit) -> None:
    topic, group = kit.topic(), kit.name("group")
    consumer = kit.consumer(group_id=group)
    consumer.subscribe([topic])
    wait_for(lambda: sizes(consumer) == [1])
    described = kit.admin.describe_consumer_groups([group])[group].result(120)
    assert (described.state.name, len(described.members)) == ("STABLE", 1)
    consumer.commit(offsets=[TopicPartition(topic, 0, 3)], asynchronous=False)
    assert fails(lambda: kit.admin.delete_consumer_groups([group])[group].result(120)) == KafkaError.NON_EMPTY_GROUP
    kit.consumers.remove(consumer)
    consumer.close()
    assert group in [listed.group_id for listed in kit.admin.list_consumer_groups().result(120).valid]
    kit.admin.delete_consumer_groups([group])[group].result(120)
    assert group not in [listed.group_id for listed in kit.admin.list_consumer_groups().result(120).valid]


def test_acls() -> None:
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    kinds, operation, permission = admin_api.ResourceType, admin_api.AclOperation, admin_api.AclPermissionType
    literal = admin_api.ResourcePatternType.LITERAL
    with Broker(settings) as broker:
        admin = admin_api.AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
        rule = admin_api.AclBinding(kinds.TOPIC, "t", literal, "User:a", "*", operation.READ, permission.ALLOW)
        admin.create_acls([rule])[rule].result(120)
        wanted = admin_api.AclBindingFilter(
            kinds.TOPIC, "t", literal, None, None, admin_api.AclOperation.ANY, admin_api.AclPermissionType.ANY
        )
        assert admin.describe_acls(wanted).result(120) == [rule]
        assert admin.delete_acls([wanted])[wanted].result(120) == [rule]
        assert admin.describe_acls(wanted).result(120) == []


def test_consumer_protocol(kit: Kit) -> None:
    topic = kit.topic()
    consumer = kit.consumer(group_protocol="consumer")
    consumer.subscribe([topic])
    wait_for(lambda: sizes(consumer) == [1], 3)


def test_users_of_scram(kit: Kit) -> None:
    name, other = kit.name("user"), kit.name("user")
    credential = admin_api.ScramCredentialInfo(admin_api.ScramMechanism.SCRAM_SHA_256, 4096)
    wanted = [admin_api.UserScramCredentialUpsertion(user, credential, b"secret") for user in (name, other)]
    for future in kit.admin.alter_user_scram_credentials(wanted).values():
        future.result(120)
    found = kit.admin.describe_user_scram_credentials([name])[name].result(120)
    (info,) = found.scram_credential_infos
    assert (info.mechanism, info.iterations) == (admin_api.ScramMechanism.SCRAM_SHA_256, 4096)
    deletion = admin_api.UserScramCredentialDeletion(name, admin_api.ScramMechanism.SCRAM_SHA_256)
    kit.admin.alter_user_scram_credentials([deletion])[name].result(120)
    everybody = kit.admin.describe_user_scram_credentials().result(120)
    assert set(everybody) & {name, other} == {other}
    asked = kit.admin.describe_user_scram_credentials([name])[name]
    assert fails(lambda: asked.result(120)) == KafkaError.RESOURCE_NOT_FOUND


def test_elect_leaders(kit: Kit) -> None:
    kit.admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition(kit.topic(), 0)]).result(120)
