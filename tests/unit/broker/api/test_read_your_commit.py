"""Once EndTxn is answered, whoever asks next sees the transaction whole, although its markers are not durable yet."""

from __future__ import annotations

from typing import Any

import pytest

from fencepost.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from fencepost.protocol.messages.describe_transactions import DescribeTransactionsRequest
from fencepost.protocol.messages.end_txn import EndTxnRequest
from fencepost.protocol.messages.init_producer_id import InitProducerIdRequest
from fencepost.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from fencepost.protocol.messages.list_transactions import ListTransactionsRequest
from fencepost.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from fencepost.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from fencepost.protocol.records.decoding import decode_batches
from tests.support.broker_driver import BrokerDriver, batch, fetch, produce

READER = 2


@pytest.fixture
def driver() -> BrokerDriver:
    """A transaction with a record in a-0 and an offset of group g; its EndTxn is answered, and nothing was synced
    since."""
    driver = BrokerDriver()
    driver.ask(CreateTopicsRequest(topics=[CreatableTopic(name="a", num_partitions=2, replication_factor=1)]), 7)
    me = driver.ask(InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60_000), 4)
    pair = {"producer_id": me.producer_id, "epoch": me.producer_epoch}
    records = batch(b"v", sequence=0, transactional=True, **pair)
    assert driver.ask(produce("a", records, transactional_id="x"), 12).partitions[0].error_code == 0
    offset = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=7)
    position = TxnOffsetCommitRequest(
        transactional_id="x",
        group_id="g",
        producer_id=me.producer_id,
        producer_epoch=me.producer_epoch,
        topics=[TxnOffsetCommitRequestTopic(name="a", partitions=[offset])],
    )
    assert driver.ask(position, 5).topics[0].partitions[0].error_code == 0
    driver.auto_sync = False
    end = driver.send(
        EndTxnRequest(
            transactional_id="x", producer_id=me.producer_id, producer_epoch=me.producer_epoch, committed=True
        ),
        5,
    )
    driver.sync()
    assert driver.answer(end).error_code == 0
    return driver


def after_the_markers(driver: BrokerDriver, request: Any, version: int) -> Any:
    """The answer, which must not come before the markers are durable."""
    asked = driver.send(request, version, READER)
    assert driver.answer(asked, READER) is None
    while driver.syncs:
        driver.sync()
    return driver.answer(asked, READER)


def end_of(partition: int, committed: bool) -> ListOffsetsRequest:
    wanted = ListOffsetsTopic(name="a", partitions=[ListOffsetsPartition(partition_index=partition, timestamp=-1)])
    return ListOffsetsRequest(replica_id=-1, isolation_level=int(committed), topics=[wanted])


def test_the_end_of_committed_records(driver: BrokerDriver) -> None:
    answer = after_the_markers(driver, end_of(0, True), 7)
    assert answer.topics[0].partitions[0].offset == 2


@pytest.mark.parametrize("max_wait_ms", [0, 60_000])
def test_a_fetch_of_committed_records(driver: BrokerDriver, max_wait_ms: int) -> None:
    answer = after_the_markers(driver, fetch("a", committed=True, max_wait_ms=max_wait_ms), 12)
    assert decode_batches(answer.topics[0].partitions[0].records).values() == [b"v"]


@pytest.mark.parametrize("stable", [False, True])
def test_the_offsets_of_a_group(driver: BrokerDriver, stable: bool) -> None:
    wanted = OffsetFetchRequestTopic(name="a", partition_indexes=[0])
    request = OffsetFetchRequest(group_id="g", topics=[wanted], require_stable=stable)
    (found,) = after_the_markers(driver, request, 7).topics[0].partitions
    assert (found.committed_offset, found.error_code) == (7, 0)


def test_the_transaction_s_state(driver: BrokerDriver) -> None:
    answer = after_the_markers(driver, DescribeTransactionsRequest(transactional_ids=["x"]), 0)
    assert answer.transaction_states[0].transaction_state == "CompleteCommit"


def test_the_states_of_all(driver: BrokerDriver) -> None:
    answer = after_the_markers(driver, ListTransactionsRequest(), 0)
    assert [each.transaction_state for each in answer.transaction_states] == ["CompleteCommit"]


def test_who_reads_elsewhere_or_all_records_does_not_wait(driver: BrokerDriver) -> None:
    for partition, committed in ((1, True), (0, False)):
        assert driver.ask(end_of(partition, committed), 7, READER).topics[0].partitions[0].error_code == 0
    assert driver.ask(fetch("a", partition=1, committed=True), 12, READER) is not None
    assert driver.ask(fetch("a"), 12, READER) is not None
