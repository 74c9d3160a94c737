"""A log that the disk does not let be opened: whatever is asked about it, there is an answer."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages import describe_log_dirs as dl
from fencepost.protocol.messages import describe_producers as dp
from fencepost.protocol.messages import offset_for_leader_epoch as oe
from fencepost.protocol.messages import write_txn_markers as wm
from fencepost.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tests.support.broker_driver import BrokerDriver

EPOCH = oe.OffsetForLeaderEpochRequest(
    topics=[oe.OffsetForLeaderTopic(topic="a", partitions=[oe.OffsetForLeaderPartition(partition=0, leader_epoch=0)])]
)
PRODUCERS = dp.DescribeProducersRequest(topics=[dp.TopicRequest(name="a", partition_indexes=[0])])
MARKERS = wm.WriteTxnMarkersRequest(
    markers=[
        wm.WritableTxnMarker(
            producer_id=1,
            producer_epoch=0,
            transaction_result=True,
            topics=[wm.WritableTxnMarkerTopic(name="a", partition_indexes=[0])],
        )
    ]
)


@pytest.fixture
def driver() -> BrokerDriver:
    driver = BrokerDriver()
    topic = CreatableTopic(name="a", num_partitions=1, replication_factor=1)
    assert driver.ask(CreateTopicsRequest(topics=[topic]), 7).topics[0].error_code == 0
    driver.disk.fail_next_write(OSError(errno.EIO, "no"))
    return driver


@pytest.mark.parametrize(("request_", "version"), [(EPOCH, 4), (PRODUCERS, 0), (MARKERS, 1)])
def test_it_is_answered_with_a_storage_error(driver: BrokerDriver, request_: Any, version: int) -> None:
    answer = driver.ask(request_, version)
    (topic,) = answer.markers[0].topics if request_ is MARKERS else answer.topics
    assert topic.partitions[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert driver.core.metrics.values["storage_errors"] == 1


def test_its_size_is_not_told(driver: BrokerDriver) -> None:
    driver.disk.makedirs("a-0")
    (log_dir,) = driver.ask(dl.DescribeLogDirsRequest(topics=None), 4).results
    assert log_dir.topics == []
