"""Benchmarks of producing, consuming and transactions; with confluent-kafka, if installed, for comparison.

All producers are idempotent with acks=all. All consumers read committed records only.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sized
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from importlib.util import find_spec
from itertools import cycle, islice, repeat
from random import Random
from typing import Any, TypeVar

import fencepost
from fencepost import TopicPartition
from fencepost.config import ProducerConfig
from fencepost.counted import counted_noun
from fencepost_lab.benchmark.contest import Contest
from fencepost_lab.torture.access import Access, librdkafka_settings

__all__ = ["MEASURES", "PEER", "Load", "consume", "has_peer", "produce", "transactions"]

PEER = "confluent-kafka"
ROWS = 10_000  # rows of one Arrow table
RECORDS_A_TRANSACTION = 200  # this many records take about as long as one transaction
ARROW_SHARE = 5  # send_arrow moves this many times more records, so that rounds take about equally long
FLOWS = ("ordered", "paid", "packed", "sent", "returned")
EVENT_BYTES = 10_000_000
KEYS = tuple(b"key-%d" % number for number in range(1000))
PATIENCE_S = 120.0
POLL_MS = 1000

P = TypeVar("P", bound=Sized)


@dataclass(frozen=True, slots=True)
class Load:
    """Parameters of a benchmark. `size` is the size of each value in bytes.

    With `varied` the values differ like those of events. Otherwise they are all equal, which codecs compress very fast.
    """

    access: Access
    size: int = 100
    partitions: int = 1
    compression: str = "none"
    varied: bool = False

    def __post_init__(self) -> None:
        """Check the compression. Raises ConfigurationError."""
        ProducerConfig.make({**self.access.options(), "compression_type": self.compression})

    def values(self, count: int) -> Iterator[bytes]:
        """Return an iterator over `count` values."""
        return islice(cycle(_events(self.size)), count) if self.varied else repeat(b"x" * self.size, count)

    def partitions_of(self, topic: str) -> list[TopicPartition]:
        """Return all partitions of the topic."""
        return [TopicPartition(topic, partition) for partition in range(self.partitions)]

    def producer(self, **more: Any) -> fencepost.Producer:
        """Return a producer of this project."""
        return fencepost.Producer(**self.access.options(), compression_type=self.compression, **more)

    def consumer(self) -> fencepost.Consumer:
        """Return a consumer of this project, which starts at the beginning."""
        return fencepost.Consumer(**self.access.options(), auto_offset_reset="earliest")

    def theirs(self, **more: Any) -> dict[str, Any]:
        """Return a client's settings by librdkafka's names."""
        security = librdkafka_settings(self.access.config())
        return {"bootstrap.servers": self.access.bootstrap_servers, **security, **more}


Work = Callable[[Load, str, int], None]
"""Moves a number of records to or from a topic."""


@cache
def _events(size: int) -> list[bytes]:
    """Return values of `size` bytes like those of programs: text with fields that differ and words that repeat."""
    random = Random(size)
    fields = size // 60 + 1  # each takes at least 60 bytes
    events = []
    for number in range(max(10, min(ROWS, EVENT_BYTES // size))):
        event = ",".join(
            f'{{"id":"{number:08d}","at":{1_700_000_000_000 + number},"flow":"{random.choice(FLOWS)}",'
            f'"worth":{random.randrange(10**6)}}}'
            for _ in range(fields)
        )
        events.append(event.encode()[:size])
    return events


def has_peer() -> bool:
    """Return true if confluent-kafka is installed."""
    return find_spec("confluent_kafka") is not None


def produce(load: Load, records: int, rounds: int) -> Contest:
    """Measure records per second, to a new topic each time. Raises KafkaError."""

    def into_a_new_topic(work: Work) -> Callable[[int], None]:
        def move(amount: int) -> None:
            with _new_topic(load) as topic:
                work(load, topic, amount)

        return move

    works = _present(PRODUCERS)
    contest = Contest("records/s", next(iter(works)))
    amounts = {name: records * (ARROW_SHARE if work is _send_arrow else 1) for name, work in works.items()}
    contest.run({name: into_a_new_topic(work) for name, work in works.items()}, amounts, rounds)
    return contest


def consume(load: Load, records: int, rounds: int) -> Contest:
    """Measure records per second, each time from the beginning of the same topic. Raises KafkaError."""
    with _new_topic(load) as topic:
        _send_arrow(load, topic, records)
        return _on_shared_topic(load, topic, "records/s", _present(CONSUMERS), records, rounds)


def transactions(load: Load, records: int, rounds: int) -> Contest:
    """Measure transactions per second, one record each, one after the other. Raises KafkaError.

    The number of transactions is `records` / RECORDS_A_TRANSACTION.
    """
    count = max(1, records // RECORDS_A_TRANSACTION)
    with _new_topic(load) as topic:
        return _on_shared_topic(load, topic, "transactions/s", _present(TRANSACTIONS), count, rounds)


def _on_shared_topic(load: Load, topic: str, unit: str, works: Mapping[str, Work], amount: int, rounds: int) -> Contest:
    contest = Contest(unit, next(iter(works)))
    contestants = {name: partial(work, load, topic) for name, work in works.items()}
    contest.run(contestants, dict.fromkeys(works, amount), rounds)
    return contest


def _present(works: Mapping[str, Work]) -> dict[str, Work]:
    """Return the benchmarks without those of the peer if it is not installed."""
    return {
        name: partial(_peers, work) if name.startswith(PEER) else work
        for name, work in works.items()
        if has_peer() or not name.startswith(PEER)
    }


def _peers(work: Work, load: Load, topic: str, records: int) -> None:
    """Run the peer's part and turn its exceptions into KafkaError."""
    from confluent_kafka import KafkaException

    try:
        work(load, topic, records)
    except KafkaException as error:
        raise fencepost.errors.KafkaError(f"{PEER}: {error}") from error


