"""Topic settings that are the log's, changed while it is in use: one body, our broker and Apache Kafka 4.4. Then what
only our broker can be asked: faults of its disk."""

from __future__ import annotations

import errno
import time

import pytest

import fencepost
from fencepost.broker.embedded import Broker
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.records.batch import iter_batches
from fencepost.protocol.records.decoding import decode_batches
from fencepost.protocol.records.encoding import encode_batch
from tests.support.batches import keyed
from tests.support.brokers import BrokerUnderTest
from tests.support.raw_client import RawClient
from tests.support.waiting import until


def now_ms() -> int:
    return int(time.time() * 1000)


def test_a_compacted_topic_takes_no_record_without_a_key(broker: BrokerUnderTest, client: RawClient) -> None:
    topic = client.create_topic(broker.name("keys"), cleanup_policy="compact")
    assert client.produce(topic, keyed((b"k", b"v"), (b"k", None), timestamp=now_ms())).error_code == 0
    refused = client.produce(topic, keyed((b"k", b"v"), (None, b"v"), timestamp=now_ms()))
    assert (refused.error_code, refused.base_offset) == (ErrorCode.INVALID_RECORD, -1)
    assert client.end_offset(topic) == 2


def test_the_timestamp_type_may_change_while_the_topic_is_in_use(
    broker: BrokerUnderTest, client: RawClient, admin: fencepost.Admin
) -> None:
    topic = client.create_topic(broker.name("times"))
    batch = bytes(encode_batch(keys=[None], values=[b"v"], timestamps=now_ms() - 50_000))
    assert client.produce(topic, batch).log_append_time_ms == -1
    admin.alter_configs(topic, {"message.timestamp.type": "LogAppendTime"})
    stamps: list[int] = []

    def stamped() -> bool:
        stamps.append(client.produce(topic, batch).log_append_time_ms)
        return stamps[-1] >= 0

    before = now_ms()
    until(stamped)
    assert before - 5_000 < stamps[-1] <= now_ms() + 5_000


def test_the_largest_batch_may_change_while_the_topic_is_in_use(
    broker: BrokerUnderTest, client: RawClient, admin: fencepost.Admin
) -> None:
    topic = client.create_topic(broker.name("sizes"))
    large = [b"x" * 5_000]
    assert client.produce(topic, large).error_code == 0
    admin.alter_configs(topic, {"max.message.bytes": "2000"})
    until(lambda: client.produce(topic, large).error_code == ErrorCode.MESSAGE_TOO_LARGE)
    assert client.produce(topic, [b"x" * 1_000]).error_code == 0


def test_records_before_an_offset_are_deleted_for_good(
    broker: BrokerUnderTest, client: RawClient, admin: fencepost.Admin
) -> None:
    topic = client.create_topic(broker.name("deleted"))
    for number in range(10):
        assert client.produce(topic, [b"%d" % number]).error_code == 0
    partition = fencepost.TopicPartition(topic, 0)
    admin.delete_records({partition: 4})
    assert client.fetch(topic, 3).result.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    got = client.fetch(topic, 4)
    assert (got.values[0], got.result.log_start_offset) == (b"4", 4)
    admin.delete_records({partition: -1})
    assert client.fetch(topic, 10).result.log_start_offset == 10
    assert client.produce(topic, [b"next"]).base_offset == 10


Shape = tuple[int, int, int, bool, bool]


def read_all(client: RawClient, topic: str) -> tuple[list[tuple[int, bytes | None, bytes | None]], list[Shape]]:
    """(offset, key, value) of all committed records; base offset, last offset delta, count, control, delete horizon of
    all batches."""
    rows: list[tuple[int, bytes | None, bytes | None]] = []
    shapes: list[Shape] = []
    offset, end = 0, client.end_offset(topic)
    while offset < end:
        result = client.fetch(topic, offset, committed=True).result
        assert result.error_code == 0
        for header, _ in iter_batches(result.records, allow_partial=True):
            shapes.append(
                (
                    header.base_offset,
                    header.last_offset_delta,
                    header.record_count,
                    header.is_control,
                    header.has_delete_horizon,
                )
            )
        columns = decode_batches(result.records, start_offset=offset, aborted=result.aborted)
        rows += [(row[0], row[2], row[3]) for row in columns.records()]
        offset = columns.next_offset
    return rows, shapes


