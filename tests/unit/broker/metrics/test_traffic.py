"""Bytes, records, errors, sizes and lag by API, topic and group: what one client sent, read and was refused."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

import fencepost
from fencepost.broker import topic_gauges
from fencepost.broker.faults.table import FaultAction, RequestFault
from fencepost.broker.gauges import take_snapshot
from fencepost.broker.metrics.counters import Snapshot
from fencepost.client.admin.configs import GROUP_RESOURCE
from fencepost.protocol import fetch_wire, frame, produce_wire
from fencepost.protocol.codec import encode_request
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from fencepost.protocol.messages.delete_topics import DeleteTopicsRequest
from fencepost.protocol.messages.heartbeat import HeartbeatRequest
from fencepost.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.support.broker_driver import BrokerDriver, batch, fetch, produce
from tests.support.raw_client import RawClient
from tests.support.tidy import ROOT


@pytest.fixture
def driver() -> BrokerDriver:
    driver = BrokerDriver()
    create(driver, ["t", "u"])
    return driver


def create(driver: BrokerDriver, names: Iterable[str], partitions: int = 1) -> None:
    topics = [CreatableTopic(name=name, num_partitions=partitions, replication_factor=1) for name in names]
    assert {each.error_code for each in driver.ask(CreateTopicsRequest(topics=topics), 7).topics} == {0}


def look(driver: BrokerDriver) -> Snapshot:
    return take_snapshot(driver.core, driver.now_ms)


def numbers(seen: Snapshot, topic: str) -> tuple[int, int, int, int, int]:
    found = seen.traffic[topic]
    errors = found.produce_errors, found.fetch_errors
    return found.written_records, found.written_bytes, found.read_bytes, *errors


@pytest.mark.parametrize("is_straight", [True, False])
def test_appended_batches_count_once(driver: BrokerDriver, is_straight: bool) -> None:
    driver.ask(produce("t", batch()), 9)
    if not is_straight:
        rule = RequestFault(api_key=1, action=FaultAction.FAIL, code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
        driver.core._faults.table.add(rule)
    first, second = (batch(b"value", producer_id=5, epoch=0, sequence=number) for number in (0, 1))
    for sent in (first, second, second):  # the last is a duplicate
        assert driver.ask(produce("t", sent), 9).partitions[0].error_code == 0
    assert driver.core.metrics.straight[0] == (3 if is_straight else 0)
    sent_bytes = len(batch()) + len(first) + len(second)
    seen = look(driver)
    assert numbers(seen, "t") == (3, sent_bytes, 0, 0, 0)
    assert numbers(seen, "u") == (0, 0, 0, 0, 0)
    assert seen.topic_bytes == {"t": sent_bytes, "u": 0}
    assert seen.logs == {("t", 0): (sent_bytes, 0, 3)}
    assert seen.gauges["unopened_logs"] == 1


def test_batches_without_an_answer_count_too(driver: BrokerDriver) -> None:
    driver.send(produce("t", batch(), acks=0), 9)
    assert numbers(look(driver), "t") == (1, len(batch()), 0, 0, 0)
    driver.send(produce("t", batch(), acks=0, partition=3), 9)
    seen = look(driver)
    assert numbers(seen, "t") == (1, len(batch()), 0, 1, 0)
    assert seen.errors == {("produce", "UNKNOWN_TOPIC_OR_PARTITION"): 1}


def test_what_a_fetch_returns_counts(driver: BrokerDriver) -> None:
    for _ in range(3):
        driver.ask(produce("t", batch()), 9)
    found = driver.ask(fetch("t", 1), 12).topics[0].partitions[0]
    assert len(found.records) == 2 * len(batch())
    driver.ask(fetch("t", 3), 12)
    assert numbers(look(driver), "t") == (3, 3 * len(batch()), 2 * len(batch()), 0, 0)


def test_refusals_count_by_api_and_for_topics_that_exist(driver: BrokerDriver) -> None:
    driver.ask(produce("t", batch(producer_id=5, epoch=0, sequence=0)), 9)
    assert driver.ask(produce("t", batch(producer_id=5, epoch=0, sequence=7)), 9).partitions[0].error_code == 45
    for name in ("t", "nobody's"):
        driver.ask(fetch(name, 9), 12)
        driver.ask(produce(name, batch(), partition=3), 9)
    driver.ask(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 4)
    again = driver.ask(
        CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=1, replication_factor=1)]), 7
    )
    assert again.topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    seen = look(driver)
    assert seen.errors == {
        ("create_topics", "TOPIC_ALREADY_EXISTS"): 1,
        ("fetch", "OFFSET_OUT_OF_RANGE"): 1,
        ("fetch", "UNKNOWN_TOPIC_OR_PARTITION"): 1,
        ("heartbeat", "UNKNOWN_MEMBER_ID"): 1,
        ("produce", "OUT_OF_ORDER_SEQUENCE_NUMBER"): 1,
        ("produce", "UNKNOWN_TOPIC_OR_PARTITION"): 2,
    }
    assert numbers(seen, "t")[3:] == (2, 1)
    assert set(seen.traffic) == {"t", "u"}


def test_requests_and_responses_count_with_their_sizes() -> None:
    """The client's own count: its frames, and those that it received."""
    with fencepost.Broker() as broker, RawClient(broker.bootstrap_servers) as client:
        client.create_topic("t")
        before = broker.metrics()
        bodies = {
            0: b"".join(produce_wire.encode_request(produce("t", batch()), 9)),
            1: b"".join(fetch_wire.encode_request(fetch("t"), 12)),
            12: encode_request(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 4),
        }
        versions = {0: 9, 1: 12, 12: 4}
        answers = {key: client.exchange(key, versions[key], body) for key, body in bodies.items()}
        seen = broker.metrics()
    names = {0: "produce", 1: "fetch", 12: "heartbeat"}
    for key, name in names.items():
        sent = len(frame.encode_request_frame(key, versions[key], 1, client._client_id, bodies[key]))
        assert seen.request_bytes[name] - before.request_bytes.get(name, 0) == sent
        received = len(frame.encode_response_frame(key, versions[key], 1, bytes(answers[key])))
        assert seen.response_bytes[name] - before.response_bytes.get(name, 0) == received


