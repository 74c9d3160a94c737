"""A broker in this process whose time is moved and whose faults are asked for, seen through real clients."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import fencepost
from fencepost import errors
from fencepost.errors import ConfigurationError
from fencepost.protocol.codes import ErrorCode
from fencepost.testing import read_all

DAY_S = 24 * 3600
HEARTBEATS: dict[str, Any] = {"session_timeout_ms": 6000, "heartbeat_interval_ms": 1000}


@pytest.fixture
def broker() -> Iterator[fencepost.Broker]:
    with fencepost.Broker() as running:
        with fencepost.Admin(running.bootstrap_servers) as admin:
            admin.create_topic("t", 1)
        yield running


@pytest.fixture
def admin(broker: fencepost.Broker) -> Iterator[fencepost.Admin]:
    with fencepost.Admin(broker.bootstrap_servers) as client:
        yield client


def test_a_transaction_times_out_when_its_time_has_passed(broker: fencepost.Broker, admin: fencepost.Admin) -> None:
    with fencepost.Producer(broker.bootstrap_servers, transactional_id="x", transaction_timeout_ms=600_000) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", b"lost").result()
        broker.clock.advance(590)
        assert admin.describe_transactions(["x"])[0].state == "Ongoing"
        broker.clock.advance(11)
        assert admin.describe_transactions(["x"])[0].state == "CompleteAbort"
        with pytest.raises(errors.TransactionCommitFailedError):
            producer.commit_transaction()
        producer.abort_transaction()
        with producer.transaction():
            producer.send("t", b"kept")
    assert [record.value for record in read_all(broker, "t")] == [b"kept"]
    assert [record.value for record in read_all(broker, "t", committed=False)] == [b"lost", b"kept"]


def test_a_transactional_id_and_a_group_s_offsets_expire(broker: fencepost.Broker, admin: fencepost.Admin) -> None:
    with fencepost.Producer(broker.bootstrap_servers, transactional_id="x") as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.send("t", b"v")
    with fencepost.Consumer(broker.bootstrap_servers, group_id="g", auto_offset_reset="earliest") as consumer:
        consumer.assign([("t", 0)])
        assert consumer.poll(30_000)
        consumer.commit()
    partition = fencepost.TopicPartition("t", 0)
    assert admin.group_offsets("g", [partition])[partition] is not None
    broker.clock.advance(8 * DAY_S)
    assert admin.describe_transactions(["x"])[0].error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert not admin.group_offsets("g", [partition]).get(partition)


def test_a_member_that_is_silent_loses_its_group(broker: fencepost.Broker, admin: fencepost.Admin) -> None:
    with fencepost.Consumer(broker.bootstrap_servers, group_id="g", **HEARTBEATS) as consumer:
        consumer.subscribe(["t"])
        deadline = time.monotonic() + 120
        while not consumer.assignment() and time.monotonic() < deadline:
            consumer.poll(50)
        assert len(admin.describe_group("g").members) == 1
        broker.clock.advance(7)
        # It comes back by itself, so the group may have it again by now, but under another name.
        deadline = time.monotonic() + 120
        while not consumer.assignment() and time.monotonic() < deadline:
            consumer.poll(50)
        assert consumer.assignment()


def test_old_records_are_gone_and_segments_are_rolled(broker: fencepost.Broker, admin: fencepost.Admin) -> None:
    admin.create_topic("short", 1, configs={"retention.ms": "60000", "segment.ms": "10000"})
    with fencepost.Producer(broker.bootstrap_servers) as producer:
        producer.send("short", b"old").result()
        broker.clock.advance(30)
        producer.send("short", b"new", timestamp_ms=broker.clock.now_ms).result()
        broker.clock.advance(40)
        assert [record.value for record in read_all(broker, "short")] == [b"new"]


def test_records_carry_the_broker_s_time_where_it_is_asked_for(
    broker: fencepost.Broker, admin: fencepost.Admin
) -> None:
    admin.create_topic("stamped", 1, configs={"message.timestamp.type": "LogAppendTime"})
    broker.clock.freeze()
    now_ms = broker.clock.now_ms
    with fencepost.Producer(broker.bootstrap_servers) as producer:
        producer.send("stamped", b"1").result()
        broker.clock.advance(3600)
        producer.send("stamped", b"2").result()
    assert [record.timestamp_ms - now_ms for record in read_all(broker, "stamped")] == [0, 3_600_000]
    assert broker.clock.frozen
    broker.clock.thaw()
    assert broker.clock.now_ms >= now_ms + 3_600_000


def test_a_fetch_waits_in_real_time_while_the_clock_stands_still(broker: fencepost.Broker) -> None:
    broker.clock.freeze()
    with fencepost.Consumer(broker.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([("t", 0)])
        assert consumer.poll(1500) == []  # two fetches of half a second each have come back empty meanwhile
        with fencepost.Producer(broker.bootstrap_servers) as producer:
            producer.send("t", b"v").result()
        assert [record.value for record in consumer.poll(30_000)] == [b"v"]


def test_time_keeps_its_distance_over_a_restart_and_passes_while_nothing_runs() -> None:
    broker = fencepost.Broker()
    broker.clock.advance(DAY_S)
    with broker:
        before = broker.clock.now_ms
        assert before > time.time() * 1000 + 0.9 * DAY_S * 1000
        assert broker.restart(clean=False) is None
        assert broker.clock.now_ms >= before
    with pytest.raises(ValueError, match="seconds is -1; it must be finite and at least 0"):
        broker.clock.advance(-1)


def test_time_ends_where_records_have_no_timestamp_any_more(broker: fencepost.Broker) -> None:
    for seconds in (1e18, 8_000 * 365.25 * DAY_S):
        with pytest.raises(ConfigurationError, match="the broker's time ends with the year 9999"):
            broker.clock.advance(seconds)
    broker.clock.advance(7_900 * 365.25 * DAY_S)
    with fencepost.Admin(broker.bootstrap_servers) as admin:
        admin.create_topic("late", configs={"message.timestamp.type": "LogAppendTime"})
    with fencepost.Producer(broker.bootstrap_servers) as producer:
        assert producer.send("late", b"v").result(30).timestamp_ms >= 7_900 * 365 * DAY_S * 1000


def test_several_threads_move_the_clock_and_ask_for_faults(broker: fencepost.Broker) -> None:
    before_ms, errors = broker.clock.now_ms, []

    def work(number: int) -> None:
        try:
            for _ in range(20):
                broker.clock.advance(10)
                with broker.faults.fail("Produce", ErrorCode.NOT_LEADER_OR_FOLLOWER, client_id=f"nobody-{number}"):
                    broker.clock.freeze()
                broker.clock.thaw()
        except BaseException as error:  # noqa: BLE001 - it is looked at below
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    with fencepost.Producer(broker.bootstrap_servers) as producer:
        for thread in threads:
            thread.start()
        sent = [producer.send("t", b"%d" % number) for number in range(50)]
        for thread in threads:
            thread.join()
        assert len({each.result().offset for each in sent}) == 50
    assert errors == []
    assert broker.clock.now_ms >= before_ms + 4 * 20 * 10_000
    assert not broker.clock.frozen


def test_a_lost_reply_to_end_txn_is_survived(broker: fencepost.Broker) -> None:
    with fencepost.Producer(broker.bootstrap_servers, transactional_id="x") as producer:
        producer.init_transactions()
        with broker.faults.drop_reply("EndTxn") as lost, producer.transaction():
            producer.send("t", b"once")
        assert lost.hits == 1
    assert [record.value for record in read_all(broker, "t")] == [b"once"]


def test_a_fault_of_one_topic_and_client_is_not_another_s(broker: fencepost.Broker) -> None:
    code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    struck = broker.faults.fail("Produce", code, times=2, topic="t", client_id="me")
    with (
        fencepost.Producer(broker.bootstrap_servers, client_id="you") as you,
        fencepost.Producer(broker.bootstrap_servers, client_id="me") as me,
    ):
        you.send("t", b"1").result()
        me.send("u", b"2").result()
        assert struck.hits == 0
        assert me.send("t", b"3").result().offset == 1
        struck.wait(2)


PASSING = {
    "Metadata": ErrorCode.LEADER_NOT_AVAILABLE,
    "FindCoordinator": ErrorCode.COORDINATOR_NOT_AVAILABLE,
    "InitProducerId": ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    "Produce": ErrorCode.NOT_LEADER_OR_FOLLOWER,
    "EndTxn": ErrorCode.CONCURRENT_TRANSACTIONS,
    "TxnOffsetCommit": ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    "JoinGroup": ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    "SyncGroup": ErrorCode.REBALANCE_IN_PROGRESS,
    "OffsetFetch": ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    "ListOffsets": ErrorCode.NOT_LEADER_OR_FOLLOWER,
    "Fetch": ErrorCode.NOT_LEADER_OR_FOLLOWER,
    "ApiVersions": None,
}


@pytest.mark.parametrize("kind", ["refused", "reset before", "reset after"])
@pytest.mark.parametrize("api", PASSING)
def test_a_copying_transaction_gets_over_one_failure_of_any_request(
    broker: fencepost.Broker, admin: fencepost.Admin, api: str, kind: str
) -> None:
    """Each kind of request fails twice somewhere in the life of a consumer and a transactional producer."""
    admin.create_topic("out", 1)
    with fencepost.Producer(broker.bootstrap_servers) as source:
        source.send("t", b"v").result()
    code = PASSING[api]
    if kind == "refused" and code is not None:
        fault = broker.faults.fail(api, code, times=2)
    elif kind == "reset after":
        fault = broker.faults.drop_reply(api, times=2)
    else:
        fault = broker.faults.drop_request(api, times=2)
    with (
        fencepost.Producer(broker.bootstrap_servers, transactional_id="copy") as producer,
        fencepost.Consumer(broker.bootstrap_servers, group_id="g", auto_offset_reset="earliest") as consumer,
    ):
        producer.init_transactions()
        consumer.subscribe(["t"])
        done = False
        deadline = time.monotonic() + 120
        while not done and time.monotonic() < deadline:
            records = consumer.poll(1000)
            if records:
                try:
                    with producer.transaction(consumer):
                        for record in records:
                            producer.send("out", record.value)
                    done = True
                except errors.AbortableError:
                    continue
    assert done
    assert [record.value for record in read_all(broker, "out")] == [b"v"]
    assert fault.hits > 0


def test_everybody_is_disconnected_and_comes_back(broker: fencepost.Broker) -> None:
    with fencepost.Producer(broker.bootstrap_servers, client_id="me") as producer:
        producer.send("t", b"1").result()
        assert broker.faults.disconnect("me") >= 1
        assert broker.faults.disconnect("nobody") == 0
        assert producer.send("t", b"2").result().offset == 1


def test_a_full_disk_is_told_to_the_producer_and_nothing_acknowledged_is_lost(broker: fencepost.Broker) -> None:
    with fencepost.Producer(broker.bootstrap_servers) as producer:
        producer.send("t", b"1").result()
        full = broker.faults.disk.fail_write(errno.ENOSPC, path="t-0/")
        producer.send("t", b"2").result()  # the producer tries again until there is room
        assert full.hits == 1
    broker.restart(clean=False)
    assert [record.value for record in read_all(broker, "t")] == [b"1", b"2"]


def test_a_failed_sync_takes_its_partition_out_of_service_until_the_next_start() -> None:
    with fencepost.Broker(fsync="commit") as broker:
        with fencepost.Admin(broker.bootstrap_servers) as admin:
            for topic in ("t", "u"):
                admin.create_topic(topic, 1)
        with fencepost.Producer(broker.bootstrap_servers) as producer:
            failed = broker.faults.disk.fail_sync(errno.EIO, path="t-0/")
            lost = producer.send("t", b"1")
            failed.wait()
            producer.send("u", b"2").result()
            assert broker.restart(clean=False) is None
            lost.result()
        # Unsynced, the first try may have reached the disk all the same; it was not acknowledged before it was safe.
        assert {record.value for record in read_all(broker, "t")} == {b"1"}
        assert [record.value for record in read_all(broker, "u")] == [b"2"]


def test_a_broker_whose_own_topic_cannot_be_synced_ends_and_says_why() -> None:
    with fencepost.Broker(fsync="commit") as broker:
        with fencepost.Producer(broker.bootstrap_servers, transactional_id="x") as producer:
            broker.faults.disk.fail_sync(errno.EIO, path="__transaction_state")
            waiter = threading.Thread(target=producer.init_transactions)
            waiter.start()
            error = broker.wait_for_failure()
            assert isinstance(error, OSError)
            assert broker.restart() is error
            waiter.join()
            with producer.transaction():
                producer.send("t", b"1")
        assert [record.value for record in read_all(broker, "t")] == [b"1"]


def test_a_kill_in_the_middle_of_a_transaction(broker: fencepost.Broker) -> None:
    with fencepost.Producer(broker.bootstrap_servers, transactional_id="x") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", b"1").result()
        broker.restart(clean=False)
        producer.send("t", b"2").result()
        producer.commit_transaction()
    assert [record.value for record in read_all(broker, "t")] == [b"1", b"2"]
