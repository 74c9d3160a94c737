"""A client of the workload as a process: `python -m fencepost_lab.torture.worker`, with its job on stdin as JSON.

It works until SIGTERM, and records each operation before sending it. SIGUSR1 raises Cancelled from the current call, as
Ctrl-C would. It ends when its parent process is gone.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import TypeVar

from fencepost.errors import KafkaError
from fencepost.protocol.transactions import NO_TIMEOUT_MS
from fencepost_lab.check.history.operations import (
    Abort,
    Assign,
    Begin,
    Commit,
    Decide,
    Init,
    Operation,
    Poll,
    Position,
    Prepare,
    RecordRun,
    Seek,
    Send,
    SendOffsets,
)
from fencepost_lab.check.history.recorder import Recorder
from fencepost_lab.torture.access import Access
from fencepost_lab.torture.clients import (
    CLIENTS,
    RETRY_BACKOFF_MS,
    TRANSACTION_TIMEOUT_MS,
    ClientFailed,
    ConsumerDriver,
    FatalFailure,
    ProducerDriver,
)
from fencepost_lab.torture.two_phase import DecisionFile, Stored, TwoPhaseProducer, carry_out

__all__ = ["WorkerJob"]

READ_COMMITTED = "read_committed"
SENT_ONCE_MS = RETRY_BACKOFF_MS * 3 / 4
"""Time in ms.

