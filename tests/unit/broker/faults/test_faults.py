"""Which request or access a fault strikes, and what it looks like; nothing here touches a socket or a real disk."""

from __future__ import annotations

import errno
from typing import Any
from uuid import UUID

import pytest

from fencepost.broker.api.apis import SERVED
from fencepost.broker.api.error_responses import refusal, topics_named
from fencepost.broker.embedded_control import BrokerFaults
from fencepost.broker.faults.files import FaultyFiles
from fencepost.broker.faults.table import DiskFault, DiskOperation, FaultAction, FaultTable, RequestFault
from fencepost.broker.timing.clock import Clock
from fencepost.protocol import fetch_wire, produce_wire
from fencepost.protocol.codec import encode_response
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages import (
    add_partitions_to_txn,
    create_topics,
    delete_topics,
    find_coordinator,
    offset_commit,
    offset_fetch,
)
from fencepost_lab.check.disk import MemoryDisk
from tests.support.broker_driver import BrokerDriver, batch, fetch, produce
from tests.support.typical_requests import codes_in, typical

REFUSED = ErrorCode.POLICY_VIOLATION


def no_topics() -> frozenset[str]:
    raise AssertionError("no rule speaks of topics")


# --- which ---


def test_a_fault_lets_some_pass_then_strikes_as_often_as_it_was_told() -> None:
    table = FaultTable()
    fault = RequestFault(api_key=0, action=FaultAction.FAIL, times=2, after=1)
    table.add(fault)
    struck = [table.for_request(0, "c", no_topics) is fault for _ in range(5)]
    assert struck == [False, True, True, False, False]
    assert fault.hits == 2
    assert table.for_request(1, "c", no_topics) is None


def test_a_fault_of_one_client_or_topic_leaves_the_others_alone() -> None:
    table = FaultTable()
    table.add(RequestFault(api_key=0, action=FaultAction.FAIL, times=None, client_id="a"))
    table.add(RequestFault(api_key=0, action=FaultAction.SWALLOW, times=None, topic="t"))
    found = [
        table.for_request(0, client, lambda topic=topic: {topic})  # type: ignore[misc]
        for client, topic in (("a", "t"), ("b", "t"), ("b", "u"))
    ]
    assert [each.action if each else None for each in found] == [FaultAction.FAIL, FaultAction.SWALLOW, None]


def test_the_first_fault_that_was_asked_for_strikes_and_a_removed_one_does_not() -> None:
    table = FaultTable()
    first, second = (RequestFault(api_key=0, action=FaultAction.FAIL, times=None, code=code) for code in (1, 2))
    table.add(first)
    table.add(second)
    assert table.for_request(0, "", no_topics) is first
    table.remove(first)
    assert table.for_request(0, "", no_topics) is second
    table.clear()
    assert table.for_request(0, "", no_topics) is None


def test_a_disk_that_fails_says_so_and_is_well_again() -> None:
    table = FaultTable()
    slept: list[float] = []
    files = FaultyFiles(MemoryDisk(), table, slept.append)
    files.makedirs("a-0")
    files.makedirs("b-0")
    first, second = files.open("a-0/log"), files.open("b-0/log")
    table.add(DiskFault(operation=DiskOperation.WRITE, error=errno.ENOSPC, path="a-0/"))
    second.append(b"x")
    with pytest.raises(OSError, match="ENOSPC") as raised:
        first.append(b"x")
    assert raised.value.errno == errno.ENOSPC
    first.append(b"y")
    assert first.read(0, 9) == b"y"
    table.add(DiskFault(operation=DiskOperation.SYNC, delay_s=3.0))
    first.sync()
    assert slept == [3.0]


@pytest.mark.parametrize("wrong", ["Prodce", "produce "])
def test_an_unknown_request_is_not_waited_for(wrong: str) -> None:
    def run(action: object) -> Any:
        raise AssertionError(action)

    with pytest.raises(ValueError, match="there is no API"):
        BrokerFaults(FaultTable(), run).fail(wrong, REFUSED)


# --- the answer that refuses everything ---


def test_every_api_can_be_refused_in_every_version() -> None:
    checked = 0
    for api in SERVED.values():
        if api.key in (0, 1):
            continue
        request, _ = typical(api.key)
        response = refusal(request, REFUSED)
        reported = set() if api.name == "alter_replica_log_dirs" else {REFUSED}  # it lists nothing
        assert set(codes_in(response)) - {0} == reported, api.name
        for version in range(api.min_version, api.max_version + 1):
            encode_response(response, version)
            checked += 1
    assert checked > 100


def test_what_a_request_lists_is_refused_one_by_one() -> None:
    topics = [
        offset_commit.OffsetCommitRequestTopic(
            name="t", partitions=[offset_commit.OffsetCommitRequestPartition(partition_index=index) for index in (3, 5)]
        )
    ]
    answer = refusal(offset_commit.OffsetCommitRequest(group_id="g", topics=topics), REFUSED)
    assert [(each.partition_index, each.error_code) for each in answer.topics[0].partitions] == [
        (3, REFUSED),
        (5, REFUSED),
    ]
    assert answer.topics[0].name == "t"


def test_plain_values_become_what_the_answer_calls_them() -> None:
    found = refusal(find_coordinator.FindCoordinatorRequest(coordinator_keys=["a", "b"]), REFUSED)
    assert [(each.key, each.error_code) for each in found.coordinators] == [("a", REFUSED), ("b", REFUSED)]
    wanted = offset_fetch.OffsetFetchRequestTopic(name="t", partition_indexes=[4])
    fetched = refusal(offset_fetch.OffsetFetchRequest(group_id="g", topics=[wanted]), REFUSED)
    assert [(each.partition_index, each.error_code) for each in fetched.topics[0].partitions] == [(4, REFUSED)]
    enlisted = add_partitions_to_txn.AddPartitionsToTxnTopic(name="t", partitions=[1])
    request = add_partitions_to_txn.AddPartitionsToTxnRequest(v3_and_below_topics=[enlisted])
    (topic,) = refusal(request, REFUSED).results_by_topic_v3_and_below
    assert [(each.partition_index, each.partition_error_code) for each in topic.results_by_partition] == [(1, REFUSED)]


