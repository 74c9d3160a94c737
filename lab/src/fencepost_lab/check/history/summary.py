"""A history without times: transactions with their outcomes, and the records that readers returned at the end."""

from __future__ import annotations

from dataclasses import dataclass, field

from fencepost_lab.check.history.model import Outcome
from fencepost_lab.check.history.operations import (
    NEVER,
    Abort,
    Begin,
    Commit,
    OffsetsFetch,
    Operation,
    Position,
    RecordRun,
    Send,
    SendOffsets,
)
from fencepost_lab.check.history.operations import Read as ReadToEnd
from fencepost_lab.check.history.recorder import Recorder

__all__ = ["RecordRead", "RecordWrite", "SentRecord", "Summary", "TransactionSummary"]

GROUP_INPUT = "input"


@dataclass(frozen=True, slots=True)
class RecordWrite:
    """One record that a transaction sent. `acknowledged`: the broker confirmed it."""

    topic: str
    partition: int
    value: str
    acknowledged: bool = True


@dataclass(slots=True)
class SentRecord:
    """A record sent outside a transaction. Unless `acknowledged`, it may be in the log or not."""

    producer: str
    topic: str
    partition: int
    value: str
    acknowledged: bool = False
    offset: int = -1


@dataclass(slots=True)
class TransactionSummary:
    """One transaction of one producer.

    `number` counts that producer's transactions; `offsets` maps a group to its committed position.
    """

    producer: str
    number: int
    writes: list[RecordWrite] = field(default_factory=list)
    offsets: dict[str, int] = field(default_factory=dict)
    outcome: Outcome = Outcome.UNKNOWN


@dataclass(frozen=True, slots=True)
class RecordRead:
    """One record that a reader returned."""

    reader: str
    topic: str
    partition: int
    offset: int
    value: str


@dataclass(slots=True)
class Summary:
    """A complete run.

    `reads` are read_committed, in each reader's order, to the end of the log.

    `committed_offsets` has each group's position at the end; a group reads one partition. `sessions` has the operations
    on transactional ids with their times, in transactions with separate names and without records.
    """

    transactions: list[TransactionSummary] = field(default_factory=list)
    sent: list[SentRecord] = field(default_factory=list)
    reads: list[RecordRead] = field(default_factory=list)
    committed_offsets: dict[str, int] = field(default_factory=dict)
    sessions: list[Operation] = field(default_factory=list)

    def operations(self) -> list[Operation]:
        """Return `sessions`, then all other operations one after the other, with arbitrary times."""
        events = [
            event for session in self.sessions for event in (session.invoked, session.completed) if event != NEVER
        ]
        last_ms = max((max(session.invoked_ms, session.completed_ms) for session in self.sessions), default=0.0)
        recorder = Recorder(lambda: last_ms, first=max(events, default=0) + 1)
        for transaction in self.transactions:
            _play(transaction, recorder)
        for sent in self.sent:
            _send(sent, recorder)
        partitions = {
            (write.topic, write.partition) for transaction in self.transactions for write in transaction.writes
        }
        partitions |= {(sent.topic, sent.partition) for sent in self.sent}
        for reader in sorted({read.reader for read in self.reads}):
            own_reads = [read for read in self.reads if read.reader == reader]
            for topic, partition in sorted(partitions | {(read.topic, read.partition) for read in own_reads}):
                here = [read for read in own_reads if (read.topic, read.partition) == (topic, partition)]
                batch = RecordRun(topic, partition, [read.offset for read in here], [read.value for read in here])
                recorder.at_once(
                    ReadToEnd(
                        process=reader, topic=topic, partition=partition, isolation="read_committed", records=[batch]
                    )
                )
        for group in sorted({group for transaction in self.transactions for group in transaction.offsets}):
            offset = self.committed_offsets.get(group)
            found = [] if offset is None else [Position(GROUP_INPUT, 0, offset)]
            recorder.at_once(OffsetsFetch(process="reader", group=group, offsets=found))
        return [*self.sessions, *recorder.operations]


def _send(sent: SentRecord, recorder: Recorder) -> None:
    send = Send(process=sent.producer, topic=sent.topic, partition=sent.partition, value=sent.value, offset=sent.offset)
    if sent.acknowledged:
        recorder.at_once(send)
    else:
        recorder.invoke(send)


def _play(transaction: TransactionSummary, recorder: Recorder) -> None:
    process = transaction.producer
    name = f"{process} {transaction.number}"
    recorder.at_once(Begin(process=process, transaction=name, transactional_id=process))
    for write in transaction.writes:
        send = Send(process=process, topic=write.topic, partition=write.partition, value=write.value, transaction=name)
        if write.acknowledged:
            recorder.at_once(send)
        else:
            recorder.invoke(send)
    for group, offset in transaction.offsets.items():
        position = Position(GROUP_INPUT, 0, offset)
        recorder.at_once(SendOffsets(process=process, transaction=name, group=group, offsets=[position]))
    match transaction.outcome:
        case Outcome.COMMITTED:
            recorder.at_once(Commit(process=process, transaction=name))
        case Outcome.UNKNOWN:
            recorder.invoke(Commit(process=process, transaction=name))
        case Outcome.ABORTED | Outcome.OPEN:
            recorder.at_once(Abort(process=process, transaction=name))
