"""Transactions on the wire, transaction.version 2. Expected answers: Apache Kafka 4.4 as observed."""

from __future__ import annotations

import time

import pytest

from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from fencepost.protocol.messages.describe_producers import DescribeProducersRequest, ProducerState, TopicRequest
from fencepost.protocol.messages.list_transactions import ListTransactionsRequest
from tests.support.brokers import BrokerUnderTest
from tests.support.raw_client import Producer, RawClient


def add_partitions(client: RawClient, name: str, me: Producer, topics: list[str], version: int = 3) -> dict[str, int]:
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=me.producer_id,
        v3_and_below_producer_epoch=me.epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[0]) for topic in topics],
    )
    answer = client.call(request, version)
    return {
        topic.name: topic.results_by_partition[0].partition_error_code for topic in answer.results_by_topic_v3_and_below
    }


def producers(client: RawClient, topic: str) -> list[ProducerState]:
    request = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[0])])
    (partition,) = client.call(request, 0).topics[0].partitions
    assert partition.error_code == 0
    return list(partition.active_producers)


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
def test_both_isolation_levels(broker: BrokerUnderTest, client: RawClient, commit: bool) -> None:
    topic, name = client.create_topic(broker.name("t")), broker.name("txn")
    client.produce(topic, [b"before"])
    me = client.start_producer(name)
    assert client.produce(topic, [b"a", b"b"], transactional_id=name, producer=me, sequence=0).error_code == 0
    client.produce(topic, [b"after"])
    open_view = client.fetch(topic, committed=True)
    assert open_view.values == [b"before"]
    assert (open_view.result.last_stable_offset, open_view.result.high_watermark) == (1, 4)
    assert client.end_offset(topic, committed=True) == 1
    assert client.fetch(topic).values == [b"before", b"a", b"b", b"after"]
    ended = client.end_transaction(name, me, commit=commit)
    assert (ended.error_code, ended.producer_id, ended.producer_epoch) == (0, me.producer_id, me.epoch + 1)
    client.wait_for_state(name, "CompleteCommit" if commit else "CompleteAbort")
    closed_view = client.fetch(topic, committed=True)
    assert closed_view.values == [b"before", *([b"a", b"b"] if commit else []), b"after"]
    assert list(closed_view.result.aborted or []) == ([] if commit else [(me.producer_id, 1)])
    assert closed_view.result.last_stable_offset == closed_view.result.high_watermark == 5
    assert client.fetch(topic).values == [b"before", b"a", b"b", b"after"]


def test_a_commit_takes_all_partitions_or_none(broker: BrokerUnderTest, client: RawClient) -> None:
    topic, name = client.create_topic(broker.name("t"), partitions=4), broker.name("txn")
    me = client.start_producer(name)
    for partition in range(4):
        client.produce(topic, [b"x"], partition=partition, transactional_id=name, producer=me, sequence=0)
    assert [client.fetch(topic, partition=number, committed=True).values for number in range(4)] == [[]] * 4
    assert client.end_transaction(name, me, commit=True).error_code == 0
    client.wait_for_state(name, "CompleteCommit")
    assert [client.fetch(topic, partition=number, committed=True).values for number in range(4)] == [[b"x"]] * 4