@contextmanager
def _new_topic(load: Load) -> Iterator[str]:
    """Create a topic for the block, and delete it at the end."""
    topic = f"bench-{uuid.uuid4().hex[:8]}"
    with fencepost.Admin(**load.access.options()) as admin:
        may_exist = True
        try:
            try:
                admin.create_topic(topic, load.partitions)
            except fencepost.errors.KafkaError as error:
                may_exist = error.may_have_taken_effect
                raise
            yield topic
        finally:
            if may_exist:  # a refused deletion would hide a refused creation
                admin.delete_topic(topic, missing_ok=True)


# Producing -----------------------------------------------------------------------------------------------------------


def _send(load: Load, topic: str, records: int) -> None:
    with load.producer() as producer:
        send = producer.send
        for value in load.values(records):
            send(topic, value)


def _send_keyed(load: Load, topic: str, records: int) -> None:
    with load.producer() as producer:
        send = producer.send
        for value, key in zip(load.values(records), cycle(KEYS), strict=False):
            send(topic, value, key)


def _send_arrow(load: Load, topic: str, records: int) -> None:
    import pyarrow as pa

    table = pa.table({"value": pa.array(load.values(min(ROWS, records)), pa.binary())})
    with load.producer() as producer:
        for sent in range(0, records, ROWS):
            producer.send_arrow(topic, table.slice(0, records - sent))


def _their_produce(load: Load, topic: str, records: int) -> None:
    from confluent_kafka import Producer

    producer = Producer(
        load.theirs(
            **{
                "enable.idempotence": True,
                "linger.ms": 5,
                "compression.type": load.compression,
                "queue.buffering.max.messages": 1_000_000,
            }
        )
    )
    try:
        for value in load.values(records):
            while True:
                try:
                    producer.produce(topic, value)
                    break
                except BufferError:
                    producer.poll(0.01)
            producer.poll(0)
        left = producer.flush(PATIENCE_S)
    finally:
        producer.purge()
        del producer  # ends its threads, which would create the topic again after its deletion
    if left:
        raise fencepost.errors.KafkaTimeoutError(
            f"{PEER} did not deliver {counted_noun(left, 'record')} within {PATIENCE_S:.0f} s"
        )


# Consuming -----------------------------------------------------------------------------------------------------------


