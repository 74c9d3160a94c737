"""Settings of topics, the broker and groups: described, changed, refused. Expected answers: Apache Kafka 4.4."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import ANY

import pytest

from fencepost.broker.settings.table import BROKER_SETTINGS, TOPIC_SETTINGS
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages import alter_configs as ac
from fencepost.protocol.messages import describe_configs as dc
from fencepost.protocol.messages import incremental_alter_configs as ic
from fencepost.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from fencepost.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.support.brokers import BrokerUnderTest, Killable
from tests.support.raw_client import RawClient

TOPIC, BROKER, GROUP = 2, 4, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
OK = (0, None)
Operation = tuple[str, int, str | None]


def change(client: RawClient, kind: int, name: str, *operations: Operation, validate: bool = False) -> Any:
    """(code, message) of an IncrementalAlterConfigs."""
    configs = [ic.AlterableConfig(name=key, config_operation=what, value=value) for key, what, value in operations]
    resource = ic.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    request = ic.IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate)
    (answer,) = client.call(request, 1).responses
    assert (answer.resource_type, answer.resource_name) == (kind, name)
    return answer.error_code, answer.error_message


def replace(client: RawClient, kind: int, name: str, given: Sequence[tuple[str, str | None]], **options: Any) -> Any:
    """(code, message) of an AlterConfigs."""
    configs = [ac.AlterableConfig(name=key, value=value) for key, value in given]
    resource = ac.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    (answer,) = client.call(ac.AlterConfigsRequest(resources=[resource], **options), 2).responses
    return answer.error_code, answer.error_message


def describe(client: RawClient, kind: int, name: str, keys: Sequence[str] | None = None) -> Any:
    resource = dc.DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
    request = dc.DescribeConfigsRequest(resources=[resource], include_synonyms=True, include_documentation=True)
    return client.call(request, 4).results[0]


def setting(client: RawClient, kind: int, name: str, key: str) -> Any:
    """(value, source, [(name, value, source) of the synonyms]), or None while the resource has no such setting.

    Kafka shows none of a new group's settings until its broker has read the metadata log so far.
    """
    configs = describe(client, kind, name, [key]).configs
    if not configs:
        return None
    (found,) = configs
    return found.value, found.config_source, [(each.name, each.value, each.source) for each in found.synonyms]


@contextmanager
def broker_setting(client: RawClient, name: str, key: str, value: str) -> Iterator[None]:
    assert change(client, BROKER, name, (key, SET, value)) == OK
    try:
        yield
    finally:
        assert change(client, BROKER, name, (key, DELETE, None)) == OK


SINCE_4_4 = {
    "errors.deadletterqueue.group.enable",
    "max.decompressed.message.bytes",
    "remote.copy.lag.bytes",
    "remote.copy.lag.ms",
}


def test_a_new_topic_has_kafka_s_settings(broker: BrokerUnderTest, client: RawClient) -> None:
    topic = client.create_topic(broker.name("t"))
    found = {each.name: each for each in describe(client, TOPIC, topic).configs}
    known = {key for key, each in TOPIC_SETTINGS.items() if each.default is not None}
    assert found.keys() == known - (SINCE_4_4 if broker.is_before(4, 4) else set())
    for key, each in found.items():
        expected = TOPIC_SETTINGS[key]
        is_unlimited = key == "retention.ms"  # the brokers of the tests keep records of any time
        value = "-1" if is_unlimited else expected.default
        assert (each.value, each.config_type) == (value, expected.kind), key
        assert (each.read_only, each.is_sensitive) == (False, False), key
        synonyms = [synonym.name for synonym in each.synonyms if synonym.source == 5]
        default = BROKER_SETTINGS[expected.broker_key].default if expected.broker_key else None
        # Once log.retention.ms is set, Kafka lists log.retention.hours behind it, which does not count then.
        without_effect = ["log.retention.hours"] if is_unlimited and not broker.is_ours else []
        assert synonyms == (without_effect if default is None else [expected.broker_key]), key
        # Kafka has set min.insync.replicas for the whole cluster when it was formed.
        is_of_cluster = key == "min.insync.replicas" and not broker.is_ours
        assert each.config_source == (4 if is_unlimited else 3 if is_of_cluster else 5), key


def test_the_broker_s_settings_are_of_kafka_s_type_and_as_changeable(
    broker: BrokerUnderTest, client: RawClient
) -> None:
    found = {each.name: each for each in describe(client, BROKER, "1").configs}
    # Ours alone; and which of Kafka's we do not change at run time although Kafka can.
    own = {"cluster.id", "fsync", "fsync.interval.ms", "producer.state.check", "transaction.version"}
    fixed = {"listeners", "listener.security.protocol.map", "sasl.enabled.mechanisms", "log.cleaner.backoff.ms"}
    fixed |= {"max.connections", "max.connections.per.ip"}
    lists = {"advertised.listeners", "listeners"}
    checked = 0
    for key, expected in BROKER_SETTINGS.items():
        if key in own and not broker.is_ours:
            assert key not in found
            continue
        if key not in found and not broker.is_ours:
            continue  # settings of the metrics' and quotas' door
        checked += 1
        if key not in lists:
            assert found[key].config_type == expected.kind, key
        if key not in fixed and not key.startswith(("sasl.", "ssl.")):
            assert found[key].read_only == (not expected.dynamic), key
    assert checked > 50


@pytest.mark.parametrize(
    ("operations", "code", "message"),
    [
        ([("retention.ms", SET, " 1000 ")], 0, None),
        (
            [("retention.ms", SET, "abc")],
            40,
            "Invalid value abc for configuration retention.ms: Not a number of type LONG",
        ),
        (
            [("retention.ms", SET, "-5")],
            40,
            "Invalid value -5 for configuration retention.ms: Value must be at least -1",
        ),
        ([("max.message.bytes", SET, "3000000000")], 40, "Not a number of type INT"),
        ([("nope", SET, "1")], 40, "Unknown topic config name: nope"),
        ([("nope", DELETE, None)], 0, None),
        (
            [("cleanup.policy", SET, "foo")],
            40,
            "Invalid value foo for configuration cleanup.policy: String must be one of: compact, delete",
        ),
        ([("cleanup.policy", SET, "")], 0, None),
        ([("cleanup.policy", SET, "compact,,delete")], 40, "values must not be empty"),
        ([("retention.ms", SET, "1_000")], 40, "Not a number of type LONG"),
        ([("min.cleanable.dirty.ratio", SET, "nan")], 40, "Not a number of type DOUBLE"),
        ([("retention.ms", APPEND, "5")], 40, "Can't APPEND to key retention.ms because its type is not LIST."),
        ([("retention.ms", SUBTRACT, "5")], 40, "Can't SUBTRACT to key retention.ms because its type is not LIST."),
        ([("retention.ms", SET, None)], 42, "Null value not supported for : retention.ms"),
        ([("retention.ms", SET, "1"), ("retention.ms", SET, "2")], 42, "Error due to duplicate config keys"),
        ([("min.insync.replicas", SET, "0")], 40, "Value must be at least 1"),
        (
            [("message.timestamp.type", SET, "foo")],
            40,
            "configuration message.timestamp.type: String must be one of: CreateTime, LogAppendTime",
        ),
        (
            [("compression.type", SET, "foo")],
            40,
            "String must be one of: uncompressed, zstd, lz4, snappy, gzip, producer",
        ),
        ([("compression.gzip.level", SET, "0")], 40, "Value must be between 1 and 9 or equal to -1"),
        ([("compression.gzip.level", SET, "-1")], 0, None),
        ([("compression.zstd.level", SET, "30")], 40, "Value must be no more than 22"),
        ([("unclean.leader.election.enable", SET, "maybe")], 40, "Expected value to be either true or false"),
        (
            [("min.cleanable.dirty.ratio", SET, "2")],
            40,
            "Invalid value 2.0 for configuration min.cleanable.dirty.ratio",
        ),
        ([("min.cleanable.dirty.ratio", SET, "x")], 40, "Not a number of type DOUBLE"),
        ([("segment.ms", SET, "0")], 40, "Value must be at least 1"),
        ([("leader.replication.throttled.replicas", SET, "bad")], 40, "must be the literal '*' or a list of replicas"),
        ([("leader.replication.throttled.replicas", SET, "0:1,1:1")], 0, None),
        (
            [("min.compaction.lag.ms", SET, "10"), ("max.compaction.lag.ms", SET, "5")],
            40,
            "conflict topic config setting min.compaction.lag.ms (10) > max.compaction.lag.ms (5)",
        ),
        ([("remote.storage.enable", SET, "true")], 40, "Tiered Storage functionality is disabled in the broker."),
        ([], 0, None),
    ],
)
def test_a_change_of_a_topic_is_checked(
    broker: BrokerUnderTest, client: RawClient, operations: list[Operation], code: int, message: str | None
) -> None:
    topic = client.create_topic(broker.name("t"))
    for validate in (True, False):
        found = change(client, TOPIC, topic, *operations, validate=validate)
        assert found[0] == code, found
        assert found[1] is None if message is None else message in found[1]
    if code:
        own = [each for each in describe(client, TOPIC, topic).configs if each.config_source == 1]
        assert own == []


def test_settings_are_set_taken_away_and_lists_grow_and_shrink(broker: BrokerUnderTest, client: RawClient) -> None:
    topic = client.create_topic(broker.name("t"))
    key, default = "cleanup.policy", ("log.cleanup.policy", "delete", 5)
    for operation, value, expected in (
        (APPEND, "compact", "delete,compact"),
        (APPEND, "compact", "delete,compact"),
        (SUBTRACT, "delete", "compact"),
        (SUBTRACT, "compact", ""),
        (SET, "compact", "compact"),
    ):
        assert change(client, TOPIC, topic, (key, operation, value)) == OK
        eventually(client, topic, key, (expected, 1, [(key, expected, 1), default]))
    assert change(client, TOPIC, topic, (key, DELETE, None)) == OK
    eventually(client, topic, key, ("delete", 5, [default]))
    assert change(client, TOPIC, topic, ("segment.ms", SET, "7"), validate=True) == OK
    assert setting(client, TOPIC, topic, "segment.ms") == ("604800000", 5, [])


def test_alter_configs_replaces_everything(broker: BrokerUnderTest, client: RawClient) -> None:
    topic = client.create_topic(broker.name("t"))
    assert replace(client, TOPIC, topic, [("segment.ms", "5"), ("segment.bytes", "2000000")]) == OK
    eventually(client, topic, "segment.ms", ("5", 1, [("segment.ms", "5", 1)]))
    assert replace(client, TOPIC, topic, [("cleanup.policy", "compact")], validate_only=True) == OK
    assert setting(client, TOPIC, topic, "segment.bytes")[0] == "2000000"
    assert replace(client, TOPIC, topic, [("cleanup.policy", "compact")]) == OK
    eventually(client, topic, "segment.ms", ("604800000", 5, []))
    assert setting(client, TOPIC, topic, "segment.bytes")[:2] == ("1073741824", 5)
    assert replace(client, TOPIC, topic, [("nope", "1")]) == (40, "Unknown topic config name: nope")
    assert replace(client, TOPIC, topic, [("retention.ms", None)]) == (
        42,
        "Null value not supported for : retention.ms",
    )
    assert replace(client, TOPIC, topic, [("retention.ms", "1"), ("retention.ms", "2")]) == (
        42,
        "Error due to duplicate config keys",
    )
    assert replace(client, TOPIC, topic, []) == OK
    eventually(client, topic, "cleanup.policy", ("delete", 5, [("log.cleanup.policy", "delete", 5)]))


def test_resources_that_are_none(broker: BrokerUnderTest, client: RawClient) -> None:
    missing, bad = broker.name("missing"), "bad name"
    why_bad = "Topic name is invalid: 'bad name' contains one or more characters other than ASCII alphanumerics"
    checked = 0
    for kind, name, key, code, message in (
        (TOPIC, missing, "retention.ms", 3, f"The topic '{missing}' does not exist."),
        (TOPIC, bad, "retention.ms", 17, why_bad),
        (TOPIC, "", "retention.ms", 42, "Default topic resources are not allowed."),
        (BROKER, "7", "log.retention.ms", 42, "Unexpected broker id, expected 1, but received 7"),
        (BROKER, "abc", "log.retention.ms", 42, "Node id must be an integer, but it is: abc"),
        (GROUP, "", "consumer.session.timeout.ms", 42, "Default group resources are not allowed."),
        (7, "x", "a", 42, "Unknown resource type 7"),
    ):
        for found in (
            change(client, kind, name, (key, SET, "1000")),
            replace(client, kind, name, [(key, "1000")]),
        ):
            assert (found[0], message in found[1]) == (code, True), found
            checked += 1
    assert checked == 14
    for kind, name, code, message in (
        (TOPIC, missing, 3, ""),
        (TOPIC, bad, 17, why_bad),
        (BROKER, "7", 42, "Unexpected broker id, expected 1 or empty string, but received 7"),
        (BROKER, "abc", 42, "Broker id must be an integer, but it is: abc"),
        (GROUP, "", 42, "Group name must not be empty"),
    ):
        answer = describe(client, kind, name)
        assert (answer.error_code, answer.configs) == (code, [])
        assert message in (answer.error_message or "")


def test_what_is_asked_first(broker: BrokerUnderTest, client: RawClient) -> None:
    """The broker checks operations on lists, the topic's name and the values before it looks for the topic."""
    missing, bad = broker.name("missing"), "bad name"
    for name in (missing, bad, ""):
        refused = change(client, TOPIC, name, ("retention.ms", APPEND, "1"))
        assert refused == (40, "Can't APPEND to key retention.ms because its type is not LIST.")
    for name, code in ((missing, 40), (bad, 17), ("", 42)):
        for key, value in (("retention.ms", "x"), ("cleanup.policy", "nope"), ("no.such", "1")):
            assert change(client, TOPIC, name, (key, SET, value))[0] == code
            assert replace(client, TOPIC, name, [(key, value)])[0] == code
    assert change(client, TOPIC, missing, ("cleanup.policy", APPEND, "nope"))[0] == 40
    assert change(client, TOPIC, missing, ("cleanup.policy", APPEND, "compact"))[0] == 3
    assert change(client, GROUP, "", ("consumer.session.timeout.ms", SUBTRACT, "1"))[0] == 40
    assert change(client, GROUP, "", ("consumer.session.timeout.ms", SET, "x"))[0] == 42