def test_end_txn_v5_is_repeatable_and_exclusive(broker: BrokerUnderTest, client: RawClient) -> None:
    """K22, K24: the same request again has the same answer, the opposite one 48, the next epoch 48."""
    topic, name = client.create_topic(broker.name("t")), broker.name("txn")
    me = client.start_producer(name)
    client.produce(topic, [b"x"], transactional_id=name, producer=me, sequence=0)
    for _ in range(3):
        ended = client.end_transaction(name, me, commit=True)
        assert (ended.error_code, ended.producer_epoch) == (0, me.epoch + 1)
    assert client.end_transaction(name, me, commit=False).error_code == ErrorCode.INVALID_TXN_STATE
    mine = Producer(me.producer_id, me.epoch + 1)
    assert client.end_transaction(name, mine, commit=True).error_code == ErrorCode.INVALID_TXN_STATE
    foreign_pair = Producer(me.producer_id + 100_000, 0)
    assert client.end_transaction(name, foreign_pair, commit=True).error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    unknown = client.end_transaction(broker.name("nobody"), me, commit=True)
    assert unknown.error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_a_late_end_txn_never_touches_the_next_transaction(broker: BrokerUnderTest, client: RawClient) -> None:
    """Both fence an abort. Kafka fences a commit, too; ours remembers that it was committed, and says so."""
    topic, name = client.create_topic(broker.name("t")), broker.name("txn")
    me = client.start_producer(name)
    client.produce(topic, [b"first"], transactional_id=name, producer=me, sequence=0)
    client.end_transaction(name, me, commit=True)
    client.wait_for_state(name, "CompleteCommit")
    mine = Producer(me.producer_id, me.epoch + 1)
    assert client.produce(topic, [b"next"], transactional_id=name, producer=mine, sequence=0).error_code == 0
    committed = client.end_transaction(name, me, commit=True)
    if broker.is_ours:
        assert (committed.error_code, committed.producer_id, committed.producer_epoch) == (0, me.producer_id, me.epoch)
    else:
        assert committed.error_code == ErrorCode.PRODUCER_FENCED
    assert client.end_transaction(name, me, commit=False).error_code == ErrorCode.PRODUCER_FENCED
    assert client.describe_transaction(name).transaction_state == "Ongoing"
    assert client.fetch(topic, committed=True).values == [b"first"]


def test_an_empty_transaction(broker: BrokerUnderTest, client: RawClient) -> None:
    """K51: v5 commit on Empty is 48, v5 abort on Empty gives the next epoch and may be repeated."""
    name = broker.name("txn")
    me = client.start_producer(name)
    assert client.end_transaction(name, me, commit=True).error_code == ErrorCode.INVALID_TXN_STATE
    for _ in range(2):
        aborted = client.end_transaction(name, me, commit=False)
        assert (aborted.error_code, aborted.producer_epoch) == (0, me.epoch + 1)
    assert client.describe_transaction(name).transaction_state == "CompleteAbort"


def test_a_new_producer_fences_the_old_one(broker: BrokerUnderTest, client: RawClient) -> None:
    """The open transaction is aborted, the newcomer gets epoch + 2, the old one 47 and 90.

    Kafka sends the newcomer away with 51 until the markers are written; ours lets the request wait for them.
    """
    topic, name = client.create_topic(broker.name("t")), broker.name("txn")
    old = client.start_producer(name)
    client.produce(topic, [b"lost"], transactional_id=name, producer=old, sequence=0)
    given = client.init_producer_id(name)
    if not broker.is_ours:
        assert given.error_code == ErrorCode.CONCURRENT_TRANSACTIONS
        given = client.settled(lambda: client.init_producer_id(name))
    assert (given.error_code, given.producer_id, given.producer_epoch) == (0, old.producer_id, old.epoch + 2)
    late = client.produce(topic, [b"late"], transactional_id=name, producer=old, sequence=1)
    assert late.error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert client.end_transaction(name, old, commit=True).error_code == ErrorCode.PRODUCER_FENCED
    stale = client.init_producer_id(name, producer=old)
    assert stale.error_code == ErrorCode.PRODUCER_FENCED
    assert client.init_producer_id(name, producer=old, version=3).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert client.fetch(topic, committed=True).values == []


def test_init_again(broker: BrokerUnderTest, client: RawClient) -> None:
    """K15: each init takes the next epoch; a retry with the old pair does not take another."""
    name = broker.name("txn")
    first = client.start_producer(name)
    second = client.start_producer(name)
    assert second == Producer(first.producer_id, first.epoch + 1)
    with_pair = client.init_producer_id(name, producer=second)
    assert (with_pair.error_code, with_pair.producer_epoch) == (0, second.epoch + 1)
    retried = client.init_producer_id(name, producer=second)
    assert (retried.error_code, retried.producer_epoch) == (0, second.epoch + 1)
    for wrong in (first, Producer(second.producer_id, second.epoch + 7), Producer(second.producer_id + 100_000, 0)):
        assert client.init_producer_id(name, producer=wrong).error_code == ErrorCode.PRODUCER_FENCED


