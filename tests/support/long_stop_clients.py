"""Applications for `long_stops`: transactional producers and group members of librdkafka, Java and Fencepost.

Each works until it is told to end. A writer has one transaction after the other, of three records; a transaction that
spans the stop is begun before it and committed behind it. A member commits its offsets after every poll.
"""

from __future__ import annotations

import contextlib
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import confluent_kafka
from confluent_kafka import KafkaException

import fencepost
from fencepost.errors import ApplicationRecoverableError, FatalError, KafkaError, RetriableError
from fencepost_lab.check.history import Outcome
from tests.compat.java_clients import JavaClients

__all__ = [
    "JAVA",
    "POLLED",
    "SESSION_MS",
    "Ends",
    "Member",
    "MemberInJava",
    "Span",
    "Worker",
    "Writer",
    "WriterInJava",
    "members",
    "writers",
]

JAVA = "4.4.0"
RECORDS = 3
TRANSACTION_TIMEOUT_MS = 60_000
SESSION_MS = 45_000
CALL_S = 30.0
POLLED = 100
"""Most records that a member takes at once."""
QUIET = {"log_level": 0}

Kinds = Counter[str]


class Ends:
    """The word to end, for threads as an event, for Java as a file."""

    def __init__(self, folder: Path, name: str) -> None:
        self.event = threading.Event()
        self.path = folder / name

    def say(self) -> None:
        self.path.touch()
        self.event.set()


@dataclass
class Worker:
    """Results of an application: `outcomes` by transaction, `errors` by kind, `at` times of success in s since 1970."""

    name: str
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    errors: Kinds = field(default_factory=Counter)
    at: list[float] = field(default_factory=list)
    values: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    """Of a member: when each value came."""
    broken: BaseException | None = None


class InAThread(ABC):
    """An application in a thread of its own."""

    def __init__(self, name: str, servers: str, topic: str, ends: Ends) -> None:
        self.seen = Worker(name)
        self.servers, self.topic, self.ends = servers, topic, ends
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wait(self, within_s: float) -> Worker:
        """Return what it saw. It is broken if it does not end."""
        self._thread.join(within_s)
        if self._thread.is_alive():
            self.seen.broken = TimeoutError("it does not end")
        return self.seen

    def _run(self) -> None:
        try:
            self.work()
        except BaseException as error:  # noqa: BLE001 (the run tells it)
            self.seen.broken = error

    @abstractmethod
    def work(self) -> None: ...

    def values_of(self, number: str) -> list[str]:
        return [f"{self.seen.name}-{number}-{index}" for index in range(RECORDS)]


def _kind(error: BaseException) -> str:
    if isinstance(error, KafkaException):
        found = error.args[0]
        return f"{found.name()}{' fatal' if found.fatal() else ''}{' abortable' if found.txn_requires_abort() else ''}"
    names = [type(error).__name__]
    cause = error.__cause__
    while cause is not None:
        names.append(type(cause).__name__)
        cause = cause.__cause__
    return "<".join(names)


class OfLibrdkafka(InAThread):
    """librdkafka's part of writers: calls are made again for as long as the library says that one may."""

    def client(self) -> confluent_kafka.Producer:
        return confluent_kafka.Producer(
            {
                **QUIET,
                "bootstrap.servers": self.servers,
                "transactional.id": self.seen.name,
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "linger.ms": 0,
            }
        )

    def patiently(self, step: str, call: Callable[[], object]) -> None:
        while True:
            try:
                call()
            except KafkaException as error:
                self.seen.errors[f"{step}: {_kind(error)}"] += 1
                if not error.args[0].retriable():
                    raise
            else:
                return


class LibrdkafkaWriter(OfLibrdkafka):
    """One transaction after the other."""

    def work(self) -> None:
        number = 0
        while not self.ends.event.is_set():
            producer = self.client()
            with contextlib.suppress(KafkaException):
                self.patiently("init", partial(producer.init_transactions, CALL_S))
                while not self.ends.event.is_set():
                    number += 1
                    self.transact(producer, str(number))

    def transact(self, producer: confluent_kafka.Producer, number: str) -> None:
        producer.begin_transaction()
        self.seen.outcomes[number] = Outcome.ABORTED
        for index, value in enumerate(self.values_of(number)):
            producer.produce(self.topic, value, partition=index % 2)
            producer.poll(0.03)
        self.seen.outcomes[number] = Outcome.UNKNOWN
        try:
            self.patiently("commit", lambda: producer.commit_transaction(CALL_S))
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            self.patiently("abort", lambda: producer.abort_transaction(CALL_S))
            self.seen.outcomes[number] = Outcome.ABORTED
        else:
            self.seen.outcomes[number] = Outcome.COMMITTED
            self.seen.at.append(time.time())


