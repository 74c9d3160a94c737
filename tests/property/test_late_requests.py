"""A client of transaction.version 2 whose requests and answers are lost, late, or handled twice, and whose transactions
time out at any moment: it is told what became of each of them, and never that nothing was begun."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest

from fencepost.broker.coordinator.txn.generations import TIMED_OUT, Generation
from fencepost.broker.disk.changes import carry_out
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages.end_txn import EndTxnRequest
from fencepost.protocol.messages.init_producer_id import InitProducerIdRequest
from fencepost.protocol.records.decoding import decode_batches
from tests.support.broker_driver import BrokerDriver, batch, fetch, produce

SEEDS = 100
TRANSACTIONS = 4
TIMEOUT_MS = 1000
MOST_LOOKS = 400
PATIENT_LOOKS = 30
NONE, ABORTABLE = ErrorCode.NONE, ErrorCode.TRANSACTION_ABORTABLE


class LateClient:
    """Sends everything until it is answered, as Java's does. A request that was given up may still be handled, later:
    it lies in the socket of a connection that is gone."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._driver = driver = BrokerDriver()
        carry_out(driver.core.topics.create("t", 1, {}))
        given = driver.ask(InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=TIMEOUT_MS), 5)
        self._pair = given.producer_id, given.producer_epoch
        self._connection = 2
        self._late: list[tuple[int, Any, int]] = []
        driver.auto_sync = False

    def produce(self, value: bytes) -> int:
        """The code for the first batch of a transaction."""
        producer_id, epoch = self._pair
        records = batch(value, producer_id=producer_id, epoch=epoch, sequence=0, transactional=True)
        answer = self._answered(produce("t", records, transactional_id="x"), 12)
        return int(answer.partitions[0].error_code)

    def end(self, commit: bool) -> int:
        """The code for EndTxn, when markers are no longer in the way."""
        request = EndTxnRequest(
            transactional_id="x", producer_id=self._pair[0], producer_epoch=self._pair[1], committed=commit
        )
        while (answer := self._answered(request, 5)).error_code == ErrorCode.CONCURRENT_TRANSACTIONS:
            self._go_on()
        if answer.error_code == NONE:
            self._pair = answer.producer_id, answer.producer_epoch
        return int(answer.error_code)

    def committed(self) -> list[bytes | None]:
        """Wait until nothing is in progress, and return the values that committed readers see."""
        self._driver.auto_sync = True
        while self._driver.syncs:
            self._driver.sync()
        self._driver.pass_time(2 * TIMEOUT_MS)
        (topic,) = self._driver.ask(fetch("t", committed=True), 12).topics
        return decode_batches(topic.partitions[0].records, aborted=topic.partitions[0].aborted or ()).values()

    def _answered(self, request: Any, version: int) -> Any:
        while True:
            if self._random.random() < 0.15:
                if self._random.random() < 0.8:
                    self._late.append((self._connection, request, version))
                self._reconnect()
                self._go_on()
                continue
            connection = self._connection
            sent = self._driver.send(request, version, connection)
            answer = self._awaited(sent, connection)
            if answer is not None and self._random.random() > 0.15:
                return answer
            if self._random.random() < 0.5:
                self._driver.core.disconnected(self._driver.now_ms, connection)
            self._reconnect()

    def _awaited(self, sent: int, connection: int) -> Any:
        """The answer, None where the client has lost patience."""
        for look in range(MOST_LOOKS):
            answer = self._driver.answer(sent, connection)
            if answer is not None or self._random.random() < 0.02:
                return answer
            self._go_on()
            if look > PATIENT_LOOKS:
                self._driver.pass_time(50)
                if self._driver.syncs:
                    self._driver.sync()
        raise AssertionError("no answer for ever")

    def _reconnect(self) -> None:
        self._connection += 1
        ends = ("127.0.0.1", 9092), ("127.0.0.1", 50_000 + self._connection)
        self._driver.core.connected(self._driver.now_ms, self._connection, *ends)

    def _go_on(self) -> None:
        """Advance the broker at random: sync, pass time, or deliver a late request."""
        chance = self._random.random()
        if chance < 0.4:
            if self._driver.syncs:
                self._driver.sync()
        elif chance < 0.75:
            self._driver.pass_time(self._random.choice((0, 1, 10, 100, 400, TIMEOUT_MS + 100)))
        elif self._late:
            connection, request, version = self._late.pop(self._random.randrange(len(self._late)))
            self._driver.send(request, version, connection)


def live(seed: int) -> tuple[list[bytes], list[bytes | None], Counter[tuple[str, int]]]:
    """The values whose commit was confirmed, those that readers see, and what was told how often."""
    client, confirmed, reported = LateClient(seed), [], Counter[tuple[str, int]]()
    for number in range(TRANSACTIONS):
        value = b"%d" % number
        code = client.produce(value)
        reported["produce", code] += 1
        if code == NONE and number % 3:
            code = client.end(commit=True)
            reported["commit", code] += 1
            if code == NONE:
                confirmed.append(value)
                continue
        reported["abort", client.end(commit=False)] += 1
    return confirmed, client.committed(), reported


def test_what_is_told_is_what_became_of_it() -> None:
    reported: Counter[tuple[str, int]] = Counter()
    for seed in range(SEEDS):
        confirmed, seen, once = live(seed)
        assert seen == confirmed, seed
        reported += once
    expected = {("produce", NONE), ("produce", ABORTABLE), ("commit", NONE), ("commit", ABORTABLE), ("abort", NONE)}
    assert reported.keys() == expected
    assert min(reported.values()) > 10


def test_a_confirmed_commit_that_was_none_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TIMED_OUT, Generation.D, TIMED_OUT[Generation.D]._replace(end_commit=NONE))
    runs = (live(seed) for seed in range(SEEDS))
    assert any(confirmed != seen for confirmed, seen, _ in runs)
