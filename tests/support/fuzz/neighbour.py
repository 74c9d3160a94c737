"""A well-behaved client that does its transactions beside whatever else goes on, and is not to notice any of it."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Self

import fencepost
from fencepost.testing import read_all

__all__ = ["TOPIC", "Neighbour"]

TOPIC = "neighbour"
PATIENCE_S = 60.0


class Neighbour:
    """Works in a thread while the context lasts; whatever it is told in error is raised at the end of it."""

    def __init__(self, broker: fencepost.Broker) -> None:
        self._broker = broker
        self._stopping = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="neighbour", daemon=True)
        self._committed: list[bytes] = []
        self.transactions = 0

    def __enter__(self) -> Self:
        self._thread.start()
        self.gets_on()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._thread.join(PATIENCE_S)
        if error is not None:
            return
        if self._error is not None:
            raise self._error
        if self._thread.is_alive():
            raise AssertionError("the neighbour does not come to an end")
        self.check()

    def check(self) -> None:
        """Compare what is there with what it was told. Raises AssertionError."""
        stored = sorted(record.value or b"" for record in read_all(self._broker, TOPIC))
        if stored != sorted(self._committed):
            raise AssertionError(f"{len(self._committed)} records were committed, {len(stored)} are there")

    def gets_on(self) -> None:
        """Return when it has ended two more transactions: one of them began after the call."""
        wanted, deadline = self.transactions + 2, time.monotonic() + PATIENCE_S
        while self.transactions < wanted:
            if self._error is not None:
                raise self._error
            if time.monotonic() > deadline:
                raise AssertionError(f"the neighbour gets nothing done: {self.transactions} transactions")
            time.sleep(0.002)

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:  # noqa: BLE001 - it is raised in the thread that looks
            self._error = error

    def _work(self) -> None:
        servers = self._broker.bootstrap_servers
        with fencepost.Admin(servers) as admin:
            admin.create_topic(TOPIC, 2)
        with fencepost.Producer(servers, transactional_id=TOPIC, linger_ms=0) as producer:
            producer.init_transactions()
            while not self._stopping.is_set():
                values = [b"%d-%d" % (self.transactions, number) for number in range(3)]
                producer.begin_transaction()
                for number, value in enumerate(values):
                    producer.send(TOPIC, value, partition=number % 2)
                if self.transactions % 4 == 3:
                    producer.abort_transaction()
                else:
                    producer.commit_transaction()
                    self._committed += values
                self.transactions += 1
                time.sleep(0.005)  # others want the machine, too
