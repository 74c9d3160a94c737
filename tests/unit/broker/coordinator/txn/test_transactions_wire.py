"""Transactions through the core, request by request: which answer which client gets, and that no late batch gets in."""

from __future__ import annotations

from typing import Any

import pytest

from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from fencepost.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from fencepost.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from fencepost.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from fencepost.protocol.messages.end_txn import EndTxnRequest
from fencepost.protocol.messages.init_producer_id import InitProducerIdRequest
from fencepost.protocol.messages.list_transactions import ListTransactionsRequest
from fencepost.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from fencepost.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from fencepost.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from fencepost.protocol.produce_wire import ProducePartitionResult
from tests.support.broker_driver import BrokerDriver, batch, fetch, produce

ID = "the-id"


@pytest.fixture
def driver() -> BrokerDriver:
    driver = BrokerDriver()
    topic = CreatableTopic(name="t", num_partitions=2, replication_factor=1)
    driver.ask(CreateTopicsRequest(topics=[topic]), 7)
    return driver


def init(driver: BrokerDriver, version: int = 4, timeout_ms: int = 1000) -> tuple[int, int]:
    answer = driver.ask(InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=timeout_ms), version)
    assert answer.error_code == ErrorCode.NONE
    return answer.producer_id, answer.producer_epoch


def add(driver: BrokerDriver, pair: tuple[int, int], version: int) -> int:
    topic = driver.answer(send_add(driver, pair, version)).results_by_topic_v3_and_below[0]
    return int(topic.results_by_partition[0].partition_error_code)


def send_add(driver: BrokerDriver, pair: tuple[int, int], version: int) -> int:
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=ID,
        v3_and_below_producer_id=pair[0],
        v3_and_below_producer_epoch=pair[1],
        v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=[0])],
    )
    return driver.send(request, version)


def send_end(
    driver: BrokerDriver, pair: tuple[int, int], version: int, commit: bool = True, connection: int = 1
) -> int:
    request = EndTxnRequest(transactional_id=ID, producer_id=pair[0], producer_epoch=pair[1], committed=commit)
    return driver.send(request, version, connection)


def send_write(
    driver: BrokerDriver, pair: tuple[int, int], version: int, sequence: int = 0, connection: int = 1
) -> int:
    records = batch(producer_id=pair[0], epoch=pair[1], sequence=sequence, transactional=True)
    return driver.send(produce("t", records, transactional_id=ID), version, connection)


def write(driver: BrokerDriver, pair: tuple[int, int], version: int, sequence: int = 0) -> ProducePartitionResult:
    result: ProducePartitionResult = driver.answer(send_write(driver, pair, version, sequence)).partitions[0]
    return result


# (InitProducerId, AddPartitionsToTxn or None, Produce, EndTxn) versions of a client, and what it is answered after its
# transaction has timed out: (AddPartitions, Produce and its log start offset, EndTxn commit, EndTxn abort). The
# generations: A (Java before 2.5), B (Java 2.5), L (librdkafka), C (Java 2.7-3.9), D (Java 4, KIP-890).
GENERATIONS = {
    "A": ((1, 1, 6, 1), (47, (47, -1), 47, 47)),
    "B": ((3, 1, 8, 1), (59, (120, -1), 59, 0)),
    "L": ((4, 0, 10, 1), (59, (59, -2), 59, 59)),
    "C": ((4, 3, 9, 3), (59, (47, -1), 59, 0)),
    "D": ((5, None, 12, 5), (None, (120, -1), 120, 0)),
}


@pytest.mark.parametrize("generation", GENERATIONS)
def test_a_producer_that_timed_out_is_told_what_its_generation_can_live_with(
    driver: BrokerDriver, generation: str
) -> None:
    (init_version, add_version, produce_version, end_version), expected = GENERATIONS[generation]
    pair = init(driver, init_version)
    if add_version is not None:
        assert add(driver, pair, add_version) == ErrorCode.NONE
    assert write(driver, pair, produce_version).error_code == ErrorCode.NONE
    driver.pass_time(1500)
    wanted_add, wanted_produce, wanted_commit, wanted_abort = expected
    if add_version is not None:
        assert add(driver, pair, add_version) == wanted_add
    late = write(driver, pair, produce_version, 1)
    # Produce v3 and v4 have no log start offset in their answer; these generations all send v6 or later.
    assert (late.error_code, late.log_start_offset) == wanted_produce
    assert driver.answer(send_end(driver, pair, end_version)).error_code == wanted_commit
    assert driver.answer(send_end(driver, pair, end_version, commit=False)).error_code == wanted_abort


