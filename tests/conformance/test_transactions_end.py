"""EndTxn in every version, by whoever has the pair. Expected answers: Apache Kafka 4.4 (K20 to K27).

Versions up to 4 keep the producer's epoch, so that a late one cannot be told from one that is meant; v5 raises it.
"""

from __future__ import annotations

import time

import pytest

from fencepost.protocol.codes import ErrorCode
from tests.support.brokers import BrokerUnderTest
from tests.support.raw_client import Producer, RawClient
from tests.support.txn_requests import add_partition, producers

STATE = {True: "CompleteCommit", False: "CompleteAbort"}


def opened(client: RawClient, topic: str, name: str, value: bytes = b"x") -> Producer:
    me = client.start_producer(name)
    assert client.produce(topic, [value], transactional_id=name, producer=me, sequence=0).error_code == 0
    return me


def code(client: RawClient, name: str, me: Producer, *, commit: bool, version: int) -> int:
    return client.end_transaction(name, me, commit=commit, version=version).error_code


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
@pytest.mark.parametrize("version", [0, 1, 2, 3, 4])
def test_an_old_end_keeps_the_epoch_and_is_repeatable(
    broker: BrokerUnderTest, client: RawClient, version: int, commit: bool
) -> None:
    topic, name = client.create_topic(broker.name("t")), broker.name("txn")
    me = opened(client, topic, name)
    for _ in range(3):
        assert code(client, name, me, commit=commit, version=version) == 0
    state = client.wait_for_state(name, STATE[commit])
    assert state.producer_epoch == me.epoch
    assert code(client, name, me, commit=not commit, version=version) == ErrorCode.INVALID_TXN_STATE
    assert code(client, name, me, commit=commit, version=7 - version if version in (3, 4) else version) == 0
    assert client.fetch(topic, committed=True).values == ([b"x"] if commit else [])
    (known,) = producers(client, topic)
    assert (known.producer_epoch, known.last_sequence, known.current_txn_start_offset) == (me.epoch, 0, -1)


def test_a_late_old_end_ends_the_next_transaction(broker: BrokerUnderTest, client: RawClient) -> None:
    """With v3 and the same epoch nobody can tell them apart; that is what v5 is for."""
    topic, name = client.create_topic(broker.name("t")), broker.name("txn")
    me = opened(client, topic, name, b"first")
    assert code(client, name, me, commit=True, version=3) == 0
    client.wait_for_state(name, "CompleteCommit")
    assert add_partition(client, name, me, topic) == 0
    # Under the same epoch sequences go on.
    assert client.produce(topic, [b"next"], transactional_id=name, producer=me, sequence=1, version=11).error_code == 0
    assert code(client, name, me, commit=True, version=3) == 0
    client.wait_for_state(name, "CompleteCommit")
    assert client.fetch(topic, committed=True).values == [b"first", b"next"]


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
def test_a_new_end_after_an_old_one(broker: BrokerUnderTest, client: RawClient, commit: bool) -> None:
    """v5 takes the present epoch for one with nothing open: a commit is 48, an abort raises the epoch."""
    topic, name = client.create_topic(broker.name("t")), broker.name("txn")
    me = opened(client, topic, name)
    assert code(client, name, me, commit=commit, version=4) == 0
    client.wait_for_state(name, STATE[commit])
    again = client.end_transaction(name, me, commit=commit, version=5)
    if commit:
        assert again.error_code == ErrorCode.INVALID_TXN_STATE
    else:
        assert (again.error_code, again.producer_epoch) == (0, me.epoch + 1)


