"""Producers under the same faults: to the input, to a topic that is deleted and created again, to a compacted topic."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections import Counter

import fencepost
from fencepost.errors import AbortableError, DataLossError, FatalError, KafkaError, ProduceFailedError
from tests.support.torture.judging import committed_values, differences
from tests.support.torture.repeating import Repeating

__all__ = ["Feeder", "Recreator", "Updater"]

PATIENCE_MS = 300_000
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.bytes": "100000",
    "min.cleanable.dirty.ratio": "0.2",
}
KEYS = 20


class Feeder:
    """Writes numbered records to `topic`, with much patience for each of them."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, happened: Counter[str]) -> None:
        self._topic = topic
        self._partitions = partitions
        self._happened = happened
        self._producer = fencepost.Producer(
            bootstrap, delivery_timeout_ms=PATIENCE_MS, request_timeout_ms=3_000, max_block_ms=PATIENCE_MS, linger_ms=5
        )
        self._sent: list[tuple[bytes, fencepost.Delivery]] = []
        self.acknowledged: list[bytes] = []
        self.in_doubt: set[bytes] = set()
        self.anomalies: list[str] = []

    def feed_some(self) -> None:
        """Some 200 records a second."""
        for _ in range(10):
            number = len(self._sent)
            value = b"record %d" % number
            self._sent.append((value, self._producer.send(self._topic, value, partition=number % self._partitions)))
        time.sleep(0.05)

    def finish(self) -> None:
        """Wait for every record's fate."""
        with contextlib.suppress(KafkaError):  # each record tells its own
            self._producer.flush()
        for value, delivery in self._sent:
            try:
                delivery.result()
            except ProduceFailedError as error:
                self._happened[f"feeder: {type(error).__name__}: {type(error.__cause__).__name__}"] += 1
                self.in_doubt.add(value)
            else:
                self.acknowledged.append(value)
        self._producer.close()

    def compare(self, stored: list[bytes]) -> None:
        """Each acknowledged record is stored once, each that was given up (a timeout proves nothing) at most once."""
        counted, wanted = Counter(stored), Counter(self.acknowledged)
        if missing := wanted - counted:
            self.anomalies.append(f"feeder: {missing.total()} acknowledged are missing: {sorted(missing)[:5]}")
        if surplus := counted - wanted - Counter(self.in_doubt):
            self.anomalies.append(f"feeder: {surplus.total()} too many: {sorted(surplus)[:5]}")


class Recreator:
    """One producer writes to `steady` and to `volatile`; `volatile` is deleted and made anew. It must survive."""

    def __init__(self, bootstrap: str, seed: int, happened: Counter[str]) -> None:
        self._chance = random.Random(seed)
        self._happened = happened
        self._bootstrap = bootstrap
        self._producer = self._new_producer()
        self._steady: list[tuple[bytes, fencepost.Delivery]] = []
        self.anomalies: list[str] = []
        with fencepost.Admin(bootstrap) as admin:
            admin.create_topic("steady", 1)
            admin.create_topic("volatile", 1)

    def _new_producer(self) -> fencepost.Producer:
        return fencepost.Producer(
            self._bootstrap, delivery_timeout_ms=PATIENCE_MS, request_timeout_ms=3_000, max_block_ms=PATIENCE_MS
        )

    def one_round(self) -> None:
        """Some records to both, then perhaps the topic's end and beginning."""
        try:
            volatile = []
            for _ in range(self._chance.randint(1, 20)):
                value = b"steady %d" % len(self._steady)
                self._steady.append((value, self._producer.send("steady", value, partition=0)))
                volatile.append(self._producer.send("volatile", value, partition=0))
            if self._chance.random() < 0.5:
                self._make_anew()
            for delivery in volatile:
                try:
                    delivery.result()
                except DataLossError:
                    raise
                except ProduceFailedError as error:
                    self._happened[f"volatile: {type(error.__cause__ or error).__name__}"] += 1
        except (DataLossError, FatalError) as error:
            self.anomalies.append(f"recreator: {error!r}")
            self._producer = self._new_producer()
        except KafkaError as error:
            self._happened[f"recreator: {type(error).__name__}"] += 1
        time.sleep(self._chance.uniform(0, 0.5))

    def _make_anew(self) -> None:
        with fencepost.Admin(self._bootstrap, default_api_timeout_ms=120_000) as admin:
            admin.delete_topic("volatile", missing_ok=True)
            admin.create_topic("volatile", 1, exist_ok=True)
        self._happened["topic made anew"] += 1

    def finish(self) -> None:
        """Each record of `steady` is there once."""
        acknowledged = []
        for value, delivery in self._steady:
            try:
                delivery.result()
            except KafkaError as error:
                self.anomalies.append(f"recreator: steady: {value!r}: {error!r}")
            else:
                acknowledged.append(value)
        with fencepost.Admin(self._bootstrap) as admin, fencepost.Consumer(self._bootstrap) as consumer:
            found = committed_values(admin, consumer, "steady", 1)
        if found != acknowledged:
            wrong = {what: sorted(values)[:3] for what, values in differences(acknowledged, found).items()}
            self.anomalies.append(f"steady: {wrong or 'out of order'}")


