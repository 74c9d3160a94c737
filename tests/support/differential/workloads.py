"""Workloads that one client runs on one broker: what went wrong, counted, and how long it took.

Every workload draws its sizes, settings and pauses from the generator that it is given, so that both brokers get the
same. The topic's writer is librdkafka where the client under test reads.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka import TopicPartition as LibrdkafkaPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

import fencepost
from tests.compat.burst_clients import OUTCOMES, Application
from tests.support.differential.arms import Arm
from tests.support.differential.readers import (
    LAST,
    MAX_BYTES,
    MAX_PARTITION_BYTES,
    MAX_WAIT_MS,
    MIN_BYTES,
    Read,
    Reader,
)
from tests.support.raw_client import RawClient

__all__ = ["ADMINS", "NEWEST", "WORKLOADS", "Client", "Seen", "Workload"]

PATIENCE_S = 60.0
PAUSE_S = 1.0
"""The longest pause of a client between two tries. A shorter time of writing is the client's, not the broker's."""
LOOKUPS = 40


@dataclass
class Seen:
    """`bad`: how often what should not happen did; `seconds`: what took how long; `told`: for reports."""

    bad: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    detail: str = ""


@dataclass
class Client:
    """A client as workloads need it; None: not tried with this one. `newest`: (servers, topic) -> offset, or -1."""

    name: str
    reader: Reader | None = None
    burst: Callable[[], Application] | None = None
    newest: Callable[[str, str], int] | None = None


Workload = Callable[[Arm, Client, random.Random], Seen | None]
"""None: the client cannot run it."""


# --- writing ---


def write(
    servers: str, topic: str, records: Sequence[tuple[str, str]], *, each: Callable[[], None] | None = None
) -> list[float]:
    """Write (key, value) in their order to partition 0. Return when each was sent, in ms since 1970.

    `each` is called behind every acknowledged record, else they are sent together. Raises KafkaException.
    """
    sent: list[float] = []
    reported: list[KafkaError | None] = []

    def report(error: KafkaError | None, _message: Message) -> None:
        reported.append(error)

    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 0, "log_level": 0})
    for key, value in records:
        sent.append(time.time() * 1000)
        producer.produce(topic, value, key=key, partition=0, on_delivery=report)
        if each is not None:
            producer.flush(PATIENCE_S)
            each()
    producer.flush(PATIENCE_S)
    failed = [error for error in reported if error is not None]
    if failed or len(reported) != len(records):
        raise KafkaException(failed[0] if failed else KafkaError(KafkaError._TIMED_OUT))
    return sent


def numbered(count: int, size: int = 10) -> list[tuple[str, str]]:
    """Records r0, r1, ..., with keys that make each about `size` bytes."""
    return [("k" * max(1, size - 10), f"r{number}") for number in range(count)]


def judged(values: Sequence[str], expected: Sequence[str]) -> dict[str, int]:
    """Count the values that are missing, doubled, unknown, or before a value that was written earlier."""
    counts, rank = Counter(values), {value: number for number, value in enumerate(expected)}
    order = [rank[value] for value in values if value in rank]
    return {
        "missing": len(set(expected) - counts.keys()),
        "doubled": sum(count - 1 for count in counts.values()),
        "unknown": sum(count for value, count in counts.items() if value not in rank),
        "disordered": sum(before > after for before, after in itertools.pairwise(order)),
    }


def outcome_of(read: Read, expected: Sequence[str]) -> Seen:
    """Judge the values that a reader saw. Its time counts only if it was not refused."""
    if read.refused:
        return Seen({"refused": 1}, detail=read.refused)
    return Seen(judged(read.values, expected), {"reading": read.seconds})


# --- reading ---


def segments(arm: Arm, client: Client, draw: random.Random) -> Seen | None:
    """Catch up over many small segments, with a minimum of bytes that no single segment has."""
    if client.reader is None:
        return None
    topic = arm.create(**{"internal.segment.bytes": str(draw.choice((1500, 2000, 3000)))})
    records = numbered(draw.randint(200, 300), draw.choice((150, 250)))
    write(arm.servers, topic, records, each=lambda: None)
    settings = {MIN_BYTES: str(draw.choice((5000, 20_000))), MAX_WAIT_MS: "500"}
    reading = client.reader(arm.servers, topic, len(records), settings)
    return outcome_of(reading.result(), [value for _, value in records])


LIMITS: Final[tuple[Mapping[str, str], ...]] = (
    {MAX_BYTES: "1", MIN_BYTES: "1"},
    {MAX_BYTES: "0", MIN_BYTES: "1"},
    {MAX_PARTITION_BYTES: "1", MIN_BYTES: "1"},
    {MAX_PARTITION_BYTES: "1", MIN_BYTES: "1000", MAX_WAIT_MS: "100"},
    {MAX_PARTITION_BYTES: "700", MIN_BYTES: "600", MAX_WAIT_MS: "300"},
    {MAX_BYTES: "700", MIN_BYTES: "600", MAX_WAIT_MS: "300"},
)


def limits(arm: Arm, client: Client, draw: random.Random) -> Seen | None:
    """Read batches that are larger than what a fetch may hold, or than what it has to hold."""
    if client.reader is None:
        return None
    topic = arm.create()
    records = numbered(draw.randint(20, 40), 600)
    write(arm.servers, topic, records, each=lambda: None)
    reading = client.reader(arm.servers, topic, len(records), draw.choice(LIMITS))
    return outcome_of(reading.result(), [value for _, value in records])


def live(arm: Arm, client: Client, draw: random.Random) -> Seen | None:
    """Follow a writer that pauses: the time from sending a record to its reader."""
    if client.reader is None:
        return None
    topic = arm.create()
    reading_settings = {MIN_BYTES: str(draw.choice((1, 1, 200))), MAX_WAIT_MS: str(draw.choice((100, 500)))}
    records = numbered(draw.randint(30, 50), 300)
    reading = client.reader(arm.servers, topic, len(records), reading_settings)
    reading.wait_until_it_reads()
    pauses = [draw.choice((0.0, 0.0, 0.01, 0.03)) for _ in records]
    sent = write(arm.servers, topic, records, each=lambda: time.sleep(pauses.pop()))
    read = reading.result()
    seen = outcome_of(read, [value for _, value in records])
    late = [came - begun for came, begun in zip(read.came_ms, sent, strict=False)]
    if late and not read.refused:
        seen.seconds = {"delivery": median(late) / 1000}
    return seen


def trimmed(arm: Arm, client: Client, draw: random.Random) -> Seen | None:
    """Records go away (DeleteRecords, small segments) below a reader: what it reads is in order, up to the end."""
    if client.reader is None:
        return None
    topic = arm.create(**{"internal.segment.bytes": "3000"})
    records = numbered(draw.randint(200, 300), 200)
    write(arm.servers, topic, records, each=lambda: None)
    gone = draw.randint(50, 150)
    settings = {MAX_PARTITION_BYTES: "400", MAX_WAIT_MS: "100"}
    reading = client.reader(arm.servers, topic, 10**6, settings)
    reading.wait_until_it_reads()
    arm.admin.delete_records({(topic, 0): gone})
    write(arm.servers, topic, [("k", LAST)])
    read = reading.result()
    if read.refused:
        return Seen({"refused": 1}, detail=read.refused)
    expected = [*[value for _, value in records][gone:], LAST]
    remaining = [value for value in read.values if value in set(expected)]
    return Seen(judged(remaining, expected), {"reading": read.seconds})


def compacted(arm: Arm, client: Client, draw: random.Random) -> Seen | None:
    """Read a compacted topic while its keys are overwritten: no key goes back, and each ends at its last value."""
    if client.reader is None:
        return None
    topic = arm.create(
        **{"cleanup.policy": "compact", "internal.segment.bytes": "1500", "min.cleanable.dirty.ratio": "0.01"}
    )
    keys = draw.randint(5, 15)
    records = [(f"key-{draw.randrange(keys)}", str(number)) for number in range(draw.randint(300, 400))]
    half = len(records) // 2
    write(arm.servers, topic, records[:half], each=lambda: None)
    reading = client.reader(arm.servers, topic, 10**6, {MAX_WAIT_MS: "100"})
    write(arm.servers, topic, records[half:], each=lambda: None)
    write(arm.servers, topic, [("last", LAST)])
    read = reading.result()
    if read.refused:
        return Seen({"refused": 1}, detail=read.refused)
    seen = [int(value) for value in read.values if value != LAST]
    newest = {key: int(value) for key, value in records}
    return Seen(
        {
            "missing": len(set(newest.values()) - set(seen)) + (LAST not in read.values),
            "disordered": sum(before > after for before, after in itertools.pairwise(seen)),
        },
        {"reading": read.seconds},
    )


def committed(arm: Arm, client: Client, draw: random.Random) -> Seen | None:
    """Follow transactions, some aborted: the time from asking for a commit to a reader of committed records."""
    if client.reader is None:
        return None
    topic = arm.create()
    values = [f"r{number}" for number in range(draw.randint(10, 20))]
    reading = client.reader(arm.servers, topic, len(values), {"isolation.level": "read_committed", MAX_WAIT_MS: "500"})
    reading.wait_until_it_reads()
    producer = Producer({"bootstrap.servers": arm.servers, "transactional.id": topic, "linger.ms": 0, "log_level": 0})
    producer.init_transactions(PATIENCE_S)
    ended = []
    for value in values:
        if draw.random() < 0.3:
            producer.begin_transaction()
            producer.produce(topic, "aborted", partition=0)
            producer.flush(PATIENCE_S)
            producer.abort_transaction(PATIENCE_S)
        producer.begin_transaction()
        producer.produce(topic, value, partition=0)
        producer.flush(PATIENCE_S)
        ended.append(time.time() * 1000)
        producer.commit_transaction(PATIENCE_S)
    read = reading.result()
    seen = outcome_of(read, values)
    late = [came - begun for came, begun in zip(read.came_ms, ended, strict=False)]
    if late and not read.refused:
        seen.seconds = {"delivery": median(late) / 1000}
    return seen


# --- writing ---


def _ended(arm: Arm, topic: str, application: Application, began: float) -> Seen:
    """Judge a burst: each acknowledged record must be in the topic once, and in order.

    Args:
        began: Earliest time at which the topic accepted writes, by time.perf_counter(), in seconds. Kafka accepts
            records some time before the creation of the topic is known to have ended.
    """
    try:
        reported = application.outcomes()
    except (AssertionError, TimeoutError) as error:
        return Seen({"failed": len(OUTCOMES)}, detail=str(error))
    took = time.perf_counter() - began
    acknowledged = [value for value in OUTCOMES if reported.get(value) == "ok"]
    with RawClient(arm.servers) as client:
        written = [(value or b"").decode() for value in client.fetch(topic).values]
    bad = judged([value for value in written if value in OUTCOMES], acknowledged)
    # A batch that was not acknowledged may be there all the same.
    bad["unknown"] = 0
    bad["failed"] = len(OUTCOMES) - len(acknowledged)
    return Seen(
        bad, {"writing": max(took, PAUSE_S)}, ", ".join(f"{value}={outcome}" for value, outcome in reported.items())
    )


def remade(arm: Arm, client: Client, draw: random.Random) -> Seen | None:
    """The topic is deleted and created again under an idempotent writer with several batches in flight."""
    if client.burst is None:
        return None
    topic, application = arm.create(), client.burst()
    application.start(arm.servers, topic)
    application.wait_until_ready()
    arm.admin.delete_topic(topic)
    arm.create(f"{topic}-go")
    application.let_go()
    time.sleep(draw.uniform(0.3, 1.2))
    began = time.perf_counter()
    arm.create(topic)
    return _ended(arm, topic, application, began)


def restarted(arm: Arm, client: Client, draw: random.Random) -> Seen | None:
    """The broker is killed and started again under an idempotent writer with several batches in flight."""
    if client.burst is None or not arm.can_restart:
        return None
    topic, application = arm.create(), client.burst()
    application.start(arm.servers, topic)
    application.wait_until_ready()
    arm.create(f"{topic}-go")
    application.let_go()
    time.sleep(draw.uniform(0.0, 0.1))
    began = time.perf_counter()
    arm.kill_and_restart()
    seen = _ended(arm, topic, application, began)
    # The three before are there, too; a start's time is not the client's.
    seen.seconds = {}
    return seen


# --- looking up ---


def newest(arm: Arm, client: Client, draw: random.Random) -> Seen | None:
    """Ask for the newest timestamp while others write: there is one as soon as a record was acknowledged."""
    if client.newest is None:
        return None
    topic = arm.create()
    ended = threading.Event()

    def load() -> None:
        producer = Producer(
            {"bootstrap.servers": arm.servers, "linger.ms": 0, "log_level": 0, "batch.num.messages": 20}
        )
        while not ended.is_set():
            producer.produce(topic, b"x" * 100, partition=0)
            producer.poll(0)
            time.sleep(0.002)
        producer.flush(PATIENCE_S)

    write(arm.servers, topic, [("k", "first")])
    writer = threading.Thread(target=load, daemon=True)
    writer.start()
    try:
        ask = client.newest
        found, took = [], []
        for _ in range(LOOKUPS):
            began = time.perf_counter()
            found.append(ask(arm.servers, topic))
            took.append(time.perf_counter() - began)
            time.sleep(draw.uniform(0.0, 0.01))
    finally:
        ended.set()
        writer.join(PATIENCE_S)
    return Seen({"nothing found": found.count(-1)}, {"lookup": median(took)})


def _newest_of_librdkafka(servers: str, topic: str) -> int:
    admin = _admin(servers)
    partition = LibrdkafkaPartition(topic, 0)
    spec = OffsetSpec.max_timestamp()  # type: ignore[no-untyped-call]
    (answer,) = admin.list_offsets({partition: spec}).values()
    return int(answer.result(PATIENCE_S).offset)


ADMINS: Final[dict[str, AdminClient]] = {}
"""One client for each broker. A new client for each question would add its start to the measured time. Clear this when
the brokers end: a client that is left connects to the next broker with the same port."""


def _admin(servers: str) -> AdminClient:
    if servers not in ADMINS:
        ADMINS[servers] = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    return ADMINS[servers]


def _newest_of_ours(servers: str, topic: str) -> int:
    with fencepost.Admin(servers) as admin:
        partition = fencepost.TopicPartition(topic, 0)
        return admin.list_offsets({partition: fencepost.OffsetSpec.MAX_TIMESTAMP})[partition].offset


NEWEST: Mapping[str, Callable[[str, str], int]] = {"librdkafka": _newest_of_librdkafka, "fencepost": _newest_of_ours}

WORKLOADS: Mapping[str, Workload] = {
    each.__name__: each for each in (remade, newest, segments, limits, live, trimmed, compacted, committed, restarted)
}
