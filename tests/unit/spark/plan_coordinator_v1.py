"""Kafka's transaction coordinator before transaction.version 1: partitions are enlisted, and no end raises the epoch.

The answers are Apache Kafka 3.9's, where a batch is verified (KIP-890, part 1). Markers are instant.
"""

from __future__ import annotations

from typing import Any

from fencepost.errors import UnsupportedVersionError
from fencepost.spark.sink import plan_steps
from fencepost.spark.sink.decision import Pair
from tests.unit.spark.plan_coordinator import Coordinator, S, Txn


class CoordinatorV1(Coordinator):
    """`last`: of an id the pair that InitProducerId was last asked for with; not written down, a move loses it."""

    def __init__(self, timed_out_code: int = 48, epochs: int = 2**15) -> None:
        super().__init__(timed_out_code, epochs)
        self.last: dict[str, Pair] = {}
        self.decided_with: list[Pair] = []
        self._written: set[tuple[str, Pair, Any]] = set()

    def move(self) -> None:
        """Another broker takes over, with what is in the log."""
        self.last.clear()

    def init(self, transactional_id: str, two_phase: bool) -> Pair:
        txn = self.txn_of(transactional_id)
        if txn.state == "Ongoing":
            self._fence(txn)
        self.last.pop(transactional_id, None)
        return self._bump(transactional_id, txn)

    def bump_epoch(self, transactional_id: str, pair: Pair) -> int:
        """InitProducerId with a pair (KIP-360)."""
        txn = self.txns[transactional_id]
        if pair == Pair(txn.producer_id, txn.epoch):
            if txn.state == "Ongoing":
                self._fence(txn)  # answered 51, and the question that follows finds another epoch
                self.last.pop(transactional_id, None)
                return 90
            self._bump(transactional_id, txn)
            self.last[transactional_id] = pair
            return 0
        return 0 if self.last.get(transactional_id) == pair else 90

    def _bump(self, transactional_id: str, txn: Txn) -> Pair:
        txn.epoch += 1
        if transactional_id == S and txn.epoch >= self.epochs:
            txn.producer_id, txn.epoch = txn.producer_id + 1000, 0
        txn.state = "Empty"
        return Pair(txn.producer_id, txn.epoch)

    def _fence(self, txn: Txn) -> None:
        txn.rows, txn.state = [], "CompleteAbort"
        txn.epoch += 1

    def enlist(self, transactional_id: str, pair: Pair) -> bool:
        """AddPartitionsToTxn: of a transaction that is over, too, if the epoch is its epoch still."""
        txn = self.txns.get(transactional_id)
        if txn is None or pair != Pair(txn.producer_id, txn.epoch):
            return False
        txn.state = "Ongoing"
        return True

    def produce(self, transactional_id: str, pair: Pair, row: Any) -> bool:
        txn = self.txns.get(transactional_id)
        if txn is None or pair != Pair(txn.producer_id, txn.epoch) or txn.state != "Ongoing":
            return False
        if (transactional_id, pair, row) not in self._written:  # idempotence: the same batch again
            self._written.add((transactional_id, pair, row))
            txn.rows.append(row)
        return True

    def end(self, transactional_id: str, pair: Pair, commit: bool) -> int:
        txn = self.txns.get(transactional_id)
        if txn is None or txn.producer_id != pair.producer_id:
            return 49
        if txn.epoch != pair.epoch:
            return 90
        wanted = "CompleteCommit" if commit else "CompleteAbort"
        if txn.state != "Ongoing":
            return 0 if txn.state == wanted else 48
        for row in txn.rows if commit else ():
            if transactional_id == S:
                self.decisions += row
                self.decided_with.append(pair)
            else:
                self.committed.append((transactional_id, row))
        txn.rows, txn.state = [], wanted
        return 0

    def time_out(self, transactional_id: str) -> None:
        self._fence(self.txns[transactional_id])
        self.last.pop(transactional_id, None)

    def answer(self, step: plan_steps.Step) -> Any:
        match step:
            case plan_steps.BumpEpoch(_, claim):
                return self.bump_epoch(S, claim)
            case plan_steps.HasDecided(_, claim):
                return claim in self.decided_with
            case _:
                return super().answer(step)


