"""Record what Apache Kafka 4.3.1, its Java clients and librdkafka really write: `python -m tests.golden.capture`.

Runs the fixture of tests/support/apache_kafka.py behind a recording proxy (the broker advertises its address, so
all traffic passes it, the broker's own WriteTxnMarkers included) and replaces the files below tests/golden/wire and
tests/golden/segments. See README.md there.
"""

from __future__ import annotations

import base64
import json
import shutil
import struct
import time
from collections import Counter
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from tests.golden.load import SETTINGS, SETTINGS_PROGRAM
from tests.golden.scenario import CODECS, RECORDS, TOPIC_JAVA, TOPIC_LIBRDKAFKA, TOPIC_TRANSACTIONS, Record
from tests.support.apache_kafka import ApacheKafka, run_kafka_class
from tests.support.recording_proxy import Exchange, RecordingProxy

HERE = Path(__file__).resolve().parent
WIRE = HERE / "wire"
SEGMENTS = HERE / "segments"
PROPERTIES = {"offsets.topic.num.partitions": 1, "transaction.state.log.num.partitions": 1}
MOST_PER_KIND = 2
LARGEST_BYTES = 8_000


def main() -> None:
    with RecordingProxy() as proxy:
        kafka = ApacheKafka({**PROPERTIES, "advertised.listeners": f"PLAINTEXT://127.0.0.1:{proxy.port}"})
        with kafka:
            proxy.upstream_port = kafka.port
            bootstrap = f"127.0.0.1:{proxy.port}"
            librdkafka_produces(bootstrap, proxy)
            librdkafka_transactions(bootstrap, proxy)
            java_produces(bootstrap, proxy)
            java_consumes(bootstrap, proxy)
            java_administers(bootstrap, proxy)
            write_wire(proxy.exchanges)
            kafka.stop(keep_data=True)
            write_segments(kafka.data_directory)
    SETTINGS.write_text(java(str(SETTINGS_PROGRAM)))


# --- librdkafka ---


def librdkafka_produces(bootstrap: str, proxy: RecordingProxy) -> None:
    for codec in CODECS:
        proxy.label = f"librdkafka/produce-{codec}"
        produce_all({"bootstrap.servers": bootstrap, "compression.type": codec}, TOPIC_LIBRDKAFKA)
    proxy.label = "librdkafka/produce-idempotent"
    produce_all({"bootstrap.servers": bootstrap, "enable.idempotence": True}, TOPIC_LIBRDKAFKA)


def produce_all(config: dict[str, object], topic: str) -> None:
    producer = Producer({**config, "linger.ms": 200})
    for record in RECORDS:
        producer.produce(
            topic,
            key=record.key,
            value=record.value,
            headers=list(record.headers),
            timestamp=record.timestamp_ms,
            partition=0,
        )
    if producer.flush(30):
        raise RuntimeError(f"not everything was delivered to {topic}")


def librdkafka_transactions(bootstrap: str, proxy: RecordingProxy) -> None:
    proxy.label = "librdkafka/group"
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "golden-librdkafka",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe([TOPIC_LIBRDKAFKA])
    message = consumer.poll(30)
    if message is None or message.error():
        raise RuntimeError("nothing was consumed")
    consumer.commit(asynchronous=False)
    proxy.label = "librdkafka/transaction"
    producer = Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": "golden-librdkafka", "transaction.timeout.ms": 60_000}
    )
    producer.init_transactions(30)
    for outcome in ("commit", "abort", "commit"):
        producer.begin_transaction()
        for number in range(3):
            producer.produce(TOPIC_TRANSACTIONS, key=outcome, value=f"librdkafka {outcome} {number}", partition=0)
        offsets = [TopicPartition(TOPIC_LIBRDKAFKA, 0, 5)]
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), 30)
        (producer.commit_transaction if outcome == "commit" else producer.abort_transaction)(30)
    proxy.label = "librdkafka/group"
    consumer.close()


# --- the Java clients, through Kafka's own command line classes ---


def java(class_name: str, *arguments: str, stdin: str = "") -> str:
    run = run_kafka_class(class_name, *arguments, stdin=stdin)
    if run.returncode != 0:
        raise RuntimeError(f"{class_name} {arguments}: {run.stdout}{run.stderr}")
    return run.stdout


def java_headers(record: Record) -> str:
    return ",".join(f"{name}:{'NULL' if value is None else value.decode()}" for name, value in record.headers)


