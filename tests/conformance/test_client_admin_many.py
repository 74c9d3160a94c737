"""Admin calls about many items, and the calls of the peers' admin clients, against both brokers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import fencepost
from fencepost.client.admin import (
    DEFAULT_ENTITY,
    AclOperation,
    ConfigChange,
    ConfigOperation,
    ConfigResource,
    ElectionType,
    FeatureUpdate,
    NewTopic,
    QuotaEntity,
    ShareOffset,
    UpgradeType,
)
from fencepost.errors import (
    BrokerError,
    ConfigurationError,
    GroupConfigurationError,
    InvalidTopicError,
    ItemsFailedError,
    RetriableBrokerError,
    TopicAlreadyExistsError,
    UsageError,
)
from tests.support.brokers import BrokerUnderTest
from tests.support.waiting import until

TP = fencepost.TopicPartition
MANY = 40
GROUP_OPERATIONS = frozenset(
    {
        AclOperation.READ,
        AclOperation.DELETE,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    }
)


@contextmanager
def some_fail() -> Iterator[pytest.ExceptionInfo[ItemsFailedError]]:
    with pytest.raises(ItemsFailedError) as caught:
        yield caught
    assert not caught.value.outcome_unknown


def test_many_topics_in_one_request(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    names = [broker.name(f"many-{number}") for number in range(MANY)]
    created = admin.create_topics([NewTopic(names[0], 3, 1, {"retention.ms": "123456"}), *names[1:]])
    assert set(created) == set(names)
    assert (created[names[0]].num_partitions, created[names[0]].replication_factor) == (3, 1)
    described = admin.describe_topics(names)
    assert {name: topic.topic_id for name, topic in described.items()} == {
        name: topic.topic_id for name, topic in created.items()
    }
    assert len(described[names[0]].partitions) == 3
    assert admin.describe_configs(names[0])["retention.ms"] == "123456"
    admin.delete_topics(names)
    assert set(names).isdisjoint(admin.list_topics())


def test_a_topic_that_fails_does_not_hide_the_others(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    old, new, assigned, absent = (broker.name(kind) for kind in ("old", "new", "assigned", "absent"))
    admin.create_topic(old)
    wanted: list[NewTopic | str] = [old, "not a name", new, NewTopic(assigned, replica_assignments={0: [1], 1: [1]})]
    with some_fail() as caught:
        admin.create_topics(wanted)
    assert set(caught.value.results) == {new, assigned}
    assert {name: type(error) for name, error in caught.value.errors.items()} == {
        old: TopicAlreadyExistsError,
        "not a name": InvalidTopicError,
    }
    assert "create topics: 2 of 4 failed" in str(caught.value)
    assert len(admin.describe_topics([assigned])[assigned].partitions) == 2
    assert admin.create_topics([old, new], exist_ok=True) == {}
    with some_fail() as caught:
        admin.delete_topics([old, absent, new])
    assert set(caught.value.results) == {old, new}
    assert isinstance(caught.value.errors[absent], RetriableBrokerError)
    admin.delete_topics([old, new], missing_ok=True)
    with pytest.raises(UsageError, match="given twice"):
        admin.create_topics([old, old])


def test_topics_may_only_be_checked(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    topic = broker.name("checked")
    checked = admin.create_topics([NewTopic(topic, 4)], validate_only=True)
    assert checked[topic].num_partitions == 4
    assert topic not in admin.list_topics()
    with some_fail() as caught:
        admin.create_topics([NewTopic(topic, 1, 1, {"cleanup.policy": "none of these"})], validate_only=True)
    assert isinstance(caught.value.errors[topic], ConfigurationError)


def test_many_topics_grow(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    first, second = broker.name("one"), broker.name("other")
    admin.create_topics([NewTopic(first, 2), NewTopic(second, 2)])
    admin.create_partitions({first: 5}, validate_only=True)
    with some_fail() as caught:
        admin.create_partitions({first: 4, second: 1})
    assert set(caught.value.results) == {first}
    assert isinstance(caught.value.errors[second], InvalidTopicError)
    assert [partition.partition for partition in admin.partitions_of([first, second])] == [0, 1, 2, 3, 0, 1]


@pytest.mark.parametrize("name", ["\u00b2", "-", "-1", "1_0", "2147483648", "9" * 5_000])
def test_text_that_is_no_id_of_a_broker(admin: fencepost.Admin, name: str) -> None:
    with pytest.raises(ConfigurationError, match="is not a broker's id"):
        admin.describe_configs(name, resource_type=4)
    with pytest.raises(ConfigurationError, match="is not a broker's id"):
        admin.alter_configs(name, {"log.retention.ms": "5"}, resource_type=8)


def test_settings_of_many(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    first, second = broker.name("one"), broker.name("other")
    admin.create_topics([NewTopic(first, configs={"cleanup.policy": "delete"}), second])
    append = ConfigChange("cleanup.policy", "compact", ConfigOperation.APPEND)
    changes = {ConfigResource(first): [append], ConfigResource(second): [ConfigChange("retention.ms", "99999")]}
    admin.incremental_alter_configs(changes, validate_only=True)
    assert admin.describe_configs(first)["cleanup.policy"] == "delete"
    admin.incremental_alter_configs(changes)
    described = admin.config_entries_of([ConfigResource(first), ConfigResource(second), ConfigResource("1", 4)])
    assert described[ConfigResource(first)]["cleanup.policy"].value == "delete,compact"
    assert described[ConfigResource(second)]["retention.ms"].value == "99999"
    assert described[ConfigResource("1", 4)]["log.cleaner.enable"].value is not None
    admin.incremental_alter_configs(
        {
            ConfigResource(first): [ConfigChange("cleanup.policy", "delete", ConfigOperation.SUBTRACT)],
            ConfigResource(second): [ConfigChange("retention.ms", operation=ConfigOperation.DELETE)],
        }
    )
    assert admin.describe_configs(first)["cleanup.policy"] == "compact"
    assert admin.describe_configs(second)["retention.ms"] != "99999"
    absent = ConfigResource(broker.name("absent"))
    with some_fail() as caught:
        admin.incremental_alter_configs({ConfigResource(first): changes[ConfigResource(second)], absent: [append]})
    assert (list(caught.value.results), list(caught.value.errors)) == ([ConfigResource(first)], [absent])
    with some_fail() as caught:
        admin.config_entries_of([ConfigResource(first), absent])
    assert caught.value.results[ConfigResource(first)]["retention.ms"].value == "99999"


def test_config_resources_are_listed(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    topic = broker.name("t")
    admin.create_topic(topic)
    assert ConfigResource(topic) in admin.list_config_resources([2])
    assert ConfigResource("1", 4) in admin.list_config_resources()
    assert {each.resource_type for each in admin.list_config_resources([4])} == {4}


def test_groups_of_all_protocols(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    topic = broker.name("t")
    admin.create_topic(topic)
    servers = broker.bootstrap_servers
    names = {kind: broker.name(kind) for kind in ("classic", "consumer", "share", "none")}
    with (
        fencepost.Consumer(servers, group_id=names["classic"]) as classic,
        fencepost.Consumer(servers, group_id=names["consumer"], group_protocol="consumer") as consumer,
        fencepost.ShareConsumer(servers, group_id=names["share"]) as share,
    ):
        for reader in (classic, consumer, share):
            reader.subscribe([topic])
        until(lambda: classic.poll(50) == [] and bool(classic.assignment()))
        until(lambda: consumer.poll(50) == [] and bool(consumer.assignment()))
        until(lambda: share.poll(50) == [] and bool(share.assignment()))
        found = admin.describe_groups(names.values(), include_authorized_operations=True)
        assert {kind: found[name].group_type for kind, name in names.items() if kind != "none"} == {
            kind: kind for kind in names if kind != "none"
        }
        assert found[names["none"]].state == "Dead"
        for kind in ("classic", "consumer", "share"):
            (member,) = found[names[kind]].members
            assert found[names[kind]].state == "Stable"
            assert (member.subscribed, member.assigned) == ((topic,), (TP(topic, 0),))
            assert found[names[kind]].authorized_operations == GROUP_OPERATIONS
        assert admin.describe_group(names["share"]) == found[names["share"]]._replace(authorized_operations=None)
        with some_fail() as caught:
            admin.delete_groups([names["classic"], names["none"]])
        assert isinstance(caught.value.errors[names["classic"]], BrokerError)
        assert isinstance(caught.value.errors[names["none"]], GroupConfigurationError)
    admin.delete_groups([names["classic"], names["consumer"], names["share"]])
    assert {group.state for group in admin.describe_groups(names.values()).values()} == {"Dead"}


def test_offsets_of_share_groups(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    topic, group = broker.name("t"), broker.name("g")
    admin.create_topic(topic, 2)
    with fencepost.Producer(broker.bootstrap_servers) as producer:
        for number in range(5):
            producer.send(topic, b"%d" % number, partition=0).result(120)
    with fencepost.ShareConsumer(broker.bootstrap_servers, group_id=group) as consumer:
        consumer.subscribe([topic])
        until(lambda: consumer.poll(50) == [] and bool(consumer.assignment()))
        with pytest.raises(BrokerError, match="NON_EMPTY_GROUP"):
            admin.alter_share_group_offsets(group, {TP(topic, 0): 3})
    admin.alter_share_group_offsets(group, {TP(topic, 0): 3, TP(topic, 1): 0})
    found = admin.share_group_offsets(group)
    assert {partition: offset.start_offset for partition, offset in found.items()} == {TP(topic, 0): 3, TP(topic, 1): 0}
    assert isinstance(found[TP(topic, 0)], ShareOffset)
    assert set(admin.share_group_offsets(group, [TP(topic, 0)])) == {TP(topic, 0)}
    with some_fail() as caught:
        admin.delete_share_group_offsets(group, [topic, broker.name("absent")])
    assert list(caught.value.results) == [topic]
    assert admin.share_group_offsets(group) == {}
    assert admin.share_group_offsets(broker.name("absent")) == {}


def test_operations_on_a_topic(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    topic = broker.name("t")
    admin.create_topic(topic)
    assert admin.describe_topics([topic])[topic].authorized_operations is None
    allowed = admin.describe_topics([topic], include_authorized_operations=True)[topic].authorized_operations
    assert allowed is not None
    assert {AclOperation.READ, AclOperation.WRITE, AclOperation.ALTER_CONFIGS} <= allowed


def test_leaders_that_may_stay(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    topic, absent = broker.name("t"), broker.name("absent")
    admin.create_topic(topic, 2)
    partitions = [TP(topic, 0), TP(topic, 1)]
    for election in ElectionType:
        assert admin.elect_leaders(partitions, election) == dict.fromkeys(partitions, False)
    with some_fail() as caught:
        admin.elect_leaders([*partitions, TP(absent, 0)])
    assert (caught.value.results, list(caught.value.errors)) == (dict.fromkeys(partitions, False), [TP(absent, 0)])
    assert admin.elect_leaders() == {}


def test_client_quotas(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    name = broker.name("u")
    user, both = QuotaEntity(name), QuotaEntity(name, "app")
    anyone = QuotaEntity(client_id=DEFAULT_ENTITY)
    changes: dict[QuotaEntity, dict[str, float | None]]
    changes = {
        user: {"producer_byte_rate": 5e6},
        both: {"consumer_byte_rate": 1e6},
        anyone: {"request_percentage": 900},
    }
    admin.alter_client_quotas(changes, validate_only=True)
    assert admin.describe_client_quotas(user) == {}
    with some_fail() as caught:
        admin.alter_client_quotas({**changes, QuotaEntity(user=broker.name("x")): {"no_such_quota": 1.0}})
    assert set(caught.value.results) == set(changes)
    assert admin.describe_client_quotas(user) == {user: changes[user], both: changes[both]}
    assert admin.describe_client_quotas(user, strict=True) == {user: changes[user]}
    assert admin.describe_client_quotas(anyone) == {anyone: changes[anyone]}
    assert set(changes) <= set(admin.describe_client_quotas())
    admin.alter_client_quotas({entity: dict.fromkeys(quotas) for entity, quotas in changes.items()})
    assert set(changes).isdisjoint(admin.describe_client_quotas())
    assert str(both) == f"clients with user={name!r}, client-id='app'"
    assert str(anyone) == "clients with client-id=the default"


def test_delegation_tokens_need_a_login(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    calls = (
        lambda: admin.create_delegation_token(["User:bob"]),
        lambda: admin.create_delegation_token(owner="User:alice", max_lifetime_ms=1000),
        lambda: admin.renew_delegation_token(b"secret"),
        lambda: admin.expire_delegation_token(b"secret"),
        admin.describe_delegation_tokens,
        lambda: admin.describe_delegation_tokens(["User:alice"]),
    )
    for call in calls:
        with pytest.raises(BrokerError, match="DELEGATION_TOKEN"):
            call()


def test_features_are_checked(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    level = admin.features()["transaction.version"]
    admin.update_features({"transaction.version": level}, validate_only=True)
    with pytest.raises(BrokerError, match=r"transaction.version|FEATURE"):
        admin.update_features({"transaction.version": 99}, validate_only=True)
    down = FeatureUpdate(level - 1, UpgradeType.SAFE_DOWNGRADE)
    admin.update_features({"transaction.version": down}, validate_only=True)
    assert admin.features()["transaction.version"] == level


def test_replicas_and_their_directories(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    topic = broker.name("t")
    admin.create_topic(topic, 2)
    if not broker.is_ours:  # Kafka's metadata show a partition a moment before its directory is there
        until(lambda: any(TP(topic, 0) in each.replicas for each in admin.describe_log_dirs()))
    (here, *_) = [each for each in admin.describe_log_dirs() if TP(topic, 0) in each.replicas]
    admin.alter_replica_log_dirs({(topic, 0, 1): here.path, (topic, 1, 1): here.path})
    with some_fail() as caught:
        admin.alter_replica_log_dirs({(topic, 0, 1): here.path, (topic, 1, 1): "/no/such/folder"})
    assert list(caught.value.errors) == [(topic, 1, 1)]


def test_a_broker_that_is_not_registered(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    with pytest.raises(BrokerError, match="BROKER_ID_NOT_REGISTERED"):
        admin.unregister_broker(77)


@pytest.mark.asyncio
async def test_the_same_in_asyncio(broker: BrokerUnderTest) -> None:
    topics, third = [broker.name("one"), broker.name("other")], broker.name("third")
    async with fencepost.AsyncAdmin(broker.bootstrap_servers) as admin:
        assert set(await admin.create_topics(topics)) == set(topics)
        with pytest.raises(ItemsFailedError):
            await admin.create_topics([topics[0], third])
        await admin.delete_topics([*topics, third])


def test_offsets_of_a_log_without_tiers(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    topic = broker.name("t")
    admin.create_topic(topic)
    with fencepost.Producer(broker.bootstrap_servers) as producer:
        for number in range(3):
            producer.send(topic, b"%d" % number)
    admin.delete_records({(topic, 0): 1})
    spec = fencepost.OffsetSpec
    asked = (spec.LATEST, spec.EARLIEST, spec.EARLIEST_LOCAL, spec.LATEST_TIERED)
    found = [admin.list_offsets({(topic, 0): each})[TP(topic, 0)].offset for each in asked]
    assert found == [3, 1, 1, -1]
