"""Client telemetry (KIP-714): subscriptions, and the answers to clients that ask for them and push.

Apache Kafka has a plugin here, without which it does not serve these APIs. Subscriptions are for all clients of a
broker, so each test removes its own; `client_id` in `match` keeps clients of other tests out.
"""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID, uuid4

import pytest

from fencepost.broker.embedded import Broker
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages.alter_configs import AlterableConfig as Replaced
from fencepost.protocol.messages.alter_configs import AlterConfigsRequest
from fencepost.protocol.messages.alter_configs import AlterConfigsResource as Replacement
from fencepost.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResult,
)
from fencepost.protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from fencepost.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from fencepost.protocol.messages.list_config_resources import ListConfigResourcesRequest
from fencepost.protocol.messages.push_telemetry import PushTelemetryRequest
from tests.conformance.conftest import ARMS
from tests.support.brokers import BrokerUnderTest
from tests.support.raw_client import RawClient
from tests.support.telemetry_kafka import TelemetryKafka
from tests.support.waiting import until

CLIENT_METRICS = 16
SET, DELETE, APPEND = 0, 1, 2
OK = (0, None)
NO_ID = UUID(int=0)
HOUR_MS = "3600000"
RANGE = "interval must be between 100 and 3600000 (1 hour)"
TOO_LARGE = bytes((1 << 20) + 1)


@pytest.fixture(scope="module", params=ARMS)
def serving(request: pytest.FixtureRequest) -> Iterator[BrokerUnderTest]:
    """A broker that serves these APIs: one with a plugin, or with a subscription."""
    with Broker() if request.param == "fencepost" else TelemetryKafka() as running:
        yield BrokerUnderTest(request.param, running)


@pytest.fixture
def client(serving: BrokerUnderTest) -> Iterator[RawClient]:
    with RawClient(serving.bootstrap_servers) as connection:
        yield connection


@pytest.fixture
def subscription(serving: BrokerUnderTest, client: RawClient) -> Iterator[str]:
    """The name of a subscription to be made, which is removed at the end."""
    name = serving.name("subscription")
    yield name
    remove(client, name)