def test_sizes_are_those_of_the_files(tmp_path: Path) -> None:
    with fencepost.Broker(data_dir=tmp_path) as broker:
        with fencepost.Producer(broker.bootstrap_servers) as producer:
            for number in range(50):
                producer.send("orders", b"%d" % number)
        seen = broker.metrics()
        on_disk = sum(file.stat().st_size for file in tmp_path.rglob("orders-*/*.log"))
    assert seen.topic_bytes["orders"] == seen.logs["orders", 0].size_bytes == on_disk > 0
    assert seen.logs["orders", 0][1:] == (0, 50)


def test_a_group_lags_by_what_it_has_not_committed() -> None:
    with fencepost.Broker({"num.partitions": 2}) as broker:
        with fencepost.Producer(broker.bootstrap_servers) as producer:
            for partition, count in ((0, 7), (1, 4)):
                for _ in range(count):
                    producer.send("orders", b"book", partition=partition)
        with fencepost.Consumer(broker.bootstrap_servers, group_id="billing") as consumer:
            consumer.commit({("orders", 0): 5, ("orders", 1): 0})
            assert broker.metrics().group_lag == {("billing", "orders"): 6}
            consumer.commit({("orders", 1): 4})
            assert broker.metrics().group_lag == {("billing", "orders"): 2}


