"""Apache Kafka's own `kafka-dump-log --offsets-decoder` reads what the group coordinator writes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from fencepost.broker.group.records import GroupRecord
from fencepost.broker.internal_records import encode_internal_batch
from fencepost.protocol.batch import set_base_offset_and_leader_epoch
from tests.support.apache_kafka import run_kafka_class
from tests.unit.broker.group.group_driver import Driver


@pytest.mark.kafka
def test_kafkas_offsets_decoder_reads_our_records(tmp_path: Path) -> None:
    driver = Driver()
    leader, follower, generation = driver.stable_pair()
    driver.commit(11, member_id=leader, generation=generation, metadata="note")
    driver.commit(12, member_id=leader, generation=generation, partition=1, retention_ms=60_000, version=4)
    driver.txn_commit(13, producer=(7, 3), member_id=leader, generation=generation, partition=2)
    driver.done(driver.coordinator.delete_offsets("g", [("u", 0)]))
    segment = bytearray()
    for offset, record in enumerate(driver.log):
        if not isinstance(record, GroupRecord):
            raise TypeError("a marker is no record")
        batch = encode_internal_batch(
            [record.encode()],
            1_700_000_000_000,
            producer_id=record.producer_id,
            producer_epoch=record.producer_epoch,
            transactional=record.transactional,
        )
        set_base_offset_and_leader_epoch(batch, offset, 0)
        segment += batch
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(segment)
    dump = run_kafka_class("org.apache.kafka.tools.DumpLogSegments", "--files", str(path), "--offsets-decoder")
    assert dump.returncode == 0, dump.stderr
    read = [
        (json.loads(key), None if value == "<DELETE>" else json.loads(value))
        for key, value in re.findall(r"key: (\{.*?\}) payload: (\{.*\}|<DELETE>)", dump.stdout)
    ]
    assert len(read) == len(driver.log), dump.stdout
    groups = [value["data"] for key, value in read if key["type"] == "2" and value is not None]
    assert groups[-1]["generation"] == generation
    assert groups[-1]["leader"] == leader
    assert {member["memberId"] for member in groups[-1]["members"]} == {leader, follower}
    offsets = {key["data"]["partition"]: value for key, value in read if key["type"] == "1" and value is not None}
    assert {partition: value["data"]["offset"] for partition, value in offsets.items()} == {0: 11, 1: 12, 2: 13}
    assert [offsets[partition]["version"] for partition in (0, 1, 2)] == ["4", "1", "4"]
    assert offsets[0]["data"]["metadata"] == "note"
    assert offsets[1]["data"]["expireTimestamp"] == driver.now_ms + 60_000