def change(client: RawClient, name: str, *changes: tuple[str, int, str | None]) -> tuple[int, str | None]:
    configs = [AlterableConfig(name=key, config_operation=how, value=value) for key, how, value in changes]
    resource = AlterConfigsResource(resource_type=CLIENT_METRICS, resource_name=name, configs=configs)
    (result,) = client.call(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
    return result.error_code, result.error_message


def subscribe(client: RawClient, name: str, **settings: str) -> None:
    """Make the subscription, and wait until the broker has it: Kafka's controller answers before that."""
    changes = [(key.replace("_", "."), SET, value) for key, value in settings.items()]
    assert change(client, name, *changes) == OK
    given = {key: value for key, _, value in changes}
    until(lambda: given.items() <= {entry.name: entry.value for entry in describe(client, name).configs}.items())


def remove(client: RawClient, name: str) -> None:
    assert change(client, name, *((key, DELETE, None) for key in ("metrics", "interval.ms", "match"))) == OK
    until(lambda: name not in listed(client))


def describe(client: RawClient, name: str) -> DescribeConfigsResult:
    wanted = DescribeConfigsResource(resource_type=CLIENT_METRICS, resource_name=name, configuration_keys=None)
    request = DescribeConfigsRequest(resources=[wanted], include_synonyms=True, include_documentation=True)
    (result,) = client.call(request, 4).results
    assert isinstance(result, DescribeConfigsResult)
    return result


def shown(client: RawClient, name: str) -> list[tuple[str, str | None, int, int, list[tuple[str, str | None, int]]]]:
    return [
        (
            *(entry.name, entry.value, entry.config_source, entry.config_type),
            [(each.name, each.value, each.source) for each in entry.synonyms],
        )
        for entry in describe(client, name).configs
    ]


def listed(client: RawClient, version: int = 1) -> set[str]:
    wanted = [CLIENT_METRICS] if version else []
    answer = client.call(ListConfigResourcesRequest(resource_types=wanted), version)
    assert answer.error_code == 0
    return {resource.resource_name for resource in answer.config_resources}


def ask(client: RawClient, instance_id: UUID = NO_ID) -> GetTelemetrySubscriptionsResponse:
    answer = client.call(GetTelemetrySubscriptionsRequest(client_instance_id=instance_id), 0)
    assert isinstance(answer, GetTelemetrySubscriptionsResponse)
    return answer


class Instance:
    """A client instance that has asked for its subscription."""

    def __init__(self, client: RawClient) -> None:
        self._client = client
        answer = ask(client)
        assert answer.error_code == 0
        assert answer.client_instance_id is not None
        self.id, self.subscription_id = answer.client_instance_id, answer.subscription_id

    def push(
        self, metrics: bytes = b"", compression: int = 0, subscription_off: int = 0, terminating: bool = False
    ) -> int:
        request = PushTelemetryRequest(
            client_instance_id=self.id,
            subscription_id=self.subscription_id + subscription_off,
            terminating=terminating,
            compression_type=compression,
            metrics=metrics,
        )
        return int(self._client.call(request, 0).error_code)

    def ask(self) -> int:
        return ask(self._client, self.id).error_code


def test_a_subscription_that_is_not_there_has_the_defaults(client: RawClient) -> None:
    assert shown(client, "nobody's") == [
        ("interval.ms", "300000", 5, 3, []),
        ("match", "", 5, 7, []),
        ("metrics", "", 5, 7, []),
    ]
    refused = describe(client, "")
    assert (refused.error_code, refused.error_message) == (42, "Client metrics subscription name must not be empty")


def test_a_subscription_is_made_shown_listed_and_removed(client: RawClient, subscription: str) -> None:
    subscribe(client, subscription, metrics="org.a,org.b", match="client_id=a.*")
    assert shown(client, subscription) == [
        ("interval.ms", "300000", 5, 3, []),
        ("match", "client_id=a.*", 7, 7, [("match", "client_id=a.*", 7)]),
        ("metrics", "org.a,org.b", 7, 7, [("metrics", "org.a,org.b", 7)]),
    ]
    assert subscription in listed(client)
    assert subscription in listed(client, version=0)
    replaced = Replacement(
        resource_type=CLIENT_METRICS,
        resource_name=subscription,
        configs=[Replaced(name="interval.ms", value="5000")],
    )
    assert client.call(AlterConfigsRequest(resources=[replaced]), 2).responses[0].error_code == 0
    until(lambda: describe(client, subscription).configs[0].value == "5000")
    assert [entry[1] for entry in shown(client, subscription)] == ["5000", "", ""]
    replaced.configs = []
    assert client.call(AlterConfigsRequest(resources=[replaced]), 2).responses[0].error_code == 0
    until(lambda: subscription not in listed(client))


@pytest.mark.parametrize(
    ("key", "operation", "value", "expected"),
    [
        ("interval.ms", SET, "99", (42, f"Invalid value 99 for interval.ms, {RANGE}")),
        ("interval.ms", SET, "3600001", (42, f"Invalid value 3600001 for interval.ms, {RANGE}")),
        ("interval.ms", SET, "x", (40, "Invalid value x for configuration interval.ms: Not a number of type INT")),
        ("match", SET, "color=a", (40, "Illegal client matching pattern: color=a")),
        ("match", SET, "client_id", (40, "Illegal client matching pattern: client_id")),
        ("match", SET, "client_id=(", (40, "Illegal client matching pattern: client_id=(")),
        ("match", SET, "client_id=a=b", (40, "Illegal client matching pattern: client_id=a=b")),
        ("metrics", SET, "a,,b", (40, "Configuration 'metrics' values must not be empty.")),
        ("metrics", APPEND, "a", (40, "Can't APPEND to key metrics because its type is not LIST.")),
        ("color", SET, "1", (42, "Unknown client metrics configuration: color")),
    ],
)  # fmt: skip
def test_invalid_settings(client: RawClient, key: str, operation: int, value: str, expected: tuple[int, str]) -> None:
    assert change(client, "invalid", (key, operation, value)) == expected
    assert "invalid" not in listed(client)


def test_a_subscription_needs_a_name(client: RawClient) -> None:
    assert change(client, "", ("metrics", SET, "*")) == (42, "Subscription name can't be empty")


def test_without_a_subscription_nothing_is_asked_for(serving: BrokerUnderTest, client: RawClient) -> None:
    answer = ask(client)
    assert answer.client_instance_id not in (None, NO_ID)
    assert (answer.error_code, list(answer.requested_metrics)) == (0, [])
    assert (answer.push_interval_ms, answer.telemetry_max_bytes) == (300_000, 1 << 20)
    assert list(answer.accepted_compression_types) == [4, 3, 1, 2]
    assert answer.delta_temporality is not serving.is_ours


def test_the_instance_id_may_be_the_client_s_own(client: RawClient) -> None:
    own = uuid4()
    assert ask(client, own).client_instance_id == own


def test_subscriptions_of_a_client_are_combined(serving: BrokerUnderTest, client: RawClient, subscription: str) -> None:
    """All metrics of those that match, at the shortest interval. A change reaches the client at once."""
    subscribe(client, subscription, metrics="org.a,org.b", interval_ms=HOUR_MS, match="client_id=raw")
    other = serving.name("other")
    try:
        subscribe(client, other, metrics="org.b,org.c", interval_ms="120000")
        until(lambda: "org.c" in ask(client).requested_metrics)
        before = ask(client)
        assert (set(before.requested_metrics), before.push_interval_ms) == ({"org.a", "org.b", "org.c"}, 120_000)
        assert before.client_instance_id is not None
        assert ask(client, before.client_instance_id).error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        subscribe(client, other, metrics="org.c,*")
        until(lambda: "*" in ask(client).requested_metrics)
        after = ask(client, before.client_instance_id)
        assert (after.error_code, list(after.requested_metrics)) == (0, ["*"])
        assert after.subscription_id != before.subscription_id
    finally:
        remove(client, other)


@pytest.mark.parametrize(
    ("match", "matches"),
    [
        ("client_id=raw", True),
        ("client_id=ra", False),
        ("client_id=aw", False),
        ("client_id=r.w", True),
        ("client_id=raw,client_source_address=127[.]0[.]0[.]1", True),
        ("client_id=raw,client_source_address=10[.].*", False),
        ("client_id=nobody,client_id=raw", True),
        ("client_id=raw,client_id=nobody", False),
        ("client_source_port=\\d+", True),
        ("client_software_name=unknown", True),
        ("client_software_version=.+", True),
        ("client_instance_id=AAAAAAAAAAAAAAAAAAAACg", True),
        ("client_instance_id=0000.*", False),
    ],
)
def test_match(serving: BrokerUnderTest, client: RawClient, subscription: str, match: str, matches: bool) -> None:
    """Patterns match the whole attribute. Instance ids are in base64, as Kafka prints them."""
    subscribe(client, subscription, metrics="org.a", match=match)
    always = serving.name("always")
    try:
        subscribe(client, always, metrics="org.always")
        until(lambda: "org.always" in ask(client).requested_metrics)  # Kafka has then applied the one before, too
        answer = ask(client, UUID(int=10))
        assert ("org.a" in answer.requested_metrics) is matches
    finally:
        remove(client, always)


def test_one_push_per_interval(client: RawClient) -> None:
    instance = Instance(client)
    assert instance.push() == 0
    assert instance.push() == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert instance.ask() == ErrorCode.THROTTLING_QUOTA_EXCEEDED


def test_the_last_push_may_come_early_and_is_the_last(client: RawClient) -> None:
    instance = Instance(client)
    assert instance.push() == 0
    assert instance.push(terminating=True) == 0
    assert instance.push() == ErrorCode.INVALID_REQUEST


def test_a_refused_client_asks_again_at_once(client: RawClient) -> None:
    instance = Instance(client)
    assert instance.push(subscription_off=1) == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    assert instance.ask() == 0
    instance = Instance(client)
    assert instance.push(compression=9) == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert instance.ask() == 0


def test_too_many_bytes(client: RawClient) -> None:
    instance = Instance(client)
    assert instance.push(TOO_LARGE) == ErrorCode.TELEMETRY_TOO_LARGE
    assert instance.ask() == ErrorCode.THROTTLING_QUOTA_EXCEEDED


def test_metrics_that_are_none(serving: BrokerUnderTest, client: RawClient) -> None:
    """Kafka leaves it to its plugin to read the metrics, and only decompresses them."""
    assert Instance(client).push(b"\xff\xff", compression=1) == ErrorCode.INVALID_RECORD
    assert Instance(client).push(b"\xff\xff") == (ErrorCode.INVALID_RECORD if serving.is_ours else 0)


@pytest.mark.parametrize("reserved", [0, 1])
def test_a_push_needs_an_instance_id(client: RawClient, reserved: int) -> None:
    request = PushTelemetryRequest(client_instance_id=UUID(int=reserved))
    assert client.call(request, 0).error_code == ErrorCode.INVALID_REQUEST


def test_a_push_of_an_instance_that_never_asked(client: RawClient) -> None:
    request = PushTelemetryRequest(client_instance_id=uuid4())
    assert client.call(request, 0).error_code == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
