"""One Apache Kafka for all workers of a parallel run: to be there, to warm up and to be idle takes a node as much
processor time as what one worker asks of it.

The main process starts it when a worker first asks (`asked`), and ends it when the run ends; Linux ends it when the
main process is killed.
"""

from __future__ import annotations

import contextlib
import threading
from dataclasses import dataclass
from multiprocessing.connection import Client, Connection, Listener

from tests.support.apache_kafka import ApacheKafka, Setting, StartFailed, Unavailable

__all__ = ["SETTINGS", "KafkaOfTheRun", "SharedNode", "asked"]

# Kafka would wait a second between two assignments of a consumer group, and not take sessions below 45 s. A member
# of a share group hears of its partitions with a later heartbeat than its first: every 5 s unless told otherwise.
FOR_GROUPS: dict[str, Setting] = {
    "group.consumer.assignment.interval.ms": 0,
    "group.consumer.min.session.timeout.ms": 1_000,
    "group.consumer.min.heartbeat.interval.ms": 100,
    "group.share.assignment.interval.ms": 0,
    "group.share.min.heartbeat.interval.ms": 100,
    "group.share.heartbeat.interval.ms": 200,
}
# Nobody kills it, and it lives long: what it does when nobody asks it, and what its threads do to look for work, is
# most of what it costs.
SELDOM: dict[str, Setting] = {
    "metadata.max.idle.interval.ms": 10_000,
    "broker.session.timeout.ms": 60_000,
    "broker.heartbeat.interval.ms": 10_000,
}
SETTINGS = {**FOR_GROUPS, **SELDOM}


@dataclass(frozen=True, slots=True)
class SharedNode:
    """A running node, which is not the asker's to stop."""

    bootstrap_servers: str


class KafkaOfTheRun:
    """In the main process. Workers ask at `address`, until `close`."""

    def __init__(self) -> None:
        self._kafka = ApacheKafka(SETTINGS)
        self._kafka.starter_outlives_it = True
        self._listener = Listener(family="AF_UNIX")
        self.address = str(self._listener.address)
        self._ended = False
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._ended = True
        Client(self.address, family="AF_UNIX").close()  # wakes the thread
        self._thread.join()
        self._listener.close()

    def _serve(self) -> None:
        while True:
            connection = self._listener.accept()
            if self._ended:
                break
            self._answer(connection)
        self._kafka.stop()

    def _answer(self, connection: Connection) -> None:
        answer: SharedNode | Exception
        try:
            answer = SharedNode(self._kafka.start().bootstrap_servers)
        except (Unavailable, StartFailed) as reason:
            answer = reason
        with connection, contextlib.suppress(OSError):  # it may be gone
            connection.send(answer)


def asked(address: str) -> SharedNode:
    """The node, once it answers. Raises `Unavailable`, `StartFailed`."""
    with Client(address, family="AF_UNIX") as connection:
        answer = connection.recv()
    if isinstance(answer, SharedNode):
        return answer
    raise answer