@pytest.mark.slow
def test_both_brokers_compact_alike(broker: BrokerUnderTest, client: RawClient) -> None:
    """Records of all kinds; then every batch that is left, with its offsets, counts and delete horizon."""
    topic = client.create_topic(
        broker.name("compacted"), cleanup_policy="compact", segment_ms="600000", min_cleanable_dirty_ratio="0.001"
    )
    start = now_ms()

    def produce(*records: tuple[bytes, bytes | None], timestamp: int = start) -> None:
        assert client.produce(topic, keyed(*records, timestamp=timestamp)).error_code == 0

    def transaction(name: str, *records: tuple[bytes, bytes | None], commit: bool) -> None:
        name = broker.name(name)
        me = client.start_producer(name)
        batch = keyed(
            *records, producer_id=me.producer_id, epoch=me.epoch, sequence=0, transactional=True, timestamp=start
        )
        assert client.produce(topic, batch, transactional_id=name).error_code == 0
        assert client.end_transaction(name, me, commit=commit).error_code == 0
        client.wait_for_state(name, "CompleteCommit" if commit else "CompleteAbort")  # its marker is there

    produce((b"a", b"1"), (b"b", b"1"))
    transaction("aborted", (b"a", b"aborted"), commit=False)
    transaction("committed", (b"c", b"1"), (b"a", b"2"), commit=True)
    until(lambda: client.end_offset(topic, committed=True) == 7)
    given = client.settled(lambda: client.init_producer_id(None))
    produce((b"b", None))
    lone = keyed((b"e", b"1"), producer_id=given.producer_id, epoch=given.producer_epoch, sequence=0, timestamp=start)
    assert client.produce(topic, lone).error_code == 0
    produce((b"a", b"3"), (b"d", b"1"), (b"e", b"2"))
    produce((b"z", b"1"), timestamp=start + 1_200_000)  # a new segment; what is before it can be compacted
    until(lambda: len(read_all(client, topic)[0]) == 6)
    rows, shapes = read_all(client, topic)
    assert rows == [
        (4, b"c", b"1"),
        (7, b"b", None),
        (9, b"a", b"3"),
        (10, b"d", b"1"),
        (11, b"e", b"2"),
        (12, b"z", b"1"),
    ]
    assert shapes == [
        (3, 0, 1, True, False),  # the abort: its batch was there in this round
        (4, 1, 1, False, False),  # one of two records of the committed transaction
        (6, 0, 1, True, False),
        (7, 0, 1, False, True),  # the tombstone, with its delete horizon
        (8, 0, 0, False, False),  # the last batch of an idempotent producer, emptied
        (9, 2, 3, False, False),
        (12, 0, 1, False, False),
    ]


@pytest.fixture
def faulty() -> Broker:
    return Broker({"auto.create.topics.enable": False}, fsync="commit")


def test_a_full_disk_and_a_failed_fsync_take_nothing_that_was_acknowledged(faulty: Broker) -> None:
    """The client sees KAFKA_STORAGE_ERROR; after the next start everything acknowledged is there, once."""
    acknowledged = []
    with faulty as broker, RawClient(broker.bootstrap_servers) as client:
        topic = client.create_topic("t")
        other = client.create_topic("other")
        for number in range(5):
            assert client.produce(topic, [b"%d" % number]).error_code == 0
            acknowledged.append(b"%d" % number)
        with broker.faults.disk.fail_write(errno.ENOSPC, path="t-0/00"):
            assert client.produce(topic, [b"full"]).error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert client.produce(other, [b"v"]).error_code == 0
        assert client.produce(topic, [b"5"]).error_code == 0
        acknowledged.append(b"5")
        with broker.faults.disk.fail_sync(errno.EIO, path="t-0/00"):
            assert client.produce(topic, [b"unsynced"]).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert client.produce(topic, [b"6"]).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert client.produce(other, [b"w"]).error_code == 0
        assert client.fetch(topic).values == acknowledged
        broker.restart(clean=False)
        with RawClient(broker.bootstrap_servers) as again:
            found = again.fetch(topic).values
            assert [value for value in found if value != b"unsynced"] == acknowledged
            assert again.produce(topic, [b"7"]).error_code == 0
            assert again.fetch(other).values == [b"v", b"w"]
