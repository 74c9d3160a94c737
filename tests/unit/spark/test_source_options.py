"""Every option that Spark 4.3 documents for its Kafka connector is read, or refused or ignored with a reason."""

from __future__ import annotations

import pytest

from fencepost.config import ConsumerConfig, ProducerConfig
from fencepost.errors import ConfigurationError
from fencepost.spark import kafka_settings
from fencepost.spark.kafka_settings import log_notes
from fencepost.spark.options import NOT_YOURS, client_settings, milliseconds
from fencepost.spark.source.options import READ, WITHOUT_EFFECT, SourceOptions, check

# "Structured Streaming + Kafka Integration Guide" of Spark 4.x: reading, and KafkaSourceProvider's own keys.
DOCUMENTED = {
    "assign": '{"t":[0]}',
    "subscribe": "t",
    "subscribePattern": "t.*",
    "kafka.bootstrap.servers": "localhost:9092",
    "startingTimestamp": "1000",
    "startingOffsetsByTimestamp": '{"t":{"0":1000}}',
    "startingOffsets": "earliest",
    "endingTimestamp": "1000",
    "endingOffsetsByTimestamp": '{"t":{"0":1000}}',
    "endingOffsets": '{"t":{"0":5}}',
    "failOnDataLoss": "false",
    "kafkaConsumer.pollTimeoutMs": "60000",
    "fetchOffset.numRetries": "5",
    "fetchOffset.retryIntervalMs": "20",
    "maxOffsetsPerTrigger": "1000",
    "minOffsetsPerTrigger": "10",
    "maxTriggerDelay": "15m",
    "minPartitions": "4",
    "maxRecordsPerPartition": "100",
    "groupIdPrefix": "mine",
    "kafka.group.id": "g",
    "includeHeaders": "true",
    "startingOffsetsByTimestampStrategy": "latest",
}
# "Note that the following Kafka params cannot be set"; group.id can, with the care that is asked for.
CANNOT_BE_SET = (
    "auto.offset.reset",
    "key.deserializer",
    "value.deserializer",
    "key.serializer",
    "value.serializer",
    "enable.auto.commit",
    "interceptor.classes",
)
SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}
WAYS = ("assign", "subscribe", "subscribePattern")


def lowered(**options: str) -> dict[str, str]:
    return {key.lower(): value for key, value in options.items()}


def test_every_documented_option_has_its_place() -> None:
    assert set(DOCUMENTED) == {*READ, *WITHOUT_EFFECT} - {"columns", "commitOffsets", "heldBackWarning"}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("stream", [True, False])
def test_all_documented_options_are_taken_at_once(way: str, stream: bool, caplog: pytest.LogCaptureFixture) -> None:
    kafka_settings._logged.clear()
    given = {name: value for name, value in DOCUMENTED.items() if name not in WAYS or name == way}
    if stream:
        given = {name: value for name, value in given.items() if not name.startswith("ending")}
    options = SourceOptions.parse(lowered(**given), stream=stream)
    assert (options.way, options.wanted) == (way, DOCUMENTED[way])
    assert options.starting == ("startingTimestamp", "1000", True)
    assert options.ending == (("endingOffsets", "latest", False) if stream else ("endingTimestamp", "1000", True))
    assert (options.max_rows, options.min_rows, options.max_delay_ms) == (1000, 10, 900_000)
    assert (options.min_partitions, options.max_records, options.fail_on_data_loss) == (4, 100, False)
    assert (options.poll_timeout_ms, options.retries, options.retry_interval_ms) == (60_000, 5, 20)
    assert (options.unmatched_start_is_latest, options.group, options.committed) == (True, None, True)
    log_notes()
    assert "groupIdPrefix has no effect" in caplog.text
    assert ("maxOffsetsPerTrigger is for streams" in caplog.text) is not stream
    assert "is not known" not in caplog.text


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_a_streams_end_is_no_word(name: str) -> None:
    with pytest.raises(ConfigurationError, match=name):
        SourceOptions.parse({**SERVERS, "subscribe": "t", name.lower(): "latest"}, stream=True)


@pytest.mark.parametrize("name", CANNOT_BE_SET)
@pytest.mark.parametrize("kind", [ConsumerConfig, ProducerConfig])
def test_what_sparks_connector_refuses_is_refused_with_a_reason(
    name: str, kind: type[ConsumerConfig | ProducerConfig]
) -> None:
    with pytest.raises(ConfigurationError, match=f"kafka.{name} cannot be set: {NOT_YOURS[name][:10]}"):
        client_settings({**SERVERS, f"kafka.{name}": "x"}, kind)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("minPartitions", "0"),
        ("minPartitions", "2147483648"),
        ("maxOffsetsPerTrigger", "9223372036854775808"),
        ("maxRecordsPerPartition", "many"),
        ("maxRecordsPerPartition", "1_0"),  # which Python reads as a number
        ("startingTimestamp", "1_0"),
        ("startingOffsets", '{"t":{" 0":1}}'),
        ("startingOffsets", '{"t":{"1_0":1}}'),
        ("failOnDataLoss", "perhaps"),
        ("maxTriggerDelay", "soon"),
        ("kafkaConsumer.pollTimeoutMs", "-1"),
        ("fetchOffset.numRetries", "-1"),
    ],
)
def test_an_option_that_is_refused_is_named_as_it_is_documented(name: str, text: str) -> None:
    with pytest.raises(ConfigurationError, match=f"option {name}="):
        SourceOptions.parse({**SERVERS, "subscribe": "t", name.lower(): text}, stream=True)