An earlier answer proves that the request was sent once: a client waits this long before it repeats, give or take a
fifth.
"""

P = TypeVar("P", bound=ProducerDriver)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class WorkerJob:
    """A worker's job.

    `role`: writer, copier, decider, feeder or reader. `name`: its transactional id. `process` is unique in the history;
    each new client appends a number. A decider has `decisions`, a file, and a level.
    """

    role: str
    process: str
    name: str
    access: Access
    client: str
    seed: int
    events: str
    topics: dict[str, int]
    source: str = ""
    group: str = ""
    isolation: str = READ_COMMITTED
    decisions: str = ""
    two_phase: str = ""

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> WorkerJob:
        named = json.loads(text)
        return cls(**{**named, "access": Access(**named["access"])})


class Cancelled(BaseException):
    """The call was cancelled."""


class Worker:
    """Does its job until SIGTERM. It replaces a client that can no longer be used."""

    def __init__(self, job: WorkerJob) -> None:
        self._job = job
        self._chance = Random(job.seed)
        self._make_producer, self._make_consumer = CLIENTS[job.client]
        events = os.open(job.events, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._recorder = Recorder(_now_ms, lambda line: os.write(events, line.encode() + b"\n"))
        self._stopping = False
        self._in_call = False
        self._lives = 0
        self._process = ""
        self._values = 0
        self._transactions = 0
        self._rebalanced = False
        signal.signal(signal.SIGTERM, self._stop)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGUSR1, self._cancel)

    def run(self) -> None:
        """Work until SIGTERM."""
        roles = {
            "writer": self._write,
            "copier": self._copy,
            "decider": self._decide,
            "feeder": self._feed,
            "reader": self._read,
        }
        work = roles[self._job.role]
        while not self._stopping:
            self._lives += 1
            self._process = f"{self._job.process}.{self._lives}"
            try:
                work()
            except (ClientFailed, Cancelled) as error:
                sys.stderr.write(f"{self._process}: a new client after {error!r}\n")
                time.sleep(self._chance.uniform(0.05, 0.5))

    def _stop(self, *_: object) -> None:
        self._stopping = True

    def _cancel(self, *_: object) -> None:
        if self._in_call:
            self._in_call = False
            raise Cancelled

    # The roles -------------------------------------------------------------------------------------------------------

    def _write(self) -> None:
        with self._producer(self._job.name) as producer:
            while not self._stopping:
                self._transaction(producer, partial(self._fill, producer))

    def _copy(self) -> None:
        with self._consumer() as consumer, self._producer(self._job.name) as producer:
            consumer.subscribe(self._job.source, self._note_rebalance)
            while not self._stopping:
                batches = self._poll(consumer)
                if batches and not self._transaction(producer, partial(self._copies, producer, consumer, batches)):
                    self._recorded(
                        Seek(process=self._process, positions=consumer.assigned()), consumer.seek_to_committed
                    )

    def _decide(self) -> None:
        job = self._job
        decisions = DecisionFile(Path(job.decisions))
        try:
            self._call(lambda: carry_out(job.two_phase, job.name, job.access, decisions, self._recorder, self._process))
        except KafkaError as error:
            raise FatalFailure(error) from error
        with self._initialised(TwoPhaseProducer(job.access, job.name), job.name) as producer:
            while not self._stopping:
                self._two_phases(producer, decisions)

    def _feed(self) -> None:
        with self._producer(None) as producer:
            while not self._stopping:
                for _ in range(self._chance.randint(1, 20)):
                    self._send(producer, *self._random_partition())
                if self._chance.random() < 0.2:
                    self._call(producer.flush)
                time.sleep(self._chance.uniform(0, 0.1))

    def _read(self) -> None:
        partitions = [(topic, number) for topic, count in self._job.topics.items() for number in range(count)]
        with self._consumer() as consumer:
            positions = [Position(topic, number, 0) for topic, number in partitions]
            self._recorded(Assign(process=self._process, positions=positions), lambda: consumer.assign(partitions))
            while not self._stopping:
                self._poll(consumer)

    # Steps of the roles ----------------------------------------------------------------------------------------------

    def _transaction(self, producer: ProducerDriver, fill: Callable[[str], None]) -> bool:
        """Run a transaction that commits or aborts by chance. Return true if it certainly committed.

        Raises FatalFailure.
        """
        name = self._begin(producer)
        try:
            fill(name)
            if self._chance.random() < 0.03:
                time.sleep(self._chance.uniform(0.5, 1.5) * TRANSACTION_TIMEOUT_MS / 1000)
            if self._chance.random() < 0.2:
                self._abort(name, producer)
                return False
            self._recorded(Commit(process=self._process, transaction=name), producer.commit)
        except FatalFailure:
            raise
        except (ClientFailed, Cancelled):
            self._abort(name, producer)
            return False
        return True

    def _begin(self, producer: ProducerDriver) -> str:
        self._transactions += 1
        name = f"{self._process}/{self._transactions}"
        self._recorded(Begin(process=self._process, transaction=name, transactional_id=self._job.name), producer.begin)
        return name

    def _two_phases(self, producer: TwoPhaseProducer, decisions: DecisionFile) -> None:
        """Run a two-phase transaction. It ends as decided, in this life or a later one. Raises FatalFailure."""
        name = self._begin(producer)
        try:
            self._fill(producer, name)
            token = self._recorded(Prepare(process=self._process, transaction=name), producer.prepare)
        except FatalFailure:
            raise
        except (ClientFailed, Cancelled):
            self._abort(name, producer)
            return
        self._exit_by_chance("before the decision")
        commit = self._chance.random() < 0.7
        decide = Decide(process=self._process, transaction=name, decision="commit" if commit else "abort")
        self._recorder.invoke(decide)
        decisions.write(Stored(name, token, commit))
        self._recorder.ok(decide)
        self._exit_by_chance("after the decision")
        try:
            if commit:
                self._recorded(Commit(process=self._process, transaction=name), producer.commit)
            else:
                self._recorded(Abort(process=self._process, transaction=name), producer.abort)
        except (ClientFailed, Cancelled) as error:
            raise FatalFailure(error) from error
        decisions.forget()

    def _exit_by_chance(self, when: str) -> None:
        if self._chance.random() < 0.1:
            raise FatalFailure(f"the application ends {when}")

    def _abort(self, name: str, producer: ProducerDriver) -> None:
        """Abort. Raises FatalFailure if the client is unusable, or if the transaction turned out to be committed."""
        try:
            self._recorded(Abort(process=self._process, transaction=name), producer.abort)
        except Cancelled as error:
            raise FatalFailure(error) from error
        except ClientFailed as failed:
            if failed.committed:
                self._recorder.at_once(Commit(process=self._process, transaction=name))
            raise FatalFailure(failed) from failed

    def _fill(self, producer: ProducerDriver, name: str) -> None:
        for _ in range(self._chance.randint(1, 12)):
            self._send(producer, *self._random_partition(), transaction=name)
            if self._chance.random() < 0.1:
                time.sleep(self._chance.uniform(0, 0.05))

    def _copies(self, producer: ProducerDriver, consumer: ConsumerDriver, batches: list[RecordRun], name: str) -> None:
        offsets = []
        for batch in batches:
            offsets.append(Position(batch.topic, batch.partition, batch.offsets[-1] + 1))
            for offset in batch.offsets:
                source = Position(batch.topic, batch.partition, offset)
                self._send(producer, *self._random_partition(), transaction=name, source=source)
        sent = SendOffsets(
            process=self._process,
            transaction=name,
            group=self._job.group,
            offsets=offsets,
            generation=consumer.generation(),
        )
        self._recorded(sent, lambda: producer.send_offsets(offsets, consumer))

    def _random_partition(self) -> tuple[str, int]:
        topic = self._chance.choice(sorted(self._job.topics))
        return topic, self._chance.randrange(self._job.topics[topic])

    def _send(
        self,
        producer: ProducerDriver,
        topic: str,
        partition: int,
        *,
        transaction: str = "",
        source: Position | None = None,
    ) -> None:
        job = self._job
        self._values += 1
        send = Send(
            process=self._process,
            topic=topic,
            partition=partition,
            value=f"{self._process}:{self._values}",
            transaction=transaction,
            group=job.group if source is not None else "",
            source=source,
        )
        self._recorder.invoke(send)

        def on_result(partition: int, offset: int, error: Exception | None, certain: bool) -> None:
            if error is None:
                self._recorder.ok(send, partition=partition, offset=offset)
            elif certain:
                self._recorder.fail(send, error)
            else:
                self._recorder.unknown(send, error)

        self._call(lambda: producer.send(topic, partition, send.value, on_result))

    def _poll(self, consumer: ConsumerDriver) -> list[RecordRun]:
        poll = self._recorder.invoke(Poll(process=self._process, isolation=self._job.isolation))
        try:
            batches = self._call(consumer.poll)
        except (ClientFailed, Cancelled) as error:
            self._recorder.unknown(poll, repr(error))
            raise
        if self._rebalanced:
            self._rebalanced = False
            assign = Assign(process=self._process, positions=consumer.assigned(), group=self._job.group)
            assign.generation = consumer.generation()
            self._recorder.at_once(assign)
        self._recorder.ok(poll, records=batches)
        return batches

    def _note_rebalance(self) -> None:
        self._rebalanced = True

    def _recorded(self, operation: Operation, call: Callable[[], T]) -> T:
        """Make a call and record it as an operation. Raises the call's exception."""
        self._recorder.invoke(operation)
        try:
            answer = self._call(call)
        except (ClientFailed, Cancelled) as error:
            fenced = isinstance(error, ClientFailed) and error.fenced
            if isinstance(error, ClientFailed) and error.certain:
                self._recorder.fail(operation, error, fenced=fenced)
            else:
                self._recorder.unknown(operation, repr(error), fenced=fenced)
            raise
        if isinstance(operation, Init):
            self._recorder.ok(operation, repeated=_now_ms() - operation.invoked_ms > SENT_ONCE_MS)
        else:
            self._recorder.ok(operation)
        return answer

    def _call(self, call: Callable[[], T]) -> T:
        self._in_call = True
        try:
            return call()
        finally:
            self._in_call = False

    def _producer(self, transactional_id: str | None) -> AbstractContextManager[ProducerDriver]:
        return self._initialised(self._make_producer(self._job.access, transactional_id), transactional_id)

    @contextmanager
    def _initialised(self, producer: P, transactional_id: str | None) -> Iterator[P]:
        try:
            if transactional_id is not None:
                timeout_ms = NO_TIMEOUT_MS if self._job.role == "decider" else TRANSACTION_TIMEOUT_MS
                init = Init(process=self._process, transactional_id=transactional_id, timeout_ms=timeout_ms)
                self._recorded(init, producer.init)
            yield producer
        finally:
            self._end(producer.close)

    @contextmanager
    def _consumer(self) -> Iterator[ConsumerDriver]:
        consumer = self._make_consumer(self._job.access, self._job.group or None, self._job.isolation)
        try:
            yield consumer
        finally:
            self._end(consumer.close)

    def _end(self, close: Callable[[], None]) -> None:
        try:
            close()
        except ClientFailed as failed:
            sys.stderr.write(f"{self._process}: closing: {failed}\n")


def _now_ms() -> float:
    """Return the time in ms of a clock that all processes of a machine share."""
    return time.monotonic_ns() / 1e6


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def main() -> None:
    """Run the job."""
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    Worker(WorkerJob.from_json(sys.stdin.read())).run()


if __name__ == "__main__":
    main()
