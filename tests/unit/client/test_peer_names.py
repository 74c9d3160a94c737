"""The names of the other clients, from the installed packages: each has a name here, or a reason and a replacement."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tests.golden.load import CLIENT_METHODS, CLIENT_METHODS_PROGRAM
from tests.support.apache_kafka import REFERENCE, VERSION, run_kafka_class
from tests.support.peer_names import page
from tests.support.peer_names.tables import PEERS, Peer, Row, exists, rows_of

LEAST = {"confluent-kafka": 180, "aiokafka": 120, "kafka-python": 220, "Java": 200}


@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.title.split()[0])
def test_every_name_has_a_row(peer: Peer) -> None:
    names = list(dict.fromkeys(peer.names()))
    assert len(names) > LEAST[peer.title.split()[0]]
    rows = rows_of(peer)
    assert all(row.here or row.note for row in rows)
    without = {row.theirs for row in rows if not row.here}
    expected = [name for name in names if name.partition("(")[0] not in without or "(" not in name]
    assert [row.theirs for row in rows] == expected


def test_the_page_has_every_name() -> None:
    assert page.written() == page.sections(), "python -m tests.support.peer_names.page"


def test_the_names_of_the_peers_are_the_public_ones() -> None:
    names = {peer.title.split()[0]: set(peer.names()) for peer in PEERS}
    assert {"Producer.produce(headers)", "AdminClient.create_topics(operation_timeout)"} <= names["confluent-kafka"]
    assert {"AdminClient.list_topics(timeout)", "Consumer.commit(asynchronous)"} <= names["confluent-kafka"]
    assert {"AIOKafkaConsumer.getmany(partitions)", "admin.NewTopic"} <= names["aiokafka"]
    assert {"KafkaProducer.send(timestamp_ms)", "ConsumerRecord.leader_epoch"} <= names["kafka-python"]
    assert {"Admin.createTopics(validateOnly)", "ShareConsumer.acknowledge"} <= names["Java"]


@dataclass
class Example:
    """A client with one method, and what is wrong in its rows."""

    rows: dict[str, str]
    error: type[Exception]
    text: str


SEND = {"P.send": "Producer.send", "P.send(payload)": "value"}
EXAMPLES = {
    "method without a row": Example({}, LookupError, "no row for P.send"),
    "parameter without a row": Example({"P.send": "Producer.send"}, LookupError, r"no row for P.send\(payload\)"),
    "row of nothing": Example({**SEND, "P.sent": "Producer.send"}, LookupError, r"has no \['P.sent'\]"),
    "row of no parameter": Example({**SEND, "P.*(timeout)": "topic"}, LookupError, "has no"),
    "no such name here": Example({**SEND, "P.send": "Producer.produce"}, ValueError, "has no"),
    "no such parameter here": Example({**SEND, "P.send(payload)": "payload"}, ValueError, "has no"),
    "no reason": Example({"P.send": "-"}, ValueError, "no reason"),
    "row that says nothing": Example({**SEND, "P.send(topic)": "topic"}, ValueError, "says nothing"),
    "empty": Example({"P.send": ""}, ValueError, "has no"),
}


@pytest.mark.parametrize("example", EXAMPLES.values(), ids=EXAMPLES)
def test_a_wrong_table_is_found(example: Example) -> None:
    peer = Peer("example", lambda: ["P.send", "P.send(topic)", "P.send(payload)"], example.rows)
    with pytest.raises(example.error, match=example.text):
        rows_of(peer)


def test_a_right_table() -> None:
    names = ["P.send", "P.send(topic)", "P.send(payload)", "P.poll", "P.poll(timeout)"]
    found = rows_of(Peer("example", lambda: names, {**SEND, "P.poll": "- | not needed"}))
    assert found == [
        Row("P.send", ("Producer.send",), ""),
        Row("P.send(topic)", ("topic",), ""),
        Row("P.send(payload)", ("value",), ""),
        Row("P.poll", (), "not needed"),
    ]


def test_fields_and_modules_are_names_too() -> None:
    assert exists("config.ProducerConfig.linger_ms")
    assert exists("Record.leader_epoch")
    assert not exists("Record.epoch")


@pytest.mark.kafka
@pytest.mark.java
@pytest.mark.skipif(VERSION != REFERENCE, reason="KAFKA_RELEASE chooses another release than the file is of")
def test_the_methods_of_javas_clients_are_those_of_the_jars() -> None:
    asked = run_kafka_class(str(CLIENT_METHODS_PROGRAM))
    assert asked.returncode == 0, asked.stderr
    assert asked.stdout == CLIENT_METHODS.read_text()