def test_the_timed_out_epoch_is_exchanged_without_a_second_bump(driver: BrokerDriver) -> None:
    """KIP-588, KIP-360: asking with the old pair returns the epoch that the timeout gave, as often as it is asked."""
    producer_id, epoch = init(driver)
    add(driver, (producer_id, epoch), 3)
    driver.pass_time(1500)
    request = InitProducerIdRequest(
        transactional_id=ID, transaction_timeout_ms=1000, producer_id=producer_id, producer_epoch=epoch
    )
    answers = [driver.ask(request, 4) for _ in range(3)]
    assert [(answer.error_code, answer.producer_id, answer.producer_epoch) for answer in answers] == [
        (ErrorCode.NONE, producer_id, epoch + 1)
    ] * 3


@pytest.mark.parametrize("is_answered", [True, False])
@pytest.mark.parametrize(("produce_version", "end_version"), [(12, 5), (12, 4), (11, 4)])
def test_no_batch_joins_a_transaction_whose_end_is_decided(
    driver: BrokerDriver, produce_version: int, end_version: int, is_answered: bool
) -> None:
    """Of those that came after the answer Apache Kafka 4.3.1 let 36 of 36 in."""
    pair = init(driver, timeout_ms=60_000)
    if produce_version < 12:
        add(driver, pair, 3)
    assert write(driver, pair, produce_version).error_code == ErrorCode.NONE
    driver.auto_sync = False
    ended = send_end(driver, pair, end_version)
    assert driver.answer(ended) is None, "answered before the decision was durable"
    if is_answered:
        driver.sync()
        assert driver.answer(ended).error_code == ErrorCode.NONE
    late = send_write(driver, pair, produce_version, 1, connection=2)
    while driver.syncs:
        driver.sync()
    assert driver.answer(ended).error_code == ErrorCode.NONE
    result = driver.answer(late, connection=2).partitions[0]
    committed = driver.ask(fetch("t", committed=True), 12).topics[0].partitions[0]
    assert committed.last_stable_offset == 2, "one batch and its marker"
    # With EndTxn v4 the epoch stays, so Produce v12 may begin the next transaction with it: behind the marker.
    begins_the_next = (produce_version, end_version) == (12, 4)
    assert (result.error_code == ErrorCode.NONE) == begins_the_next
    assert result.base_offset == (2 if begins_the_next else -1)


def test_the_next_epoch_of_an_empty_transaction_is_durable_before_anybody_has_it(driver: BrokerDriver) -> None:
    """No marker is owed, but a power loss must not give the epoch that the client was told to another one."""
    pair = init(driver, timeout_ms=60_000)
    driver.auto_sync = False
    ended = send_end(driver, pair, 5, commit=False)
    assert driver.answer(ended) is None
    repeated = send_end(driver, pair, 5, connection=2, commit=False)
    assert driver.answer(repeated, connection=2) is None
    driver.sync()
    bumped = driver.answer(ended)
    assert (bumped.error_code, bumped.producer_epoch) == (ErrorCode.NONE, pair[1] + 1)
    assert driver.answer(repeated, connection=2) == bumped


def test_partitions_refuse_the_old_epoch_before_the_end_is_durable(driver: BrokerDriver) -> None:
    """By themselves: the coordinator is not asked about a batch outside of transactions."""
    pair = init(driver, timeout_ms=60_000)
    assert write(driver, pair, 12).error_code == ErrorCode.NONE
    driver.auto_sync = False
    send_end(driver, pair, 5)
    late = driver.send(produce("t", batch(producer_id=pair[0], epoch=pair[1], sequence=1)), 12, connection=2)
    while driver.syncs:
        driver.sync()
    assert driver.answer(late, connection=2).partitions[0].error_code == ErrorCode.INVALID_PRODUCER_EPOCH


