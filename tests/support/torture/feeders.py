"""Idempotent producers under the same faults: one feeds the input, one meets a topic that is made anew."""

from __future__ import annotations

import contextlib
import random
import time
from collections import Counter

import fencepost
from fencepost.errors import DataLossError, FatalError, KafkaError, ProduceFailedError
from tests.support.torture.judging import committed_values, differences

__all__ = ["Feeder", "Recreator"]

PATIENCE_MS = 300_000


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
