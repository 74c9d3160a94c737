"""Producer state of a partition survives restarts, retention, DeleteRecords, compaction and expiry.

After each, the next sequence is accepted, and a gap is a loss (45), never "unknown" (59). The last batch sent again
succeeds with its offset, except after expiry. Kafka forgets a producer at expiry; this broker keeps its next sequence.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from fencepost.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from fencepost.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from fencepost.protocol.produce_wire import ProducePartitionResult
from tests.support.batches import keyed
from tests.support.broker_driver import BrokerDriver, produce

HOUR_MS = 3_600_000
CONFIG = {
    "log.cleaner.backoff.ms": 1000,
    "log.cleaner.min.cleanable.ratio": "0.0",
    "log.retention.check.interval.ms": 1000,
    "producer.id.expiration.ms": 2 * HOUR_MS,
}
Event = Callable[[BrokerDriver], None]


def send(driver: BrokerDriver, sequence: int, *, producer_id: int = 5, key: bytes = b"k") -> ProducePartitionResult:
    records = keyed(
        (key, b"v" * 100),
        producer_id=producer_id,
        epoch=0 if producer_id >= 0 else -1,
        sequence=sequence,
        timestamp=driver.now_ms,
    )
    answer: ProducePartitionResult = driver.ask(produce("t", records), 9).partitions[0]
    return answer


def restarted(driver: BrokerDriver) -> None:
    driver.core.close()
    driver.disk.kill()
    driver.start()


def killed(driver: BrokerDriver) -> None:
    driver.disk.kill()
    driver.start()


def powerless(driver: BrokerDriver) -> None:
    driver.crash(5)
    driver.start()


def records_deleted(driver: BrokerDriver) -> None:
    topic = DeleteRecordsTopic(name="t", partitions=[DeleteRecordsPartition(partition_index=0, offset=-1)])
    assert driver.ask(DeleteRecordsRequest(topics=[topic]), 2).topics[0].partitions[0].error_code == 0


def grown_old(driver: BrokerDriver) -> None:
    driver.pass_time(HOUR_MS + 1_000)
    partition = driver.core.topics.partition("t", 0)
    assert partition is not None
    assert partition.log.log_start_offset == partition.log.log_end_offset


def compacted(driver: BrokerDriver) -> None:
    for _ in range(30):
        assert send(driver, -1, producer_id=-1).error_code == 0
    driver.pass_time(3_000)
    assert driver.core.metrics.values["compactions"] > 0


def expired(driver: BrokerDriver) -> None:
    driver.pass_time(3 * HOUR_MS)
    partition = driver.core.topics.partition("t", 0)
    assert partition is not None
    state = partition.log.producers.get(5)
    assert state is not None and state.shrunk


STORIES: list[tuple[str, str, list[Event]]] = [
    ("restart", "delete", [restarted]),
    ("kill", "delete", [killed]),
    ("power", "delete", [powerless]),
    ("deleted", "delete", [records_deleted]),
    ("deleted, restart", "delete", [records_deleted, restarted]),
    ("deleted, power", "delete", [records_deleted, powerless]),
    ("old", "delete", [grown_old]),
    ("old, kill", "delete", [grown_old, killed]),
    ("compacted", "compact", [compacted]),
    ("compacted, power, restart", "compact", [compacted, powerless, compacted, restarted]),
    ("compacted and old", "compact,delete", [compacted, grown_old, powerless]),
]


def driver_after(policy: str, events: list[Event]) -> tuple[BrokerDriver, int]:
    driver = BrokerDriver(CONFIG)
    configs = {"cleanup.policy": policy, "segment.bytes": "1000", "retention.ms": str(HOUR_MS)}
    topic = CreatableTopic(
        name="t",
        num_partitions=1,
        replication_factor=1,
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
    )
    assert driver.ask(CreateTopicsRequest(topics=[topic]), 7).topics[0].error_code == ErrorCode.NONE
    for sequence in range(12):
        last = send(driver, sequence)
        assert last.error_code == 0
    for event in events:
        event(driver)
    return driver, last.base_offset


@pytest.mark.parametrize(("policy", "events"), [story[1:] for story in STORIES], ids=[story[0] for story in STORIES])
def test_a_producer_goes_on_where_it_was(policy: str, events: list[Event]) -> None:
    driver, offset = driver_after(policy, events)
    again = send(driver, 11)
    assert (again.error_code, again.base_offset) == (0, offset)
    assert send(driver, 13).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    following = send(driver, 12)
    assert following.error_code == 0 and following.base_offset > offset
    assert send(driver, 3).error_code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER


@pytest.mark.parametrize("events", [[expired], [expired, restarted], [expired, records_deleted, restarted]])
def test_an_expired_producer_may_send_exactly_the_next_batch(events: list[Event]) -> None:
    driver, offset = driver_after("delete", events)
    asked = DescribeProducersRequest(topics=[TopicRequest(name="t", partition_indexes=[0])])
    assert driver.ask(asked, 0).topics[0].partitions[0].active_producers == []
    assert send(driver, 0).error_code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER
    assert send(driver, 14).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(driver, 12).base_offset > offset
    assert send(driver, 13).error_code == 0
    assert len(driver.ask(asked, 0).topics[0].partitions[0].active_producers) == 1
