"""Return of free memory by `fencepost broker`."""

from __future__ import annotations

import platform
import time

import psutil
import pytest

from fencepost import Admin, Consumer, Producer, TopicPartition
from fencepost_lab.torture.broker_process import BrokerProcess

LARGE_BYTES = 6_000_000
PATIENCE_S = 60


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be asked to return memory")
def test_memory_of_large_responses_is_returned_when_they_end() -> None:
    broker = BrokerProcess({"fsync": "never", "message.max.bytes": 2 * LARGE_BYTES})
    broker.start()
    try:
        process = psutil.Process(broker.pid)
        with Admin(broker.bootstrap_servers) as admin:
            admin.create_topic("large", 1)
        with Producer(broker.bootstrap_servers, max_request_size=2 * LARGE_BYTES) as producer:
            producer.send("large", b"", partition=0)
            producer.flush()
            idle = process.memory_info().rss
            producer.send("large", bytes(LARGE_BYTES), partition=0)
        highest = 0
        with Consumer(
            broker.bootstrap_servers, fetch_max_bytes=2 * LARGE_BYTES, max_partition_fetch_bytes=2 * LARGE_BYTES
        ) as consumer:
            consumer.assign([TopicPartition("large", 0)])
            for _ in range(3):
                consumer.seek(TopicPartition("large", 0), 0)
                found = 0
                while found < 2:
                    found += len(consumer.poll(1))
                highest = max(highest, process.memory_info().rss)
        assert highest > idle + LARGE_BYTES // 2
        deadline = time.monotonic() + PATIENCE_S
        while process.memory_info().rss > idle + LARGE_BYTES // 2:
            assert time.monotonic() < deadline, "the memory is not returned"
            time.sleep(0.05)
    finally:
        broker.stop()