def test_what_init_refuses(broker: BrokerUnderTest, client: RawClient) -> None:
    assert client.init_producer_id("").error_code == ErrorCode.INVALID_REQUEST
    name = broker.name("txn")
    for timeout_ms in (0, 900_001):
        answer = client.init_producer_id(name, timeout_ms=timeout_ms)
        assert answer.error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT
    plain = client.init_producer_id(None, two_phase=True, keep_prepared=True, timeout_ms=0)
    assert (plain.error_code, plain.producer_epoch) == (0, 0)
    assert client.describe_transaction(name).error_code == 105


def test_partitions_are_enlisted_explicitly_before_v12(broker: BrokerUnderTest, client: RawClient) -> None:
    """K50: not added is 48 up to v10 and 120 with v11; AddPartitionsToTxn v3 adds."""
    topic, name = client.create_topic(broker.name("t")), broker.name("txn")
    me = client.start_producer(name)

    def produce(version: int) -> int:
        answer = client.produce(topic, [b"x"], transactional_id=name, producer=me, sequence=0, version=version)
        return answer.error_code

    assert produce(9) == ErrorCode.INVALID_TXN_STATE
    assert produce(10) == ErrorCode.INVALID_TXN_STATE
    assert produce(11) == ErrorCode.TRANSACTION_ABORTABLE
    assert client.describe_transaction(name).transaction_state == "Empty"
    nowhere = broker.name("nowhere")
    assert add_partitions(client, name, me, [topic, nowhere]) == {topic: 55, nowhere: 3}
    assert add_partitions(client, name, me, [topic]) == {topic: 0}
    assert client.describe_transaction(name).transaction_state == "Ongoing"
    assert produce(11) == 0
    assert client.end_transaction(name, me, commit=True, version=3).error_code == 0
    client.wait_for_state(name, "CompleteCommit")
    assert client.describe_transaction(name).producer_epoch == me.epoch
    assert client.fetch(topic, committed=True).values == [b"x"]


def test_what_produce_refuses_in_a_transaction(broker: BrokerUnderTest, client: RawClient) -> None:
    topic, name = client.create_topic(broker.name("t")), broker.name("txn")
    me = client.start_producer(name)

    def produce(who: Producer, sequence: int, transactional_id: str = name) -> int:
        answer = client.produce(topic, [b"x"], transactional_id=transactional_id, producer=who, sequence=sequence)
        return answer.error_code

    assert produce(me, 0, broker.name("other")) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert produce(Producer(me.producer_id, me.epoch + 1), 0) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert produce(me, 0) == 0
    assert produce(me, 3) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert produce(me, 0) == 0  # the duplicate
    assert client.end_offset(topic) == 1


def test_a_plain_batch_inside_an_open_transaction(broker: BrokerUnderTest, client: RawClient) -> None:
    """K77: a non-transactional batch from a producer id with an open transaction there is 48."""
    topic, name = client.create_topic(broker.name("t")), broker.name("txn")
    me = client.start_producer(name)
    client.produce(topic, [b"x"], transactional_id=name, producer=me, sequence=0)
    assert client.produce(topic, [b"y"], producer=me, sequence=1).error_code == ErrorCode.INVALID_TXN_STATE


def test_a_transaction_times_out(broker: BrokerUnderTest, client: RawClient) -> None:
    """K44: aborted with the next epoch, which InitProducerId(old pair) gives out, repeatably.

    Old epoch: EndTxn v5 commit 48 at Kafka and 120 at ours, abort 0 with the next epoch; Produce 47 at Kafka and, from
    a client that speaks v12, 120 at ours: abortable, because ours can tell a timeout from a fencing (KIP-588).
    """
    topic, name = client.create_topic(broker.name("t")), broker.name("txn")
    me = client.start_producer(name, timeout_ms=300)
    client.produce(topic, [b"x"], transactional_id=name, producer=me, sequence=0)
    timed_out = client.wait_for_state(name, "CompleteAbort")
    assert timed_out.producer_epoch == me.epoch + 1
    late = client.produce(topic, [b"y"], transactional_id=name, producer=me, sequence=1)
    assert late.error_code == (ErrorCode.TRANSACTION_ABORTABLE if broker.is_ours else ErrorCode.INVALID_PRODUCER_EPOCH)
    assert (late.base_offset, late.log_start_offset) == (-1, -1)
    commit = client.end_transaction(name, me, commit=True)
    assert commit.error_code == (ErrorCode.TRANSACTION_ABORTABLE if broker.is_ours else ErrorCode.INVALID_TXN_STATE)
    abort = client.end_transaction(name, me, commit=False)
    assert (abort.error_code, abort.producer_epoch) == (0, me.epoch + 1)
    for _ in range(2):
        again = client.init_producer_id(name, producer=me)
        assert (again.error_code, again.producer_epoch) == (0, me.epoch + 1)
    assert client.fetch(topic, committed=True).values == []


