"""Storage as the core drives it: failed fsyncs, damage, compaction between requests, internal topics kept short."""

from __future__ import annotations

import errno

import pytest

import fencepost
from fencepost.broker.disk.changes import carry_out
from fencepost.broker.gauges import take_snapshot
from fencepost.broker.log import Rejected
from fencepost.broker.topics.topic import Partition
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from fencepost.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from fencepost.protocol.messages.end_txn import EndTxnRequest
from fencepost.protocol.messages.init_producer_id import InitProducerIdRequest
from fencepost.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from fencepost.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from fencepost.protocol.records.batch import iter_batches
from fencepost.protocol.records.decoding import decode_batches
from fencepost_lab.check.disk import MemoryDisk
from tests.support.batches import keyed
from tests.support.broker_driver import BrokerDriver, batch, fetch, produce
from tests.support.raw_client import RawClient

NOW = 1_700_000_000_000


def driver_with(*topics: str, disk: MemoryDisk | None = None, **more: str) -> BrokerDriver:
    driver = BrokerDriver({"log.cleaner.backoff.ms": 1000, "log.cleaner.min.cleanable.ratio": "0.0"}, disk)
    for name in topics:
        configs = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in more.items()]
        topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1, configs=configs)
        assert driver.ask(CreateTopicsRequest(topics=[topic]), 7).topics[0].error_code == ErrorCode.NONE
    return driver


def partition_of(driver: BrokerDriver, name: str) -> Partition:
    found = driver.core.topics.partition(name, 0)
    assert found is not None
    return found


def code(driver: BrokerDriver, topic: str, records: bytes) -> int:
    return int(driver.ask(produce(topic, records), 9).partitions[0].error_code)


def test_a_failed_fsync_makes_its_partition_read_only_and_no_other() -> None:
    driver = driver_with("a", "b")
    assert code(driver, "a", batch(b"durable")) == 0
    driver.disk.fail_next_sync()
    refused = driver.ask(produce("a", batch(b"lost")), 9).partitions[0]
    assert (refused.error_code, refused.base_offset) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
    assert code(driver, "a", batch()) == ErrorCode.KAFKA_STORAGE_ERROR
    assert code(driver, "b", batch()) == 0
    read = driver.ask(fetch("a"), 12).topics[0].partitions[0]
    assert (read.error_code, read.high_watermark) == (0, 1)
    assert decode_batches(read.records).values() == [b"durable"]
    assert driver.core.metrics.values["failed_syncs"] == 1
    driver.crash(1)
    driver.start()
    assert code(driver, "a", batch(b"again")) == 0
    values = decode_batches(driver.ask(fetch("a"), 12).topics[0].partitions[0].records).values()
    assert values in ([b"durable", b"again"], [b"durable", b"lost", b"again"])


def test_a_failed_fsync_of_a_coordinators_topic_ends_the_broker_and_answers_nothing() -> None:
    driver = driver_with("a")
    asked = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60_000)
    driver.auto_sync = False
    waiting = driver.send(asked, 4)
    driver.disk.fail_next_sync()
    with pytest.raises(OSError, match="__transaction_state"):
        driver.sync()
    assert driver.answer(waiting) is None


def test_a_marker_whose_fsync_failed_is_owed_until_the_next_start() -> None:
    driver = driver_with("a")
    pair = driver.ask(InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60_000), 4)
    records = batch(producer_id=pair.producer_id, epoch=pair.producer_epoch, sequence=0, transactional=True)
    assert driver.ask(produce("a", records, transactional_id="x"), 12).partitions[0].error_code == 0
    driver.auto_sync = False
    end = EndTxnRequest(
        transactional_id="x", producer_id=pair.producer_id, producer_epoch=pair.producer_epoch, committed=True
    )
    asked = driver.send(end, 5)
    driver.sync()  # the decision is durable: it is answered, and the marker is written
    assert driver.answer(asked).error_code == 0
    driver.disk.fail_next_sync()
    driver.sync()
    log = partition_of(driver, "a").log
    assert (log.read_only, log.last_stable_offset) == (True, 0)
    driver.crash(7)
    driver.auto_sync = True
    driver.start()
    log = partition_of(driver, "a").log
    driver.pass_time(2_000)
    assert log.last_stable_offset == log.log_end_offset == 2


