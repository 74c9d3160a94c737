"""Changes of small files: one after the other, written away from the loop that serves, and answered when on disk."""

from __future__ import annotations

import errno
import logging
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest

import fencepost
from fencepost.broker import server
from fencepost.broker.disk.changes import Change, Changes, carry_out
from fencepost.broker.disk.system_files import SystemFile, SystemFiles
from fencepost.broker.embedded import Broker
from fencepost.client.admin import Acl, AclOperation, ResourceType, ScramUpsertion
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages.api_versions import ApiVersionsRequest
from fencepost.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from fencepost.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from fencepost.protocol.messages.find_coordinator import FindCoordinatorRequest
from fencepost.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from fencepost.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from fencepost.protocol.scram import ScramMechanism
from tests.support.broker_driver import BrokerDriver
from tests.support.raw_client import RawClient

PATIENCE_S = 120


def creation(*names: str) -> CreateTopicsRequest:
    topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
    return CreateTopicsRequest(topics=topics, timeout_ms=1000)


def names(driver: BrokerDriver, connection: int = 1) -> list[str]:
    return [topic.name for topic in driver.ask(MetadataRequest(topics=None), 12, connection).topics]


@pytest.fixture
def driver() -> BrokerDriver:
    new_driver = BrokerDriver()
    new_driver.auto_write = False
    return new_driver


def test_a_topic_is_answered_and_there_when_it_is_written_down(driver: BrokerDriver) -> None:
    sent = driver.send(creation("t"), 7)
    assert driver.answer(sent) is None
    assert names(driver, connection=2) == []
    driver.write()
    assert driver.answer(sent).topics[0].error_code == 0
    assert names(driver, connection=2) == ["t"]


def test_changes_are_made_in_the_order_in_which_they_came(driver: BrokerDriver) -> None:
    """The second finds what the first has made; others are served meanwhile."""
    first = driver.send(creation("t"), 7)
    second = driver.send(creation("t", "u"), 7, connection=2)
    assert len(driver.writes) == 1
    driver.core.connected(driver.now_ms, 3, ("127.0.0.1", 9092), ("127.0.0.1", 3))
    assert driver.ask(ApiVersionsRequest(), 0, connection=3).error_code == 0
    driver.write()
    assert driver.answer(first).topics[0].error_code == 0
    assert driver.answer(second, 2) is None
    driver.write()
    assert [topic.error_code for topic in driver.answer(second, 2).topics] == [ErrorCode.TOPIC_ALREADY_EXISTS, 0]


def test_two_clients_that_ask_for_a_topic_get_the_same_one(driver: BrokerDriver) -> None:
    asked = MetadataRequest(topics=[MetadataRequestTopic(name="t")], allow_auto_topic_creation=True)
    calls = [driver.send(asked, 12, connection) for connection in (1, 2)]
    while driver.writes:
        driver.write()
    reported = [driver.answer(call, connection).topics[0] for call, connection in zip(calls, (1, 2), strict=True)]
    assert [topic.error_code for topic in reported] == [0, 0]
    assert reported[0].topic_id == reported[1].topic_id


def test_what_comes_behind_on_the_connection_waits(driver: BrokerDriver) -> None:
    created, asked = driver.send(creation("t"), 7), driver.send(MetadataRequest(topics=None), 12)
    assert driver.answer(asked) is None
    driver.write()
    assert [topic.name for topic in driver.answer(asked).topics] == ["t"]
    assert driver.order[-2:] == [created, asked]