@pytest.mark.parametrize("text", [",", " , ,", ",,"])
def test_a_subscription_to_nothing_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="names no topic"):
        SourceOptions.parse({**SERVERS, "subscribe": text}, stream=True)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("startingOffsets", "Latest"),
        ("startingOffsets", '{"t":{"0":-1}}'),
        ("endingOffsets", "earliest"),
        ("endingOffsets", '{"t":{"0":-2}}'),
    ],
)
def test_a_batch_is_refused_for_what_has_no_use_before_brokers_are_asked(name: str, text: str) -> None:
    with pytest.raises(ConfigurationError, match=f"option {name}"):
        SourceOptions.parse({**SERVERS, "subscribe": "t", name.lower(): text}, stream=False)


def test_a_members_id_without_a_group_has_no_effect() -> None:
    """No group is joined; Spark's own connector has a group for each query, and takes the id for it."""
    options = {**SERVERS, "subscribe": "t"}
    with_id = SourceOptions.parse({**options, "kafka.group.instance.id": "etl-1"}, stream=True)
    assert with_id == SourceOptions.parse(options, stream=True)


def test_the_defaults_are_sparks() -> None:
    stream = SourceOptions.parse({**SERVERS, "subscribe": "t"}, stream=True)
    assert (stream.starting.text, stream.max_delay_ms, stream.poll_timeout_ms) == ("latest", 900_000, 120_000)
    assert (stream.retries, stream.retry_interval_ms, stream.fail_on_data_loss) == (3, 10, True)
    batch = SourceOptions.parse({**SERVERS, "subscribe": "t"}, stream=False)
    assert (batch.starting.text, batch.ending.text) == ("earliest", "latest")


def test_a_misspelt_option_is_told(caplog: pytest.LogCaptureFixture) -> None:
    kafka_settings._logged.clear()
    SourceOptions.parse({**SERVERS, "subscribe": "t", "startingoffset": "earliest", "path": ""}, stream=True)
    log_notes()
    assert "option startingoffset is not known; was startingOffsets meant?" in caplog.text
    assert "path" not in caplog.text


def test_a_group_is_told_only_by_a_stream_that_asks_for_it() -> None:
    options = {**SERVERS, "subscribe": "t", "kafka.group.id": "g", "commitoffsets": "true"}
    assert SourceOptions.parse(options, stream=True).group == "g"
    assert SourceOptions.parse(options, stream=False).group is None


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("15m", 900_000), ("30s", 30_000), ("5", 5), ("500ms", 500), ("1h", 3_600_000), ("2 min", 120_000), ("2500us", 2)],
)
def test_times_as_spark_writes_them(text: str, wanted: int) -> None:
    assert milliseconds({"delay": text}, "delay", 7) == wanted
    assert milliseconds({}, "delay", 7) == 7


@pytest.mark.parametrize("text", ["9" * 5_000, "\u0665", "5 weeks", "", "-5"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(ConfigurationError, match="a time such as 500ms"):
        milliseconds({"delay": text}, "delay", 7)


def test_a_frame_is_refused_for_options_that_no_read_takes() -> None:
    check({**SERVERS, "subscribe": "t", "endingoffsets": "latest"})  # of a batch read
    check({**SERVERS, "subscribe": "t", "startingoffsets": "latest"})  # of a stream
    check({**SERVERS, "topic": "t"})  # of a sink
    check({})  # of a table
    for name, text in (
        ("failOnDataLoss", "perhaps"),
        ("startingOffsets", "soon"),
        ("startingOffsets", '{"t":[0]}'),
        ("startingTimestamp", "-1"),
        ("startingOffsets", '{"\\ud800":{"0":5}}'),
        ("endingOffsets", '{"\\ud800":{"0":5}}'),
        ("startingOffsetsByTimestamp", '{"\\ud800":{"0":5}}'),
    ):
        with pytest.raises(ConfigurationError, match=name):
            check({**SERVERS, "subscribe": "t", name.lower(): text})


NEEDED = "exactly one of the options subscribe, subscribePattern and assign is needed"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"subscrbe": "t", "kafka.bootstrap.servers": "h:1"},
            f"{NEEDED}; option subscrbe is not known; was subscribe meant?",
        ),
        (
            {"subscribe": "t", "kafka.bootstrap.server": "h:1"},
            "option kafka.bootstrap.servers is missing; option kafka.bootstrap.server is not known",
        ),
        (
            {"subscribe": "t", "bootstrap.servers": "h:1"},
            "option kafka.bootstrap.servers is missing; option bootstrap.servers is not known",
        ),
        ({"subscribe": "t", "columns": "key"}, "option kafka.bootstrap.servers is missing"),
    ],
)
def test_a_required_option_that_is_misspelt_is_named(options: dict[str, str], message: str) -> None:
    """Spark shows the exception. Notes are in the log, which the user sees later or not at all."""
    with pytest.raises(ConfigurationError) as refused:
        SourceOptions.parse(options, stream=True)
    assert str(refused.value) == message