class Updater(Repeating):
    """Writes the same keys and a new one repeatedly to the compacted topic `name`, so that compaction removes records.

    The broker must keep the last acknowledged value of each key. With `transactional` each round is a transaction, and
    a quarter of them are aborted.
    """

    def __init__(self, bootstrap: str, name: str, seed: int, stopping: threading.Event, *, transactional: bool) -> None:
        super().__init__(self._one_round, stopping, name=name)
        self._topic = name
        self._servers = bootstrap
        self._chance = random.Random(seed)
        self._number = 0
        self._acknowledged: dict[bytes, int] = {}
        self._aborted: set[bytes] = set()
        self._transactional = transactional
        with fencepost.Admin(bootstrap) as admin:
            admin.create_topic(name, 1, 1, COMPACTED, exist_ok=True)
        self._producer = fencepost.Producer(
            bootstrap,
            transactional_id=name if transactional else None,
            delivery_timeout_ms=PATIENCE_MS,
            request_timeout_ms=3_000,
            max_block_ms=PATIENCE_MS,
        )
        if transactional:
            self._producer.init_transactions()

    def _one_round(self) -> None:
        self._number += 1
        keys = [b"key-%d" % key for key in range(KEYS)] + [b"new-%d" % self._number]
        values = {key: b"%s %d %s" % (key, self._number, b"." * 300) for key in keys}
        if not self._transactional:
            self._send(values)
            self._acknowledged.update(dict.fromkeys(keys, self._number))
            return
        self._producer.begin_transaction()
        try:
            self._send(values)
            if self._chance.random() < 0.25:
                self._producer.abort_transaction()
                self._aborted.update(values.values())
                return
            self._producer.commit_transaction()
        except AbortableError:
            self._producer.abort_transaction()
            self._aborted.update(values.values())
            return
        self._acknowledged.update(dict.fromkeys(keys, self._number))

    def _send(self, values: dict[bytes, bytes]) -> None:
        for delivery in [self._producer.send(self._topic, value, key=key) for key, value in values.items()]:
            delivery.result()
        time.sleep(0.01)

    def finish(self) -> list[str]:
        """Close the producer, read the topic, and return the anomalies."""
        self._producer.close()
        with fencepost.Admin(self._servers) as admin, fencepost.Consumer(self._servers) as consumer:
            found = committed_values(admin, consumer, self._topic, 1)
        latest: dict[bytes, int] = {}
        for value in found:
            key, number, _ = value.split(b" ")
            latest[key] = max(latest.get(key, 0), int(number))
        anomalies = [
            f"{self._topic}: {key!r}: number {number} was acknowledged, the latest is {latest.get(key)}"
            for key, number in self._acknowledged.items()
            if latest.get(key, 0) < number
        ]
        anomalies += [f"{self._topic}: aborted and visible: {value[:40]!r}" for value in self._aborted & set(found)]
        if not self._acknowledged:
            anomalies.append(f"{self._topic}: no record was acknowledged")
        return anomalies