def test_a_share_group_lags_by_what_it_has_not_acknowledged() -> None:
    """The metric is the sum of what DescribeShareGroupOffsets says, and is there for a group without members."""
    with fencepost.Broker({"num.partitions": 2}) as broker, fencepost.Admin(broker.bootstrap_servers) as admin:
        with fencepost.Producer(broker.bootstrap_servers) as producer:
            for partition, count in ((0, 7), (1, 4)):
                for _ in range(count):
                    producer.send("orders", b"book", partition=partition)
        admin.alter_configs("sharing", {"share.auto.offset.reset": "earliest"}, resource_type=GROUP_RESOURCE)
        with fencepost.ShareConsumer(
            broker.bootstrap_servers, group_id="sharing", share_acknowledgement_mode="explicit"
        ) as consumer:
            consumer.subscribe(["orders"])
            seen: list[fencepost.SharedRecord] = []
            while len(seen) < 11:
                seen += consumer.poll(1_000)
            assert broker.metrics().group_lag == {("sharing", "orders"): 11}
            for record in seen[1:]:
                consumer.acknowledge(record)
            consumer.commit()
            reported = admin.share_group_offsets("sharing")
            assert sum(at.lag for at in reported.values()) == 1
            assert broker.metrics().group_lag == {("sharing", "orders"): 1}
        assert broker.metrics().group_lag == {("sharing", "orders"): 1}


def commit(driver: BrokerDriver, group_id: str, offsets: dict[int, int]) -> None:
    partitions = [
        OffsetCommitRequestPartition(partition_index=index, committed_offset=offset)
        for index, offset in offsets.items()
    ]
    topic = OffsetCommitRequestTopic(name="t", partitions=partitions)
    answer = driver.ask(OffsetCommitRequest(group_id=group_id, topics=[topic]), 8)
    assert {each.error_code for each in answer.topics[0].partitions} == {0}


def test_a_lag_is_left_out_until_its_logs_are_opened() -> None:
    """A sum over a part of the partitions would be too small."""
    driver = BrokerDriver()
    create(driver, ["opened"], partitions=10)  # as many as the cleaner opens at once
    create(driver, ["t"], partitions=2)
    for name, count in (("opened", 10), ("t", 2)):
        for partition in range(count):
            driver.ask(produce(name, batch(), partition=partition), 9)
    commit(driver, "billing", {0: 0, 1: 0})
    driver.start()
    lags = []
    for partition in (0, 1):
        driver.ask(fetch("t", partition=partition), 12)
        lags.append(look(driver).group_lag)
    assert lags == [{}, {("billing", "t"): 2}]


def test_the_number_of_series_has_a_bound(driver: BrokerDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first topics keep their counters, the largest logs are shown, and the rest is counted."""
    monkeypatch.setattr(topic_gauges, "MOST_TOPICS", 3)
    monkeypatch.setattr(topic_gauges, "MOST_SERIES", 2)
    create(driver, ["v", "w"])
    for count, name in enumerate("tuvw", 1):
        for _ in range(count):
            driver.ask(produce(name, batch()), 9)
    seen = look(driver)
    assert list(seen.traffic) == list(seen.topic_bytes) == ["t", "u", "v"]
    assert set(seen.logs) == {("v", 0), ("w", 0)}
    assert seen.gauges["hidden_series"] == 1 + 2
    driver.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 3)
    assert list(look(driver).traffic) == ["u", "v", "w"]
    assert numbers(look(driver), "w")[0] == 4


@pytest.mark.parametrize(
    ("bounds", "shown"),
    [
        pytest.param({"MOST_SERIES": 1}, {("b", "t"): 2}, id="the largest"),
        pytest.param({"MOST_OFFSETS": 1}, {("a", "t"): 1}, id="the first that are looked at"),
    ],
)
def test_the_number_of_lags_has_a_bound(
    driver: BrokerDriver, monkeypatch: pytest.MonkeyPatch, bounds: dict[str, int], shown: dict[tuple[str, str], int]
) -> None:
    for name, value in bounds.items():
        monkeypatch.setattr(topic_gauges, name, value)
    for _ in range(2):
        driver.ask(produce("t", batch()), 9)
    commit(driver, "a", {0: 1})
    commit(driver, "b", {0: 0})
    assert topic_gauges.group_lags(driver.core) == (shown, 1)


def test_the_bounds_are_as_documented() -> None:
    text = (ROOT / "docs" / "broker.md").read_text()
    for bound in (topic_gauges.MOST_TOPICS, topic_gauges.MOST_SERIES, topic_gauges.MOST_OFFSETS):
        assert f"{bound:,} " in text.partition("## Read the metrics")[2].partition("\n## ")[0]
