"""Transactions as an operator sees them: metrics, and one line of the log for each timeout and each fencing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fencepost import Broker
from fencepost.protocol.codes import ErrorCode
from tests.support.raw_client import Producer, RawClient

NAME = "shop\nCRITICAL all is lost"


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture
def client(broker: Broker) -> Iterator[RawClient]:
    with RawClient(broker.bootstrap_servers) as connection:
        connection.create_topic("t", partitions=2)
        yield connection


def begin(client: RawClient, name: str = NAME, *, two_phase: bool = False) -> Producer:
    me = client.start_producer(name, two_phase=two_phase)
    assert client.produce("t", [b"a"], transactional_id=name, producer=me, sequence=0).error_code == 0
    return me


def lines(caplog: pytest.LogCaptureFixture, part: str) -> list[str]:
    found = [record.getMessage() for record in caplog.records if part in record.getMessage()]
    assert not any("\n" in message for message in found), "a name breaks the line"
    return found


def test_open_transactions_are_seen_with_their_age_and_what_they_hide(broker: Broker, client: RawClient) -> None:
    assert broker.metrics().gauges["transactions_open"] == 0
    begin(client)
    begin(client, "decided elsewhere", two_phase=True)
    broker.clock.advance(20)
    seen = broker.metrics()
    wanted = {"transactions_open": 2, "transactions_two_phase": 1, "transactions_ending": 0, "transactional_ids": 2}
    assert {name: seen.gauges[name] for name in wanted} == wanted
    assert seen.gauges["markers_pending"] == 0
    assert 20 <= seen.gauges["oldest_transaction_seconds"] < 60
    assert 20 <= seen.gauges["oldest_two_phase_seconds"] < 60
    assert seen.stable_lag == {("t", 0): 2}
    assert seen.gauges["connections"] == 1
    assert seen.requests["init_producer_id"] >= 2
    assert seen.requests["create_topics"] == 1


def test_a_kept_transaction_is_counted_until_it_ends(broker: Broker, client: RawClient) -> None:
    begin(client, two_phase=True)
    assert broker.metrics().gauges["transactions_kept"] == 0
    reply = client.init_producer_id(NAME, two_phase=True, keep_prepared=True)
    assert reply.error_code == 0
    assert broker.metrics().gauges["transactions_kept"] == 1
    pair = Producer(reply.producer_id, reply.producer_epoch)
    assert client.end_transaction(NAME, pair, commit=True).error_code == 0
    assert broker.metrics().gauges["transactions_kept"] == 0


def test_a_timeout_is_one_line_and_one_count(
    broker: Broker, client: RawClient, caplog: pytest.LogCaptureFixture
) -> None:
    me = begin(client)
    assert client.produce("t", [b"a"], partition=1, transactional_id=NAME, producer=me, sequence=0).error_code == 0
    with caplog.at_level("INFO", "fencepost.broker"):
        broker.clock.advance(61)
        client.wait_for_state(NAME, "CompleteAbort")
    (line,) = lines(caplog, "timed out")
    for part in (
        repr(NAME),
        f"producer id {me.producer_id} epoch {me.epoch}",
        "t-0, t-1",
        "timed out (1 min)",
        "open for 1 min",
    ):
        assert part in line
    counters = broker.metrics().counters
    counted = ("transactions_timed_out", "fenced_transactions", "timeouts_reclaimed")
    assert [counters[name] for name in counted] == [1, 0, 0]
    # The producer comes back with the pair it had.
    with caplog.at_level("INFO", "fencepost.broker"):
        answer = client.init_producer_id(NAME, version=5, producer=me)
    assert answer.error_code == 0
    assert len(lines(caplog, "continues after its timeout")) == 1
    counters = broker.metrics().counters
    counted = ("timeouts_reclaimed", "fenced_transactions", "fenced_requests")
    assert [counters[name] for name in counted] == [1, 0, 0]


def test_a_fencing_is_one_line_and_one_count_and_so_is_the_zombie(
    broker: Broker, client: RawClient, caplog: pytest.LogCaptureFixture
) -> None:
    zombie = begin(client)
    with caplog.at_level("INFO", "fencepost.broker"):
        client.start_producer(NAME)
    (line,) = lines(caplog, "another producer takes over")
    for part in (repr(NAME), f"producer id {zombie.producer_id} epoch {zombie.epoch}", "partitions t-0"):
        assert part in line
    counters = broker.metrics().counters
    assert (counters["fenced_transactions"], counters["fenced_requests"]) == (1, 0)
    assert counters["transactions_timed_out"] == 0
    with caplog.at_level("INFO", "fencepost.broker"):
        assert client.produce("t", [b"b"], transactional_id=NAME, producer=zombie, sequence=1).error_code == 47
        assert client.end_transaction(NAME, zombie, commit=True).error_code in (47, 90)
    assert len(lines(caplog, "is refused: its producer is fenced")) == 2
    assert broker.metrics().counters["fenced_requests"] == 2


def test_a_commit_of_nothing_is_told_with_what_there_is(
    broker: Broker, client: RawClient, caplog: pytest.LogCaptureFixture
) -> None:
    me = begin(client)
    ended = client.end_transaction(NAME, me, commit=False)
    following = Producer(ended.producer_id, ended.producer_epoch)
    assert client.end_transaction(NAME, following, commit=True).error_code == ErrorCode.INVALID_TXN_STATE
    (line,) = lines(caplog, "it has no open transaction")
    assert f"producer id {following.producer_id} epoch {following.epoch} is refused" in line
    assert f"The id is CompleteAbort with producer id {following.producer_id} epoch {following.epoch}" in line
    assert f"before that {(me.producer_id, me.epoch)}, which ended by END_TXN" in line


def test_an_ordinary_end_is_neither(broker: Broker, client: RawClient) -> None:
    me = begin(client)
    assert client.end_transaction(NAME, me, commit=False, version=3).error_code == 0
    broker.settle()
    me = begin(client)
    ended = client.end_transaction(NAME, me, commit=True, version=5)
    assert ended.error_code == 0
    broker.settle()
    me = Producer(ended.producer_id, ended.producer_epoch)
    for _ in range(2):  # KIP-360: whoever names its pair is no other
        given = client.init_producer_id(NAME, version=5, producer=me)
        assert given.error_code == 0
        me = Producer(given.producer_id, given.producer_epoch)
    counters = broker.metrics().counters
    names = ("transactions_timed_out", "fenced_transactions", "fenced_requests", "timeouts_reclaimed")
    assert {name: counters[name] for name in names} == dict.fromkeys(names, 0)


def test_an_unknown_producer_behind_deleted_records_is_counted_apart(broker: Broker, client: RawClient) -> None:
    from fencepost.protocol.messages.delete_records import (
        DeleteRecordsPartition,
        DeleteRecordsRequest,
        DeleteRecordsTopic,
    )

    unknown_producer = Producer(12345, 0)
    assert client.produce("t", [b"a"], producer=unknown_producer, sequence=7).error_code == 59
    counters = broker.metrics().counters
    assert (counters["unknown_producers"], counters["unknown_producers_after_deletion"]) == (1, 0)
    assert client.produce("t", [b"a"]).error_code == 0
    partition = DeleteRecordsPartition(partition_index=0, offset=1)
    client.call(DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=[partition])], timeout_ms=1000), 2)
    assert client.produce("t", [b"a"], producer=unknown_producer, sequence=7).error_code == 59
    counters = broker.metrics().counters
    assert (counters["unknown_producers"], counters["unknown_producers_after_deletion"]) == (2, 1)


def test_numbers_are_there_while_the_broker_runs_only() -> None:
    broker = Broker()
    with pytest.raises(RuntimeError):
        broker.metrics()
