"""Kafka's transaction coordinator before transaction version 2: partitions are enlisted, and no end raises the epoch.

The answers are Apache Kafka 3.9's, where a batch is verified (KIP-890, part 1). Markers are instant.
"""

from __future__ import annotations

from typing import Any

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
        txn = self.txns.setdefault(transactional_id, Txn(len(self.txns) + 100))
        if txn.state == "Ongoing":
            self._fence(txn)
        self.last.pop(transactional_id, None)
        return self._bump(transactional_id, txn)

    def use_up(self, transactional_id: str, pair: Pair) -> int:
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
        txn = self.txns[transactional_id]
        if pair != Pair(txn.producer_id, txn.epoch):
            return False
        txn.state = "Ongoing"
        return True

    def produce(self, transactional_id: str, pair: Pair, row: Any) -> bool:
        txn = self.txns[transactional_id]
        if pair != Pair(txn.producer_id, txn.epoch) or txn.state != "Ongoing":
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
            case plan_steps.UseUp(_, claim):
                return self.use_up(S, claim)
            case plan_steps.HasDecided(_, claim):
                return claim in self.decided_with
            case _:
                return super().answer(step)