def test_a_resource_may_be_named_once(broker: BrokerUnderTest, client: RawClient) -> None:
    topic = client.create_topic(broker.name("t"))
    resources = [
        ic.AlterConfigsResource(
            resource_type=TOPIC,
            resource_name=topic,
            configs=[ic.AlterableConfig(name="segment.ms", config_operation=SET, value=value)],
        )
        for value in ("1", "2")
    ]
    answers = client.call(ic.IncrementalAlterConfigsRequest(resources=resources), 1).responses
    once = (ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
    assert {(each.error_code, each.error_message) for each in answers} == {once}
    assert setting(client, TOPIC, topic, "segment.ms")[1] == 5


@pytest.mark.parametrize("name", ["1", ""], ids=["this broker", "all brokers"])
def test_what_may_be_changed_of_the_broker(broker: BrokerUnderTest, client: RawClient, name: str) -> None:
    for key in ("num.partitions", "transaction.max.timeout.ms", "log.retention.hours"):
        refused = (42, f"Cannot update these configs dynamically: [{key}]")
        assert change(client, BROKER, name, (key, SET, "4")) == refused
        assert change(client, BROKER, name, (key, DELETE, None)) == OK
    prefix = "Invalid value {} for configuration {}: "
    for key, value, why in (
        ("message.max.bytes", "x", "Not a number of type INT"),
        ("message.max.bytes", "-1", "Value must be at least 0"),
        ("log.cleanup.policy", "foo", "String must be one of: compact, delete"),
    ):
        assert change(client, BROKER, name, (key, SET, value)) == (42, prefix.format(value, key) + why)
    assert change(client, BROKER, name, ("message.max.bytes", SET, "3000000"), validate=True) == OK
    assert setting(client, BROKER, "1", "message.max.bytes")[1] == 5


def test_where_a_value_is_from(broker: BrokerUnderTest, client: RawClient) -> None:
    topic = client.create_topic(broker.name("t"))
    key, own_key = "log.segment.delete.delay.ms", "file.delete.delay.ms"
    default = (key, "60000", 5)
    client.settled(lambda: describe(client, BROKER, "1"))
    with broker_setting(client, "", key, "60001"):
        eventually(client, topic, own_key, ("60001", 3, [(key, "60001", 3), default]))
        eventually(client, "", key, ("60001", 3, [(key, "60001", 3)]), BROKER)
        with broker_setting(client, "1", key, "60002"):
            layers = [(key, "60002", 2), (key, "60001", 3), default]
            eventually(client, topic, own_key, ("60002", 2, layers))
            eventually(client, "1", key, ("60002", 2, layers), BROKER)
            assert change(client, TOPIC, topic, (own_key, SET, "60003")) == OK
            eventually(client, topic, own_key, ("60003", 1, [(own_key, "60003", 1), *layers]))
            assert change(client, TOPIC, topic, (own_key, DELETE, None)) == OK
        eventually(client, topic, own_key, ("60001", 3, [(key, "60001", 3), default]))
    eventually(client, topic, own_key, ("60000", 5, [default]))


def eventually(client: RawClient, name: str, key: str, expected: Any, kind: int = TOPIC) -> None:
    """Kafka's broker follows its metadata log: a change shows a moment after it was answered. Ours shows it at once."""

    class Seen:
        def __init__(self) -> None:
            self.found = setting(client, kind, name, key)
            self.error_code = 0 if self.found == expected else ErrorCode.NOT_COORDINATOR

    assert client.settled(Seen).found == expected


class Shown:
    """The setting of no name, as soon as it shows."""

    def __init__(self, client: RawClient) -> None:
        self.configs = describe(client, BROKER, "1", ["my.plugin.password"]).configs
        self.error_code = 0 if self.configs else ErrorCode.NOT_COORDINATOR


def test_a_setting_of_no_name_is_kept_and_hidden(broker: BrokerUnderTest, client: RawClient) -> None:
    with broker_setting(client, "1", "my.plugin.password", "secret"):
        client.settled(lambda: Shown(client))
        (found,) = Shown(client).configs
        assert (found.value, found.config_source, found.is_sensitive, found.read_only) == (None, 2, True, True)


def test_settings_of_a_group(broker: BrokerUnderTest, client: RawClient) -> None:
    group, key = broker.name("g"), "consumer.heartbeat.interval.ms"
    default = ("group.consumer.heartbeat.interval.ms", "5000", 5)
    assert change(client, GROUP, group, (key, SET, "6000")) == OK
    eventually(client, group, key, ("6000", 8, [(key, "6000", 8), default]), GROUP)
    assert change(client, GROUP, group, ("nope", SET, "1")) == (40, "Unknown group config name: nope")
    code, message = change(client, GROUP, group, (key, SET, "x"))
    assert (code, message) == (40, f"Invalid value x for configuration {key}: Not a number of type INT")
    assert change(client, GROUP, group, (key, DELETE, None)) == OK
    eventually(client, group, key, ("5000", 5, [default]), GROUP)


@pytest.mark.parametrize(
    ("key", "value", "refused"),
    [
        ("consumer.assignment.interval.ms", "5000", "15001"),
        ("share.assignment.interval.ms", "5000", "15001"),
        ("streams.assignment.interval.ms", "5000", "-1"),
        ("streams.initial.rebalance.delay.ms", "100000", "-1"),
        ("consumer.assignor.offload.enable", "false", "x"),
        ("share.assignor.offload.enable", "false", "x"),
        ("streams.assignor.offload.enable", "false", "x"),
    ],
)
def test_settings_of_a_group_that_make_no_difference_here_are_taken(
    broker: BrokerUnderTest, client: RawClient, key: str, value: str, refused: str
) -> None:
    if broker.is_before(4, 4):
        pytest.skip("KAFKA_RELEASE chooses a release that does not have all of them")
    group = broker.name("g")
    assert change(client, GROUP, group, (key, SET, value)) == OK
    eventually(client, group, key, (value, 8, ANY), GROUP)
    assert change(client, GROUP, group, (key, SET, refused))[0] == ErrorCode.INVALID_CONFIG
    assert change(client, GROUP, group, (key, DELETE, None)) == OK


def test_what_would_delete_everything_or_end_each_member(broker: BrokerUnderTest, client: RawClient) -> None:
    assert change(client, BROKER, "1", ("log.retention.ms", SET, "0"))[0] in (40, 42)
    beats = change(
        client,
        GROUP,
        broker.name("g"),
        ("consumer.session.timeout.ms", SET, "6000"),
        ("consumer.heartbeat.interval.ms", SET, "6000"),
    )
    assert beats[0] == ErrorCode.INVALID_CONFIG
    assert "consumer.session.timeout.ms must be greater than consumer.heartbeat.interval.ms" in beats[1]


def test_sessions_of_consumer_groups_have_no_limits_here(broker: BrokerUnderTest, client: RawClient) -> None:
    """Kafka has `group.consumer.min.session.timeout.ms` (the one here: 1 s, by default 45 s) and such."""
    group, key = broker.name("g"), "consumer.session.timeout.ms"
    found = change(client, GROUP, group, ("consumer.heartbeat.interval.ms", SET, "100"), (key, SET, "500"))
    assert found[0] == (0 if broker.is_ours else ErrorCode.INVALID_CONFIG)


def test_a_group_s_settings_count_for_its_members(broker: BrokerUnderTest, client: RawClient) -> None:
    group, topic = broker.name("g"), client.create_topic(broker.name("t"))
    assert change(client, GROUP, group, ("consumer.heartbeat.interval.ms", SET, "6000")) == OK
    eventually(client, group, "consumer.heartbeat.interval.ms", ("6000", 8, ANY), GROUP)
    for name, expected_ms in ((group, 6000), (broker.name("other"), 5000)):
        request = ConsumerGroupHeartbeatRequest(
            group_id=name,
            member_id=str(uuid.uuid4()),
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=[topic],
            topic_partitions=[],
        )
        answer = client.settled(lambda asked=request: client.call(asked, 1))  # type: ignore[misc]
        assert (answer.error_code, answer.heartbeat_interval_ms) == (0, expected_ms)


def test_changes_count_at_once(broker: BrokerUnderTest, client: RawClient) -> None:
    topic = client.create_topic(broker.name("t"))
    big = [b"x" * 2000]
    assert client.produce(topic, big).error_code == 0
    assert change(client, TOPIC, topic, ("max.message.bytes", SET, "1000")) == OK
    settle(client, topic, big, ErrorCode.MESSAGE_TOO_LARGE)
    assert change(client, TOPIC, topic, ("max.message.bytes", DELETE, None)) == OK
    settle(client, topic, big, 0)
    # More replicas are asked for than there are: what there is counts.
    assert change(client, TOPIC, topic, ("min.insync.replicas", SET, "2")) == OK
    settle(client, topic, [b"x"], 0)
    assert change(client, TOPIC, topic, ("message.timestamp.type", SET, "LogAppendTime")) == OK

    class Stamped:
        def __init__(self) -> None:
            found = client.produce(topic, [b"x"])
            self.error_code = ErrorCode.NOT_COORDINATOR if found.log_append_time_ms == -1 else found.error_code

    assert client.settled(Stamped).error_code == 0


def settle(client: RawClient, topic: str, values: list[bytes], code: int) -> None:
    """Produce until it is answered like that; Kafka's broker follows its metadata log."""

    class Answered:
        def __init__(self) -> None:
            self.found = client.produce(topic, values).error_code
            self.error_code = 0 if self.found == code else ErrorCode.NOT_COORDINATOR

    assert client.settled(Answered).found == code


def test_changes_survive_a_restart(killable: tuple[BrokerUnderTest, Killable]) -> None:
    broker, running = killable
    with broker.connect() as client:
        topic = client.create_topic("kept")
        assert change(client, TOPIC, topic, ("retention.ms", SET, "12345")) == OK
        assert change(client, BROKER, "1", ("message.max.bytes", SET, "2000000")) == OK
        assert change(client, GROUP, "g", ("consumer.heartbeat.interval.ms", SET, "6000")) == OK
        down = FeatureUpdateKey(feature="transaction.version", max_version_level=1, upgrade_type=2)
        request = UpdateFeaturesRequest(timeout_ms=30_000, feature_updates=[down])
        assert client.call(request, 2).error_code == 0
    running.kill()
    running.restart()
    with broker.connect() as client:
        assert setting(client, TOPIC, topic, "retention.ms")[:2] == ("12345", 1)
        assert setting(client, TOPIC, topic, "max.message.bytes")[:2] == ("2000000", 2)
        assert setting(client, GROUP, "g", "consumer.heartbeat.interval.ms")[:2] == ("6000", 8)
        levels = {each.name: each.max_version_level for each in client.api_versions().finalized_features}
        assert levels["transaction.version"] == 1


LOGGER = 8


def test_the_levels_of_loggers(broker: BrokerUnderTest, client: RawClient) -> None:
    name = "fencepost.broker.groups" if broker.is_ours else "kafka.server.KafkaApis"

    def level(logger: str = name) -> str:
        return str(setting(client, LOGGER, "1", logger)[0])

    (found,) = describe(client, LOGGER, "1", [name]).configs
    assert (found.read_only, found.config_source, found.is_sensitive, found.config_type) == (False, 6, False, 0)
    assert (list(found.synonyms), found.documentation) == ([], "")
    before = level()
    for wanted in ("DEBUG", "TRACE", "FATAL"):
        assert change(client, LOGGER, "1", (name, SET, wanted)) == OK
        assert level() == wanted
    assert change(client, LOGGER, "1", (name, SET, "INFO"), validate=True) == OK
    assert level() == "FATAL"
    assert change(client, LOGGER, "1", (name, DELETE, None)) == OK
    assert level() == before
    assert level("root") in ("WARN", "INFO", "DEBUG")
    no_level = "it is not a supported log level. Valid log levels are DEBUG, ERROR, FATAL, INFO, TRACE, WARN"
    for broker_name, operation, refused in (
        ("1", (name, SET, "LOUD"), (40, f"Cannot set the log level of {name} to LOUD as {no_level}")),
        ("1", ("nope", SET, "INFO"), (40, "Logger nope does not exist!")),
        ("1", ("root", DELETE, None), (42, "Removing the log level of the root logger is not allowed")),
        ("1", (name, APPEND, "INFO"), (42, "APPEND operation is not allowed for the BROKER_LOGGER resource")),
        ("2", (name, SET, "INFO"), (42, "Unexpected node id. Expected 1, but received 2")),
        ("", (name, SET, "INFO"), (42, "Node id must be an integer, but it is: ")),
    ):
        assert change(client, LOGGER, broker_name, operation) == refused
    for broker_name, why in (
        ("2", "Unexpected broker id, expected 1 but received 2"),
        ("", "Broker id must not be empty"),
        ("x", "Broker id must be an integer, but it is: x"),
    ):
        reported = describe(client, LOGGER, broker_name)
        assert (reported.error_code, reported.error_message) == (42, why)


def test_the_segments_of_test_suites(broker: BrokerUnderTest, client: RawClient) -> None:
    """`internal.segment.bytes` is told where it is set, counts before segment.bytes, and has no lower bound."""
    usual = client.create_topic(broker.name("t"))
    assert describe(client, TOPIC, usual, ["internal.segment.bytes"]).configs == []
    topic = client.create_topic(broker.name("t"), internal_segment_bytes="200")
    assert setting(client, TOPIC, topic, "internal.segment.bytes")[:2] == ("200", 1)
    for value in ("-1", "0", "100"):
        assert change(client, TOPIC, usual, ("internal.segment.bytes", SET, value)) == OK
    assert change(client, TOPIC, usual, ("internal.segment.bytes", SET, "x"))[0] == ErrorCode.INVALID_CONFIG


def test_what_kafka_takes_otherwise(broker: BrokerUnderTest, client: RawClient) -> None:
    topic = client.create_topic(broker.name("t"))
    small = change(client, TOPIC, topic, ("segment.bytes", SET, "1000"))
    assert small[0] == (0 if broker.is_ours else ErrorCode.INVALID_CONFIG)
    unknown = change(client, TOPIC, topic, ("retention.ms", 9, "1"))
    assert unknown[0] == (ErrorCode.INVALID_REQUEST if broker.is_ours else ErrorCode.UNKNOWN_SERVER_ERROR)