def test_requests_wait_for_the_markers_of_the_transaction_before(driver: BrokerDriver) -> None:
    """Kafka answers 51 in this moment and the client sleeps; here the answer comes when the markers are durable."""
    pair = init(driver, timeout_ms=60_000)
    add(driver, pair, 3)
    write(driver, pair, 9)
    driver.auto_sync = False
    send_end(driver, pair, 3)
    driver.sync()
    next_add = send_add(driver, pair, 3)
    assert driver.answer(next_add) is None
    while driver.syncs:
        driver.sync()
    topic = driver.answer(next_add).results_by_topic_v3_and_below[0]
    assert topic.results_by_partition[0].partition_error_code == ErrorCode.NONE
    listed = driver.ask(ListTransactionsRequest(), 0).transaction_states
    assert [(entry.transactional_id, entry.transaction_state) for entry in listed] == [(ID, "Ongoing")]


def test_init_over_an_open_transaction_aborts_it_and_answers_once(driver: BrokerDriver) -> None:
    pair = init(driver, timeout_ms=60_000)
    write(driver, pair, 12)
    answer = driver.ask(InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=1000), 4)
    # Kafka: 51, then 0 with the epoch raised twice (once for the abort, once for the new owner).
    assert (answer.error_code, answer.producer_epoch) == (ErrorCode.NONE, pair[1] + 2)
    assert driver.answer(send_end(driver, pair, 4)).error_code == ErrorCode.PRODUCER_FENCED
    assert write(driver, pair, 12, 1).error_code == ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_partition_that_does_not_exist_keeps_the_others_out(driver: BrokerDriver) -> None:
    pair = init(driver)
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=ID,
        v3_and_below_producer_id=pair[0],
        v3_and_below_producer_epoch=pair[1],
        v3_and_below_topics=[
            AddPartitionsToTxnTopic(name="t", partitions=[0]),
            AddPartitionsToTxnTopic(name="missing", partitions=[0]),
        ],
    )
    codes = [
        topic.results_by_partition[0].partition_error_code
        for topic in driver.ask(request, 3).results_by_topic_v3_and_below
    ]
    assert codes == [ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


@pytest.mark.parametrize(("version", "code"), [(3, 48), (8, 48), (10, 48), (11, 120), (12, 0)], ids=str)
def test_a_partition_that_was_not_added(driver: BrokerDriver, version: int, code: int) -> None:
    """Observed on Apache Kafka 4.3.1: 48 up to v10, 120 for v11, and v12 adds it."""
    assert write(driver, init(driver), version).error_code == code


def test_a_transactional_batch_needs_a_transactional_id(driver: BrokerDriver) -> None:
    pair = init(driver)
    records = batch(producer_id=pair[0], epoch=pair[1], sequence=0, transactional=True)
    assert (
        driver.ask(produce("t", records), 12).partitions[0].error_code
        == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    )


def test_an_administrators_marker_ends_what_hangs_and_the_coordinator_goes_on(driver: BrokerDriver) -> None:
    """A marker with a higher coordinator epoch (kafka-transactions abort) must not lock the coordinator out."""
    pair = init(driver, timeout_ms=60_000)
    write(driver, pair, 12)
    marker = WritableTxnMarker(
        producer_id=pair[0],
        producer_epoch=pair[1],
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name="t", partition_indexes=[0, 7])],
        coordinator_epoch=99,
    )
    answers = driver.ask(WriteTxnMarkersRequest(markers=[marker]), 1).markers[0].topics[0].partitions
    assert [entry.error_code for entry in answers] == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    request = DescribeProducersRequest(topics=[TopicRequest(name="t", partition_indexes=[0])])
    state = driver.ask(request, 0).topics[0].partitions[0].active_producers[0]
    assert (state.current_txn_start_offset, state.coordinator_epoch) == (-1, 99)
    ended = driver.answer(send_end(driver, pair, 5, commit=False))
    assert (ended.error_code, ended.producer_epoch) == (ErrorCode.NONE, pair[1] + 1)
    assert write(driver, (pair[0], pair[1] + 1), 12).error_code == ErrorCode.NONE


