"""The broker's core: order of answers, waiting, durability, hostile bytes."""

from __future__ import annotations

import struct

import pytest

from fencepost.broker.api.apis import SERVED, handler
from fencepost.protocol.codec import supported_versions
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages.api_versions import ApiVersionsRequest
from fencepost.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from fencepost.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from fencepost.protocol.receiver import refused_size
from tests.support.broker_driver import BrokerDriver, batch, fetch, produce


@pytest.fixture
def driver() -> BrokerDriver:
    driver = BrokerDriver()
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    assert driver.ask(CreateTopicsRequest(topics=[topic]), 7).topics[0].error_code == ErrorCode.NONE
    return driver


def test_every_api_served_can_be_read_and_written_in_every_version_and_says_so() -> None:
    assert len(SERVED) > 30
    for api in SERVED.values():
        low, high = supported_versions(api.key)
        assert low <= api.min_version <= api.max_version <= high, api
        module = __import__(handler(api.key).handle.__module__, fromlist=["handle"])
        versions = (
            f"v{api.min_version}-{api.max_version}" if api.min_version < api.max_version else f"v{api.min_version}"
        )
        first = " ".join((module.__doc__ or "").split())[:80]
        assert f", {versions}" in first, f"{api.name}: the docstring does not begin with the versions served: {first}"


def test_api_versions_lists_what_is_registered(driver: BrokerDriver) -> None:
    response = driver.ask(ApiVersionsRequest(client_software_name="x", client_software_version="1"), 4)
    listed = {entry.api_key: (entry.min_version, entry.max_version) for entry in response.api_keys}
    produce_too_old_to_be_served = {0: 0}  # see k18_api_versions
    listed_with_a_subscription = {71, 72}  # tests/unit/broker/api/test_telemetry.py
    assert listed == {
        api.key: (produce_too_old_to_be_served.get(api.key, api.min_version), api.max_version)
        for api in SERVED.values()
        if api.key not in listed_with_a_subscription
    }
    finalized = {feature.name: feature.max_version_level for feature in response.finalized_features}
    assert finalized["transaction.version"] == 2


def test_transaction_version_0_is_shown_by_leaving_the_feature_out() -> None:
    driver = BrokerDriver({"transaction.version": 0})
    response = driver.ask(ApiVersionsRequest(client_software_name="x", client_software_version="1"), 4)
    names = {feature.name for feature in response.finalized_features}
    assert {"metadata.version", "streams.version", "group.version"} <= names
    assert "transaction.version" not in names


def test_an_unknown_version_of_api_versions_is_answered_in_version_0(driver: BrokerDriver) -> None:
    frames: list[bytes] = []
    core = driver.core
    # Header v2 as a client sends it with ApiVersions v6: key, version, correlation id, client id, no tagged fields.
    core.handle_frame(driver.now_ms, 1, memoryview(struct.pack(">hhih", 18, 6, 77, -1) + b"\x00" + b"\x02a\x021\x00"))
    for effect in core.take_effects():
        frames.append(b"".join(effect.buffers))  # type: ignore[union-attr]
    # v0 body: error 35, one entry (18, 0, 5).
    assert frames == [struct.pack(">iihihhh", 4 + 2 + 4 + 6, 77, 35, 1, 18, 0, 5)]


def test_answers_leave_in_the_order_of_the_requests(driver: BrokerDriver) -> None:
    waiting = driver.send(fetch("t", max_wait_ms=500), 12)
    behind = driver.send(MetadataRequest(topics=[]), 12)
    assert driver.answer(waiting) is None
    assert driver.answer(behind) is None
    elsewhere = driver.send(MetadataRequest(topics=[]), 12, connection=2)
    assert driver.answer(elsewhere, 2) is not None
    driver.pass_time(499)
    assert driver.answer(behind) is None
    driver.pass_time(1)
    assert driver.order[-2:] == [waiting, behind]


def test_a_fetch_waits_for_records_and_is_answered_when_they_are_durable(driver: BrokerDriver) -> None:
    waiting = driver.send(fetch("t", max_wait_ms=500), 12)
    driver.auto_sync = False
    sent = driver.send(produce("t", batch(b"abc"), acks=-1), 9, connection=2)
    assert driver.answer(sent, 2) is None
    assert driver.answer(waiting) is None
    driver.sync()
    assert driver.answer(sent, 2).partitions[0].base_offset == 0
    partition = driver.answer(waiting).topics[0].partitions[0]
    assert partition.high_watermark == 1
    assert b"abc" in bytes(partition.records)


def test_min_bytes_are_waited_for(driver: BrokerDriver) -> None:
    size = len(batch())
    waiting = driver.send(fetch("t", max_wait_ms=500, min_bytes=2 * size), 12)
    driver.ask(produce("t", batch()), 9, connection=2)
    assert driver.answer(waiting) is None
    driver.ask(produce("t", batch()), 9, connection=2)
    assert len(driver.answer(waiting).topics[0].partitions[0].records) == 2 * size


