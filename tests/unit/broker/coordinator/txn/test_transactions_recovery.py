"""A transaction cut by a power loss before every single change of the disk, and what the next start makes of it.

Properties (KIP-98, KIP-890): an answered commit is visible as a whole, an answered abort not at all, in doubt is all or
nothing over all partitions and the group's offset, and after the start nothing hangs: the last stable offset reaches
the high watermark, no producer has an open transaction, the id takes a new transaction.
"""

from __future__ import annotations

import copy
import errno
from collections.abc import Mapping

import pytest

from fencepost.broker.coordinator.runtime import CoordinatorRuntime
from fencepost.broker.coordinator.txn import driver as txn_driver
from fencepost.broker.log.partition import PartitionLog
from fencepost.broker.log.reading import has_gap
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from fencepost.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from fencepost.protocol.messages.describe_transactions import DescribeTransactionsRequest
from fencepost.protocol.messages.end_txn import EndTxnRequest
from fencepost.protocol.messages.init_producer_id import InitProducerIdRequest
from fencepost.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from fencepost.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from fencepost.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from fencepost.protocol.produce_wire import ProduceRequest
from fencepost.protocol.records.batch import iter_batches
from fencepost.protocol.records.markers import parse_marker
from fencepost_lab.check.disk import MemoryDisk, PowerCut
from tests.support.broker_driver import BrokerDriver, batch, fetch, produce

ID, GROUP, TOPICS = "the-id", "the-group", ("a", "b")
_NEVER = 10_000_000


class Writer:
    """A transactional producer that notes what it was told."""

    def __init__(self, driver: BrokerDriver, transactional_id: str = ID) -> None:
        self.driver = driver
        self.transactional_id = transactional_id
        self.producer = (-1, -1)
        self.answered: bool | None = None
        self.asked: bool | None = None

    def init(self) -> None:
        request = InitProducerIdRequest(transactional_id=self.transactional_id, transaction_timeout_ms=60_000)
        answer = self.driver.ask(request, 4)
        assert answer.error_code == ErrorCode.NONE
        self.producer = (answer.producer_id, answer.producer_epoch)

    def write(self) -> None:
        for topic in TOPICS:
            answer = self.driver.ask(self.record(topic), 12)
            assert answer.partitions[0].error_code == ErrorCode.NONE

    def record(self, topic: str) -> ProduceRequest:
        records = batch(b"x", producer_id=self.producer[0], epoch=self.producer[1], sequence=0, transactional=True)
        return produce(topic, records, transactional_id=self.transactional_id)

    def commit_offset(self) -> None:
        answer = self.driver.ask(self.offset_commit(7), 5)
        assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE

    def offset_commit(self, offset: int) -> TxnOffsetCommitRequest:
        wanted = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
        return TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=GROUP,
            producer_id=self.producer[0],
            producer_epoch=self.producer[1],
            topics=[TxnOffsetCommitRequestTopic(name="a", partitions=[wanted])],
        )

    def end(self, *, commit: bool) -> None:
        self.asked = commit
        before = len(self.driver.order)
        try:
            answer = self.driver.ask(self.ending(commit=commit), 5)
        except PowerCut:
            if len(self.driver.order) > before:  # answered, and cut off before the last marker
                self.answered = commit
            raise
        assert answer.error_code == ErrorCode.NONE
        self.answered = commit

    def ending(self, *, commit: bool) -> EndTxnRequest:
        return EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer[0],
            producer_epoch=self.producer[1],
            committed=commit,
        )


def prepared_disk(config: Mapping[str, object]) -> BrokerDriver:
    driver = BrokerDriver(config)
    topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in TOPICS]
    driver.ask(CreateTopicsRequest(topics=topics), 7)
    return driver


def visible(driver: BrokerDriver) -> list[int]:
    """Count the batches of clients that a read_committed consumer sees in each topic."""
    counts = []
    for topic in TOPICS:
        partition = driver.ask(fetch(topic, committed=True), 12).topics[0].partitions[0]
        pending = sorted(partition.aborted or (), key=lambda entry: entry[1])
        aborting: set[int] = set()
        count = 0
        for header, data in iter_batches(partition.records):
            while pending and pending[0][1] <= header.base_offset:
                aborting.add(pending.pop(0)[0])
            if not header.is_control:
                count += header.producer_id not in aborting
            elif not parse_marker(data).commit:
                aborting.discard(header.producer_id)
        counts.append(count)
    return counts