def test_an_administrators_marker_with_a_higher_epoch_leaves_nothing_hanging(driver: BrokerDriver) -> None:
    pair = init(driver, timeout_ms=60_000)
    write(driver, pair, 12)
    topic = WritableTxnMarkerTopic(name="t", partition_indexes=[1])
    marker = WritableTxnMarker(producer_id=pair[0], producer_epoch=pair[1] + 5, topics=[topic])
    records = batch(producer_id=pair[0], epoch=pair[1], sequence=0, transactional=True)
    assert driver.ask(produce("t", records, transactional_id=ID, partition=1), 12).partitions[0].error_code == 0
    driver.ask(WriteTxnMarkersRequest(markers=[marker]), 1)
    assert driver.answer(send_end(driver, pair, 5)).error_code == ErrorCode.NONE
    listed = driver.ask(ListTransactionsRequest(), 0).transaction_states
    assert [entry.transaction_state for entry in listed] == ["CompleteCommit"]
    partition = driver.ask(fetch("t", committed=True), 12).topics[0].partitions[0]
    assert partition.last_stable_offset == partition.high_watermark == 2


@pytest.mark.parametrize("failing", range(4))
def test_a_disk_that_fails_once_delays_a_transaction_and_loses_nothing(
    driver: BrokerDriver, failing: int, caplog: pytest.LogCaptureFixture
) -> None:
    """The n-th write of EndTxn fails: the decision, the marker, the completion; or none of them."""
    pair = init(driver, timeout_ms=60_000)
    write(driver, pair, 12)
    driver.auto_sync = False
    steps = {0: 0, 1: 1, 2: 2, 3: 9}[failing]
    if steps == 0:
        driver.disk.fail_next_write()
    ended = send_end(driver, pair, 5)
    while driver.syncs:
        steps -= 1
        if steps == 0:
            driver.disk.fail_next_write(within=".log")
        driver.sync()
    driver.auto_sync = True
    if failing == 0:
        assert driver.answer(ended).error_code == ErrorCode.NOT_COORDINATOR
        ended = send_end(driver, pair, 5)
    assert driver.answer(ended).error_code == ErrorCode.NONE
    assert caplog.text.count("will be tried again") == (1 if failing in (1, 2) else 0)
    driver.pass_time(2500)
    partition = driver.ask(fetch("t", committed=True), 12).topics[0].partitions[0]
    assert partition.last_stable_offset == partition.high_watermark == 2
    listed = driver.ask(ListTransactionsRequest(), 0).transaction_states
    assert [entry.transaction_state for entry in listed] == ["CompleteCommit"]


def test_a_transaction_costs_three_syncs(driver: BrokerDriver) -> None:
    """Its batch, its decision, its markers. That it is complete is synced with whatever comes next."""
    pair = init(driver, timeout_ms=60_000)
    driver.auto_sync = False
    done = 0
    write_id = send_write(driver, pair, 12)
    while driver.syncs:
        driver.sync()
        done += 1
    assert driver.answer(write_id).partitions[0].error_code == ErrorCode.NONE
    end_id = send_end(driver, pair, 5)
    while driver.syncs:
        driver.sync()
        done += 1
    assert driver.answer(end_id).error_code == ErrorCode.NONE
    assert done == 3
    listed = driver.ask(ListTransactionsRequest(), 0).transaction_states
    assert [entry.transaction_state for entry in listed] == ["CompleteCommit"]


def send_offset(driver: BrokerDriver, pair: tuple[int, int]) -> None:
    wanted = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=7, committed_metadata="")
    request = TxnOffsetCommitRequest(
        transactional_id=ID,
        group_id="g",
        producer_id=pair[0],
        producer_epoch=pair[1],
        topics=[TxnOffsetCommitRequestTopic(name="t", partitions=[wanted])],
    )
    assert driver.ask(request, 5).topics[0].partitions[0].error_code == ErrorCode.NONE


def test_pending_offsets_are_hidden_from_old_and_new_clients(driver: BrokerDriver) -> None:
    """KIP-447. Below v7 the error stands in the partitions too: aiokafka looks nowhere else, and would start over."""
    pair = init(driver, timeout_ms=60_000)
    send_offset(driver, pair)
    topics = [OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
    old = driver.ask(OffsetFetchRequest(group_id="g", topics=topics), 3)
    assert (old.error_code, old.topics[0].partitions[0].error_code) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,) * 2
    stable = driver.ask(OffsetFetchRequest(group_id="g", topics=topics, require_stable=True), 7)
    assert stable.topics[0].partitions[0].error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
    loose = driver.ask(OffsetFetchRequest(group_id="g", topics=topics), 7).topics[0].partitions[0]
    assert (loose.error_code, loose.committed_offset) == (ErrorCode.NONE, -1)