def java_produces(bootstrap: str, proxy: RecordingProxy) -> None:
    lines = "".join(f"{java_headers(record)}\t{record.key.decode()}\t{record.value.decode()}\n" for record in RECORDS)
    for codec in CODECS:
        proxy.label = f"java/produce-{codec}"
        java(
            "org.apache.kafka.tools.ConsoleProducer",
            *("--bootstrap-server", bootstrap, "--topic", TOPIC_JAVA, "--compression-codec", codec),
            *("--reader-property", "parse.key=true", "--reader-property", "parse.headers=true"),
            *("--reader-property", "null.marker=NULL", "--command-property", "linger.ms=500"),
            *("--command-property", f"enable.idempotence={str(codec == 'none').lower()}"),
            stdin=lines,
        )
    proxy.label = "java/transaction"
    java(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--topic", TOPIC_TRANSACTIONS, "--num-records", "12", "--record-size", "10", "--throughput", "40"),
        *("--transactional-id", "golden-java", "--transaction-duration-ms", "100"),
        *("--bootstrap-server", bootstrap),
    )


def java_consumes(bootstrap: str, proxy: RecordingProxy) -> None:
    for protocol in ("classic", "consumer"):
        proxy.label = f"java/group-{protocol}"
        java(
            "org.apache.kafka.tools.consumer.ConsoleConsumer",
            *(
                "--bootstrap-server",
                bootstrap,
                "--topic",
                TOPIC_TRANSACTIONS,
                "--from-beginning",
                "--max-messages",
                "6",
            ),
            *("--group", f"golden-java-{protocol}", "--isolation-level", "read_committed"),
            *("--command-property", f"group.protocol={protocol}", "--timeout-ms", "20000"),
        )


def java_administers(bootstrap: str, proxy: RecordingProxy) -> None:
    proxy.label = "java/admin"
    at = ("--bootstrap-server", bootstrap)
    transactions = "org.apache.kafka.tools.TransactionsCommand"
    groups = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
    java(transactions, *at, "list")
    java(transactions, *at, "describe", "--transactional-id", "golden-java")
    java(transactions, *at, "describe-producers", "--topic", TOPIC_TRANSACTIONS, "--partition", "0")
    java("org.apache.kafka.tools.TopicCommand", *at, "--create", "--topic", "golden-admin", "--partitions", "3")
    java("org.apache.kafka.tools.TopicCommand", *at, "--describe", "--topic", "golden-admin")
    java("org.apache.kafka.tools.TopicCommand", *at, "--delete", "--topic", "golden-admin")
    java(groups, *at, "--list")
    java(groups, *at, "--describe", "--group", "golden-librdkafka")
    java("org.apache.kafka.tools.GetOffsetShell", *at, "--topic", TOPIC_TRANSACTIONS)
    time.sleep(0.2)


# --- files ---


def write_wire(exchanges: list[Exchange]) -> None:
    """One JSON line per exchange, `MOST_PER_KIND` of each label, API key and version."""
    shutil.rmtree(WIRE, ignore_errors=True)
    WIRE.mkdir(parents=True)
    seen: Counter[tuple[str, int, int]] = Counter()
    lines: dict[str, list[str]] = {}
    for exchange in exchanges:
        label = "broker/transaction" if sent_by_the_broker(exchange) else exchange.label
        kind = (label, exchange.api_key, exchange.api_version)
        if len(exchange.request) + len(exchange.response) > LARGEST_BYTES or seen[kind] >= MOST_PER_KIND:
            continue
        seen[kind] += 1
        line = {
            "label": label,
            "api_key": exchange.api_key,
            "api_version": exchange.api_version,
            "request": base64.b64encode(exchange.request).decode(),
            "response": base64.b64encode(exchange.response).decode(),
        }
        lines.setdefault(label.partition("/")[0], []).append(json.dumps(line))
    for client, texts in lines.items():
        (WIRE / f"{client}.jsonl").write_text("\n".join(texts) + "\n")
    for (label, api_key, version), count in sorted(seen.items()):
        print(f"{label}: api key {api_key} v{version}: {count}")


def sent_by_the_broker(exchange: Exchange) -> bool:
    """Kafka's broker talks to itself in mid-transaction; its client ids tell."""
    (length,) = struct.unpack_from(">h", exchange.request, 8)
    return exchange.request[10 : 10 + max(length, 0)].startswith((b"broker-", b"AddPartitionsManager-"))


def write_segments(data: Path) -> None:
    """The folders of the partitions that matter, each with what Kafka's own DumpLogSegments says of its log."""
    shutil.rmtree(SEGMENTS, ignore_errors=True)
    decoders = {"__transaction_state-0": "--transaction-log-decoder", "__consumer_offsets-0": "--offsets-decoder"}
    for name in (f"{TOPIC_JAVA}-0", f"{TOPIC_LIBRDKAFKA}-0", f"{TOPIC_TRANSACTIONS}-0", *decoders):
        shutil.copytree(data / name, SEGMENTS / name)
        log = SEGMENTS / name / "00000000000000000000.log"
        decoder = decoders.get(name, "--print-data-log")
        text = java("org.apache.kafka.tools.DumpLogSegments", "--files", str(log), decoder)
        (SEGMENTS / f"{name}.dump.txt").write_text(text.replace(f"{SEGMENTS}/", ""))


if __name__ == "__main__":
    main()