def committed_offset(driver: BrokerDriver) -> tuple[int, int]:
    """(error, offset) of the group for partition a-0, wanting stable offsets."""
    group = OffsetFetchRequestGroup(group_id=GROUP, topics=[OffsetFetchRequestTopics(name="a", partition_indexes=[0])])
    answer = driver.ask(OffsetFetchRequest(groups=[group], require_stable=True), 8).groups[0].topics[0].partitions[0]
    return answer.error_code, answer.committed_offset


def end_offset(driver: BrokerDriver, topic: str, isolation: int) -> int:
    wanted = ListOffsetsTopic(name=topic, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
    answer = driver.ask(ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=[wanted]), 5)
    return int(answer.topics[0].partitions[0].offset)


def check_after(driver: BrokerDriver, writer: Writer) -> None:
    state = driver.ask(DescribeTransactionsRequest(transactional_ids=[ID]), 0).transaction_states[0].transaction_state
    Writer(driver).init()  # whatever was open and undecided is aborted by this
    seen = visible(driver)
    error, offset = committed_offset(driver)
    assert error == ErrorCode.NONE
    everything = seen == [1, 1] and offset == 7
    nothing = seen == [0, 0] and offset == -1
    assert everything or nothing, f"torn: {seen}, offset {offset}; the coordinator said {state}"
    if writer.answered is not None:
        assert everything == writer.answered, f"answered {writer.answered}, seen {seen}; the coordinator said {state}"
    if writer.asked is not True:
        assert nothing
    for topic in TOPICS:
        assert end_offset(driver, topic, 1) == end_offset(driver, topic, 0), f"{topic} hangs"
    again = Writer(driver)
    again.init()
    again.write()
    again.end(commit=True)
    assert visible(driver) == [count + 1 for count in seen]


def run(driver: BrokerDriver, writer: Writer, *, commit: bool) -> bool:
    """The transaction; whether it came through without a power cut."""
    try:
        writer.init()
        writer.write()
        writer.commit_offset()
        writer.end(commit=commit)
    except PowerCut:
        return False
    return True


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
@pytest.mark.parametrize("seed", range(6))
def test_a_power_cut_before_every_change(commit: bool, seed: int) -> None:
    cuts = 0
    for changes in range(_NEVER):
        driver = prepared_disk({"fsync": "commit"})
        driver.disk.power_cut_after(changes)
        writer = Writer(driver)
        finished = run(driver, writer, commit=commit)
        driver.crash(seed * 1000 + changes)
        driver.start()
        check_after(driver, writer)
        if finished:
            break
        cuts += 1
    assert cuts > 15, f"only {cuts} places to cut were found"


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
def test_a_kill_before_every_change_without_fsync(commit: bool) -> None:
    cuts = answered = 0
    for changes in range(_NEVER):
        driver = BrokerDriver({"fsync": "never"}, MemoryDisk(durable=False))
        topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in TOPICS]
        driver.ask(CreateTopicsRequest(topics=topics), 7)
        driver.disk.power_cut_after(changes)
        writer = Writer(driver)
        finished = run(driver, writer, commit=commit)
        driver.disk.kill()
        driver.start()
        check_after(driver, writer)
        if finished:
            break
        cuts += 1
        answered += writer.answered is not None
    assert cuts > 8, f"only {cuts} places to cut were found"
    assert answered >= 3, "the answer waits for the markers"


