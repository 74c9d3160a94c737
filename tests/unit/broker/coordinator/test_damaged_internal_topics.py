"""Damage in what the broker itself has written down: it starts, says what is damaged, serves the rest, and commits or
aborts nothing by guess."""

from __future__ import annotations

import logging

import pytest

from fencepost.broker.log.results import Appended
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.logs.transaction_log import encode_key
from fencepost.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from fencepost.protocol.messages.describe_transactions import DescribeTransactionsRequest
from fencepost.protocol.messages.end_txn import EndTxnRequest
from fencepost.protocol.messages.init_producer_id import InitProducerIdRequest
from fencepost.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from fencepost.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from fencepost.protocol.records.batch import iter_batches, parse_header
from fencepost.protocol.records.walk import pairs_of
from tests.support.broker_driver import BrokerDriver, batch, fetch, produce

CONFIG = {
    "transaction.state.log.num.partitions": 1,
    "offsets.topic.num.partitions": 1,
    "transaction.two.phase.commit.enable": "true",
}
STATES = "__transaction_state-0/00000000000000000000.log"
OFFSETS = "__consumer_offsets-0/00000000000000000000.log"


@pytest.fixture
def driver() -> BrokerDriver:
    driver = BrokerDriver(CONFIG)
    create(driver)
    return driver


def create(driver: BrokerDriver) -> None:
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    driver.ask(CreateTopicsRequest(topics=[topic]), 7)


def init(driver: BrokerDriver, name: str, **more: bool) -> tuple[int, int, int]:
    request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000, **more)
    answer = driver.ask(request, 6)
    return answer.error_code, answer.producer_id, answer.producer_epoch


def write(driver: BrokerDriver, name: str, pair: tuple[int, int], value: bytes) -> None:
    records = batch(value, producer_id=pair[0], epoch=pair[1], sequence=0, transactional=True)
    assert driver.ask(produce("t", records, transactional_id=name), 12).partitions[0].error_code == ErrorCode.NONE


def end(driver: BrokerDriver, name: str, pair: tuple[int, int], commit: bool = True) -> int:
    request = EndTxnRequest(transactional_id=name, producer_id=pair[0], producer_epoch=pair[1], committed=commit)
    return int(driver.ask(request, 5).error_code)


def prepare(driver: BrokerDriver, name: str) -> tuple[int, int]:
    """A two-phase transaction with one record, prepared; returns the pair that may end it."""
    _, *pair = init(driver, name, enable2_pc=True)
    write(driver, name, (pair[0], pair[1]), b"PREPARED")
    code, *next_pair = init(driver, name, enable2_pc=True, keep_prepared_txn=True)
    assert code == ErrorCode.NONE
    return next_pair[0], next_pair[1]


def committed(driver: BrokerDriver) -> bytes:
    return bytes(driver.ask(fetch("t", committed=True), 12).topics[0].partitions[0].records)


def damage_batch(driver: BrokerDriver, path: str, which: int) -> None:
    """Flip a bit in the records of one of the batches that are in the file."""
    position = 0
    sizes = [len(view) for _, view in iter_batches(driver.disk.read_bytes(path))]
    position = sum(sizes[:which] if which >= 0 else sizes[: len(sizes) + which])
    driver.disk.flip_bit(path, position + 70, 2)


def lose_snapshot(driver: BrokerDriver) -> None:
    """So that the log alone counts."""
    driver.disk.remove("__transaction_state-0/transactions.fencepost")


@pytest.mark.parametrize("which", [0, -1])
def test_damage_below_a_snapshot_takes_nothing(driver: BrokerDriver, which: int) -> None:
    pair = prepare(driver, "held")
    driver.core.close()
    driver.disk.kill()
    damage_batch(driver, STATES, which)
    driver.start()
    assert end(driver, "held", pair) == ErrorCode.NONE
    assert b"PREPARED" in committed(driver)


