"""A mistake of the broker's own in one request: it costs that request's connection, is told, and nobody else's."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from fencepost.broker.api.records.fetching import ParkedFetch
from fencepost.broker.coordinator.group.coordinator import GroupCoordinator
from fencepost.broker.coordinator.txn.coordinator import TransactionCoordinator
from fencepost.broker.embedded import Broker
from fencepost.protocol import produce_wire
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from fencepost.protocol.messages.end_txn import EndTxnRequest
from fencepost.protocol.messages.init_producer_id import InitProducerIdRequest
from fencepost.protocol.messages.list_groups import ListGroupsRequest
from fencepost.protocol.messages.list_transactions import ListTransactionsRequest
from tests.support.broker_driver import BrokerDriver, batch, fetch, produce
from tests.support.raw_client import Closed, RawClient

POISONED, HEALTHY = 1, 2


class Mistake(Exception):
    """Nothing that the broker knows of."""


def mistaken(*_: object, **__: object) -> None:
    raise Mistake


@pytest.fixture
def driver() -> Iterator[BrokerDriver]:
    driver = BrokerDriver()
    driver.ask(CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=1, replication_factor=1)]), 7)
    driver.failed = {}
    yield driver
    assert {connection: type(error) for connection, error in driver.failed.items()} == {POISONED: Mistake}
    assert driver.core.connection(POISONED) is None
    assert driver.core.metrics.values["failed_requests"] == 1
    assert driver.ask(produce("t", batch()), 12, HEALTHY).partitions[0].error_code == ErrorCode.NONE


def written(driver: BrokerDriver) -> None:
    assert driver.ask(produce("t", batch()), 12, HEALTHY).partitions[0].error_code == ErrorCode.NONE


def test_a_request_that_is_handled_at_once(driver: BrokerDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GroupCoordinator, "list_groups", mistaken)
    driver.send(ListGroupsRequest(), 5, POISONED)


@pytest.mark.parametrize("wakes", [written, lambda driver: driver.pass_time(600)], ids=["records", "time"])
def test_a_fetch_that_waits(
    driver: BrokerDriver, monkeypatch: pytest.MonkeyPatch, wakes: Callable[[BrokerDriver], None]
) -> None:
    driver.send(fetch("t", max_wait_ms=500), 12, POISONED)
    with monkeypatch.context() as patches:
        patches.setattr(ParkedFetch, "_collect", mistaken)
        wakes(driver)


def test_a_batch_that_waits_for_markers(driver: BrokerDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is carried out inside of the completion of the transaction before, which must not suffer from it."""
    init = InitProducerIdRequest(transactional_id="id", transaction_timeout_ms=60_000)
    producer_id = driver.ask(init, 4, HEALTHY).producer_id
    first = batch(producer_id=producer_id, epoch=0, sequence=0, transactional=True)
    driver.ask(produce("t", first, transactional_id="id"), 12, HEALTHY)
    driver.auto_sync = False
    end = EndTxnRequest(transactional_id="id", producer_id=producer_id, producer_epoch=0, committed=True)
    ended = driver.send(end, 5, HEALTHY)
    driver.sync()  # the decision; its marker is under way
    assert driver.answer(ended, HEALTHY).producer_epoch == 1
    second = batch(producer_id=producer_id, epoch=1, sequence=0, transactional=True)
    driver.send(produce("t", second, transactional_id="id"), 12, POISONED)
    with monkeypatch.context() as patches:
        patches.setattr(TransactionCoordinator, "enlist_for_produce", mistaken)
        driver.auto_sync = True
        driver.sync()
    listed = driver.ask(ListTransactionsRequest(), 0, HEALTHY).transaction_states
    assert [entry.transaction_state for entry in listed] == ["CompleteCommit"]
    assert driver.ask(produce("t", second, transactional_id="id"), 12, HEALTHY).partitions[0].error_code == 0


def test_an_answer_that_waits_for_the_disk(driver: BrokerDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others wait for the same sync, behind it."""
    driver.auto_sync = False
    driver.send(produce("t", batch()), 12, POISONED)
    others = driver.send(produce("t", batch()), 11, HEALTHY)
    encode = produce_wire.encode_response

    def mistaken_at_12(response: produce_wire.ProduceResponse, version: int) -> object:
        if version == 12:
            raise Mistake
        return encode(response, version)

    with monkeypatch.context() as patches:
        patches.setattr(produce_wire, "encode_response", mistaken_at_12)
        driver.auto_sync = True
        driver.sync()
    assert driver.answer(others, HEALTHY).partitions[0].error_code == ErrorCode.NONE


def test_the_broker_tells_of_it_and_serves_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(GroupCoordinator, "list_groups", mistaken)
    with Broker() as broker, RawClient(broker.bootstrap_servers) as healthy:
        with RawClient(broker.bootstrap_servers) as poisoned, pytest.raises(Closed):
            poisoned.call(ListGroupsRequest(), 5)
        (reported,) = [record for record in caplog.records if "a request failed" in record.message]
        assert reported.exc_info is not None
        assert reported.exc_info[0] is Mistake
        assert healthy.call(ListTransactionsRequest(), 0).error_code == ErrorCode.NONE
        assert broker.metrics().counters["failed_requests"] == 1
