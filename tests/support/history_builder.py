"""Short histories for tests: each call is an operation that begins and ends before the next."""

from __future__ import annotations

from fencepost_lab.check.history.model import History
from fencepost_lab.check.history.operations import (
    Abort,
    Assign,
    Begin,
    Commit,
    Decide,
    Init,
    ListOffsets,
    OffsetsCommit,
    OffsetsFetch,
    Operation,
    Poll,
    Position,
    Prepare,
    Read,
    RecordRun,
    Seek,
    Send,
    SendOffsets,
)
from fencepost_lab.check.history.recorder import Recorder

__all__ = ["UNKNOWN", "HistoryBuilder"]

UNKNOWN = "unknown"


class HistoryBuilder:
    """Partition 0 of topic t unless said otherwise; `records` are texts such as "a@0 b@1".

    `how`: "ok", "fail", or "unknown": nobody was told the end.
    """

    def __init__(self) -> None:
        self._events = 0
        self.recorder = Recorder(self._now_ms)

    def _now_ms(self) -> float:
        self._events += 1
        return float(self._events)

    def history(self) -> History:
        return History(self.recorder.operations)

    def begun(self, operation: Operation) -> Operation:
        """It begins; `recorder` is to be told its end."""
        return self.recorder.invoke(operation)

    def init(
        self,
        process: str,
        transactional_id: str = "id",
        *,
        timeout_ms: int = 0,
        how: str = "ok",
        repeated: bool = False,
    ) -> None:
        init = Init(process=process, transactional_id=transactional_id, timeout_ms=timeout_ms)
        self._do(init, how, repeated=repeated)

    def begin(self, transaction: str, process: str = "p", transactional_id: str = "id") -> None:
        self._do(Begin(process=process, transaction=transaction, transactional_id=transactional_id))

    def send(
        self,
        value: str,
        transaction: str = "",
        *,
        process: str = "p",
        how: str = "ok",
        topic: str = "t",
        offset: int = -1,
        group: str = "",
        source: int = -1,
    ) -> None:
        origin = Position("in", 0, source) if source >= 0 else None
        send = Send(process=process, topic=topic, value=value, transaction=transaction, group=group, source=origin)
        self._do(send, how, partition=0, offset=offset)

    def send_offsets(self, transaction: str, offset: int, *, generation: int = -1, process: str = "p") -> None:
        positions = [Position("in", 0, offset)]
        self._do(
            SendOffsets(process=process, transaction=transaction, group="g", offsets=positions, generation=generation)
        )

    def prepare(self, transaction: str) -> None:
        self._do(Prepare(process="p", transaction=transaction))

    def decide(self, transaction: str, decision: str) -> None:
        self._do(Decide(process="p", transaction=transaction, decision=decision))

    def commit(self, transaction: str, how: str = "ok", process: str = "p", *, fenced: bool = False) -> None:
        self._do(Commit(process=process, transaction=transaction), how, fenced=fenced)

    def abort(self, transaction: str, how: str = "ok", process: str = "p") -> None:
        self._do(Abort(process=process, transaction=transaction), how)

    def whole(self, transaction: str, values: str, how: str = "ok") -> None:
        """A transaction with these values, and a commit."""
        self.begin(transaction)
        for value in values:
            self.send(value, transaction)
        self.commit(transaction, how)

    def read(
        self, records: str, process: str = "r", *, how: str = "ok", topic: str = "t", isolation: str = "read_committed"
    ) -> None:
        read = Read(process=process, topic=topic, partition=0, isolation=isolation)
        self._do(read, how, records=batches(records, topic))

    def poll(
        self, records: str, process: str = "r", *, how: str = "ok", topic: str = "t", isolation: str = "read_committed"
    ) -> None:
        self._do(Poll(process=process, isolation=isolation), how, records=batches(records, topic))

    def assign(self, offset: int = -1, process: str = "r", *, group: str = "", generation: int = -1) -> None:
        positions = [Position("t", 0, offset)]
        self._do(Assign(process=process, positions=positions, group=group, generation=generation))

    def seek(self, offset: int) -> None:
        self._do(Seek(process="r", positions=[Position("t", 0, offset)]))

    def commit_offsets(self, offset: int, how: str = "ok", *, generation: int = -1) -> None:
        positions = [Position("in", 0, offset)]
        self._do(OffsetsCommit(process="p", group="g", offsets=positions, generation=generation), how)

    def fetch_offsets(self, offset: int) -> None:
        found = [Position("in", 0, offset)] if offset >= 0 else []
        self._do(OffsetsFetch(process="r", group="g"), offsets=found)

    def list_offsets(self, offset: int, isolation: str = "read_committed") -> None:
        self._do(ListOffsets(process="r", topic="t", partition=0, isolation=isolation), offset=offset)

    def _do(self, operation: Operation, how: str = "ok", **answer: object) -> None:
        self.recorder.invoke(operation)
        if how == "ok":
            self.recorder.ok(operation, **answer)
        elif how == "fail":
            self.recorder.fail(operation, "it failed", **answer)
        else:
            for name, value in answer.items():
                if name == "partition":
                    setattr(operation, name, value)


def batches(records: str, topic: str) -> list[RecordRun]:
    pairs = [record.split("@") for record in records.split()]
    return [RecordRun(topic, 0, [int(offset) for _, offset in pairs], [value for value, _ in pairs])] if pairs else []
