"""Runs one program with confluent-kafka and with `fencepost.compat.confluent_kafka`, and compares what it saw."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import confluent_kafka
import confluent_kafka.admin

import fencepost
from fencepost.compat import confluent_kafka as ours
from tests.support.brokers import BrokerUnderTest

PATIENCE_S = 60.0

Program = Callable[["Kit"], Any]


class Kit:
    """The clients of one module at one broker, with names of their own."""

    def __init__(self, module: Any, broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
        self.module = module
        self.admin = admin
        self._broker = broker
        self._names: dict[str, str] = {}
        self._open: list[Any] = []

    def name(self, short: str) -> str:
        """The unique name for `short`. `plain` turns it back."""
        return self._names.setdefault(short, self._broker.name(short))

    def plain(self, seen: Any) -> Any:
        """The values that a program saw, with the short names."""
        if isinstance(seen, str):
            for short, full in self._names.items():
                seen = short if seen == full else seen
            return seen
        if isinstance(seen, (list, tuple, set)):
            return [self.plain(each) for each in seen]
        if isinstance(seen, dict):
            return {self.plain(key): self.plain(value) for key, value in seen.items()}
        return seen

    def topic(self, short: str, partitions: int = 1, values: int = 0) -> str:
        """A new topic with `values` records, spread over its partitions in turn, at times from 1000 ms on."""
        name = self.name(short)
        self.admin.create_topic(name, partitions)
        with fencepost.Producer(self._broker.bootstrap_servers) as producer:
            for number in range(values):
                producer.send(name, b"%d" % number, partition=number % partitions, timestamp_ms=1_000 + number)
        return name

    def settings(self, **more: Any) -> dict[str, Any]:
        given = {key if callable(value) else key.replace("_", "."): value for key, value in more.items()}
        return {"bootstrap.servers": self._broker.bootstrap_servers, **given}

    def producer(self, **more: Any) -> Any:
        client = self.module.Producer(self.settings(**{"linger_ms": 0, **more}))
        self._open.append(client)
        return client

    def consumer(self, **more: Any) -> Any:
        settings = {"group_id": self.name("g"), "auto_offset_reset": "earliest", "enable_auto_commit": False, **more}
        client = self.module.Consumer(self.settings(fetch_wait_max_ms=50, **settings))
        self._open.append(client)
        return client

    def open(self, kind: Any, **settings: Any) -> Any:
        """A client of a class, with settings under their own names."""
        client = kind({"bootstrap.servers": self._broker.bootstrap_servers, **settings})
        self._open.append(client)
        return client

    def partition(self, short: str, *more: Any) -> Any:
        return self.module.TopicPartition(self.name(short), *more)

    def fails(self, call: Callable[[], object]) -> Any:
        """The type of what a call raises, with the code and the flags of a KafkaException."""
        try:
            call()
        except self.module.KafkaException as error:
            found = error.args[0]
            return found.name(), found.fatal(), found.retriable(), found.txn_requires_abort()
        except (BufferError, RuntimeError, TypeError, ValueError) as error:
            return type(error).__name__
        return None

    def leave(self, client: Any) -> None:
        """Do not close this client: confluent-kafka fails to close a fenced producer."""
        self._open.remove(client)

    def end(self) -> None:
        for client in self._open:
            client.close()


def both(broker: BrokerUnderTest, admin: fencepost.Admin, program: Program) -> Any:
    """Run a program with each module. Both have to see the same, which is returned."""
    with broker.connect():
        pass  # a Kafka's coordinators are ready now; a consumer of librdkafka may wait a minute for them
    seen = []
    for module in (confluent_kafka, ours):
        kit = Kit(module, broker, admin)
        try:
            seen.append(kit.plain(program(kit)))
        finally:
            kit.end()
    assert seen[0] == seen[1], seen
    return seen[0]


def shown(message: Any) -> Any:
    """A message as plain values. The epoch, the text and the offset of events may differ."""
    if message.error() is not None:
        return message.error().name(), message.topic(), message.partition()
    where = (message.topic(), message.partition(), message.offset(), message.timestamp(), message.leader_epoch())
    return *where, message.key(), message.value(), message.headers()


def positions(partitions: list[Any]) -> list[tuple[str, int, int, Any]]:
    """Partitions with offsets as plain values."""
    return sorted((each.topic, each.partition, each.offset, each.error) for each in partitions)


def read(consumer: Any, count: int) -> list[Any]:
    """The next `count` messages, events included."""
    found: list[Any] = []
    give_up = time.monotonic() + PATIENCE_S
    while len(found) < count:
        assert time.monotonic() < give_up, [shown(each) for each in found]
        message = consumer.poll(1)
        if message is not None:
            found.append(message)
    return found
