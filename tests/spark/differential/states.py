"""Topics in the states that a source has to get right, and what happens to them while a stream is down."""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from fencepost import Admin, Broker, Producer
from fencepost.broker.embedded_control import BrokerFaults
from fencepost.client.admin.acls import Acl, AclOperation, ResourceType

__all__ = ["CHANGING", "RESTING", "State", "World", "world"]

BEGIN_MS: Final = 1_700_000_000_000
STEP_MS: Final = 1000
MOMENTS: Final[Mapping[str, str]] = {
    "BEFORE": str(BEGIN_MS - 1000),
    "AMID": str(BEGIN_MS + 3 * STEP_MS - 1),
    "AFTER": str(BEGIN_MS + 10_000_000),
}
USERS: Final = {"admin": "of-admin", "reader": "of-reader"}
LOGIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule required username='{}' password='{}';"
KEYS: Final = (b"k", None, b"")
VALUES: Final = (b"v", b"", None)
COMPACTION_PATIENCE_S: Final = 120


@dataclass
class World:
    """Two brokers: one for all states but those of rights, and one that asks for a login and for rights."""

    open: str
    guarded: str
    faults: BrokerFaults  # of the open one
    another: str = ""  # a topic of the open broker, which has records and stays as it is
    _producers: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def admin(self) -> Admin:
        """An administrator of the open broker."""
        return Admin(self.open)

    def new_topic(self, partitions: int = 2, **settings: str) -> str:
        """Make an empty topic."""
        name = f"beside-{uuid.uuid4().hex[:8]}"
        with self.admin() as admin:
            admin.create_topic(name, partitions, configs={key.replace("_", "."): v for key, v in settings.items()})
        return name

    def fill(self, topic: str, *counts: int, first: int = 0) -> None:
        """Write as many records into each partition, a second of their time apart. They are numbered from `first`."""
        with Producer(self.open) as producer:
            _send(producer, topic, counts, first)

    def transaction(self, topic: str, *counts: int, commit: bool) -> None:
        """Write so in a transaction, and end it."""
        with Producer(self.open, transactional_id=f"{topic}-{uuid.uuid4().hex[:8]}") as producer:
            producer.init_transactions()
            producer.begin_transaction()
            _send(producer, topic, counts, 0)
            producer.flush()
            if commit:
                producer.commit_transaction()
            else:
                producer.abort_transaction()

    def leave_open(self, topic: str, *counts: int) -> None:
        """Write so in a transaction that stays open until the world ends."""
        producer = self._producers.enter_context(
            Producer(self.open, transactional_id=f"{topic}-{uuid.uuid4().hex[:8]}", transaction_timeout_ms=3_600_000)
        )
        producer.init_transactions()
        producer.begin_transaction()
        _send(producer, topic, counts, 0)
        producer.flush()

    def close(self) -> None:
        """Leave the open transactions to the broker."""
        self._producers.close()


def _send(producer: Producer, topic: str, counts: tuple[int, ...], first: int) -> None:
    for partition, count in enumerate(counts):
        for number in range(first, first + count):
            key, value = KEYS[number % 3], VALUES[(number // 2) % 3]
            producer.send(
                topic,
                None if value is None else value + f" {partition} {number}".encode() * bool(value),
                key=key,
                partition=partition,
                headers=[("n", str(number).encode()), ("n", None)] if number % 2 else [],
                timestamp_ms=BEGIN_MS + number * STEP_MS,
            )


@contextlib.contextmanager
def world() -> Iterator[World]:
    """Both brokers, for as long as it lasts."""
    settings = {
        "auto.create.topics.enable": False,  # or the other's consumers make a topic anew that was deleted under them
        "log.retention.ms": -1,
        "log.cleaner.backoff.ms": 50,
        "log.cleaner.min.cleanable.ratio": "0.0",
        "transaction.max.timeout.ms": 3_600_000,
    }
    guard = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin",
    }
    with Broker(settings) as broker, Broker({**settings, **guard}, users=USERS) as guarded:
        new_world = World(broker.bootstrap_servers, guarded.bootstrap_servers, broker.faults)
        new_world.another = new_world.new_topic()
        new_world.fill(new_world.another, 3, 2)
        try:
            yield new_world
        finally:
            new_world.close()


@dataclass(frozen=True)
class State:
    """A way to make a topic, and a change of it between a stream's two runs."""

    make: Callable[[World], str]
    change: Callable[[World, str], None] | None = None
    guarded: bool = False  # it is on the broker that asks for rights

    def options(self, world: World) -> dict[str, str]:
        """Return the options that lead to the topic's broker."""
        if not self.guarded:
            return {"kafka.bootstrap.servers": world.open}
        return {
            "kafka.bootstrap.servers": world.guarded,
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.sasl.jaas.config": LOGIN.format("reader", USERS["reader"]),
        }


def _filled(world: World) -> str:
    topic = world.new_topic()
    world.fill(topic, 6, 4)
    return topic


def _with_gaps(world: World) -> str:
    topic = world.new_topic()
    for counts in ((1, 2), (2, 0), (1, 1), (1, 0)):
        world.transaction(topic, *counts, commit=True)
    return topic


def _aborted(world: World) -> str:
    topic = world.new_topic()
    world.fill(topic, 3, 2)
    world.transaction(topic, 4, 0, commit=False)
    world.fill(topic, 2, 0, first=3)
    world.transaction(topic, 1, 3, commit=False)
    return topic


def _only_aborted(world: World) -> str:
    topic = world.new_topic()
    world.transaction(topic, 4, 2, commit=False)
    return topic


def _held_back(world: World) -> str:
    topic = world.new_topic()
    world.fill(topic, 3, 2)
    world.leave_open(topic, 2, 0)
    world.fill(topic, 2, 2, first=3)
    return topic


def _compacted(world: World) -> str:
    """Records without values among them; the cleaner has been there."""
    topic = world.new_topic(cleanup_policy="compact", segment_bytes="20000", delete_retention_ms="0")
    with Producer(world.open) as producer:
        for number in range(120):
            for partition in (0, 1):
                moment = BEGIN_MS + number * 100
                value = f"{partition} {number}".ljust(400, "x").encode()
                producer.send(topic, value, key=b"k%d" % (number % 7), partition=partition, timestamp_ms=moment)
                producer.flush()  # a batch each
    with Admin(world.open) as admin:
        end = time.monotonic() + COMPACTION_PATIENCE_S
        before = -1
        while time.monotonic() < end:
            held = _records(world, topic)
            if held < 240 and held == before:
                return topic
            before = held
            time.sleep(0.5)
        raise AssertionError(f"nothing was compacted: {admin.describe_topics([topic])}")


def _records(world: World, topic: str) -> int:
    from fencepost import Consumer

    with Consumer(world.open, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, 0), (topic, 1)])
        found, seen = 0, {0: 0, 1: 0}
        while min(seen.values()) < 119:
            for record in consumer.poll(10_000):
                found += 1
                seen[record.partition] = record.offset
        return found