def _poll(load: Load, topic: str, records: int) -> None:
    with load.consumer() as consumer:
        consumer.assign(load.partitions_of(topic))
        for polled in _until(records, lambda _: consumer.poll(POLL_MS)):
            for record in polled:
                _looked_at(record.value)


def _poll_arrow(load: Load, topic: str, records: int) -> None:
    with load.consumer() as consumer:
        consumer.assign(load.partitions_of(topic))
        for _ in _until(records, lambda _: consumer.poll_arrow(POLL_MS)):
            pass


def _fetch_range(load: Load, topic: str, records: int) -> None:
    with fencepost.Admin(**load.access.options()) as admin:
        ends = admin.list_offsets(dict.fromkeys(load.partitions_of(topic), fencepost.OffsetSpec.LATEST))
    with load.consumer() as consumer:
        left = records
        for (_, partition), end in ends.items():
            for piece in consumer.fetch_range(topic, partition, 0, min(end.offset, left)):
                left -= len(piece.columns)
    if left:
        raise fencepost.errors.KafkaTimeoutError(f"{left} of {records} records of {topic} are not there")


def _their_consume(load: Load, topic: str, records: int) -> None:
    from confluent_kafka import Consumer, TopicPartition

    group = f"bench-{uuid.uuid4().hex[:8]}"
    settings = {"group.id": group, "enable.auto.commit": False, "isolation.level": "read_committed"}
    consumer = Consumer(load.theirs(**settings))
    consumer.assign([TopicPartition(topic, partition, 0) for topic, partition in load.partitions_of(topic)])
    for polled in _until(records, lambda left: consumer.consume(min(ROWS, left), POLL_MS / 1000)):
        for message in polled:
            _looked_at(message.value())
    consumer.close()


def _until(records: int, poll: Callable[[int], P]) -> Iterator[P]:
    """Yield the results of `poll` until there are `records`. Raises KafkaTimeoutError if none come for PATIENCE_S."""
    seen, last = 0, time.monotonic()
    while seen < records:
        polled = poll(records - seen)
        if len(polled):
            seen, last = seen + len(polled), time.monotonic()
            yield polled
        elif time.monotonic() - last > PATIENCE_S:
            raise fencepost.errors.KafkaTimeoutError(
                f"{seen} of {records} records came, and none for {PATIENCE_S:.0f} s"
            )


def _looked_at(value: bytes | None) -> None:
    """Access a record's value, as a program would. A null value means a lost value, because none was written."""
    if value is None:
        raise fencepost.errors.DataLossError("a record came back without its value")


# Transactions --------------------------------------------------------------------------------------------------------


def _transactions(load: Load, topic: str, count: int) -> None:
    with load.producer(transactional_id=topic, linger_ms=0) as producer:
        producer.init_transactions()
        for value in load.values(count):
            with producer.transaction():
                producer.send(topic, value)


def _their_transactions(load: Load, topic: str, count: int) -> None:
    from confluent_kafka import Producer

    producer = Producer(load.theirs(**{"transactional.id": f"{topic}-theirs", "linger.ms": 0}))
    try:
        producer.init_transactions(PATIENCE_S)
        for value in load.values(count):
            producer.begin_transaction()
            producer.produce(topic, value)
            producer.commit_transaction(PATIENCE_S)
    finally:
        producer.purge()
        del producer  # as in _their_produce


PRODUCERS: Mapping[str, Work] = {
    f"{PEER} produce()": _their_produce,
    "fencepost send()": _send,
    "fencepost send() with keys": _send_keyed,
    "fencepost send_arrow()": _send_arrow,
}
CONSUMERS: Mapping[str, Work] = {
    f"{PEER} consume()": _their_consume,
    "fencepost poll()": _poll,
    "fencepost poll_arrow()": _poll_arrow,
    "fencepost fetch_range()": _fetch_range,
}
TRANSACTIONS: Mapping[str, Work] = {
    f"{PEER} transactions": _their_transactions,
    "fencepost transactions": _transactions,
}
MEASURES: Mapping[str, Callable[[Load, int, int], Contest]] = {
    "produce": produce,
    "consume": consume,
    "transactions": transactions,
}
"""Benchmarks by name; each takes a load, a number of records and a number of rounds."""