def test_acks_decide_what_is_waited_for(driver: BrokerDriver) -> None:
    driver.auto_sync = False
    leader = driver.send(produce("t", batch(), acks=1), 9)
    assert driver.answer(leader) is None, "an acknowledged record must be there for a reader"
    silent = driver.send(produce("t", batch(), acks=0), 9)
    durable = driver.send(produce("t", batch(), acks=-1), 9)
    assert driver.answer(silent) is None
    assert driver.answer(durable) is None
    while driver.syncs:
        driver.sync()
    assert driver.answer(silent) is None
    assert driver.answer(leader).partitions[0].base_offset == 0
    assert driver.answer(durable).partitions[0].base_offset == 2


def test_appends_during_a_sync_share_the_next_one(driver: BrokerDriver) -> None:
    driver.auto_sync = False
    first = driver.send(produce("t", batch()), 9)
    later = [driver.send(produce("t", batch()), 9) for _ in range(5)]
    assert len(driver.syncs) == 1
    driver.sync()
    assert driver.answer(first) is not None
    assert [driver.answer(token) for token in later] == [None] * 5
    assert len(driver.syncs) == 1
    driver.sync()
    assert [driver.answer(token).partitions[0].base_offset for token in later] == [1, 2, 3, 4, 5]
    assert driver.syncs == []


def test_without_fsync_nothing_is_waited_for() -> None:
    driver = BrokerDriver({"fsync": "never"})
    driver.auto_sync = False
    driver.ask(MetadataRequest(topics=[MetadataRequestTopic(name="auto")]), 12)
    assert driver.ask(produce("auto", batch()), 9).partitions[0].base_offset == 0
    assert driver.syncs == []


def test_the_interval_syncs_without_anybody_waiting() -> None:
    driver = BrokerDriver({"fsync": "interval", "fsync.interval.ms": 200})
    driver.ask(MetadataRequest(topics=[MetadataRequestTopic(name="auto")]), 12)
    driver.auto_sync = False
    driver.ask(produce("auto", batch()), 9)
    assert driver.syncs == []
    driver.pass_time(250)
    assert len(driver.syncs) == 1


def test_a_lost_connection_takes_its_waiting_requests_along(driver: BrokerDriver) -> None:
    waiting = driver.send(fetch("t", max_wait_ms=500), 12)
    driver.core.disconnected(driver.now_ms, 1)
    driver.ask(produce("t", batch()), 9, connection=2)
    driver.pass_time(1000)
    assert driver.answer(waiting) is None
    partition = driver.core.topics.partition("t", 0)
    assert partition is not None
    assert not partition.waiting


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\x00\x03",
        struct.pack(">hhih", 3, 99, 1, -1),
        struct.pack(">hhih", 999, 0, 1, -1),
        struct.pack(">hhih", 3, 4, 1, -1),
    ],
    ids=["empty", "cut header", "unknown version", "unknown key", "no body"],
)
def test_bytes_that_are_no_request_close_the_connection(driver: BrokerDriver, frame: bytes) -> None:
    driver.core.handle_frame(driver.now_ms, 1, memoryview(frame))
    driver.send(MetadataRequest(topics=[]), 12, connection=2)
    assert driver.closed == {1}


def test_clients_that_come_again_are_not_told_of_each_time(
    driver: BrokerDriver, caplog: pytest.LogCaptureFixture
) -> None:
    def connect(connection: int, host: str, frame: bytes) -> None:
        driver.core.connected(driver.now_ms, connection, ("127.0.0.1", 9092), (host, 60_000 + connection))
        driver.core.handle_frame(driver.now_ms, connection, memoryview(frame))

    for number in range(10, 30):
        connect(number, "10.0.0.1", b"\x00\x03")
    connect(30, "10.0.0.1", struct.pack(">hhih", 999, 0, 1, -1))
    connect(31, "10.0.0.2", b"\x00\x03")
    driver.pass_time(10_000)
    connect(32, "10.0.0.1", b"\x00\x03")
    reported = [line for line in caplog.messages if "closing connection" in line]
    assert [line.split()[2] for line in reported] == ["10", "30", "31", "32"]
    assert reported[-1].endswith("; 20 times since the last such message")


def test_lines_about_malformed_requests_have_a_bound_whatever_is_in_them(
    driver: BrokerDriver, caplog: pytest.LogCaptureFixture
) -> None:
    """The text of the error has a size that the client chooses."""

    def refuse(connection: int) -> None:
        driver.core.connected(driver.now_ms, connection, ("127.0.0.1", 9092), ("10.0.0.1", 60_000))
        known = driver.core.connection(connection)
        assert known is not None
        driver.core.log_malformed(driver.now_ms, known, refused_size(-connection, 100, {}))

    for number in range(10, 510):
        refuse(number)
    assert len({line.partition(": ")[2] for line in caplog.messages}) == len(caplog.messages) == 20
    driver.pass_time(10_000)
    refuse(600)
    assert caplog.messages[-1].endswith("size -600; 480 messages about other malformed requests were suppressed")


def test_acks_0_tells_of_an_error_by_closing(driver: BrokerDriver) -> None:
    driver.send(produce("missing", batch(), acks=0), 9)
    assert driver.closed == {1}


def test_a_full_disk_is_an_error_of_the_partition_and_passes(driver: BrokerDriver) -> None:
    driver.ask(produce("t", batch()), 9)
    driver.disk.fail_next_write()
    assert driver.ask(produce("t", batch()), 9).partitions[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert driver.ask(produce("t", batch()), 9).partitions[0].base_offset == 1