def test_a_stop_on_a_disk_without_room_for_anything_is_a_stop(caplog: pytest.LogCaptureFixture) -> None:
    """Also where the room that was kept for small files is used up."""
    driver = driver_with("a")
    assert code(driver, "a", batch(b"there")) == 0
    driver.disk.is_full, driver.disk._reserved = True, False
    driver.core.close()
    assert "the next start checks the logs" in caplog.text
    driver.disk.kill()
    driver.start()
    driver.disk.heal()
    assert decode_batches(driver.ask(fetch("a"), 12).topics[0].partitions[0].records).values() == [b"there"]
    assert code(driver, "a", batch(b"more")) == 0


def test_damage_is_told_counted_and_not_served() -> None:
    driver = driver_with("a")
    for _ in range(3):
        assert code(driver, "a", batch(b"x" * 40)) == 0
    driver.disk.flip_bit("a-0/00000000000000000000.log", 190)
    got = [driver.ask(fetch("a", offset), 12).topics[0].partitions[0] for offset in range(3)]
    assert [result.error_code for result in got] == [0, ErrorCode.CORRUPT_MESSAGE, 0]
    assert decode_batches(got[0].records).offsets.tolist() == [0]
    assert driver.core.metrics.values["corrupt_reads"] == 1


def test_a_partition_that_cannot_be_opened_does_not_keep_others_from_their_answers() -> None:
    driver = driver_with("a", "b")
    driver.disk.fail_next_write(OSError(errno.EIO, "no"))
    answers = [code(driver, name, batch()) for name in ("a", "b")]
    assert answers == [ErrorCode.KAFKA_STORAGE_ERROR, 0]
    wanted = ListOffsetsTopic(name="a", partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
    assert driver.ask(ListOffsetsRequest(replica_id=-1, topics=[wanted]), 7).topics[0].partitions[0].error_code == 0
    assert code(driver, "a", batch()) == 0  # and it is tried again


def test_lost_sequences_are_counted() -> None:
    driver = driver_with("a")
    assert code(driver, "a", batch(producer_id=5, epoch=0, sequence=3)) == ErrorCode.UNKNOWN_PRODUCER_ID
    assert code(driver, "a", batch(producer_id=5, epoch=0, sequence=0)) == 0
    assert code(driver, "a", batch(producer_id=5, epoch=0, sequence=9)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    counted = driver.core.metrics.values
    assert (counted["unknown_producers"], counted["out_of_order_sequences"]) == (1, 1)


def test_what_was_cut_at_the_start_is_counted() -> None:
    driver = driver_with("a")
    assert code(driver, "a", batch()) == 0
    driver.disk.kill()
    torn = driver.disk.open("a-0/00000000000000000000.log")
    torn.append(b"\0" * 50)
    driver.start()
    assert code(driver, "a", batch()) == 0
    assert driver.core.metrics.values["cut_bytes"] == 50
    assert driver.core.metrics.values["recovered_logs"] == 1


def test_a_compacted_topic_takes_no_record_without_a_key() -> None:
    driver = driver_with("a", cleanup_policy="compact")
    assert code(driver, "a", batch()) == ErrorCode.INVALID_RECORD
    assert code(driver, "a", keyed((b"k", b"v"), (None, b"v"), timestamp=NOW)) == ErrorCode.INVALID_RECORD
    assert code(driver, "a", keyed((b"k", b"v"), (b"k", None), timestamp=NOW)) == 0


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
def test_the_core_compacts_between_requests(policy: str) -> None:
    driver = driver_with("a", cleanup_policy=policy, segment_bytes="2000", retention_ms="-1")
    for n in range(100):
        assert code(driver, "a", keyed((b"k%d" % (n % 3), b"v%d" % n * 9), timestamp=NOW)) == 0
    log = partition_of(driver, "a").log
    before = log.size_bytes
    driver.pass_time(1_500)
    counted = driver.core.metrics.values
    assert counted["compactions"] >= 1
    assert log.size_bytes < before / 3
    active = log.segments[-1].size
    # A round reads the closed segments twice: for the last offset of each key, and to copy.
    assert counted["compaction_read_bytes"] == 2 * (before - active)
    assert counted["compaction_written_bytes"] == log.size_bytes - active > 0
    assert log.clean_point.dirty_offset == log.segments[-1].base_offset
    assert log.segments[0].base_offset == 0
    driver.crash(3)
    driver.start()
    log = partition_of(driver, "a").log
    assert log.report.cuts == [] and log.log_end_offset == 100
    last = driver.ask(fetch("a", 97), 12).topics[0].partitions[0]
    assert decode_batches(last.records, start_offset=97).offsets.tolist() == [97, 98, 99]


def test_a_damaged_log_is_not_compacted_and_counted() -> None:
    driver = driver_with("a", "b", cleanup_policy="compact", segment_bytes="2000")
    for name in ("a", "b"):
        for n in range(60):
            assert code(driver, name, keyed((b"k", b"v%d" % n * 9), timestamp=NOW)) == 0
    assert take_snapshot(driver.core, driver.now_ms).gauges["uncleanable_partitions"] == 0
    driver.disk.flip_bit("a-0/00000000000000000000.log", 190)
    driver.pass_time(5_000)
    assert take_snapshot(driver.core, driver.now_ms).gauges["uncleanable_partitions"] == 1
    assert driver.core.metrics.values["compaction_failures"] == 1
    assert partition_of(driver, "b").log.clean_point.dirty_offset > 0


def test_a_topic_deleted_in_the_middle_of_a_round_ends_the_round() -> None:
    driver = driver_with("a", cleanup_policy="compact", segment_bytes="300000")
    for n in range(30):
        assert code(driver, "a", keyed((b"k%d" % n, b"v" * 30_000), timestamp=NOW)) == 0
    driver.core.cleaner.compact(driver.now_ms)
    carry_out(driver.core.topics.delete_all([partition_of(driver, "a").topic]))
    driver.pass_time(5_000)
    assert driver.core.metrics.values["compactions"] == 0
    assert not [name for name in driver.disk.listdir("") if name.startswith("a-0")]


def test_the_files_of_a_round_that_cannot_be_synced_are_dropped() -> None:
    driver = driver_with("a", cleanup_policy="compact", segment_bytes="2000")
    for n in range(60):
        assert code(driver, "a", keyed((b"k", b"v%d" % n * 9), timestamp=NOW)) == 0
    log = partition_of(driver, "a").log
    size = log.size_bytes
    driver.disk.fail_next_sync()
    driver.pass_time(1_500)
    assert driver.core.metrics.values["compaction_failures"] >= 1
    assert not log.read_only
    driver.pass_time(3_000)
    assert log.size_bytes < size
    assert code(driver, "a", keyed((b"k", b"v"), timestamp=NOW)) == 0


def commit_offsets(driver: BrokerDriver, rounds: int) -> None:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_metadata="m" * 2000)
    for n in range(rounds):
        partition.committed_offset = n
        topics = [OffsetCommitRequestTopic(name="a", partitions=[partition])]
        answer = driver.ask(OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=-1, topics=topics), 8)
        assert answer.topics[0].partitions[0].error_code == 0