def test_the_topics_of_a_request_are_found_by_name_and_by_id() -> None:
    known = UUID(int=7)
    names = {known: "by-id"}

    def name_of(topic_id: UUID | None) -> str | None:
        return names.get(topic_id) if topic_id else None

    partition = produce_wire.ProducePartition(None, known, 0, b"")
    assert list(topics_named(produce_wire.ProduceRequest(None, 1, 1, [partition]), name_of)) == ["by-id"]
    wanted = fetch_wire.FetchRequest(topics=[fetch_wire.FetchTopic("t", None, [])])
    assert list(topics_named(wanted, name_of)) == ["t"]
    created = create_topics.CreateTopicsRequest(topics=[create_topics.CreatableTopic(name="c")])
    assert list(topics_named(created, name_of)) == ["c"]
    assert list(topics_named(delete_topics.DeleteTopicsRequest(topic_names=["d"]), name_of)) == ["d"]
    grouped = offset_fetch.OffsetFetchRequestGroup(
        group_id="g", topics=[offset_fetch.OffsetFetchRequestTopics(name="o", partition_indexes=[0])]
    )
    assert list(topics_named(offset_fetch.OffsetFetchRequest(groups=[grouped]), name_of)) == ["o"]


# --- in the core ---


@pytest.fixture
def driver() -> BrokerDriver:
    new_driver = BrokerDriver()
    new_driver.ask(
        create_topics.CreateTopicsRequest(
            topics=[create_topics.CreatableTopic(name="t", num_partitions=1, replication_factor=1)]
        ),
        7,
    )
    return new_driver


def table_of(driver: BrokerDriver) -> FaultTable:
    return driver.core._faults.table


def end_offset(driver: BrokerDriver) -> int:
    partition = driver.core.topics.partition("t", 0)
    assert partition is not None
    return partition.log.log_end_offset


def test_a_refused_produce_writes_nothing(driver: BrokerDriver) -> None:
    table_of(driver).add(RequestFault(api_key=0, action=FaultAction.FAIL, code=REFUSED))
    refused = driver.ask(produce("t", batch()), 9).partitions[0]
    assert (refused.error_code, refused.base_offset, end_offset(driver)) == (REFUSED, -1, 0)
    assert driver.ask(produce("t", batch()), 9).partitions[0].base_offset == 0


def test_a_lost_reply_means_that_it_was_done(driver: BrokerDriver) -> None:
    table_of(driver).add(RequestFault(api_key=0, action=FaultAction.DROP_REPLY))
    asked = driver.send(produce("t", batch()), 9)
    assert driver.answer(asked) is None
    assert (driver.closed, end_offset(driver)) == ({1}, 1)


def test_a_lost_request_means_that_it_was_not(driver: BrokerDriver) -> None:
    table_of(driver).add(RequestFault(api_key=0, action=FaultAction.DROP_REQUEST))
    assert driver.answer(driver.send(produce("t", batch()), 9)) is None
    assert (driver.closed, end_offset(driver)) == ({1}, 0)


def test_what_comes_behind_a_late_request_stays_behind_it(driver: BrokerDriver) -> None:
    table_of(driver).add(RequestFault(api_key=0, action=FaultAction.DELAY, delay_ms=500))
    late = driver.send(produce("t", batch(b"first")), 9)
    behind = driver.send(produce("t", batch(b"second")), 9)
    other = driver.send(fetch("t"), 11, connection=2)
    assert driver.answer(late) is None and driver.answer(behind) is None and end_offset(driver) == 0
    assert driver.answer(other, 2) is not None
    driver.pass_time(500)
    assert [driver.answer(each).partitions[0].base_offset for each in (late, behind)] == [0, 1]


def test_a_late_answer_is_late_but_the_work_is_done(driver: BrokerDriver) -> None:
    table_of(driver).add(RequestFault(api_key=0, action=FaultAction.DELAY_REPLY, delay_ms=500))
    asked = driver.send(produce("t", batch()), 9)
    behind = driver.send(fetch("t"), 11)
    assert (driver.answer(asked), driver.answer(behind), end_offset(driver)) == (None, None, 1)
    driver.pass_time(500)
    assert driver.answer(asked).partitions[0].base_offset == 0
    assert driver.order[-2:] == [asked, behind]


def test_a_swallowed_request_is_never_answered_and_neither_is_what_follows(driver: BrokerDriver) -> None:
    table_of(driver).add(RequestFault(api_key=0, action=FaultAction.SWALLOW))
    asked, behind = driver.send(produce("t", batch()), 9), driver.send(fetch("t"), 11)
    driver.pass_time(60_000)
    assert (driver.answer(asked), driver.answer(behind), driver.closed) == (None, None, set())


# --- time ---


def test_time_stands_still_goes_on_and_jumps_but_never_goes_back() -> None:
    real = [1000]
    clock = Clock(lambda: real[0])
    clock.freeze()
    real[0] = 5000
    assert (clock.now_ms(), clock.frozen) == (1000, True)
    clock.move_to(1500)
    clock.thaw()
    assert (clock.now_ms(), clock.frozen) == (1500, False)
    real[0] = 5001
    assert clock.now_ms() == 1501
    clock.move_to(9000)
    assert clock.now_ms() == 9000
    with pytest.raises(ValueError, match="time does not go back"):
        clock.move_to(8999)
