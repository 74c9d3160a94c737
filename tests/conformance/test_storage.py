"""Topic settings that are the log's, changed while it is in use: one body, our broker and Apache Kafka 4.3.1. Then what
only our broker can be asked: faults of its disk."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable

import pytest

import fencepost
from fencepost.broker.embedded import Broker
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.columns import encode_batch
from tests.support.batches import keyed
from tests.support.brokers import BrokerUnderTest
from tests.support.raw_client import RawClient

pytestmark = pytest.mark.timeout(120)
PATIENCE_S = 60


def until(wanted: Callable[[], bool]) -> None:
    """Wait for it."""
    deadline = time.monotonic() + PATIENCE_S
    while not wanted():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.1)


@pytest.fixture
def admin(broker: BrokerUnderTest) -> fencepost.Admin:
    return fencepost.Admin(broker.bootstrap_servers)


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