def _truncated(world: World) -> str:
    topic = _filled(world)
    _cut(world, topic, 2, 1)
    return topic


def _all_deleted(world: World) -> str:
    topic = _filled(world)
    _cut(world, topic, 6, 4)
    return topic


def _cut(world: World, topic: str, *befores: int) -> None:
    with world.admin() as admin:
        admin.delete_records(dict(zip(((topic, 0), (topic, 1)), befores, strict=True)))


def _on_arrival(world: World) -> str:
    topic = world.new_topic(message_timestamp_type="LogAppendTime")
    world.fill(topic, 6, 4)
    return topic


def _guarded(*may: AclOperation) -> Callable[[World], str]:
    def make(world: World) -> str:
        name = f"beside-{uuid.uuid4().hex[:8]}"
        login: dict[str, Any] = {
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "PLAIN",
            "sasl_username": "admin",
            "sasl_password": USERS["admin"],
        }
        with Admin(world.guarded, **login) as admin:
            admin.create_topic(name, 2)
            if may:
                admin.create_acls([Acl(ResourceType.TOPIC, name, "User:reader", operation) for operation in may])
        with Producer(world.guarded, **login) as producer:
            _send(producer, name, (6, 4), 0)
        return name

    return make


RESTING: Final[Mapping[str, State]] = {
    "plain": State(_filled),
    "empty": State(lambda world: world.new_topic()),
    "gaps": State(_with_gaps),
    "aborted": State(_aborted),
    "only aborted": State(_only_aborted),
    "held back": State(_held_back),
    "compacted": State(_compacted),
    "truncated": State(_truncated),
    "all deleted": State(_all_deleted),
    "log append time": State(_on_arrival),
    "missing": State(lambda _: f"missing-{uuid.uuid4().hex[:8]}"),
    "readable": State(_guarded(AclOperation.READ), guarded=True),
    "unreadable": State(_guarded(AclOperation.DESCRIBE), guarded=True),
    "hidden": State(_guarded(), guarded=True),
}


def _more(world: World, topic: str) -> None:
    world.fill(topic, 3, 2, first=6)


def _grown(world: World, topic: str) -> None:
    with world.admin() as admin:
        admin.create_partitions(topic, 4)
    world.fill(topic, 1, 0, 3, 2, first=6)


def _cut_below(world: World, topic: str) -> None:
    _cut(world, topic, 5, 4)
    world.fill(topic, 2, 2, first=6)


def _cut_unread(world: World, topic: str) -> None:
    world.fill(topic, 5, 3, first=6)
    _cut(world, topic, 8, 5)


def _cut_all(world: World, topic: str) -> None:
    world.fill(topic, 5, 3, first=6)
    _cut(world, topic, 11, 7)


def _delete(world: World, topic: str) -> None:
    with world.admin() as admin:
        admin.delete_topic(topic)


def _again(*counts: int) -> Callable[[World, str], None]:
    def change(world: World, topic: str) -> None:
        with world.admin() as admin:
            admin.delete_topic(topic)
            admin.create_topic(topic, len(counts))
        world.fill(topic, *counts)

    return change


def _transactions(world: World, topic: str) -> None:
    world.transaction(topic, 2, 1, commit=True)
    world.transaction(topic, 2, 1, commit=False)
    world.fill(topic, 1, 1, first=6)


def _only_aborts(world: World, topic: str) -> None:
    world.transaction(topic, 2, 1, commit=False)


CHANGING: Final[Mapping[str, State]] = {
    "unchanged": State(_filled, lambda *_: None),
    "continued": State(_filled, _more),
    "empty, then filled": State(lambda world: world.new_topic(), _more),
    "grown": State(_filled, _grown),
    "continued by transactions": State(_filled, _transactions),
    "continued by aborts": State(_filled, _only_aborts),
    "truncated below": State(_filled, _cut_below),
    "truncated ahead": State(_filled, _cut_unread),
    "truncated wholly": State(_filled, _cut_all),
    "deleted": State(_filled, _delete),
    "made anew empty": State(_filled, _again(0, 0)),
    "made anew shorter": State(_filled, _again(3, 2)),
    "made anew longer": State(_filled, _again(9, 8)),
    "made anew smaller": State(_filled, _again(9)),
}