def test_a_start_reads_what_counts_and_not_what_was() -> None:
    """`__consumer_offsets` and `__transaction_state` grow with what is known, not with what happened."""
    driver = driver_with("a")
    commit_offsets(driver, 1600)
    pair = driver.ask(InitProducerIdRequest(transactional_id="x" * 5000, transaction_timeout_ms=60_000), 4)
    for _ in range(300):
        pair = driver.ask(InitProducerIdRequest(transactional_id="x" * 5000, transaction_timeout_ms=60_000), 4)
        assert pair.error_code == 0
    driver.pass_time(3_000)
    for name in ("__consumer_offsets", "__transaction_state"):
        topic = driver.core.topics.get(name)
        assert topic is not None
        logs = [partition.opened for partition in topic.partitions if partition.opened is not None]
        written = sum(log.log_end_offset for log in logs)
        assert written > 250
        assert sum(segment.size for log in logs for segment in log.segments[:-1]) < 20_000, name
    driver.disk.kill()
    driver.start()
    again = driver.ask(InitProducerIdRequest(transactional_id="x" * 5000, transaction_timeout_ms=60_000), 4)
    assert (again.producer_id, again.producer_epoch) == (pair.producer_id, pair.producer_epoch + 1)
    commit_offsets(driver, 1)