class OurWriter(InAThread):
    """One transaction after the other."""

    def work(self) -> None:
        number = 0
        while not self.ends.event.is_set():
            try:
                with _ours(self.servers, self.seen.name) as producer:
                    self.patiently("init", producer.init_transactions)
                    while not self.ends.event.is_set():
                        number += 1
                        self.transact(producer, str(number))
            except KafkaError as error:
                self.seen.errors[f"client: {_kind(error)}"] += 1

    def patiently(self, step: str, call: Callable[[], object]) -> None:
        while True:
            try:
                call()
            except RetriableError as error:
                self.seen.errors[f"{step}: {_kind(error)}"] += 1
            except KafkaError as error:
                self.seen.errors[f"{step}: {_kind(error)}"] += 1
                raise
            else:
                return

    def transact(self, producer: fencepost.Producer, number: str) -> None:
        producer.begin_transaction()
        self.seen.outcomes[number] = Outcome.ABORTED
        for index, value in enumerate(self.values_of(number)):
            producer.send(self.topic, value.encode(), partition=index % 2)
            time.sleep(0.03)
        self.seen.outcomes[number] = Outcome.UNKNOWN
        try:
            self.patiently("commit", producer.commit_transaction)
        except (ApplicationRecoverableError, FatalError):
            raise
        except KafkaError:
            self.patiently("abort", producer.abort_transaction)
            self.seen.outcomes[number] = Outcome.ABORTED
        else:
            self.seen.outcomes[number] = Outcome.COMMITTED
            self.seen.at.append(time.time())


def _ours(servers: str, name: str) -> fencepost.Producer:
    return fencepost.Producer(
        servers, transactional_id=name, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS, max_block_ms=int(CALL_S * 1000)
    )


class Span(InAThread):
    """A transaction that is begun before the stop, and committed when `may_go` is set; then another one."""

    def __init__(self, name: str, servers: str, topic: str, ends: Ends) -> None:
        super().__init__(name, servers, topic, ends)
        self.is_begun = threading.Event()
        self.may_go = threading.Event()

    def spans(self, begin: Callable[[], object], send: Callable[[str], object], flush: Callable[[], object]) -> None:
        """Begin and send the first record; wait; send the second one."""
        self.seen.outcomes["span"] = Outcome.ABORTED
        begin()
        first, second, _ = self.values_of("span")
        send(first)
        flush()
        self.is_begun.set()
        self.may_go.wait()
        self.attempt("send", lambda: (send(second), flush()))

    def attempt(self, step: str, call: Callable[[], object]) -> bool:
        try:
            call()
        except (KafkaException, KafkaError) as error:
            self.seen.errors[f"{step}: {_kind(error)}"] += 1
            return False
        return True


class LibrdkafkaSpan(OfLibrdkafka, Span):
    def work(self) -> None:
        producer = self.client()
        self.patiently("init", lambda: producer.init_transactions(CALL_S))
        self.spans(
            producer.begin_transaction,
            lambda value: producer.produce(self.topic, value, partition=0),
            lambda: producer.flush(CALL_S),
        )
        self.seen.outcomes["span"] = Outcome.UNKNOWN
        if self.attempt("commit", lambda: producer.commit_transaction(CALL_S)):
            self.seen.outcomes["span"] = Outcome.COMMITTED
        elif self.attempt("abort", lambda: producer.abort_transaction(CALL_S)):
            self.seen.outcomes["span"] = Outcome.ABORTED


class OurSpan(Span):
    def work(self) -> None:
        with contextlib.suppress(KafkaError), _ours(self.servers, self.seen.name) as producer:
            producer.init_transactions()
            self.spans(
                producer.begin_transaction,
                lambda value: producer.send(self.topic, value.encode(), partition=0),
                producer.flush,
            )
            self.seen.outcomes["span"] = Outcome.UNKNOWN
            if self.attempt("commit", producer.commit_transaction):
                self.seen.outcomes["span"] = Outcome.COMMITTED
            elif self.attempt("abort", producer.abort_transaction):
                self.seen.outcomes["span"] = Outcome.ABORTED


class Member(InAThread):
    """A member of `group`, by the protocol `classic` or `consumer`."""

    def __init__(self, name: str, servers: str, topic: str, ends: Ends, *, group: str, protocol: str) -> None:
        super().__init__(name, servers, topic, ends)
        self.group, self.protocol = group, protocol

    def got(self, value: bytes | None) -> None:
        self.seen.values[(value or b"").decode()].append(time.time())


