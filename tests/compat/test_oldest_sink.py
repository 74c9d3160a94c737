"""The Spark sink on Apache Kafka 3.3.2: exactly-once is refused by name, and at-least-once works."""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Iterator
from functools import partial

import pyarrow as pa
import pytest

from fencepost import Admin, Consumer, TopicPartition
from fencepost.cli.main import main
from fencepost.errors import ConfigurationError
from fencepost.spark.errors import GuaranteeUnavailableError
from fencepost.spark.sink.decision_store import DEFAULT_TOPIC
from fencepost.spark.sink.runner import resolve_sink
from fencepost.spark.sink.writer import StreamWriter, TaskMessage
from tests.support.older_kafka import OlderKafka
from tests.support.raw_client import Producer, RawClient
from tests.support.txn_requests import add_partition

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

COLUMNS = [("key", "string"), ("value", "string")]
REASON = r"exactly-once is not possible.*accept a batch after the end of its transaction.*AddPartitionsToTxn v3"


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with OlderKafka("3.3.2") as kafka:
        yield kafka.bootstrap_servers


@pytest.fixture
def raw(servers: str) -> Iterator[RawClient]:
    with RawClient(servers) as client:
        yield client


def writer(servers: str, topic: str, **options: str) -> StreamWriter:
    sink = {"kafka.bootstrap.servers": servers, "topic": topic, "sink.id": topic, **options}
    return StreamWriter(sink, COLUMNS)


def test_exactly_once_is_refused_with_the_reason_and_leaves_nothing_behind(
    servers: str, raw: RawClient, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = raw.create_topic("refused")
    for options in ({}, {"require.guarantee": "timed"}, {"require.guarantee": "durable"}):
        with pytest.raises(GuaranteeUnavailableError, match=REASON) as refused:
            pickle.dumps(writer(servers, topic, **options))
        assert "Upgrade all brokers to Kafka 3.6 or newer, or write with delivery=at-least-once" in str(refused.value)
    with pytest.raises(ConfigurationError, match="there is no sink 'refused'"):
        resolve_sink(servers, topic)
    assert raw.describe_transaction(f"fencepost-sink/{topic}").error_code != 0
    raw.find_coordinators()
    raw.settled(partial(raw.init_producer_id, "fencepost-sink/begun-elsewhere", version=4))
    with pytest.raises(GuaranteeUnavailableError, match=REASON):
        resolve_sink(servers, "begun-elsewhere")
    with Admin(servers) as admin:
        assert DEFAULT_TOPIC not in admin.describe_topics()
    capsys.readouterr()
    with pytest.raises(SystemExit):
        main(["doctor", "--json", "-b", servers])
    reported = json.loads(capsys.readouterr().out)
    assert reported["about"]["guarantee of Spark sinks"] == "none"
    (refusal,) = [found["words"] for found in reported["findings"] if found["code"] == "FP603"]
    assert re.search(REASON, refusal)


def test_at_least_once_works(servers: str, raw: RawClient) -> None:
    topic = raw.create_topic("at-least-once")
    planned = pickle.dumps(writer(servers, topic, delivery="at-least-once"))
    rows = pa.record_batch({"key": ["a", "b"], "value": ["1", "2"]})
    message = pickle.loads(planned).write_partition(iter([rows]), "query", 0)
    assert message == TaskMessage(None)
    writer(servers, topic, delivery="at-least-once").commit([message], 0)
    with Consumer(bootstrap_servers=servers) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.seek_to_beginning()
        found: list[bytes | None] = []
        while len(found) < rows.num_rows:
            found += [record.value for record in consumer.poll(10_000)]
    assert found == [b"1", b"2"]


def test_the_reason_holds_a_late_batch_hangs_in_the_partition(raw: RawClient) -> None:
    """K113."""
    topic, name = raw.create_topic("late"), "late"
    raw.find_coordinators()
    given = raw.settled(partial(raw.init_producer_id, name, version=4))
    producer = Producer(given.producer_id, given.producer_epoch)
    assert add_partition(raw, name, producer, topic) == 0
    send = partial(raw.produce, topic, transactional_id=name, producer=producer, version=9)
    assert send([b"in time"], sequence=0).error_code == 0
    raw.end_transaction(name, producer, commit=False, version=3)
    raw.wait_for_state(name, "CompleteAbort")
    assert send([b"late"], sequence=1).error_code == 0
    assert raw.end_offset(topic) - raw.end_offset(topic, committed=True) == 1
    assert raw.describe_transaction(name).transaction_state == "CompleteAbort"