@pytest.mark.parametrize("how", ["kill", "clean stop"])
def test_a_prepared_transaction_outlives_damage_in_the_record_of_another_id(
    driver: BrokerDriver, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    _, *other = init(driver, "other")
    write(driver, "other", (other[0], other[1]), b"first")
    assert end(driver, "other", (other[0], other[1])) == ErrorCode.NONE
    pair = prepare(driver, "held")
    if how == "clean stop":
        driver.core.close()
        lose_snapshot(driver)
    driver.disk.kill()
    damage_batch(driver, STATES, 0)
    driver.start()
    assert "topic __transaction_state partition 0: offsets 0 to 0" in caplog.text
    assert driver.core.metrics.values["damaged_places"] == 1
    assert driver.core.metrics.values["damaged_offsets"] == 1
    assert b"PREPARED" not in committed(driver)
    assert end(driver, "held", pair) == ErrorCode.NONE
    assert b"PREPARED" in committed(driver)


@pytest.mark.parametrize("how", ["kill", "clean stop"])
def test_a_transaction_whose_own_record_is_damaged_is_neither_committed_nor_aborted(
    driver: BrokerDriver, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    pair = prepare(driver, "held")
    if how == "clean stop":
        driver.core.close()
        lose_snapshot(driver)
    driver.disk.kill()
    damage_batch(driver, STATES, -1)
    for _ in range(2):
        driver.start()
        assert end(driver, "held", pair) == ErrorCode.UNKNOWN_SERVER_ERROR
        assert init(driver, "held")[0] == ErrorCode.UNKNOWN_SERVER_ERROR
        described = driver.ask(DescribeTransactionsRequest(transactional_ids=["held"]), 0).transaction_states[0]
        assert described.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        driver.pass_time(200_000)
        (partition,) = driver.ask(fetch("t", committed=True), 12).topics[0].partitions
        assert (partition.last_stable_offset, partition.high_watermark) == (0, 1)
        driver.disk.kill()
    assert "has a transaction open since offset 0" in caplog.text
    assert "'held': was Ongoing with" in caplog.text


def test_ids_that_went_on_behind_the_damage_go_on(driver: BrokerDriver) -> None:
    for name in ("a", "b"):
        _, *pair = init(driver, name)
        write(driver, name, (pair[0], pair[1]), name.encode())
        assert end(driver, name, (pair[0], pair[1])) == ErrorCode.NONE
    driver.disk.kill()
    damage_batch(driver, STATES, 2)  # of a; b came later
    driver.start()
    code, *pair = init(driver, "b")
    assert code == ErrorCode.NONE
    write(driver, "b", (pair[0], pair[1]), b"again")
    assert end(driver, "b", (pair[0], pair[1])) == ErrorCode.NONE
    assert b"again" in committed(driver)


@pytest.mark.parametrize("goes_on", [False, True])
def test_a_state_of_a_newer_kind_is_in_doubt_until_another_follows(
    driver: BrokerDriver, goes_on: bool, caplog: pytest.LogCaptureFixture
) -> None:
    pair = prepare(driver, "held")
    log = driver.core.topics.internal("__transaction_state").partitions[0].log
    (*_, (_, last)) = iter_batches(driver.disk.read_bytes(STATES))
    newer = (encode_key("held"), b"\x00\x09" + bytes(40))
    ((_, *known),) = pairs_of(parse_header(last), last)
    for stored in (newer, (known[0], known[1])) if goes_on else (newer,):
        assert isinstance(log.append_internal([stored], driver.now_ms), Appended)
    init(driver, "later")
    driver.core.close()
    lose_snapshot(driver)
    driver.start()
    assert end(driver, "held", pair) == (ErrorCode.NONE if goes_on else ErrorCode.UNKNOWN_SERVER_ERROR)
    assert init(driver, "later")[0] == ErrorCode.NONE
    assert ("transaction log value of version 9" in caplog.text) is not goes_on
    assert driver.core.metrics.values["damaged_places"] == (not goes_on)


def test_offsets_that_may_be_older_are_not_given_out(driver: BrokerDriver, caplog: pytest.LogCaptureFixture) -> None:
    for offset in (1, 2):
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        topics = [OffsetCommitRequestTopic(name="t", partitions=[partition])]
        driver.ask(OffsetCommitRequest(group_id="g", topics=topics), 8)
    asked = OffsetFetchRequest(group_id="g", topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[0])])
    assert driver.ask(asked, 7).topics[0].partitions[0].committed_offset == 2
    driver.disk.kill()
    damage_batch(driver, OFFSETS, -1)
    driver.start()
    answer = driver.ask(asked, 7)
    assert ErrorCode.UNKNOWN_SERVER_ERROR in (answer.error_code, answer.topics[0].partitions[0].error_code)
    assert "topic __consumer_offsets partition 0" in caplog.text


@pytest.mark.parametrize("path", [STATES, OFFSETS])
def test_what_should_not_be_there_does_not_keep_the_broker_from_starting(
    driver: BrokerDriver, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    pair = prepare(driver, "held")
    partition = driver.core.topics.internal(path.rpartition("-")[0]).partitions[0]
    partition.log.append_marker(77, 0, True, 0, driver.now_ms)
    partition.log.append_internal([(None, b"no record of the broker's")], driver.now_ms)
    driver.core.close()
    lose_snapshot(driver)
    driver.start()
    assert partition.directory in caplog.text or partition.topic.name in caplog.text
    caplog.set_level(logging.INFO)
    if path == OFFSETS:
        assert end(driver, "held", pair) == ErrorCode.NONE
        assert b"PREPARED" in committed(driver)


def test_an_open_transaction_whose_marker_may_be_damaged_is_left_open(driver: BrokerDriver) -> None:
    _, *pair = init(driver, "a")
    write(driver, "a", (pair[0], pair[1]), b"decided")
    assert end(driver, "a", (pair[0], pair[1])) == ErrorCode.NONE
    assert b"decided" in committed(driver)
    driver.disk.kill()
    damage_batch(driver, "t-0/00000000000000000000.log", -1)
    for _ in range(2):
        driver.start()
        (partition,) = driver.ask(fetch("t", committed=True), 12).topics[0].partitions
        assert (partition.last_stable_offset, partition.high_watermark) == (0, 2)
        driver.core.close()
        driver.disk.kill()