class LibrdkafkaMember(Member):
    def work(self) -> None:
        session = {"session.timeout.ms": SESSION_MS} if self.protocol == "classic" else {}
        consumer = confluent_kafka.Consumer(
            {
                **QUIET,
                **session,
                "bootstrap.servers": self.servers,
                "group.id": self.group,
                "group.protocol": self.protocol,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        consumer.subscribe([self.topic])
        while not self.ends.event.is_set():
            try:
                messages = consumer.consume(POLLED, 0.2)
                for message in messages:
                    if (error := message.error()) is not None:
                        self.seen.errors[f"poll: {error.name()}"] += 1
                    else:
                        self.got(message.value())
                if messages:
                    consumer.commit(asynchronous=False)
            except KafkaException as error:
                self.seen.errors[f"commit: {_kind(error)}"] += 1
        consumer.close()


class OurMember(Member):
    def work(self) -> None:
        with fencepost.Consumer(
            self.servers,
            group_id=self.group,
            group_protocol=self.protocol,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            max_poll_records=POLLED,
        ) as consumer:
            consumer.subscribe([self.topic])
            while not self.ends.event.is_set():
                try:
                    records = consumer.poll(200)
                    for record in records:
                        self.got(record.value)
                    if records:
                        consumer.commit()
                except KafkaError as error:
                    self.seen.errors[f"commit: {_kind(error)}"] += 1


class InJava:
    """A scenario of the Java clients."""

    def __init__(self, java: JavaClients, key: str, servers: str, topic: str, scenario: str, reported: str) -> None:
        self._java, self._key = java, key
        self._start = (servers, topic, scenario, reported)

    def start(self) -> None:
        servers, topic, scenario, reported = self._start
        self._java.start(self._key, JAVA, servers, topic, scenario, reported)

    def outcome(self, name: str) -> tuple[Worker, dict[str, str]]:
        reported = self._java.wait(self._key)
        seen = Worker(name)
        if "broken" in reported:
            seen.broken = RuntimeError(reported["broken"])
        return seen, reported


class WriterInJava(InJava):
    """The scenario `writer`."""

    def __init__(self, java: JavaClients, name: str, servers: str, topic: str, ends: Ends) -> None:
        super().__init__(java, f"{servers}/{name}", servers, topic, "writer", f"{name};{ends.path}")
        self._name = name

    def wait(self, within_s: float) -> Worker:
        del within_s
        seen, reported = self.outcome(self._name)
        for step, outcome in reported.items():
            word, number = step.rstrip("0123456789"), step.lstrip("abcdefghijklmnopqrstuvwxyz")
            if word == "at":
                seen.at.append(int(outcome) / 1000)
            elif outcome != "ok":
                seen.errors[f"{word}: {outcome}"] += 1
            if word == "sent":
                seen.outcomes[number] = Outcome.ABORTED
            if word == "commit":
                seen.outcomes[number] = Outcome.COMMITTED if outcome == "ok" else Outcome.UNKNOWN
        return seen


class MemberInJava(InJava):
    """The scenario `member`."""

    def __init__(
        self, java: JavaClients, name: str, servers: str, topic: str, ends: Ends, *, group: str, protocol: str
    ) -> None:
        super().__init__(java, f"{servers}/{name}", servers, topic, f"member-{protocol}", f"{group};{ends.path}")
        self._name, self.group = name, group

    def wait(self, within_s: float) -> Worker:
        del within_s
        seen, reported = self.outcome(self._name)
        for step, text in reported.items():
            if step.startswith("got"):
                value, _, when = text.rpartition(":")
                seen.values[value].append(int(when) / 1000)
            elif step.startswith("error"):
                seen.errors[f"poll or commit: {text}"] += 1
        return seen


Writer = InAThread | WriterInJava
PROTOCOLS = ("classic", "consumer")


def writers(java: JavaClients, servers: str, topic: str, ends: Ends) -> Iterator[Writer]:
    yield LibrdkafkaWriter("librdkafka", servers, topic, ends)
    yield OurWriter("fencepost", servers, topic, ends)
    yield WriterInJava(java, "java", servers, topic, ends)
    yield LibrdkafkaSpan("librdkafka-span", servers, topic, ends)
    yield OurSpan("fencepost-span", servers, topic, ends)


def members(java: JavaClients, servers: str, topic: str, ends: Ends) -> Iterator[Member | MemberInJava]:
    """Yield two members of each group: of every client, by either protocol."""
    for protocol in PROTOCOLS:
        for number in range(2):
            for kind, client in ((LibrdkafkaMember, "librdkafka"), (OurMember, "fencepost")):
                group = f"{client}-{protocol}"
                yield kind(f"{group}-{number}", servers, topic, ends, group=group, protocol=protocol)
            group = f"java-{protocol}"
            yield MemberInJava(java, f"{group}-{number}", servers, topic, ends, group=group, protocol=protocol)
