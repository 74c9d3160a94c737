"""A marker, or the record of a completed transaction, that the disk refuses: later requests of the id are answered
CONCURRENT_TRANSACTIONS as by Kafka, and no request behind them on the connection waits."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages.end_txn import EndTxnRequest
from fencepost.protocol.messages.metadata import MetadataRequest
from fencepost_lab.check.disk import MemoryFile
from tests.support.broker_driver import BrokerDriver
from tests.unit.broker.disk.test_full_disk import begin, committed, create, end, init

Refuse = Callable[[str], None]


@pytest.fixture
def driver() -> BrokerDriver:
    driver = BrokerDriver()
    assert create(driver, "t") == ErrorCode.NONE
    return driver


@pytest.fixture
def refuse(driver: BrokerDriver, monkeypatch: pytest.MonkeyPatch) -> Refuse:
    """Let all appends, or all syncs, of topic t's files fail until `monkeypatch.undo`."""

    def install(operation: str) -> None:
        method = getattr(MemoryFile, operation)

        def fail(self: MemoryFile, *parts: bytes) -> None:
            if self.path.startswith("t-0/"):
                raise OSError(5, "Input/output error", self.path)
            method(self, *parts)

        monkeypatch.setattr(MemoryFile, operation, fail)

    return install


def test_a_new_request_is_answered_while_the_marker_is_refused(driver: BrokerDriver) -> None:
    pair = begin(driver, "id")
    driver.disk.fail_next_write(within="t-0/")
    assert end(driver, "id", pair) == ErrorCode.NONE
    assert init(driver, "id")[0] == ErrorCode.CONCURRENT_TRANSACTIONS
    driver.pass_time(1_500)
    assert init(driver, "id")[0] == ErrorCode.NONE
    assert b"OPEN" in committed(driver)


def test_a_waiting_request_is_answered_when_the_marker_is_refused(
    driver: BrokerDriver, refuse: Refuse, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(driver, "id")
    refuse("append")
    assert init(driver, "id")[0] == ErrorCode.CONCURRENT_TRANSACTIONS  # it aborts the open one, and waits
    driver.pass_time(60_000)
    assert init(driver, "id")[0] == ErrorCode.CONCURRENT_TRANSACTIONS
    monkeypatch.undo()
    driver.pass_time(1_500)
    assert init(driver, "id")[0] == ErrorCode.NONE


def test_requests_are_answered_while_a_marker_cannot_become_durable(
    driver: BrokerDriver, refuse: Refuse, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = begin(driver, "id")
    refuse("sync")
    assert end(driver, "id", pair) == ErrorCode.NONE
    assert init(driver, "id")[0] == ErrorCode.CONCURRENT_TRANSACTIONS
    assert driver.ask(MetadataRequest(topics=None), 12).topics
    monkeypatch.undo()
    driver.disk.kill()
    driver.start()
    assert init(driver, "id")[0] == ErrorCode.NONE
    assert b"OPEN" in committed(driver)


def test_requests_are_answered_while_the_completion_is_refused(driver: BrokerDriver) -> None:
    pair = begin(driver, "id")
    driver.auto_sync = False
    request = EndTxnRequest(transactional_id="id", producer_id=pair[0], producer_epoch=pair[1], committed=True)
    asked = driver.send(request, 3)
    driver.sync()  # the decision
    assert driver.answer(asked).error_code == ErrorCode.NONE
    driver.disk.fail_next_write(within="__transaction_state")
    driver.auto_sync = True
    driver.sync()  # the marker
    assert init(driver, "id")[0] == ErrorCode.CONCURRENT_TRANSACTIONS
    driver.pass_time(1_500)
    assert init(driver, "id")[0] == ErrorCode.NONE