def test_a_disk_that_fails_changes_nothing(driver: BrokerDriver) -> None:
    sent = driver.send(creation("t"), 7)
    driver.disk.fail_next_write(OSError(errno.EIO, "input/output error"))
    driver.write()
    assert driver.answer(sent).topics[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert names(driver) == []
    again = driver.send(creation("t"), 7)
    driver.write()
    assert driver.answer(again).topics[0].error_code == 0


def test_a_client_that_goes_away_leaves_its_change(driver: BrokerDriver) -> None:
    driver.send(creation("t"), 7)
    driver.core.disconnected(driver.now_ms, 1)
    driver.write()
    assert names(driver, connection=2) == ["t"]


@pytest.mark.parametrize("seed", range(10))
def test_a_power_loss_before_the_write_takes_an_unanswered_change(driver: BrokerDriver, seed: int) -> None:
    creation_token = driver.send(creation("kept"), 7)
    driver.write()
    assert driver.answer(creation_token).topics[0].error_code == 0
    driver.send(DeleteTopicsRequest(topics=[DeleteTopicState(name="kept")], timeout_ms=1000), 6)
    driver.crash(seed)
    driver.start()
    assert names(driver) == ["kept"]


def not_expected(change: object, error: Exception) -> None:
    raise error


def test_a_change_that_nobody_waits_for_comes_behind_all_others() -> None:
    done: list[str] = []

    def change(name: str) -> Change[str]:
        yield lambda: None
        return name

    def begin(changes: Changes, name: str, *, in_background: bool = False) -> None:
        changes.begin(change(name), lambda result: done.append(result()), in_background=in_background)

    changes = Changes(not_expected)
    begin(changes, "first snapshot", in_background=True)
    begin(changes, "second snapshot", in_background=True)
    begin(changes, "topic")
    begin(changes, "acl")
    while (write := changes.next_write()) is not None:
        write.step()
        changes.written(write.token, None)
    assert done == ["first snapshot", "topic", "acl", "second snapshot"]


def test_a_mistake_in_taking_note_of_a_change_costs_that_change_only() -> None:
    failed: list[str] = []
    done: list[str] = []

    def change(name: str) -> Change[str]:
        yield lambda: None
        return name

    def mistaken(result: Callable[[], Any]) -> None:
        raise ZeroDivisionError(result())

    changes = Changes(lambda _, error: failed.append(repr(error)))
    changes.begin(change("one"), mistaken)
    changes.begin(change("other"), lambda result: done.append(result()))
    while (write := changes.next_write()) is not None:
        changes.written(write.token, None)
    assert failed == ["ZeroDivisionError('one')"]
    assert done == ["other"]


def test_the_error_of_a_step_is_raised_in_its_change() -> None:
    def fail() -> None:
        raise OSError(errno.EIO, "of the step")

    def change() -> Change[str]:
        try:
            yield fail
        except OSError as error:
            yield lambda: None
            return f"after {error.strerror}"
        return "not reached"

    assert carry_out(change()) == "after of the step"
    outcomes: list[Callable[[], Any]] = []
    changes = Changes(not_expected)
    changes.begin(change(), outcomes.append)
    for error in (OSError(errno.EIO, "of the disk"), None):
        write = changes.next_write()
        assert write is not None
        assert changes.next_write() is None
        changes.written(write.token, error)
    assert [outcome() for outcome in outcomes] == ["after of the disk"]


class Gate:
    """Writes of small files wait at it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached = threading.Semaphore(0)
        self.is_open = threading.Event()
        inner = SystemFiles.write_atomic

        def write_atomic(files: SystemFiles, path: str, data: bytes) -> None:
            self.reached.release()
            assert self.is_open.wait(PATIENCE_S)
            inner(files, path, data)

        monkeypatch.setattr(SystemFiles, "write_atomic", write_atomic)


@pytest.fixture
def broker() -> Iterator[Broker]:
    rule = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    with Broker({"authorizer.class.name": rule, "super.users": "User:ANONYMOUS"}) as running:
        with RawClient(running.bootstrap_servers) as client:
            client.create_topic("t", 1)
        yield running


def _alter(client: RawClient) -> object:
    setting = AlterableConfig(name="retention.ms", config_operation=0, value="12345")
    resource = AlterConfigsResource(resource_type=2, resource_name="t", configs=[setting])
    return client.call(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses[0].error_code


def _acls(admin: fencepost.Admin) -> None:
    rule = Acl(ResourceType.TOPIC, "t", "User:alice", AclOperation.READ)
    admin.create_acls([rule])


def _users(admin: fencepost.Admin) -> None:
    admin.alter_user_scram_credentials([ScramUpsertion("alice", ScramMechanism.SCRAM_SHA_256, "secret")])


WRITERS: dict[str, Callable[[RawClient, fencepost.Admin], object]] = {
    "create": lambda client, _: client.create_topic("new", 1),
    "delete": lambda client, _: client.call(
        DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=1000), 6
    ),
    "grow": lambda _, admin: admin.create_partitions("t", 3),
    "ask": lambda client, _: client.call(MetadataRequest(topics=[MetadataRequestTopic(name="asked")]), 9),
    "coordinator": lambda client, _: client.call(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4),
    "settings": lambda client, _: _alter(client),
    "acls": lambda _, admin: _acls(admin),
    "users": lambda _, admin: _users(admin),
}


@pytest.mark.parametrize("what", WRITERS)
def test_others_are_served_while_a_change_waits_for_the_disk(
    what: str, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = broker.bootstrap_servers
    with ExitStack() as stack:
        client, other = (stack.enter_context(RawClient(address, timeout_s=PATIENCE_S)) for _ in range(2))
        admin, threads = stack.enter_context(fencepost.Admin(address)), stack.enter_context(ThreadPoolExecutor(1))
        admin.list_topics()
        gate = Gate(monkeypatch)
        try:
            asked = threads.submit(WRITERS[what], client, admin)
            assert gate.reached.acquire(timeout=PATIENCE_S)
            assert other.api_versions().error_code == 0
            assert other.produce("t", [b"served"], version=9).error_code == 0
            assert not asked.done()
        finally:
            gate.is_open.set()
        asked.result(PATIENCE_S)


def test_producer_ids_are_given_out_while_more_are_reserved(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in Apache Kafka: when none is left meanwhile, COORDINATOR_LOAD_IN_PROGRESS."""
    with RawClient(broker.bootstrap_servers, timeout_s=PATIENCE_S) as client:
        gate = Gate(monkeypatch)
        try:
            answers = [client.init_producer_id(None) for _ in range(1100)]
        finally:
            gate.is_open.set()
        codes = [answer.error_code for answer in answers]
        given = [answer.producer_id for answer in answers if answer.error_code == 0]
        assert len(set(given)) == len(given) > 900
        assert codes[-1] == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        after = client.settled(lambda: client.init_producer_id(None))
        assert after.error_code == 0
        assert after.producer_id not in given


def test_a_clean_stop_syncs_partitions_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    both = threading.Barrier(2, timeout=PATIENCE_S)
    met: set[str] = set()
    inner = SystemFile.sync
    running = Broker(fsync="commit")
    with running, RawClient(running.bootstrap_servers) as client:
        client.create_topic("t", 2)
        for partition in range(2):
            client.produce("t", [b"x"], partition=partition)

        def sync(file: SystemFile) -> None:
            directory = os.path.basename(os.path.dirname(file._path))
            if directory in ("t-0", "t-1") and directory not in met:
                met.add(directory)
                both.wait()
            inner(file)

        monkeypatch.setattr(SystemFile, "sync", sync)
        running.stop()
    assert met == {"t-0", "t-1"}


def test_a_slow_disk_is_named_in_the_log(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(server, "_SLOW_MS", 0)
    with RawClient(broker.bootstrap_servers) as client, caplog.at_level(logging.WARNING):
        for number in range(5):
            client.create_topic(f"slow-{number}", 1)
    reported = [record.getMessage() for record in caplog.records if "the disk is slow" in record.getMessage()]
    assert len(reported) == 1
    assert " ms, and requests waited for it" in reported[0]