class UnverifyingCoordinator(CoordinatorV1):
    """Before Kafka 3.6: a partition asks nobody whether the transaction of a batch is open.

    All of an id's rows go to one partition. What it takes without a transaction hangs there until a marker comes, and
    shares its fate. InitProducerId with a pair ends an open transaction of any epoch.
    """

    def __init__(self, timed_out_code: int = 48, epochs: int = 2**15) -> None:
        super().__init__(timed_out_code, epochs)
        self._newest: dict[tuple[str, int], int] = {}  # the epoch that the partition knows of an id's producer
        self._pending: dict[tuple[str, int], list[tuple[Pair, Any]]] = {}

    def hanging(self) -> list[str]:
        """Ids with rows that no coordinator will ever end."""
        open_ones = {name for name, txn in self.txns.items() if txn.state == "Ongoing"}
        return [name for (name, _), rows in self._pending.items() if rows and name not in open_ones]

    def bump_epoch(self, transactional_id: str, pair: Pair) -> int:
        txn = self.txns[transactional_id]
        if txn.state == "Ongoing" and txn.producer_id == pair.producer_id:
            self._fence(txn)
            self.last.pop(transactional_id, None)
            return 90
        return super().bump_epoch(transactional_id, pair)

    def produce(self, transactional_id: str, pair: Pair, row: Any) -> bool:
        key = transactional_id, pair.producer_id
        if pair.epoch < self._newest.get(key, -1):
            return False
        self._newest[key] = pair.epoch
        if (transactional_id, pair, row) not in self._written:
            self._written.add((transactional_id, pair, row))
            self._pending.setdefault(key, []).append((pair, row))
        return True

    def end(self, transactional_id: str, pair: Pair, commit: bool) -> int:
        txn = self.txns.get(transactional_id)
        is_open = txn is not None and txn.state == "Ongoing" and pair == Pair(txn.producer_id, txn.epoch)
        code = super().end(transactional_id, pair, commit)
        if is_open:
            ended = self._mark(transactional_id, pair)
            for owner, row in ended if commit else ():
                if transactional_id == S:
                    self.decisions += row
                    self.decided_with.append(owner)
                else:
                    self.committed.append((transactional_id, row))
        return code

    def _mark(self, transactional_id: str, pair: Pair) -> list[tuple[Pair, Any]]:
        key = transactional_id, pair.producer_id
        self._newest[key] = max(self._newest.get(key, -1), pair.epoch)
        return self._pending.pop(key, [])

    def _fence(self, txn: Txn) -> None:
        super()._fence(txn)
        name = next(name for name, known in self.txns.items() if known is txn)
        self._mark(name, Pair(txn.producer_id, txn.epoch))


class RollingCoordinator(UnverifyingCoordinator):
    """Brokers of both sides of Kafka 3.6 at once: the leaders of the decisions and of the rows, and the coordinator.

    A connection ends with its broker, and what was not answered over it with it. What a leader that verifies has in
    hand when the coordinator is taken back it has answered by then: an old coordinator would not be asked (KIP-890).
    """

    PARTS = ("decisions", "rows", "coordinator")

    def __init__(self) -> None:
        super().__init__()
        self.verifies = dict.fromkeys(self.PARTS, True)
        self._started = dict.fromkeys(self.PARTS, 0)

    def roll(self, part: str) -> None:
        """It comes back as the other release."""
        self.verifies[part] = not self.verifies[part]
        self._started[part] += 1
        if part == "coordinator":
            self.move()

    def reach(self, transactional_id: str, verified: bool) -> int:
        """A connection to the leader of an id's rows. UnsupportedVersionError: only one that verifies would do."""
        part = "decisions" if transactional_id == S else "rows"
        if verified and not self.verifies[part]:
            raise UnsupportedVersionError("the leader has no AddPartitionsToTxn v4")
        return self._started[part]

    def send(self, connection: int, transactional_id: str, pair: Pair, row: Any) -> bool | None:
        """`produce` over a connection; None: it has ended."""
        part = "decisions" if transactional_id == S else "rows"
        if connection != self._started[part]:
            return None
        txn = self.txns.get(transactional_id)
        is_open = txn is not None and pair == Pair(txn.producer_id, txn.epoch) and txn.state == "Ongoing"
        if self.verifies[part] and not is_open:
            return False
        return self.produce(transactional_id, pair, row)

    def bump_epoch(self, transactional_id: str, pair: Pair) -> int:
        if self.verifies["coordinator"]:
            return CoordinatorV1.bump_epoch(self, transactional_id, pair)
        return super().bump_epoch(transactional_id, pair)
