"""Kafka's transaction coordinator in the small world of plan.py: InitProducerId, the keep, EndTxn v5, timeouts.

The answers are Apache Kafka 4.3.1's; keeping follows KIP-939's two pairs. Markers are instant, so 51 never shows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from fencepost.spark.sink import names, plan_steps
from fencepost.spark.sink.decision import Content, Decision, Pair

SINK = "s"
S = names.sink_id(SINK)
Row = tuple[int, int, int]  # (batch, partition, which of the inputs that were planned under this number)


@dataclass
class Txn:
    """One transactional id. `ended`: (epoch, commit) of the last EndTxn or timeout, while a retry is recognised."""

    producer_id: int
    epoch: int = -1
    state: str = "Empty"
    two_phase: bool = False
    next_epoch: int | None = None
    asked_by: int | None = None  # the epoch that the keep of `next_epoch` named; None: a stranger's keep
    ended: tuple[int, bool] | None = None
    timed_out: bool = False
    rows: list[Any] = field(default_factory=list)


class Coordinator:
    """The broker: transactions, what they committed, and the decision topic."""

    def __init__(self, timed_out_code: int = 48, epochs: int = 2**15) -> None:
        self.producer_ids = 100
        self.forgotten: list[str] = []
        self.timed_out_code = timed_out_code  # Kafka 4.3.1's answer to the commit; 120 is our broker's
        self.epochs = epochs  # of a producer id of S
        self.txns: dict[str, Txn] = {}
        self.committed: list[tuple[str, Row]] = []
        self.decisions: list[Decision] = []

    def init(self, transactional_id: str, two_phase: bool) -> Pair:
        txn = self.txn_of(transactional_id)
        if txn.state == "Ongoing":
            self._finish(txn, False)
        txn.epoch += 1
        if transactional_id == S and txn.epoch >= self.epochs:
            txn.producer_id, txn.epoch = txn.producer_id + 1000, 0
        txn.state, txn.ended, txn.two_phase = "Empty", None, two_phase
        return Pair(txn.producer_id, txn.epoch)

    def txn_of(self, transactional_id: str) -> Txn:
        if transactional_id not in self.txns:
            self.txns[transactional_id] = Txn(self.producer_ids)
            self.producer_ids += 1
        return self.txns[transactional_id]

    def ended(self) -> list[str]:
        """Ids of tasks whose transaction has ended."""
        return [name for name, txn in self.txns.items() if txn.state.startswith("Complete") and name != S]

    def forget(self, transactional_id: str) -> None:
        """The id expires (transactional.id.expiration.ms)."""
        del self.txns[transactional_id]
        self.forgotten.append(transactional_id)

    def keep(self, transactional_id: str, pair: Pair) -> Pair | None:
        """With the pair it was begun with. A repeated one gets the same answer."""
        txn = self.txns.get(transactional_id)
        if txn is None or txn.producer_id != pair.producer_id:
            return None
        if txn.state != "Ongoing":
            if txn.ended is not None and txn.ended[0] == pair.epoch:
                txn.state, txn.ended = "Empty", None  # granted without a bump; how it ended is forgotten
            elif txn.epoch == pair.epoch:
                txn.epoch, txn.state, txn.ended = txn.epoch + 1, "Empty", None
            return None
        if txn.next_epoch is not None and txn.asked_by == pair.epoch:
            return Pair(txn.producer_id, txn.next_epoch)
        if pair != self._client_pair(txn):
            return None
        txn.two_phase, txn.next_epoch, txn.asked_by = True, pair.epoch + 1, pair.epoch
        return Pair(txn.producer_id, txn.next_epoch)

    def keep_as_other(self, transactional_id: str) -> None:
        """InitProducerId(keep) that names no pair, by somebody who does not know whose the transaction is."""
        txn = self.txns[transactional_id]
        txn.next_epoch, txn.asked_by = self._client_pair(txn).epoch + 1, None

    def _client_pair(self, txn: Txn) -> Pair:
        return Pair(txn.producer_id, txn.epoch if txn.next_epoch is None else txn.next_epoch)

    def produce(self, transactional_id: str, pair: Pair, row: Any) -> bool:
        txn = self.txns.get(transactional_id)
        if txn is None or txn.producer_id != pair.producer_id or txn.epoch != pair.epoch or txn.next_epoch is not None:
            return False
        if row not in txn.rows:  # idempotence: the same batch again
            txn.rows.append(row)
        txn.state, txn.ended = "Ongoing", None
        return True

    def end(self, transactional_id: str, pair: Pair, commit: bool) -> int:
        txn = self.txns.get(transactional_id)
        if txn is None or txn.producer_id != pair.producer_id:
            return 49
        if txn.state == "Ongoing":
            if pair != self._client_pair(txn):
                return 90
            self._finish(txn, commit, transactional_id)
            return 0
        if txn.ended is not None and txn.ended[0] == pair.epoch:
            if txn.ended[1] == commit:
                return 0
            return self.timed_out_code if txn.timed_out else 48
        if pair.epoch != txn.epoch:
            return 90
        if commit:
            return 48
        self._finish(txn, False)
        return 0

    def _finish(self, txn: Txn, commit: bool, transactional_id: str = "") -> None:
        epoch = self._client_pair(txn).epoch
        for row in txn.rows if commit else ():
            if transactional_id == S:
                self.decisions += row
            else:
                self.committed.append((transactional_id, row))
        txn.rows = []
        txn.ended, txn.next_epoch, txn.timed_out = (epoch, commit), None, False
        txn.epoch, txn.state = epoch + 1, "CompleteCommit" if commit else "CompleteAbort"

    def ongoing(self) -> list[str]:
        return [name for name, txn in self.txns.items() if txn.state == "Ongoing" and name != S]

    def time_out(self, transactional_id: str) -> None:
        self._finish(self.txns[transactional_id], False)
        self.txns[transactional_id].timed_out = True

    def timeouts(self) -> list[str]:
        return [name for name, txn in self.txns.items() if txn.state == "Ongoing" and not txn.two_phase]

    def listed(self) -> tuple[plan_steps.SinkTransaction, ...]:
        return tuple(
            plan_steps.SinkTransaction(name, self._client_pair(txn), txn.state) for name, txn in self.txns.items()
        )

    def last_decisions(self) -> tuple[Decision, ...]:
        last: dict[str, Decision] = {}
        for decision in self.decisions:
            last[decision.query_id] = decision
        return tuple(last.values())

    def answer(self, step: plan_steps.Step) -> Any:
        """To a step that asks the coordinator and nobody else."""
        match step:
            case plan_steps.ListTransactions():
                return self.listed()
            case plan_steps.DescribeTasks(ids):
                return tuple(txn for txn in self.listed() if txn.transactional_id in ids)
            case plan_steps.DescribeWinners(_, ids):
                txns = {txn.transactional_id: txn for txn in self.listed()}
                gone = plan_steps.SinkTransaction("", Pair(0, 0), "not known any more")
                found = [txns.get(name, gone) for name in ids]
                return tuple(plan_steps.DescribedWinner(txn.pair, txn.state, 0, 1, is_late=False) for txn in found)
            case plan_steps.ReadDecisions():
                return self.last_decisions()
            case plan_steps.Claim():
                return self.init(S, False)
            case plan_steps.VerifyClaim(_, claim):
                return self.end(S, claim, False)
            case plan_steps.EndTransactions(ends):
                return tuple(self.end(end.transactional_id, end.pair, end.commit) for end in ends)
            case plan_steps.KeepWinners(winners):
                return tuple(self.keep(winner.transactional_id, winner.pair) for winner in winners)
            case _:
                raise NotImplementedError(f"{type(step).__name__} is no step of this world")


def content(row: Row) -> Content:
    return Content(1, 1000 * (31 * row[0] + 7 * row[1]) + row[2])