def test_no_late_batch_joins_a_finished_transaction(broker: BrokerUnderTest, client: RawClient) -> None:
    """K32: Kafka 4.4 lets a batch of the old epoch in until the marker is there; ours never does.

    So after EndTxn is answered, what a reader sees of the transaction may grow with Kafka (36 of 36 such batches were
    seen joining), and does not with ours.
    """
    topic, name = client.create_topic(broker.name("t"), partitions=12), broker.name("txn")
    me = client.start_producer(name)
    for partition in range(12):
        client.produce(topic, [b"x"], partition=partition, transactional_id=name, producer=me, sequence=0)
    with broker.connect() as other:
        assert other.end_transaction(name, me, commit=True).error_code == 0
        late = [
            client.produce(topic, [b"late"], partition=number, transactional_id=name, producer=me, sequence=1)
            for number in range(12)
        ]
    client.wait_for_state(name, "CompleteCommit")
    codes = [answer.error_code for answer in late]
    refused = ErrorCode.INVALID_PRODUCER_EPOCH
    assert set(codes) <= ({refused} if broker.is_ours else {refused, ErrorCode.NONE})
    read = [client.fetch(topic, partition=number, committed=True).values for number in range(12)]
    assert read == [[b"x"] if code else [b"x", b"late"] for code in codes]


def test_what_the_admin_sees(broker: BrokerUnderTest, client: RawClient) -> None:
    """K80 to K83."""
    topic, name = client.create_topic(broker.name("t")), broker.name("txn")
    before = int(time.time() * 1000)
    me = client.start_producer(name, timeout_ms=54_321)
    client.produce(topic, [b"x"], transactional_id=name, producer=me, sequence=0)
    state = client.describe_transaction(name)
    assert (state.transaction_state, state.transaction_timeout_ms) == ("Ongoing", 54_321)
    assert (state.producer_id, state.producer_epoch) == (me.producer_id, me.epoch)
    assert before - 1000 <= state.transaction_start_time_ms <= int(time.time() * 1000) + 1000
    assert [(entry.topic, list(entry.partitions)) for entry in state.topics] == [(topic, [0])]
    (open_state,) = producers(client, topic)
    assert (open_state.producer_id, open_state.producer_epoch, open_state.last_sequence) == (
        me.producer_id,
        me.epoch,
        0,
    )
    assert (open_state.current_txn_start_offset, open_state.coordinator_epoch) == (0, -1)

    def listed(**filters: object) -> list[str]:
        answer = client.call(ListTransactionsRequest(**filters), 2)  # type: ignore[arg-type]
        assert answer.error_code == 0
        return [listing.transactional_id for listing in answer.transaction_states if listing.transactional_id == name]

    assert listed() == [name]
    assert listed(state_filters=["Ongoing"]) == [name]
    assert listed(state_filters=["CompleteAbort"]) == []
    assert listed(producer_id_filters=[me.producer_id]) == [name]
    assert listed(producer_id_filters=[me.producer_id + 100_000]) == []
    assert listed(transactional_id_pattern=name) == [name]
    assert listed(transactional_id_pattern="txn") == []  # the whole id has to match
    assert listed(duration_filter=3_600_000) == []
    bad = client.call(ListTransactionsRequest(transactional_id_pattern="["), 2)
    assert bad.error_code == 128
    unknown = client.call(ListTransactionsRequest(state_filters=["ongoing"]), 2)
    assert (unknown.error_code, list(unknown.unknown_state_filters)) == (0, ["ongoing"])
    assert list(unknown.transaction_states) == []
    client.end_transaction(name, me, commit=True)
    assert list(client.wait_for_state(name, "CompleteCommit").topics) == []
    (closed_state,) = producers(client, topic)
    assert (closed_state.producer_epoch, closed_state.last_sequence) == (me.epoch + 1, -1)
    assert closed_state.current_txn_start_offset == -1
