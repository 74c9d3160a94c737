"""A configuration behaves as a frozen data class of its settings."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, fields, replace
from typing import Any

import pytest

from fencepost.config import AdminConfig, ProducerConfig


def test_configurations_with_equal_settings_are_equal() -> None:
    config = ProducerConfig("localhost:9092", linger_ms=3.0)
    same = ProducerConfig(bootstrap_servers="localhost:9092", linger_ms=3.0)
    assert config == same
    assert hash(config) == hash(same)
    assert config != ProducerConfig("localhost:9092")
    assert AdminConfig("localhost:9092") != ProducerConfig("localhost:9092")
    assert pickle.loads(pickle.dumps(config)) == copy.deepcopy(config) == config


def test_a_copy_differs_in_what_is_replaced_only() -> None:
    config = ProducerConfig("localhost:9092", linger_ms=3.0)
    other = replace(config, acks=1)
    assert (config.acks, other.acks) == (-1, 1)
    differing = [each.name for each in fields(config) if getattr(config, each.name) != getattr(other, each.name)]
    assert differing == ["acks"]


def test_the_text_of_a_configuration_has_no_secrets() -> None:
    secrets: dict[str, Any] = dict.fromkeys(("sasl_password", "ssl_key_password"), "hidden")
    text = repr(ProducerConfig("localhost:9092", linger_ms=3.0, **secrets))
    assert text.startswith("ProducerConfig(bootstrap_servers='localhost:9092', ")
    assert "linger_ms=3.0" in text
    assert "hidden" not in text


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (ProducerConfig, "ProducerConfig needs bootstrap_servers"),
        (lambda: AdminConfig("a", acks=1), "AdminConfig has no setting 'acks'"),  # type: ignore[call-arg]
        (lambda: AdminConfig("a", "b"), "positional"),  # type: ignore[call-arg]
    ],
)
def test_a_wrong_call_is_a_type_error(make: Callable[[], object], text: str) -> None:
    with pytest.raises(TypeError, match=text):
        make()


def test_a_setting_does_not_change() -> None:
    config = ProducerConfig("localhost:9092")
    with pytest.raises(FrozenInstanceError, match="acks"):
        config.acks = 1  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError, match="acks"):
        del config.acks
    assert config.acks == -1
