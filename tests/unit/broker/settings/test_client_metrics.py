"""Subscriptions to client metrics: which clients they are for, and that they are there after a restart."""

from __future__ import annotations

import pytest

from fencepost.broker.settings.client_metrics import InvalidSubscription, subscription_of
from fencepost.broker.settings.setting import InvalidSetting
from fencepost.broker.settings.values import check_client_metrics
from fencepost.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from fencepost.protocol.messages.list_config_resources import ListConfigResourcesRequest
from tests.support.broker_driver import BrokerDriver

CLIENT = {"client_id": "billing-1", "client_source_port": "50001"}


@pytest.mark.parametrize(
    ("match", "expected"),
    [
        ("", True),
        ("client_id=billing-.*", True),
        ("client_id=billing", False),
        (" client_id = billing-[0-9] ", True),
        ("client_id=(?i)BILLING.*,client_source_port=5.*", True),
        ("client_id=billing.*,client_source_port=6.*", False),
        ("client_id=nobody,client_id=billing.*", True),  # the last one counts, as in Kafka
    ],
)
def test_clients_of_a_subscription(match: str, expected: bool) -> None:
    assert subscription_of(check_client_metrics({"match": match})).is_for(CLIENT) is expected


@pytest.mark.parametrize("pattern", ["(?=b)billing", r"(b)\1", "(?<!b)x"])
def test_patterns_that_re2_does_not_have_are_refused(pattern: str) -> None:
    with pytest.raises(InvalidSetting, match="Illegal client matching pattern"):
        check_client_metrics({"match": f"client_id={pattern}"})


def test_a_pattern_that_would_block_a_backtracking_matcher() -> None:
    subscription = subscription_of(check_client_metrics({"match": "client_id=(a+)+b"}))
    assert not subscription.is_for({"client_id": "a" * 5_000})


@pytest.mark.parametrize("interval", ["99", "3600001", "-5", " 99 ", "\u0663"])
def test_intervals_out_of_range(interval: str) -> None:
    with pytest.raises(InvalidSubscription):
        check_client_metrics({"interval.ms": interval})


@pytest.mark.parametrize("interval", ["9" * 5_000, "-" + "9" * 5_000, "x", ""])
def test_intervals_that_are_no_numbers(interval: str) -> None:
    with pytest.raises(InvalidSetting, match="Not a number of type INT"):
        check_client_metrics({"interval.ms": interval})


def test_subscriptions_survive_a_loss_of_power() -> None:
    driver = BrokerDriver()
    configs = [AlterableConfig(name="match", config_operation=0, value="client_id=a.*")]
    resource = AlterConfigsResource(resource_type=16, resource_name="of a", configs=configs)
    assert driver.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses[0].error_code == 0
    driver.crash(1)
    driver.start()
    listed = driver.ask(ListConfigResourcesRequest(resource_types=[16]), 1).config_resources
    assert [each.resource_name for each in listed] == ["of a"]
    (subscription,) = driver.core.settings.subscriptions
    assert subscription.is_for({"client_id": "abc"})
    assert not subscription.is_for({"client_id": "cba"})
