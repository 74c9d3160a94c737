"""Apache Kafka's own `kafka-dump-log --offsets-decoder` reads what the group coordinator writes."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

import pytest

from fencepost.broker.coordinator.group.base.records import GroupRecord
from fencepost.broker.coordinator.group.log import encode_record
from fencepost.protocol.records.encoding import encode_pairs
from tests.support.batches import put_at
from tests.support.classic_actor import ClassicActor
from tests.support.group_world import GROUP, ConsumerActor, GroupWorld
from tests.support.kafka_tools import run_kafka_tool
from tests.unit.broker.coordinator.group.group_driver import Driver, FakeTopics, topic_id


def dump(driver: Driver, folder: Path) -> list[tuple[Any, Any]]:
    """(key, value) of each record as Kafka's decoder shows it; a tombstone's value is None."""
    segment = bytearray()
    for offset, record in enumerate(driver.log):
        if not isinstance(record, GroupRecord):
            raise TypeError("a marker is no record")
        batch = encode_pairs(
            [encode_record(record)],
            1_700_000_000_000,
            producer_id=record.producer_id,
            producer_epoch=record.producer_epoch,
            transactional=record.transactional,
        )
        put_at(batch, offset, 0)
        segment += batch
    path = folder / "00000000000000000000.log"
    path.write_bytes(segment)
    shown = run_kafka_tool("DumpLogSegments", "--files", str(path), "--offsets-decoder")
    assert shown.status == 0, shown.stderr
    return [
        (json.loads(key), None if value == "<DELETE>" else json.loads(value))
        for key, value in re.findall(r"key: (\{.*?\}) payload: (\{.*\}|<DELETE>)", shown.stdout)
    ]


@pytest.mark.kafka
def test_kafkas_offsets_decoder_reads_our_records(tmp_path: Path) -> None:
    driver = Driver()
    leader, follower, generation = driver.stable_pair()
    driver.commit(11, member_id=leader, generation=generation, metadata="note")
    driver.commit(12, member_id=leader, generation=generation, partition=1, retention_ms=60_000, version=4)
    driver.txn_commit(13, producer=(7, 3), member_id=leader, generation=generation, partition=2)
    driver.done(driver.coordinator.delete_offsets("g", [("u", 0)]))
    read = dump(driver, tmp_path)
    assert len(read) == len(driver.log)
    groups = [value["data"] for key, value in read if key["type"] == "2" and value is not None]
    assert groups[-1]["generation"] == generation
    assert groups[-1]["leader"] == leader
    assert {member["memberId"] for member in groups[-1]["members"]} == {leader, follower}
    offsets = {key["data"]["partition"]: value for key, value in read if key["type"] == "1" and value is not None}
    assert {partition: value["data"]["offset"] for partition, value in offsets.items()} == {0: 11, 1: 12, 2: 13}
    assert [offsets[partition]["version"] for partition in (0, 1, 2)] == ["4", "1", "4"]
    assert offsets[0]["data"]["metadata"] == "note"
    assert offsets[1]["data"]["expireTimestamp"] == driver.now_ms + 60_000


@pytest.mark.kafka
def test_kafkas_offsets_decoder_reads_our_consumer_groups(tmp_path: Path) -> None:
    world = GroupWorld(FakeTopics(t=3))
    world.consumers = [ConsumerActor("a", ("t",), instance="i"), ConsumerActor("b", (), regex="t.*", assignor="range")]
    world.settle()
    world.ask(world.consumers[1], -1)
    read = dump(world.driver, tmp_path)
    assert len(read) == len(world.driver.log)
    last = {
        (key["type"], key["data"].get("memberId", key["data"].get("regularExpression"))): value for key, value in read
    }
    assert {kind for kind, _ in last} == {"3", "5", "6", "7", "8", "16"}
    assert [last[kind, "b"] for kind in ("5", "7", "8")] == [None] * 3 and last["16", "t.*"] is None
    group = world.group
    assert group is not None
    assert last["3", None]["data"] == {"epoch": group.epoch, "metadataHash": group.metadata_hash}
    member = last["5", "a"]["data"]
    assert (member["instanceId"], member["subscribedTopicNames"], member["rebalanceTimeoutMs"]) == ("i", ["t"], 6_000)
    target = group.target["a"]
    assert last["7", "a"]["data"]["topicPartitions"][0]["partitions"] == sorted(index for _, index in target)
    current = last["8", "a"]["data"]
    (topic,) = current["assignedPartitions"]
    assert (current["state"], current["memberEpoch"]) == (0, group.members["a"].epoch)
    assert base64.urlsafe_b64decode(topic["topicId"] + "==") == topic_id("t").bytes
    assert topic["assignmentEpochs"] == [group.members["a"].assigned[partition] for partition in sorted(target)]
    regex = next(value for key, value in read if key["type"] == "16")
    assert regex["data"]["topics"] == ["t"] and key_of(read, "16")["data"]["groupId"] == GROUP


def key_of(read: list[tuple[Any, Any]], kind: str) -> Any:
    return next(key for key, _ in read if key["type"] == kind)


@pytest.mark.kafka
def test_kafkas_offsets_decoder_reads_classic_members_of_a_consumer_group(tmp_path: Path) -> None:
    world = GroupWorld(FakeTopics(t=2))
    classic = ClassicActor("c", ("t",))
    for _ in range(4):
        classic.step(world.driver)
    world.beat(ConsumerActor("a", ("t",)))
    read = dump(world.driver, tmp_path)
    assert len(read) == len(world.driver.log)
    (member,) = [v["data"] for k, v in read if k["type"] == "5" and k["data"]["memberId"] == classic.member_id]
    (protocol,) = member["classicMemberMetadata"]["supportedProtocols"]
    assert (protocol["name"], member["classicMemberMetadata"]["sessionTimeoutMs"]) == ("cooperative", 10_000)
    assert read[-1][0]["type"] in {"3", "5", "6", "7", "8"}
