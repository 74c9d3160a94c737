"""Batches that are small on the wire and large when they are looked at: whoever sends them, and on however many
connections, others wait for one of them at most."""

from __future__ import annotations

import pytest

from fencepost.broker.disk.changes import carry_out
from fencepost.broker.log.decompression_budget import LARGE_BYTES, TURN_BYTES
from fencepost.protocol import produce_wire
from fencepost.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from fencepost.protocol.records.batch import seal
from fencepost.protocol.records.compression import MAX_DECOMPRESSED_BYTES, compress
from tests.support.batches import records_section
from tests.support.broker_driver import BrokerDriver, batch, produce

BOMBERS = range(3, 9)
NOW_MS = 1_700_000_000_000


def bomb(size: int) -> bytes:
    section = compress("zstd", records_section([bytes(size)], [NOW_MS]))
    return bytes(seal(section, record_count=1, base_timestamp=NOW_MS, max_timestamp=NOW_MS, compression="zstd"))


@pytest.fixture(scope="module")
def large() -> bytes:
    """As much as a turn may decompress, all by itself."""
    return bomb(TURN_BYTES)


@pytest.fixture
def driver() -> BrokerDriver:
    driver = BrokerDriver()
    carry_out(driver.core.topics.create("t", 8, {}))
    for connection in BOMBERS:
        driver.core.connected(driver.now_ms, connection, ("127.0.0.1", 9092), ("127.0.0.1", 50_000 + connection))
    return driver


def turn(driver: BrokerDriver) -> None:
    """Do the work of the broker between two looks at its sockets."""
    driver.core.on_time(driver.now_ms)
    driver._perform()


def answered(driver: BrokerDriver, sent: dict[int, int]) -> list[int]:
    return [connection for connection, correlation in sent.items() if driver.answer(correlation, connection)]


def test_one_in_a_turn_for_all_connections(driver: BrokerDriver, large: bytes) -> None:
    sent = {connection: driver.send(produce("t", large), 9, connection) for connection in BOMBERS}
    for done in range(1, len(BOMBERS) + 1):
        assert answered(driver, sent) == list(BOMBERS)[:done]
        assert driver.ask(produce("t", batch()), 9).partitions[0].error_code == 0, "others are served in between"
        turn(driver)
    codes = {driver.answer(sent[connection], connection).partitions[0].error_code for connection in BOMBERS}
    assert codes == {0}


def test_connections_take_turns(driver: BrokerDriver, large: bytes) -> None:
    greedy = [produce_wire.ProducePartition("t", None, partition, large) for partition in range(3)]
    many = driver.send(produce_wire.ProduceRequest(None, -1, 1000, greedy), 9, 3)
    single = driver.send(produce("t", large), 9, 4)
    waited = 0
    while driver.answer(single, 4) is None:
        assert driver.answer(many, 3) is None
        turn(driver)
        waited += 1
    assert waited == 2  # the second of the greedy one's, which came first, then its own
    turn(driver)
    assert [result.error_code for result in driver.answer(many, 3).partitions] == [0, 0, 0]


def test_what_is_not_large_never_waits(driver: BrokerDriver, large: bytes) -> None:
    driver.send(produce("t", large), 9, 3)
    driver.send(produce("t", large), 9, 4)
    small = produce("t", bomb(LARGE_BYTES - 1000))
    for _ in range(3):
        assert driver.ask(small, 9).partitions[0].error_code == 0


def test_several_that_are_not_too_large_share_a_turn(driver: BrokerDriver) -> None:
    records = bomb(TURN_BYTES // 4)
    sent = {connection: driver.send(produce("t", records), 9, connection) for connection in BOMBERS}
    assert answered(driver, sent) == list(BOMBERS)[:4]
    turn(driver)
    assert answered(driver, sent) == list(BOMBERS)


def test_what_is_too_large_for_good_costs_a_turn_too(driver: BrokerDriver, large: bytes) -> None:
    refused = driver.send(produce("t", bomb(MAX_DECOMPRESSED_BYTES)), 9, 3)
    waiting = driver.send(produce("t", large), 9, 4)
    assert driver.answer(refused, 3).partitions[0].error_code == 87
    assert driver.answer(waiting, 4) is None
    turn(driver)
    assert driver.answer(waiting, 4).partitions[0].error_code == 0


def test_questions_for_times_stand_in_the_same_line(driver: BrokerDriver, large: bytes) -> None:
    """The time of a record lies in its batch, which was taken at some turn and is decompressed again."""
    assert driver.ask(produce("t", large), 9).partitions[0].error_code == 0
    turn(driver)
    wanted = ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=NOW_MS)
    question = ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=[wanted])])
    sent = {connection: driver.send(question, 7, connection) for connection in BOMBERS}
    for done in range(1, len(BOMBERS) + 1):
        assert answered(driver, sent) == list(BOMBERS)[:done]
        assert driver.ask(produce("t", batch()), 9).partitions[0].error_code == 0, "others are served in between"
        turn(driver)
    assert {driver.answer(sent[connection], connection).topics[0].partitions[0].offset for connection in BOMBERS} == {0}


def test_who_is_gone_holds_up_nobody(driver: BrokerDriver, large: bytes) -> None:
    sent = {connection: driver.send(produce("t", large), 9, connection) for connection in BOMBERS}
    for connection in list(BOMBERS)[1:-1]:
        driver.core.disconnected(driver.now_ms, connection)
    turn(driver)
    assert answered(driver, sent) == [BOMBERS[0], BOMBERS[-1]]