@pytest.mark.parametrize("version", [2, 3, 4])
def test_an_old_end_after_a_new_one(broker: BrokerUnderTest, client: RawClient, version: int) -> None:
    topic, name = client.create_topic(broker.name("t")), broker.name("txn")
    me = opened(client, topic, name)
    assert code(client, name, me, commit=True, version=5) == 0
    client.wait_for_state(name, "CompleteCommit")
    for commit in (True, False):
        assert code(client, name, me, commit=commit, version=version) == ErrorCode.PRODUCER_FENCED
    # With the epoch that v5 handed out nothing was begun. Kafka takes it for a repeated commit, ours says so: 48.
    following = Producer(me.producer_id, me.epoch + 1)
    expected = ErrorCode.INVALID_TXN_STATE if broker.is_ours else ErrorCode.NONE
    assert code(client, name, following, commit=True, version=version) == expected


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4])
def test_what_an_old_end_refuses(broker: BrokerUnderTest, client: RawClient, version: int) -> None:
    name = broker.name("txn")
    me = client.start_producer(name)
    fenced = ErrorCode.PRODUCER_FENCED if version >= 2 else ErrorCode.INVALID_PRODUCER_EPOCH
    for commit in (True, False):
        assert code(client, name, me, commit=commit, version=version) == ErrorCode.INVALID_TXN_STATE
        higher = Producer(me.producer_id, me.epoch + 1)
        assert code(client, name, higher, commit=commit, version=version) == fenced
        foreign = Producer(me.producer_id + 100_000, 0)
        assert code(client, name, foreign, commit=commit, version=version) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        nobody = broker.name("nobody")
        assert code(client, nobody, me, commit=commit, version=version) == ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_an_abort_that_ended_nothing_may_be_repeated_and_repeated(broker: BrokerUnderTest, client: RawClient) -> None:
    """v5 with the present epoch and nothing open, after a commit: 0 and the next epoch, once."""
    topic, name = client.create_topic(broker.name("t")), broker.name("txn")
    me = opened(client, topic, name)
    assert code(client, name, me, commit=True, version=5) == 0
    client.wait_for_state(name, "CompleteCommit")
    following = Producer(me.producer_id, me.epoch + 1)
    for _ in range(2):
        aborted = client.end_transaction(name, following, commit=False)
        assert (aborted.error_code, aborted.producer_epoch) == (0, me.epoch + 2)
    assert client.fetch(topic, committed=True).values == [b"x"]


def test_am_i_still_the_owner(broker: BrokerUnderTest, client: RawClient) -> None:
    """EndTxn v5 (abort) as a question: 0 to the owner, repeatably; 90 once somebody else has initialised the id."""
    name = broker.name("txn")
    me = client.start_producer(name)
    for _ in range(2):
        mine = client.end_transaction(name, me, commit=False)
        assert (mine.error_code, mine.producer_epoch) == (0, me.epoch + 1)
    client.start_producer(name)
    for pair in (me, Producer(me.producer_id, me.epoch + 1)):
        assert code(client, name, pair, commit=False, version=5) == ErrorCode.PRODUCER_FENCED


def test_enlisted_without_a_record(broker: BrokerUnderTest, client: RawClient) -> None:
    """K52: v5 commit with partitions added and nothing written: 0, and the marker is written all the same."""
    topic, name = client.create_topic(broker.name("t")), broker.name("txn")
    me = client.start_producer(name)
    assert add_partition(client, name, me, topic) == 0
    assert code(client, name, me, commit=True, version=5) == 0
    client.wait_for_state(name, "CompleteCommit")
    assert client.end_offset(topic) == 1
    assert client.fetch(topic, committed=True).values == []


def test_a_repeated_batch_of_the_transaction_before(broker: BrokerUnderTest, client: RawClient) -> None:
    """Same epoch: the last batch once more is a duplicate. Kafka then refuses the one after it, ours does not."""
    topic, name = client.create_topic(broker.name("t")), broker.name("txn")
    me = opened(client, topic, name)
    assert code(client, name, me, commit=True, version=4) == 0
    client.wait_for_state(name, "CompleteCommit")
    again = client.produce(topic, [b"x"], transactional_id=name, producer=me, sequence=0)
    assert (again.error_code, again.base_offset) == (0, 0)
    assert client.describe_transaction(name).transaction_state == "Ongoing"
    following = client.produce(topic, [b"y"], transactional_id=name, producer=me, sequence=1)
    assert following.error_code == (0 if broker.is_ours else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)


def test_a_plain_batch_with_an_epoch_from_nowhere(broker: BrokerUnderTest, client: RawClient) -> None:
    """A partition takes any later epoch of a producer id from a plain batch, and then no marker with the epoch that the
    coordinator has: Kafka gives its transaction up where it is (K34)."""
    topic, name = client.create_topic(broker.name("t")), broker.name("txn")
    me = client.start_producer(name)
    later = Producer(me.producer_id, me.epoch + 1)
    assert client.produce(topic, [b"plain"], producer=later, sequence=0).error_code == 0
    assert add_partition(client, name, me, topic) == 0
    assert client.end_transaction(name, me, commit=False, version=4).error_code == 0
    if broker.is_ours:
        client.wait_for_state(name, "CompleteAbort")
        assert client.start_producer(name).epoch == me.epoch + 1
        return
    for _ in range(10):
        time.sleep(0.1)
        assert client.describe_transaction(name).transaction_state == "PrepareAbort"
        assert client.init_producer_id(name).error_code == ErrorCode.CONCURRENT_TRANSACTIONS
