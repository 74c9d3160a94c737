"""Options as Spark hands them over: lower-case keys, text values."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

import pytest

from fencepost.common_config import own_name
from fencepost.config import AdminConfig, ConsumerConfig, ProducerConfig
from fencepost.errors import ConfigurationError
from fencepost.spark import kafka_settings
from fencepost.spark.options import SinkOptions, client_settings
from fencepost.spark.sink.abilities import Guarantee
from fencepost.spark.sink.checkpoint import SinkName, name_of
from fencepost.spark.source.options import SourceOptions

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}


def name(options: Mapping[str, str]) -> SinkName:
    parsed = SinkOptions.parse(options)
    return name_of(parsed.given_id, parsed.checkpoint, parsed.query_name, is_copy=parsed.query_is_copy)


def test_the_sinks_name_comes_from_the_first_option_that_has_one(tmp_path: Path) -> None:
    (tmp_path / "metadata").write_text('{"id": "an-id"}')
    location = f"{tmp_path}/"
    options = {**SERVERS, "queryname": "q", "checkpointlocation": location, "sink.id": "s"}
    assert name(options) == SinkName("s")
    del options["sink.id"]
    assert name(options) == SinkName("an-id")
    assert "sink.id" in name({**options, "query.copied": "true"}).refusal
    assert name({**options, "checkpointlocation": "s3a://b/c/"}) == SinkName("s3a://b/c")
    assert name({**options, "checkpointlocation": "/no/such"}) == SinkName("/no/such")
    del options["checkpointlocation"]
    assert name(options) == SinkName("q")
    del options["queryname"]
    with pytest.raises(ConfigurationError, match=r"sink\.id"):
        SinkOptions.parse(options)
    assert not SinkOptions.parse({**options, "delivery": "at-least-once"}).exactly_once


def test_guarantee_timeout_and_topic() -> None:
    parsed = SinkOptions.parse(
        {
            **SERVERS,
            "sink.id": "s",
            "topic": "t",
            "require.guarantee": "Durable",
            "kafka.transaction.timeout.ms": "1234",
            "decision.topic": "d",
        }
    )
    assert (parsed.topic, parsed.required) == ("t", Guarantee.DURABLE)
    assert (parsed.steps.transaction_timeout_ms, parsed.steps.decision_topic) == (1234, "d")


@pytest.mark.parametrize(
    "wrong",
    [
        {"delivery": "maybe"},
        {"require.guarantee": "best"},
        {"delivery": "at-least-once", "require.guarantee": "timed"},
        {"kafka.transactional.id": "x"},
        {"kafka.enable.idempotence": "false"},
        {"kafka.acks": "1"},
        {"kafka.linger.ms": "soon"},
        {"kafka.no.such.setting": "1"},
        {"kafka.bootstrap.servers": ""},
        {"kafka.bootstrap.servers": " "},
        {"sink.id": "x" * 2000},
        {"sink.id": ""},
        {"sink.id": " \t"},
        {"sink.id": "", "checkpointlocation": "/cp"},
        {"sink.id": "", "delivery": "at-least-once"},
        {"decision.topic": ""},
        {"decision.topic": " "},
        {"topic": " d", "decision.topic": "d "},
        {"topic": "__fencepost_decisions"},
    ],
)
def test_wrong_options_are_named(wrong: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError):
        SinkOptions.parse({**SERVERS, "sink.id": "s", **wrong})


@pytest.mark.parametrize("name", ["sink.id", "kafka.bootstrap.servers", "decision.topic"])
@pytest.mark.parametrize("text", ["", " ", "\t "])
def test_an_empty_option_is_called_empty(name: str, text: str) -> None:
    """A variable of the environment that is not set is a likely cause."""
    with pytest.raises(ConfigurationError, match=f"^option {name} is empty$"):
        SinkOptions.parse({**SERVERS, "sink.id": "s", name: text})


def test_spaces_at_the_ends_of_a_name_do_not_count() -> None:
    given = {"sink.id": " my orders\n", "topic": " out ", "decision.topic": "\td "}
    parsed = SinkOptions.parse({**SERVERS, **given})
    assert (parsed.given_id, parsed.topic, parsed.steps.decision_topic) == ("my orders", "out", "d")


def test_the_old_name_of_an_option_is_refused_with_the_new_name() -> None:
    with pytest.raises(ConfigurationError, match=r"require\.level is now require\.guarantee: durable or timed"):
        SinkOptions.parse({**SERVERS, "sink.id": "s", "require.level": "resume"})


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
    with pytest.raises(ConfigurationError, match=r"unknown setting 'group\.ident'"):
        client_settings({**SERVERS, "kafka.group.ident": "g"}, ProducerConfig)


def sink(**more: str) -> SinkOptions:
    return SinkOptions.parse({**SERVERS, "sink.id": "s", **more})


@pytest.fixture
def warnings(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    monkeypatch.setattr(kafka_settings, "_logged", set())
    monkeypatch.setattr(kafka_settings, "_noted", {})
    return caplog


@pytest.mark.parametrize(
    ("typo", "meant"),
    [
        ("requireguarantee", "require.guarantee"),
        ("require_guarantee", "require.guarantee"),
        ("require.guarantees", "require.guarantee"),
        ("sinkid", "sink.id"),
        ("decision.topics", "decision.topic"),
        ("steptimeout", "step.timeout"),
        ("topics", "topic"),
        ("deliver", "delivery"),
    ],
)
def test_a_misspelled_option_of_the_sink_is_refused(typo: str, meant: str) -> None:
    with pytest.raises(ConfigurationError, match=f"option {typo} is not known; was {meant} meant"):
        sink(**{typo: "resume"})


def test_an_unknown_option_of_the_sink_is_told_once(warnings: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        sink(failondataloss="false", maxfilesize="1")
    assert warnings.records == []  # not by every process that parses options
    for _ in range(2):
        kafka_settings.log_notes()
    assert [record.getMessage() for record in warnings.records] == [
        "option failondataloss is not known to the sink; it has no effect",
        "option maxfilesize is not known to the sink; it has no effect",
    ]


@pytest.mark.parametrize(
    ("kind", "own"), [(ProducerConfig, kafka_settings.OF_THE_SINK), (ConsumerConfig, kafka_settings.OF_THE_SOURCE)]
)
def test_settings_without_effect_are_told_by_name(
    kind: type[ProducerConfig | ConsumerConfig], own: Mapping[str, str], warnings: pytest.LogCaptureFixture
) -> None:
    usual = kind.from_dotted({"bootstrap.servers": "localhost:9092"})
    given = {name: str(getattr(usual, own_name(name.replace(".", "_")))) for name in own}
    given |= dict.fromkeys(kafka_settings.OF_JAVA, "1")
    given |= {name: "range" for name in given if name in ("partition.assignment.strategy", "group.remote.assignor")}
    given |= {name: "g" for name in given if name == "group.instance.id"}
    given |= {"group.id": "g"} if kind is ConsumerConfig else {}
    settings = client_settings({**SERVERS, **{f"kafka.{name}": value for name, value in given.items()}}, kind)
    assert settings.common == (("bootstrap.servers", "localhost:9092"),)
    kafka_settings.log_notes()
    reported = [record.getMessage() for record in warnings.records]
    assert len(reported) == len(own) + len(kafka_settings.OF_JAVA) > 30
    wanted = {*own, *kafka_settings.OF_JAVA}
    assert all(any(line.startswith(f"option kafka.{name} has no effect: ") for line in reported) for name in wanted)
    warnings.clear()
    client_settings({**SERVERS, "kafka.compression.type": "lz4", "kafka.compression.lz4.level": "9"}, ProducerConfig)
    kafka_settings.log_notes()
    assert not warnings.records


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("sasl.login.callback.handler.class", "sasl.login.callback.handler.class='x': only .* is possible here"),
        ("sasl.login.class", "sasl.login.class='x': not possible here; instead: sasl_oauth"),
    ],
)
def test_java_settings_that_matter_are_refused_with_a_reason(name: str, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        sink(**{f"kafka.{name}": "x"})


def test_settings_of_every_client_reach_the_clients_of_source_and_sink() -> None:
    given = {"enable.metrics.push": "false", "security.protocol": "SSL"}
    given |= {"ssl.keystore.password": "a secret", "ssl.truststore.password": "another"}
    options = {**SERVERS, **{f"kafka.{name}": value for name, value in given.items()}}
    for kind in (ProducerConfig, ConsumerConfig):
        config = AdminConfig.from_dotted(dict(client_settings(options, kind).common))
        assert not config.enable_metrics_push
        assert (config.ssl_keystore_password, config.ssl_truststore_password) == ("a secret", "another")


def test_an_identity_provider_is_told_in_java_s_words() -> None:
    oauth = "org.apache.kafka.common.security.oauthbearer.OAuthBearer"
    given = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.login.callback.handler.class": f"{oauth}LoginCallbackHandler",
        "sasl.jaas.config": f'{oauth}LoginModule required clientId="alice" clientSecret="s3cret";',
        "sasl.oauthbearer.token.endpoint.url": "https://login.example.com/token",
    }
    for kind in (ProducerConfig, ConsumerConfig):
        settings = client_settings({**SERVERS, **{f"kafka.{name}": value for name, value in given.items()}}, kind)
        endpoint = AdminConfig.from_dotted(dict(settings.common)).token_endpoint()
        assert endpoint is not None
        assert (endpoint.url, endpoint.client_id) == (given["sasl.oauthbearer.token.endpoint.url"], "alice")
        assert "s3cret" not in repr(settings)


def test_the_patience_for_a_step_is_an_option() -> None:
    assert sink().steps.step_timeout_ms == 120_000
    assert sink(**{"step.timeout": "5m"}).steps.step_timeout_ms == 300_000
    with pytest.raises(ConfigurationError, match=r"step\.timeout='soon'"):
        sink(**{"step.timeout": "soon"})
    for nothing in ("0", "0s", "1us"):
        with pytest.raises(ConfigurationError, match=rf"step\.timeout='{nothing}': at least 1 ms"):
            sink(**{"step.timeout": nothing})


@pytest.mark.parametrize("given", [{}, {"path": "file:/warehouse/t"}])
def test_options_that_do_not_arrive_are_told_from_forgotten_ones(given: dict[str, str]) -> None:
    """Spark gives a Python source the options of a view, and those of a table not."""
    for parse in (SinkOptions.parse, partial(SourceOptions.parse, stream=False)):
        with pytest.raises(ConfigurationError, match=r"Spark passed no option.*CREATE TEMPORARY VIEW"):
            parse(given)
        with pytest.raises(ConfigurationError) as raised:
            parse({"topic": "t"})
        assert "CREATE" not in str(raised.value)
