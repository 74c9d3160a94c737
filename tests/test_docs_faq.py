"""docs/faq.md quotes what is really said: by our code, by Spark's list of errors, by librdkafka with our broker."""

from __future__ import annotations

import ast
import functools
import json
import os
import re
import struct
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import confluent_kafka
import pyspark
import pytest

import fencepost
from tests.support.readme import ROOT
from tests.support.tidy import PACKAGES, python_files

PAGE = (ROOT / "docs" / "faq.md").read_text()
OURS, _, OTHER_CLIENTS = PAGE.partition("## Messages of other clients")
PLACEHOLDER = "\0"  # where a text names something


def quoted(text: str) -> list[str]:
    """The messages that are explained: "**`...`**" at the beginning of a line."""
    return re.findall(r"^\*\*`(.+?)`\*\*$", text, re.MULTILINE)


def texts(source: str) -> Iterator[str]:
    """Every text of a module, with PLACEHOLDER for what is put in, by an f-string or by %."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield re.sub(r"%[-.\d]*[sdrf]", PLACEHOLDER, node.value)
        elif isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else PLACEHOLDER for part in node.values)


def is_said(message: str, among: list[str]) -> bool:
    pieces = [re.escape(piece) for piece in message.split("...") if piece]
    pattern = re.compile(".*".join(pieces), re.DOTALL)
    return any(pattern.search(text) for text in among)


@functools.cache
def said() -> list[str]:
    """Every text of the package. Not when tests are collected: every process of a run does that."""
    return [text for path in python_files(*PACKAGES) for text in texts(path.read_text())]


def test_what_is_quoted_is_said() -> None:
    messages = quoted(OURS)
    assert len(messages) > 35
    assert [message for message in messages if not is_said(message, said())] == []


@pytest.mark.parametrize("message", ["group ... is never settled", "the port answers in TLS; nothing helps"])
def test_what_nobody_says_is_found(message: str) -> None:
    assert not is_said(message, said())


def test_spark_says_so() -> None:
    """In the list of errors that it brings along."""
    (name, words) = re.findall(r"^\*\*`\[(\w+)\] (.+): fencepost`\*\* \(Spark's\)$", OURS, re.MULTILINE)[0]
    (jar,) = (Path(pyspark.__file__).parent / "jars").glob("spark-common-utils_*.jar")
    with zipfile.ZipFile(jar) as packed:
        conditions = json.loads(packed.read("error/error-conditions.json"))
    assert "".join(conditions[name]["message"]).startswith(words)


def test_pyspark_prints_a_traceback_for_a_tls_greeting() -> None:
    """It comes from a client that calls a port at which a Kafka has stopped and PySpark's daemon listens now."""
    title = re.compile(r"^\*\*`(UnicodeDecodeError: .+?)`\*\* in `pyspark/daemon\.py` \(PySpark's\)$", re.MULTILINE)
    (message,) = title.findall(OURS)
    daemon = subprocess.Popen(
        [sys.executable, "-m", "pyspark.daemon", "pyspark.worker"],
        stdin=subprocess.PIPE,  # the daemon ends when this is closed
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHON_WORKER_FACTORY_SECRET": "secret"},
    )
    with daemon:
        assert daemon.stdin is not None
        assert daemon.stdout is not None
        assert daemon.stderr is not None
        with daemon.stdin:
            (port,) = struct.unpack(">i", daemon.stdout.read(4))
            with (
                pytest.raises(fencepost.errors.KafkaError),
                fencepost.Admin(f"127.0.0.1:{port}", security_protocol="SSL", default_api_timeout_ms=1000) as admin,
            ):
                admin.describe_cluster()
            printed: list[str] = []
            while not (printed and "UnicodeDecodeError" in printed[-1]):
                printed.append(daemon.stderr.readline().decode())
                assert printed[-1], printed
    assert any("pyspark/daemon.py" in line for line in printed)
    assert is_said(message, printed)


# --- librdkafka ---

LAST_WORD = "brokers are down"
WRONG = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "a", "sasl.password": "b"}


def no_login(broker: fencepost.Broker, **settings: str) -> str:
    """Return the errors of connections that fail to log in, up to LAST_WORD."""
    reported: list[object] = []
    client = confluent_kafka.Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "error_cb": reported.append, **settings}
    )
    deadline = time.monotonic() + 60
    while not any(LAST_WORD in str(error) for error in reported) and time.monotonic() < deadline:
        client.poll(0.1)
    return "\n".join(map(str, reported))


def commit(broker: fencepost.Broker, meanwhile: Callable[[], object]) -> str:
    settings = {
        "bootstrap.servers": broker.bootstrap_servers,
        "transactional.id": "t",
        "transaction.timeout.ms": 10_000,
    }
    producer = confluent_kafka.Producer(settings)
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("orders", b"book")
    producer.flush(30)
    meanwhile()
    with pytest.raises(confluent_kafka.KafkaException) as caught:
        producer.commit_transaction(30)
    return str(caught.value)


def fenced(broker: fencepost.Broker) -> str:
    other = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "t"})
    return commit(broker, lambda: other.init_transactions(30))


def no_topic(broker: fencepost.Broker) -> str:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"})
    consumer.subscribe(["nowhere"])
    message = consumer.poll(60)
    consumer.close()
    assert message is not None
    return str(message.error())


def too_large(broker: fencepost.Broker) -> str:
    with fencepost.Admin(broker.bootstrap_servers) as admin:
        admin.create_topic("small", 1, configs={"max.message.bytes": "1000"})
    reported: list[str] = []
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce("small", b"x" * 5000, on_delivery=lambda error, _: reported.append(str(error)))
    producer.flush(60)
    return reported[0]


SCENES: list[tuple[str, dict[str, str], Callable[[fencepost.Broker], str]]] = [
    ("Invalid username or password", {"a": "right"}, lambda broker: no_login(broker, **WRONG)),
    ("brokers are down", {"a": "right"}, no_login),
    ("SSL connection closed", {}, lambda broker: no_login(broker, **{"security.protocol": "SSL"})),
    ("fenced by a newer instance", {}, fenced),
    ("Unknown Producer Id", {}, lambda broker: commit(broker, lambda: broker.clock.advance(11))),
    ("Unknown topic or partition", {}, no_topic),
    ("Message size too large", {}, too_large),
]
ROWS = re.findall(r"^\| `(.+?)`.* \|", OTHER_CLIENTS, re.MULTILINE)


def test_each_row_has_its_scene() -> None:
    assert len(ROWS) == len(SCENES)
    assert [sum(words in row for row in ROWS) for words, _, _ in SCENES] == [1] * len(SCENES)


@pytest.mark.parametrize(("words", "users", "scene"), SCENES, ids=[words for words, _, _ in SCENES])
def test_librdkafka_says_so(words: str, users: dict[str, str], scene: Callable[[fencepost.Broker], str]) -> None:
    (row,) = (row for row in ROWS if words in row)
    with fencepost.Broker(
        {"auto.create.topics.enable": words != "Unknown topic or partition"}, users=users or None
    ) as broker:
        assert is_said(row, [scene(broker)])
