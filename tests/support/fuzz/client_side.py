"""Calls that applications make on a client, for a few seconds each, while the broker may lie."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from random import Random

import fencepost
from fencepost.errors import KafkaError

__all__ = ["APPLICATIONS", "Application", "administer"]

Application = Callable[[str, Random], None]
"""Told where the broker is."""

TOPIC = "fuzzed-a"
REQUEST_MS = 500


def produce(servers: str, random: Random) -> None:
    idempotent = random.random() < 0.7
    with fencepost.Producer(
        servers,
        delivery_timeout_ms=2_000,
        max_block_ms=2_000,
        linger_ms=0,
        enable_idempotence=idempotent,
        request_timeout_ms=REQUEST_MS,
    ) as producer:
        for number in range(5):
            producer.send(random.choice((TOPIC, "fuzzed-b")), b"%d" % number, partition=random.choice((None, 0)))
        producer.flush()


def transact(servers: str, random: Random) -> None:
    name = f"liar-{random.randrange(3)}"
    with fencepost.Producer(
        servers, transactional_id=name, delivery_timeout_ms=2_000, max_block_ms=2_000, request_timeout_ms=REQUEST_MS
    ) as producer:
        producer.init_transactions()
        for number in range(3):
            with contextlib.suppress(fencepost.errors.AbortableError), producer.transaction():
                producer.send(TOPIC, b"%d" % number)
                producer.send_offsets_to_transaction({fencepost.TopicPartition(TOPIC, 0): number}, name)


def consume(servers: str, random: Random) -> None:
    with fencepost.Consumer(
        servers,
        group_id=f"liar-{random.randrange(3)}",
        group_protocol=random.choice(("classic", "consumer")),
        auto_offset_reset="earliest",
        isolation_level=random.choice(("read_committed", "read_uncommitted")),
        default_api_timeout_ms=2_000,
        request_timeout_ms=REQUEST_MS,
    ) as consumer:
        consumer.subscribe([TOPIC, "fuzzed-b"])
        for _ in range(5):
            for record in consumer.poll(300):
                _look_at(record)
        consumer.commit()


def read(servers: str, random: Random) -> None:
    with fencepost.Consumer(
        servers,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        default_api_timeout_ms=2_000,
        request_timeout_ms=REQUEST_MS,
    ) as consumer:
        consumer.assign([fencepost.TopicPartition(TOPIC, 0)])
        for _ in range(3):
            for record in consumer.poll(300):
                _look_at(record)
            consumer.poll_arrow(300)
        consumer.seek_to_beginning()
        consumer.seek_to_end()
        consumer.position(fencepost.TopicPartition(TOPIC, 0))


def administer(servers: str, random: Random) -> None:
    with fencepost.Admin(servers, default_api_timeout_ms=2_000, request_timeout_ms=REQUEST_MS) as admin:
        calls: list[Callable[[], object]] = [
            admin.list_topics,
            lambda: admin.describe_topics([TOPIC]),
            admin.list_groups,
            admin.list_transactions,
            lambda: admin.describe_configs(TOPIC),
            lambda: admin.create_topic(f"made-{random.randrange(1000)}", 1),
            lambda: admin.describe_transactions(["liar-0"]),
            lambda: admin.describe_group("liar-0"),
        ]
        random.shuffle(calls)
        for call in calls:
            with contextlib.suppress(KafkaError):
                call()


def _look_at(record: fencepost.Record) -> None:
    """As an application would."""
    if record.value is not None and len(record.value) < 0:
        raise ValueError(record)
    list(record.headers or ())


APPLICATIONS: tuple[Application, ...] = (produce, transact, consume, read, administer)
