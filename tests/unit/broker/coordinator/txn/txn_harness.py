"""Drives a `TransactionCoordinator` as the broker does: appends, replays, writes markers, crashes and loads again."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import Any, TypeVar

from fencepost.broker.coordinator.txn.coordinator import TransactionCoordinator
from fencepost.broker.coordinator.txn.decide_end import EndRequest
from fencepost.broker.coordinator.txn.decide_enlist import EnlistRequest
from fencepost.broker.coordinator.txn.decide_init import InitRequest
from fencepost.broker.coordinator.txn.model import (
    EndReply,
    InitReply,
    MarkerWrite,
    PartitionFence,
    ProducerPair,
    Result,
    Transaction,
    TransactionConfig,
    TransactionRecord,
)

R = TypeVar("R")
FIRST_PRODUCER_ID = 1000
TXN = "txn"
A0 = ("a", 0)
A1 = ("a", 1)
OFFSETS = ("__consumer_offsets", 7)


class Harness:
    def __init__(self, **config: Any) -> None:
        self.config = TransactionConfig(**{"transaction_two_phase_commit_enable": True, **config})
        self._ids = count(FIRST_PRODUCER_ID)
        self.now_ms = 1_000_000
        self.log: list[tuple[bytes, bytes | None]] = []
        self.fences: list[PartitionFence] = []
        self.markers: list[MarkerWrite] = []
        self.core = TransactionCoordinator(self.config, lambda: next(self._ids))

    def run(self, result: Result[R]) -> R:
        for record in result.records:
            self.log.append((record.key(), record.value()))
            self.core.replay(record)
        self.fences.extend(result.fence)
        return result.reply

    def write_markers(self, txn: str | None = None) -> list[MarkerWrite]:
        written = self.core.marker_work(txn)
        for write in written:
            self.markers.append(write)
            self.run(self.core.marker_written(self.now_ms, write))
        return written

    def restart(self) -> None:
        """kill -9 and load the log."""
        self.core = TransactionCoordinator(self.config, lambda: next(self._ids))
        for key, value in self.log:
            self.core.replay(TransactionRecord.from_bytes(key, value))

    def at(self, txn: str = TXN) -> Transaction:
        transaction = self.core.transaction(txn)
        if transaction is None:
            raise LookupError(txn)
        return transaction

    def state(self, txn: str = TXN) -> str:
        return self.core.describe(txn).state

    def init(self, txn: str | None = TXN, pair: tuple[int, int] = (-1, -1), **options: Any) -> InitReply:
        options = {"timeout_ms": 60_000, "api_version": 5, **options}
        request = InitRequest(transactional_id=txn, producer=ProducerPair(*pair), **options)
        return self.run(self.core.init_producer_id(self.now_ms, request))

    def init_pair(self, txn: str = TXN, **options: Any) -> ProducerPair:
        reply = self.init(txn, **options)
        if reply.error_code != 0:
            raise AssertionError(reply)
        return ProducerPair(reply.producer_id, reply.producer_epoch)

    def add(self, pair: tuple[int, int], *partitions: tuple[str, int], version: int = 3, **options: Any) -> int:
        wanted = partitions or (A0,)
        request = EnlistRequest(TXN, ProducerPair(*pair), wanted, version, **options)
        return self.run(self.core.add(self.now_ms, request)).error_code

    def add_offsets(self, pair: tuple[int, int], version: int = 3, **options: Any) -> int:
        return self.add(pair, OFFSETS, version=version, **options)

    def produce(self, pair: tuple[int, int], *partitions: tuple[str, int], version: int = 12, txn: str = TXN) -> int:
        return self.produce_verdict(pair, *partitions, version=version, txn=txn)[0]

    def produce_verdict(
        self, pair: tuple[int, int], *partitions: tuple[str, int], version: int = 12, txn: str = TXN
    ) -> tuple[int, int]:
        wanted = partitions or (A0,)
        request = EnlistRequest(txn, ProducerPair(*pair), wanted, version)
        verdict = self.run(self.core.enlist_for_produce(self.now_ms, request))
        return verdict.error_code, verdict.log_start_offset

    def commit_offsets(self, pair: tuple[int, int], version: int = 5) -> tuple[int, bool]:
        request = EnlistRequest(TXN, ProducerPair(*pair), (OFFSETS,), version)
        verdict = self.run(self.core.enlist_for_offsets(self.now_ms, request))
        return verdict.error_code, verdict.drop

    def end(
        self, pair: tuple[int, int], commit: bool = True, version: int = 5, txn: str = TXN, **options: Any
    ) -> EndReply:
        request = EndRequest(txn, ProducerPair(*pair), commit, version, **options)
        return self.run(self.core.end_txn(self.now_ms, request))

    def end_code(self, pair: tuple[int, int], commit: bool = True, version: int = 5, **options: Any) -> int:
        return self.end(pair, commit, version, **options).error_code

    def pass_time(self, ms: int) -> int:
        """Let time pass and do what is due. Returns how much there was to do."""
        self.now_ms += ms
        count = 0
        for result in self.core.on_time(self.now_ms):
            self.run(result)
            count += 1
        return count

    def open(self, version: int | None = None, **options: Any) -> ProducerPair:
        """An id with an open transaction over partition a-0; by AddPartitionsToTxn when a version is given."""
        pair = self.init_pair(**options)
        code = self.produce(pair) if version is None else self.add(pair, version=version)
        if code != 0:
            raise AssertionError(code)
        return pair

    def time_out(self, markers: bool = True, version: int | None = None, **options: Any) -> ProducerPair:
        """An id whose open transaction has just timed out. Returns the old pair."""
        pair = self.open(version, **{"timeout_ms": 1000, **options})
        if self.pass_time(1000) != 1:
            raise AssertionError("the transaction did not time out")
        if markers:
            self.write_markers()
        return pair


def next_epoch(pair: ProducerPair, by: int = 1) -> ProducerPair:
    return ProducerPair(pair.producer_id, pair.epoch + by)


def at_epoch(harness: Harness, epoch: int, txn: str = TXN) -> ProducerPair:
    """An id at this epoch, as a log that says so."""
    harness.init_pair(txn)
    record = TransactionRecord(txn, replace(harness.at(txn), producer_epoch=epoch))
    harness.log.append((record.key(), record.value()))
    harness.restart()
    return harness.at(txn).client_pair
