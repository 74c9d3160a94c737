"""Requests that take the straight path of Produce, and those that must not."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fencepost.broker.disk.files import Sync
from fencepost.broker.faults.table import FaultAction, RequestFault
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.frame import encode_request_frame
from fencepost.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from fencepost.protocol.produce_wire import ProducePartition, ProduceRequest, encode_request
from tests.support.broker_driver import BrokerDriver, batch, produce
from tests.support.engines import ENGINES, engine

PRODUCE = 0


@pytest.fixture
def driver() -> BrokerDriver:
    return started({})


def started(config: dict[str, object]) -> BrokerDriver:
    driver = BrokerDriver(config)
    topic = CreatableTopic(name="t", num_partitions=2, replication_factor=1)
    driver.ask(CreateTopicsRequest(topics=[topic]), 7)
    driver.ask(produce("t", batch(b"opens the log")), 9)
    return driver


def straight(driver: BrokerDriver) -> int:
    return driver.core.metrics.straight[PRODUCE]


@pytest.mark.parametrize("version", range(3, 13))
@pytest.mark.parametrize("fsync", ["commit", "never", "interval"])
def test_one_batch_goes_straight_in_every_version(fsync: str, version: int) -> None:
    driver = started({"fsync": fsync})
    for offset in (1, 2):
        result = driver.ask(produce("t", batch(b"v")), version).partitions[0]
        assert (result.error_code, result.base_offset) == (ErrorCode.NONE, offset)
    assert straight(driver) == 2
    assert driver.core.metrics.requests[PRODUCE] == 3
    assert sum(driver.core.metrics.latencies[PRODUCE].counts) == 3


def test_an_answer_waits_for_those_before_it_and_for_the_sync(driver: BrokerDriver) -> None:
    driver.auto_sync = False
    sent = [driver.send(produce("t", batch(b"v")), 9) for _ in range(3)]
    assert [driver.answer(each) for each in sent] == [None] * 3
    while driver.syncs:
        driver.sync()
    assert [driver.answer(each).partitions[0].base_offset for each in sent] == [1, 2, 3]
    assert straight(driver) == 3


def fault(driver: BrokerDriver) -> None:
    rule = RequestFault(api_key=PRODUCE, action=FaultAction.FAIL, code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    driver.core._faults.table.add(rule)


def quota(driver: BrokerDriver) -> None:
    driver.core.settings.quotas = {(("client-id", "driver"),): {"producer_byte_rate": 1e9}}


def rights(driver: BrokerDriver) -> None:
    driver.core.rights.enforced = True


def doubt(driver: BrokerDriver) -> None:
    driver.core.doubts.found_id("another")


@pytest.mark.parametrize("in_force", [fault, quota, rights, doubt])
def test_what_only_the_general_path_heeds_keeps_requests_from_the_straight_one(
    driver: BrokerDriver, in_force: Callable[[BrokerDriver], None]
) -> None:
    in_force(driver)
    driver.ask(produce("t", batch(b"v")), 9)
    assert straight(driver) == 0


def damaged(data: bytes) -> bytes:
    return data[:-1] + bytes((data[-1] ^ 1,))


@pytest.mark.parametrize(
    ("request_of", "code"),
    [
        (lambda: produce("t", batch(b"v"), partition=1), ErrorCode.NONE),  # its log is not open yet
        (lambda: produce("absent", batch(b"v")), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (lambda: produce("t", b"\x00" * 70), ErrorCode.CORRUPT_MESSAGE),
    ],
)
def test_other_requests_take_the_general_path(driver: BrokerDriver, request_of: Callable[[], Any], code: int) -> None:
    assert driver.ask(request_of(), 9).partitions[0].error_code == code
    assert straight(driver) == 0


@pytest.mark.parametrize("name", ENGINES)
def test_a_refusal_of_the_log_is_told_on_the_straight_path(driver: BrokerDriver, name: str) -> None:
    with engine(name):
        result = driver.ask(produce("t", batch(b"v", producer_id=7, epoch=0, sequence=5)), 9)
    assert result.partitions[0].error_code == ErrorCode.UNKNOWN_PRODUCER_ID
    assert straight(driver) == 1


@pytest.mark.parametrize("fsync", ["commit", "never"])
def test_the_latency_of_a_request_counts_from_its_arrival_until_its_answer_leaves(fsync: str) -> None:
    driver = started({"fsync": fsync})
    core, latency = driver.core, driver.core.metrics.latencies[PRODUCE]
    before_ms, steady_ms = latency.sum_ms, 1_000
    core.steady_ms = lambda: steady_ms
    sent = encode_request_frame(PRODUCE, 9, 5, "driver", b"".join(encode_request(produce("t", batch(b"v")), 9)))
    for arrived_ms in (700, 900):
        core.handle_frame(driver.now_ms, 1, memoryview(sent)[4:], arrived_ms)
    steady_ms = 1_200
    for effect in core.take_effects():
        if isinstance(effect, Sync):
            core.synced(driver.now_ms, effect.token)
    assert straight(driver) == 2
    assert latency.sum_ms - before_ms == 500 + 300


@pytest.mark.parametrize("name", ENGINES)
def test_a_damaged_batch_is_refused_alike_in_both_forms(driver: BrokerDriver, name: str) -> None:
    with engine(name):
        result = driver.ask(produce("t", damaged(batch(b"v"))), 9).partitions[0]
    assert result.error_code == ErrorCode.CORRUPT_MESSAGE


def test_the_end_of_failed_writes_is_logged_on_the_straight_path(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "fencepost.broker.produce")
    driver = started({"fsync": "never"})
    driver.disk.fail_next_write(within="t-0")
    for _ in range(3):
        driver.ask(produce("t", batch(b"v")), 9)
    assert straight(driver) == 3
    assert [message.endswith("accepts records again") for message in caplog.messages] == [False, True]


def several(*batches: tuple[int, bytes]) -> ProduceRequest:
    wanted = [ProducePartition("t", None, index, records) for index, records in batches]
    return ProduceRequest(None, -1, 1500, wanted)


@pytest.fixture
def opened(driver: BrokerDriver) -> Iterator[BrokerDriver]:
    """A broker whose native module reads requests with several batches; the logs of both partitions are open."""
    driver.ask(produce("t", batch(b"opens the log"), partition=1), 9)
    with engine("native"):
        yield driver


def test_several_batches_go_straight(opened: BrokerDriver) -> None:
    for offset in (1, 2):
        answer = opened.ask(several((1, batch(b"one")), (0, batch(b"nought"))), 9)
        assert [(each.partition, each.error_code, each.base_offset) for each in answer.partitions] == [
            (1, ErrorCode.NONE, offset),
            (0, ErrorCode.NONE, offset),
        ]
    assert straight(opened) == 2


def test_of_several_batches_only_the_refused_one_is_refused(opened: BrokerDriver) -> None:
    sequenced = batch(b"v", producer_id=7, epoch=0, sequence=0)
    assert opened.ask(several((1, sequenced)), 9).partitions[0].error_code == ErrorCode.NONE
    following = batch(b"w", producer_id=7, epoch=0, sequence=5)
    first = batch(b"w", producer_id=7, epoch=0, sequence=0)
    answer = opened.ask(several((1, following), (0, first)), 9)
    assert [each.error_code for each in answer.partitions] == [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.NONE]
    assert straight(opened) == 2


@pytest.mark.parametrize(
    "batches",
    {
        "one partition twice": [(0, batch(b"a")), (0, batch(b"b"))],
        "two producers": [
            (0, batch(b"a", producer_id=7, epoch=0, sequence=0)),
            (1, batch(b"b", producer_id=8, epoch=0, sequence=0)),
        ],
        "an unknown partition": [(0, batch(b"a")), (9, batch(b"b"))],
        "a damaged batch": [(0, batch(b"a")), (1, damaged(batch(b"b")))],
    }.values(),
    ids=str,
)
def test_other_requests_with_several_batches_take_the_general_path(
    opened: BrokerDriver, batches: list[tuple[int, bytes]]
) -> None:
    ends = [log_end(opened, index) for index in (0, 1)]
    answer = opened.ask(several(*batches), 9)
    assert straight(opened) == 0
    written = sum(each.error_code == ErrorCode.NONE for each in answer.partitions)
    assert sum(log_end(opened, index) for index in (0, 1)) == sum(ends) + written


def log_end(driver: BrokerDriver, index: int) -> int:
    partition = driver.core.topics.partition("t", index)
    assert partition is not None
    return partition.log.log_end_offset
