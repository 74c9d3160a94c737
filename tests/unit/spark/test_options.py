"""Options as Spark hands them over: lower-case keys, text values."""

from __future__ import annotations

import pytest

from fencepost.config import ConsumerConfig, ProducerConfig
from fencepost.errors import ConfigurationError
from fencepost.spark.options import SinkOptions, client_settings
from fencepost.spark.plan import Level

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}


def test_the_sinks_name_comes_from_the_first_option_that_has_one() -> None:
    options = {**SERVERS, "queryname": "q", "checkpointlocation": "/c", "sink.id": "s"}
    assert SinkOptions.parse(options).sink == "s"
    del options["sink.id"]
    assert SinkOptions.parse(options).sink == "/c"
    del options["checkpointlocation"]
    assert SinkOptions.parse(options).sink == "q"
    del options["queryname"]
    with pytest.raises(ConfigurationError, match=r"sink\.id"):
        SinkOptions.parse(options)
    assert not SinkOptions.parse({**options, "delivery": "at-least-once"}).exactly_once


def test_level_timeout_and_topic() -> None:
    parsed = SinkOptions.parse(
        {
            **SERVERS,
            "sink.id": "s",
            "topic": "t",
            "require.level": "Two-Phase",
            "kafka.transaction.timeout.ms": "1234",
            "decision.topic": "d",
        }
    )
    assert (parsed.topic, parsed.required) == ("t", Level.TWO_PHASE)
    assert (parsed.steps.transaction_timeout_ms, parsed.steps.decision_topic) == (1234, "d")


@pytest.mark.parametrize(
    "wrong",
    [
        {"delivery": "maybe"},
        {"require.level": "best"},
        {"delivery": "at-least-once", "require.level": "resume"},
        {"kafka.transactional.id": "x"},
        {"kafka.enable.idempotence": "false"},
        {"kafka.acks": "1"},
        {"kafka.linger.ms": "soon"},
        {"kafka.no.such.setting": "1"},
        {"kafka.bootstrap.servers": ""},
        {"sink.id": "x" * 2000},
    ],
)
def test_wrong_options_are_named(wrong: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError):
        SinkOptions.parse({**SERVERS, "sink.id": "s", **wrong})


def test_what_is_so_anyway_may_be_said() -> None:
    said = {"kafka.enable.idempotence": "true", "kafka.acks": "all", "kafka.linger.ms": "50"}
    assert SinkOptions.parse({**SERVERS, "sink.id": "s", **said}).exactly_once
    assert SinkOptions.parse({**SERVERS, "sink.id": "s", "kafka.acks": "-1"}).exactly_once


def test_client_settings_are_the_common_ones_and_the_rest_is_checked() -> None:
    given = {**SERVERS, "kafka.client.id": "me", "kafka.compression.type": "zstd", "topic": "t"}
    settings = client_settings(given, ProducerConfig)
    assert settings.common == (("bootstrap.servers", "localhost:9092"), ("client.id", "me"))
    assert settings.value("compression_type") == "zstd"
    # Every name that the client knows for a setting counts, Kafka's and librdkafka's.
    secured = {"kafka.security.protocol": "SSL", "kafka.ssl.ca.location": "/ca.pem", "kafka.ssl.key.password": "p"}
    assert {name for name, _ in client_settings({**SERVERS, **secured}, ProducerConfig).common} == {
        "bootstrap.servers",
        "security.protocol",
        "ssl.ca.location",
        "ssl.key.password",
    }
    assert client_settings(SERVERS, ConsumerConfig).value("isolation_level") == "read_committed"
    with pytest.raises(ConfigurationError, match=r"unknown setting 'group\.id'"):
        client_settings({**SERVERS, "kafka.group.id": "g"}, ProducerConfig)