@pytest.mark.parametrize("version", [3, 7])
def test_offsets_of_a_decided_transaction_are_waited_for(driver: BrokerDriver, version: int) -> None:
    pair = init(driver, timeout_ms=60_000)
    send_offset(driver, pair)
    driver.auto_sync = False
    send_end(driver, pair, 5)
    driver.sync()
    topics = [OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
    asked = driver.send(OffsetFetchRequest(group_id="g", topics=topics, require_stable=version >= 7), version)
    assert driver.answer(asked) is None
    while driver.syncs:
        driver.sync()
    partition = driver.answer(asked).topics[0].partitions[0]
    assert (partition.error_code, partition.committed_offset) == (ErrorCode.NONE, 7)


def test_a_group_without_a_name_is_a_group_to_the_transaction(driver: BrokerDriver) -> None:
    pair = init(driver)
    request = AddOffsetsToTxnRequest(transactional_id=ID, producer_id=pair[0], producer_epoch=pair[1], group_id="")
    assert driver.ask(request, 3).error_code == ErrorCode.NONE  # as Apache Kafka answers; TxnOffsetCommit refuses it


def test_what_the_disk_refuses_a_waiting_request_does_not_undo_the_completion_that_it_waits_for(
    driver: BrokerDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = init(driver, timeout_ms=60_000)
    write(driver, pair, 12)
    driver.auto_sync = False
    ended = send_end(driver, pair, 5)
    driver.sync()  # the decision; the marker is appended now
    answer = driver.answer(ended)
    following = (answer.producer_id, answer.producer_epoch)
    waiting = send_write(driver, following, 12)
    to_disk = driver.disk.write

    def second_time(node: Any, position: int, data: bytes, path: str) -> None:
        to_disk(node, position, data, path)
        if path.startswith("__transaction_state") and path.endswith(".log"):
            driver.disk.fail_next_write(within="__transaction_state")

    monkeypatch.setattr(driver.disk, "write", second_time)
    driver.auto_sync = True
    driver.sync()  # the marker: its completion is written, and the next transaction's beginning is not
    monkeypatch.undo()
    assert driver.answer(waiting).partitions[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    driver.pass_time(2500)
    assert write(driver, following, 12).error_code == ErrorCode.NONE
    listed = driver.ask(ListTransactionsRequest(), 0).transaction_states
    assert [entry.transaction_state for entry in listed] == ["Ongoing"]


def test_who_waits_for_a_marker_leaves_the_marker_before_him(driver: BrokerDriver) -> None:
    """A group's position is asked for while another transaction's marker is written, and then its own one is."""
    pair = init(driver, timeout_ms=60_000)
    send_offset(driver, pair)
    other = driver.ask(InitProducerIdRequest(transactional_id="other", transaction_timeout_ms=60_000), 4)
    records = batch(producer_id=other.producer_id, epoch=other.producer_epoch, sequence=0, transactional=True)
    assert driver.ask(produce("t", records, transactional_id="other"), 12).partitions[0].error_code == ErrorCode.NONE
    driver.auto_sync = False
    end = EndTxnRequest(
        transactional_id="other", producer_id=other.producer_id, producer_epoch=other.producer_epoch, committed=True
    )
    driver.send(end, 5)
    send_end(driver, pair, 5)
    driver.sync()  # the other's decision: its marker is under way
    driver.send(produce("t", batch(), partition=1), 12, 2)  # so that the question waits for one sync more
    topics = [OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
    asked = driver.send(OffsetFetchRequest(group_id="g", topics=topics, require_stable=True), 7)
    assert driver.answer(asked) is None
    while driver.syncs:
        driver.sync()
    partition = driver.answer(asked).topics[0].partitions[0]
    assert (partition.error_code, partition.committed_offset) == (ErrorCode.NONE, 7)