def test_nobody_sees_a_commit_that_is_answered_without_its_markers(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = prepared_disk({"fsync": "never"})
    writer = Writer(driver)
    writer.init()
    writer.write()
    with monkeypatch.context() as pipelined:  # the next request is there before the answer is sent
        pipelined.setattr(driver, "_perform", lambda: None)
        driver.send(writer.ending(commit=True), 5)
        reading = driver.send(fetch(TOPICS[0], committed=True), 12, connection=2)
    assert visible(driver) == [1, 1]
    assert driver.answer(reading, 2).topics[0].partitions[0].last_stable_offset == 2


def test_a_second_power_cut_during_recovery() -> None:
    """The start after a crash is itself cut before each of its changes."""
    cut_twice = 0
    for changes in range(_NEVER):
        driver = prepared_disk({"fsync": "commit"})
        driver.disk.power_cut_after(changes)
        writer = Writer(driver)
        finished = run(driver, writer, commit=True)
        driver.crash(changes)
        crashed = driver.disk
        for second in range(_NEVER):
            driver.disk = copy.deepcopy(crashed)
            driver.disk.power_cut_after(second)
            try:
                driver.start()
            except PowerCut:
                cut_twice += 1
                driver.crash(second)
                driver.start()
                check_after(driver, writer)
                continue
            break
        if finished:
            break
    assert cut_twice > 15, f"only {cut_twice} second cuts happened"


def test_offsets_of_the_next_transaction_do_not_go_with_a_marker_that_was_there(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A power loss takes the record that a commit is complete, and leaves the pending offsets that came after it."""
    enlisted = 0
    for seed in range(40):
        driver = prepared_disk({"fsync": "commit"})
        writer = Writer(driver)
        writer.init()
        writer.commit_offset()
        driver.auto_sync = False
        end = EndTxnRequest(
            transactional_id=ID, producer_id=writer.producer[0], producer_epoch=writer.producer[1], committed=True
        )
        ended = driver.send(end, 5)
        driver.sync()  # the decision
        answer = driver.answer(ended)
        writer.producer = (answer.producer_id, answer.producer_epoch)
        driver.sync()  # the marker
        driver.send(writer.offset_commit(8), 5)
        driver.crash(seed)
        driver.auto_sync = True
        caplog.clear()
        driver.start()
        enlisted += "enlisting the partition again" in caplog.text
        Writer(driver).init()  # aborts what is open
        assert committed_offset(driver) == (ErrorCode.NONE, 7)
    assert enlisted > 3, "the offsets were never left without their transaction"


def test_a_transaction_in_doubt_survives_and_is_completed_with_its_pair() -> None:
    """KIP-939: what was written under two-phase commit waits for its decision through a crash, past every timeout."""
    driver = prepared_disk({"fsync": "commit"})
    request = InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=1000, enable2_pc=True)
    answer = driver.ask(request, 6)
    writer = Writer(driver)
    writer.producer = (answer.producer_id, answer.producer_epoch)
    writer.write()
    driver.crash(1)
    driver.start()
    driver.pass_time(3_600_000)
    assert visible(driver) == [0, 0]
    assert end_offset(driver, "a", 1) == 0
    writer.end(commit=True)
    assert visible(driver) == [1, 1]


@pytest.mark.parametrize("closed", [True, False], ids=["clean stop", "kill"])
def test_a_timeout_does_not_wait_for_a_clock_that_was_set_back(closed: bool) -> None:
    """The clock goes back by an hour while the broker is down: the transaction seems to begin in the future."""
    driver = prepared_disk({"fsync": "commit"})
    writer = Writer(driver)
    writer.init()
    writer.write()
    if closed:
        driver.core.close()
    driver.disk.kill()
    driver.now_ms -= 3_600_000
    driver.start()
    asked = DescribeTransactionsRequest(transactional_ids=[ID])
    assert driver.ask(asked, 0).transaction_states[0].transaction_start_time_ms == driver.now_ms
    driver.pass_time(60_000)
    assert driver.ask(asked, 0).transaction_states[0].transaction_state == "CompleteAbort"
    for topic in TOPICS:
        assert end_offset(driver, topic, 1) == end_offset(driver, topic, 0)


def test_an_end_that_cannot_be_carried_out_is_not_decided() -> None:
    """A log that cannot be opened just now could not be fenced: the decision stood and nobody wrote its markers."""
    driver = prepared_disk({"fsync": "commit"})
    writer = Writer(driver)
    writer.init()
    enlist = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=ID,
        v3_and_below_producer_id=writer.producer[0],
        v3_and_below_producer_epoch=writer.producer[1],
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=TOPICS[0], partitions=[0])],
    )
    driver.ask(enlist, 3)
    driver.disk.is_out_of_descriptors = True
    end = EndTxnRequest(
        transactional_id=ID, producer_id=writer.producer[0], producer_epoch=writer.producer[1], committed=True
    )
    refused = driver.answer(driver.send(end, 5))
    assert refused is None or refused.error_code != ErrorCode.NONE
    driver.disk.is_out_of_descriptors = False
    driver.pass_time(1_000)
    assert driver.ask(end, 5, connection=2).error_code == ErrorCode.NONE
    (described,) = driver.ask(DescribeTransactionsRequest(transactional_ids=[ID]), 0, connection=2).transaction_states
    assert described.transaction_state == "CompleteCommit"


def test_nothing_is_decided_before_what_was_left_open_is_settled(caplog: pytest.LogCaptureFixture) -> None:
    """While the disk kept the partition from being enlisted again, an abort was answered without a marker there, and
    the commit of the next transaction made the aborted record visible."""

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space left on the test's disk")

    refused = 0
    for seed in range(160):
        driver = prepared_disk({"fsync": "commit"})
        writer = Writer(driver)
        writer.init()
        driver.auto_sync = False
        driver.send(writer.record("a"), 12)
        driver.crash(seed)
        driver.auto_sync = True
        caplog.clear()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(CoordinatorRuntime, "append", refuse)
            driver.start()
        abort = EndTxnRequest(
            transactional_id=ID, producer_id=writer.producer[0], producer_epoch=writer.producer[1], committed=False
        )
        if "it will be tried again" in caplog.text:
            refused += 1
            assert driver.ask(abort, 5).error_code == ErrorCode.NOT_COORDINATOR
            driver.pass_time(1_000)
        answer = driver.ask(abort, 5)
        assert answer.error_code == ErrorCode.NONE
        writer.producer = (answer.producer_id, answer.producer_epoch)
        writer.write()
        writer.end(commit=True)
        assert visible(driver) == [1, 1]
    assert refused > 3, "the batch was never left without its transaction"


def test_nothing_is_decided_while_what_was_left_open_cannot_be_read(caplog: pytest.LogCaptureFixture) -> None:
    """A power loss took the record that a commit is complete, and left a batch of the next transaction. The disk did
    not read it when the commit was complete again: an abort was answered without a marker there, and the commit of the
    transaction after it made the aborted record visible."""
    looks, unread = 0, 0

    def fails_to_read(log: PartitionLog, offset: int) -> bool:
        nonlocal looks
        looks += 1
        if looks == 2:  # the first is when the log is opened, before the marker that is owed
            raise OSError(errno.EIO, "the test's disk failed to read")
        return has_gap(log, offset)

    for seed in range(40):
        driver = prepared_disk({"fsync": "commit"})
        writer = Writer(driver)
        writer.init()
        writer.write()
        driver.auto_sync = False
        end = EndTxnRequest(
            transactional_id=ID, producer_id=writer.producer[0], producer_epoch=writer.producer[1], committed=True
        )
        ended = driver.send(end, 5)
        driver.sync()  # the decision
        answer = driver.answer(ended)
        writer.producer = (answer.producer_id, answer.producer_epoch)
        driver.sync()  # the markers
        driver.send(writer.record("a"), 12)
        driver.crash(seed)
        driver.auto_sync = True
        caplog.clear()
        looks = 0
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(txn_driver, "has_gap", fails_to_read)
            driver.start()
        abort = EndTxnRequest(
            transactional_id=ID, producer_id=writer.producer[0], producer_epoch=writer.producer[1], committed=False
        )
        if "it will be tried again" in caplog.text:
            unread += 1
            assert driver.ask(abort, 5).error_code == ErrorCode.NOT_COORDINATOR
            driver.pass_time(1_000)
        answer = driver.ask(abort, 5)
        assert answer.error_code == ErrorCode.NONE
        writer.producer = (answer.producer_id, answer.producer_epoch)
        writer.write()
        writer.end(commit=True)
        assert visible(driver) == [2, 2]
    assert unread > 3, "the batch was never left without its transaction"


def test_a_timeout_ends_what_the_timeout_before_it_found_left_open(caplog: pytest.LogCaptureFixture) -> None:
    """Two transactions time out together. The first opens a log in which the second has a batch, whose record of that
    partition was lost: the second, as it had been looked at before, was ended without a marker there, and the commit of
    the id's next transaction made the aborted record visible."""
    enlisted = 0
    for seed in range(40):
        driver = prepared_disk({"fsync": "commit"})
        first, second = Writer(driver, "first"), Writer(driver, "second")
        for writer, topic in ((first, "a"), (second, "b")):
            writer.init()
            assert driver.ask(writer.record(topic), 12).partitions[0].error_code == ErrorCode.NONE
        driver.auto_sync = False
        driver.send(second.record("a"), 12)
        driver.crash(seed)
        driver.auto_sync = True
        driver.now_ms += 100_000
        caplog.clear()
        driver.start()
        enlisted += "enlisting the partition again" in caplog.text
        second.init()
        second.write()
        second.end(commit=True)
        assert visible(driver) == [1, 1]
    assert enlisted > 3, "the batch was never left without its transaction"
