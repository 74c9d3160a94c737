"""A fetch waits for `min_bytes` only as long as waiting can bring more: readiness counts what the answer holds."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from fencepost.broker.log.partition import PartitionLog
from fencepost.protocol.fetch_wire import FetchPartition, FetchRequest, FetchTopic
from fencepost.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from fencepost.protocol.messages.end_txn import EndTxnRequest
from fencepost.protocol.messages.init_producer_id import InitProducerIdRequest
from tests.support.batches import batch
from tests.support.broker_driver import BrokerDriver, produce

Wanted = tuple[int, int, int]  # partition, offset, max_bytes
MUCH = 1 << 20


@pytest.fixture
def driver() -> BrokerDriver:
    driver = BrokerDriver()
    config = CreatableTopicConfig(name="internal.segment.bytes", value="4000")
    topic = CreatableTopic(name="a", num_partitions=3, replication_factor=1, configs=[config])
    assert driver.ask(CreateTopicsRequest(topics=[topic]), 7).topics[0].error_code == 0
    return driver


def write(driver: BrokerDriver, *sizes: int, partition: int = 0) -> None:
    """A batch with a value of each size."""
    for size in sizes:
        records = batch(b"v" * size, timestamp=driver.now_ms)
        assert driver.ask(produce("a", records, partition=partition), 9).partitions[0].error_code == 0


def asked(*wanted: Wanted, min_bytes: int, max_bytes: int = MUCH, committed: bool = False) -> FetchRequest:
    topic = FetchTopic("a", None, [FetchPartition(*each) for each in wanted])
    return FetchRequest(60_000, min_bytes, max_bytes, int(committed), topics=[topic])


def held(driver: BrokerDriver, request: FetchRequest, connection: int = 1) -> list[int] | None:
    """Return the number of bytes of each partition of the answer; None while the fetch waits."""
    answer = driver.answer(driver.send(request, 12, connection), connection)
    return None if answer is None else [len(each.records) for each in answer.topics[0].partitions]


@pytest.mark.parametrize(
    ("wanted", "min_bytes", "max_bytes", "sizes"),
    [
        ([(0, 0, 1000)], 1500, MUCH, [2070]),
        ([(0, 0, 0)], 1, MUCH, [2070]),
        ([(0, 0, MUCH)], 1500, 100, [2070]),
        ([(0, 0, MUCH)], 1, 0, [2070]),
        ([(1, 0, 10), (0, 0, 1000)], 1500, MUCH, [0, 2070]),
        ([(2, 0, 10), (0, 0, 3000)], 2200, MUCH, [170, 2070]),
    ],
)
def test_a_large_first_batch_counts_whole(
    driver: BrokerDriver, wanted: Sequence[Wanted], min_bytes: int, max_bytes: int, sizes: list[int]
) -> None:
    write(driver, 2000)
    write(driver, 100, partition=2)
    assert held(driver, asked(*wanted, min_bytes=min_bytes, max_bytes=max_bytes)) == sizes


def test_a_partition_that_has_reached_its_limit_is_not_waited_for(driver: BrokerDriver) -> None:
    write(driver, 2000)
    write(driver, 100, partition=2)
    assert held(driver, asked((2, 0, MUCH), (0, 0, 1000), min_bytes=1000)) == [170, 0]


def test_the_first_batch_of_the_answer_is_another_one_later(driver: BrokerDriver) -> None:
    """It goes out whole then, and the one that was the first so far has no room any more."""
    write(driver, 2000)
    waiting = driver.send(asked((2, 0, 1000), (0, 0, 1000), (1, 0, MUCH), min_bytes=3000), 12)
    assert driver.answer(waiting) is None
    for partition, size in ((2, 1100), (1, 2500)):
        assert driver.answer(waiting) is None
        driver.send(produce("a", batch(b"v" * size, timestamp=driver.now_ms), partition=partition), 9, 2)
    answer = driver.answer(waiting)
    assert [len(each.records) for each in answer.topics[0].partitions] == [1170, 0, 2570]


def closed_segments(driver: BrokerDriver, partition: int = 0) -> int:
    found = driver.core.topics.partition("a", partition)
    assert found is not None
    return len(found.log.segments) - 1


def test_a_closed_segment_is_answered_at_once(driver: BrokerDriver) -> None:
    write(driver, *[2000] * 4)
    assert closed_segments(driver) == 3
    for offset in range(3):
        assert held(driver, asked((0, offset, MUCH), min_bytes=5000)) == [2070]
        assert held(driver, asked((1, 0, MUCH), (0, offset, MUCH), min_bytes=5000)) == [0, 2070]
    assert held(driver, asked((0, 3, MUCH), min_bytes=5000)) is None


def test_a_segment_that_is_closed_while_a_fetch_waits(driver: BrokerDriver) -> None:
    write(driver, 2000)
    waiting = driver.send(asked((0, 0, MUCH), min_bytes=50_000), 12)
    driver.send(produce("a", batch(b"v" * 3000, timestamp=driver.now_ms)), 9, 2)
    assert closed_segments(driver) == 1
    assert len(driver.answer(waiting).topics[0].partitions[0].records) == 2070


def test_an_open_transaction_bounds_readers_of_committed_records(driver: BrokerDriver) -> None:
    """More of a closed segment can still come for them."""
    write(driver, 1000)
    given = driver.ask(InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60_000), 4)
    records = batch(
        b"v" * 1000,
        timestamp=driver.now_ms,
        producer_id=given.producer_id,
        epoch=given.producer_epoch,
        sequence=0,
        transactional=True,
    )
    assert driver.ask(produce("a", records, transactional_id="x"), 12).partitions[0].error_code == 0
    write(driver, 3000)
    assert closed_segments(driver) == 1
    assert held(driver, asked((0, 0, MUCH), min_bytes=5000)) == [2140]
    waiting = driver.send(asked((0, 0, MUCH), min_bytes=5000, committed=True), 12)
    assert driver.answer(waiting) is None
    end = EndTxnRequest(
        transactional_id="x", producer_id=given.producer_id, producer_epoch=given.producer_epoch, committed=True
    )
    assert driver.ask(end, 5, 2).error_code == 0
    assert len(driver.answer(waiting).topics[0].partitions[0].records) == 2140


def test_a_session_whose_partitions_are_not_named_again(driver: BrokerDriver) -> None:
    first = asked((0, 0, MUCH), (1, 0, MUCH), min_bytes=1)
    first.max_wait_ms, first.session_epoch = 0, 0
    session = driver.ask(first, 12)
    assert session.session_id > 0
    following = FetchRequest(60_000, 5000, MUCH, session_id=session.session_id, session_epoch=1)
    waiting = driver.send(following, 12)
    for size in (2000, 3000):
        assert driver.answer(waiting) is None
        driver.send(produce("a", batch(b"v" * size, timestamp=driver.now_ms), partition=1), 9, 2)
    assert [len(each.records) for each in driver.answer(waiting).topics[0].partitions] == [2070]


def test_nobody_waits_for_more_than_an_answer_can_hold(driver: BrokerDriver) -> None:
    write(driver, *[500] * 4)
    assert held(driver, asked((0, 0, 1000), min_bytes=5000)) == [570]
    assert held(driver, asked((0, 0, MUCH), min_bytes=5000, max_bytes=1200)) == [1140]


@pytest.mark.parametrize("limit", [0, 1])
def test_the_smallest_limits_at_the_end_of_a_partition(driver: BrokerDriver, limit: int) -> None:
    """Apache Kafka answers a fetch with max_bytes=0 at once."""
    assert held(driver, asked((0, 0, MUCH), min_bytes=1, max_bytes=limit)) == (None if limit else [0])
    assert held(driver, asked((0, 0, limit), min_bytes=1), connection=2) is None


def test_the_records_of_an_answer_are_located_once(driver: BrokerDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Locating reads the disk. The bounds that made the fetch ready are those that are read."""
    write(driver, *[100] * 60)
    located: list[int] = []
    locate = PartitionLog.locate

    def counted(log: PartitionLog, number: int, offset: int) -> tuple[int, int, int]:
        located.append(offset)
        return locate(log, number, offset)

    monkeypatch.setattr(PartitionLog, "locate", counted)
    assert held(driver, asked((0, 3, 200), min_bytes=1)) == [170]
    assert located == [3]