def test_markers_in_the_offsets_topic_go_soon() -> None:
    """A transaction that committed offsets leaves a marker; history must not make the start long."""
    driver = BrokerDriver({"log.cleaner.backoff.ms": 1000, "log.segment.bytes": 20_000})
    topic = CreatableTopic(name="a", num_partitions=1, replication_factor=1)
    assert driver.ask(CreateTopicsRequest(topics=[topic]), 7).topics[0].error_code == ErrorCode.NONE
    pair = driver.ask(InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60_000), 4)
    partition = driver.core.groups.offsets_partition("g")
    for n in range(600):
        log = partition.log
        record = (b"\0\1\0\1g\0\1a\0\0\0\0", b"\0\3" + n.to_bytes(8, "big") + bytes(14))
        appended = log.append_internal([record], driver.now_ms, producer_id=pair.producer_id, producer_epoch=n)
        assert not isinstance(appended, Rejected)
        log.append_marker(pair.producer_id, n + 1, True, 0, driver.now_ms)
        driver.core.durability.appended(partition)
        driver.core.durability.when_durable(driver.now_ms, lambda _: None)
        driver.pass_time(1)
    for _ in range(4):
        driver.pass_time(70_000)
        commit_offsets(driver, 80)  # so that there is something new to compact
    assert driver.core.metrics.values["compactions"] > 1
    log = partition.log
    markers = 0
    for segment in log.segments[:-1]:
        markers += sum(header.is_control for header, _ in iter_batches(segment.log.read(0, segment.size)))
    assert markers < 60


def test_old_and_large_segments_go_by_time_and_size() -> None:
    driver = driver_with("a", segment_bytes="1000", retention_ms="10000")
    log, topic = partition_of(driver, "a").log, partition_of(driver, "a").topic
    for n in range(30):
        assert code(driver, "a", keyed((b"k", b"v" * 50), timestamp=NOW + n)) == 0
    driver.housekeep()
    segment_count = len(log.segments)
    assert segment_count > 3
    carry_out(driver.core.topics.set_configs({topic: {"segment.bytes": "1000", "retention.bytes": "1500"}}))
    driver.housekeep()
    assert len(log.segments) == 2 and log.log_start_offset == log.segments[0].base_offset > 0
    carry_out(driver.core.topics.set_configs({topic: {"segment.bytes": "1000", "retention.ms": "10000"}}))
    driver.now_ms += 20_000
    driver.housekeep()
    assert log.log_start_offset == log.log_end_offset == 30
    assert driver.core.metrics.values["deleted_segments"] == segment_count


def test_records_that_cannot_be_deleted_are_still_there() -> None:
    driver = driver_with("a")
    for _ in range(3):
        assert code(driver, "a", batch()) == 0
    topic = DeleteRecordsTopic(name="a", partitions=[DeleteRecordsPartition(partition_index=0, offset=2)])
    driver.disk.fail_next_write()
    answer = driver.ask(DeleteRecordsRequest(topics=[topic]), 2).topics[0].partitions[0]
    assert (answer.error_code, answer.low_watermark) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
    assert driver.ask(fetch("a"), 12).topics[0].partitions[0].log_start_offset == 0
    answer = driver.ask(DeleteRecordsRequest(topics=[topic]), 2).topics[0].partitions[0]
    assert (answer.error_code, answer.low_watermark) == (0, 2)


def test_whoever_moves_the_clock_need_not_wait_for_compaction() -> None:
    configs = {"log.segment.bytes": 2000, "log.cleaner.min.cleanable.ratio": "0.0", "log.cleanup.policy": "compact"}
    with fencepost.Broker(configs, fsync="commit") as broker, RawClient(broker.bootstrap_servers) as client:
        broker.clock.freeze()
        topic = client.create_topic("t")
        for n in range(100):
            data = keyed((b"k%d" % (n % 3), b"v%d" % n * 9), timestamp=broker.clock.now_ms)
            assert client.produce(topic, data).error_code == 0
        broker.clock.advance(0.001)
        got: list[int] = []
        offset = 0
        while offset < 100:
            columns = decode_batches(client.fetch(topic, offset).result.records, start_offset=offset)
            got += columns.offsets.tolist()
            offset = columns.next_offset
        assert len(got) < 40 and got[-3:] == [97, 98, 99]
