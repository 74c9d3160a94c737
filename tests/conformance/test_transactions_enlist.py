"""Requests that enlist a partition in a transaction, or do not. Expected: Apache Kafka 4.4 (K50 to K57, K70)."""

from __future__ import annotations

import pytest

from fencepost.protocol import produce_wire
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.records.encoding import encode_batch
from tests.support.brokers import BrokerUnderTest
from tests.support.raw_client import Producer, RawClient
from tests.support.txn_requests import add_offsets, add_partition, add_partitions, batched, commit_offsets, producers

NOT_ADDED = {ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTION_ABORTABLE}


def is_told(broker: BrokerUnderTest, code: int, expected: int) -> bool:
    """Return true for the expected code, and on Apache Kafka for either code of what was not added.

    Tests of other processes use the same node of Kafka. It asks the coordinator about the transactions of several
    requests together, and chooses between the two codes for all of them by the version of the first request
    (AddPartitionsToTxnManager).
    """
    return code == expected or (not broker.is_ours and {code, expected} == NOT_ADDED)


def begun(broker: BrokerUnderTest, client: RawClient) -> tuple[str, str, Producer]:
    name = broker.name("txn")
    return client.create_topic(broker.name("t"), partitions=2), name, client.start_producer(name)


@pytest.mark.parametrize(
    ("version", "expected"),
    [(3, 48), (4, 48), (5, 48), (6, 48), (7, 48), (8, 48), (9, 48), (10, 48), (11, 120), (12, 0), (13, 0)],
)
def test_a_batch_whose_partition_was_not_added(
    broker: BrokerUnderTest, client: RawClient, version: int, expected: int
) -> None:
    """48 before v11, TRANSACTION_ABORTABLE with v11, added by v12 and later."""
    topic, name, me = begun(broker, client)
    if version < 13:
        answer = client.produce(topic, [b"x"], transactional_id=name, producer=me, sequence=0, version=version)
    else:
        answer = by_id(client, topic, name, me)
    assert is_told(broker, answer.error_code, expected)
    state = client.describe_transaction(name).transaction_state
    assert state == ("Empty" if expected else "Ongoing")
    assert client.end_offset(topic) == (0 if expected else 1)


def by_id(client: RawClient, topic: str, name: str, me: Producer) -> produce_wire.ProducePartitionResult:
    from fencepost.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

    (found,) = client.call(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), 12).topics
    batch = encode_batch(
        keys=[None],
        values=[b"x"],
        timestamps=1,
        producer_id=me.producer_id,
        producer_epoch=me.epoch,
        base_sequence=0,
        transactional=True,
    )
    wanted = produce_wire.ProducePartition(None, found.topic_id, 0, batch)
    request = produce_wire.ProduceRequest(name, -1, 30_000, [wanted])
    body = b"".join(produce_wire.encode_request(request, 13))
    return produce_wire.decode_response(client.exchange(0, 13, body), 13).partitions[0]


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_adding_partitions(broker: BrokerUnderTest, client: RawClient, version: int) -> None:
    topic, name, me = begun(broker, client)
    nowhere = broker.name("nowhere")
    mixed = add_partitions(client, name, me, [(topic, 0), (nowhere, 0)], version)
    assert mixed == {(topic, 0): ErrorCode.OPERATION_NOT_ATTEMPTED, (nowhere, 0): 3}
    assert client.describe_transaction(name).transaction_state == "Empty"
    assert add_partitions(client, name, me, [(topic, 0), (topic, 1)], version) == {(topic, 0): 0, (topic, 1): 0}
    assert add_partitions(client, name, me, [(topic, 1)], version) == {(topic, 1): 0}
    assert [(entry.topic, sorted(entry.partitions)) for entry in client.describe_transaction(name).topics] == [
        (topic, [0, 1])
    ]
    foreign = Producer(me.producer_id + 100_000, 0)
    assert add_partition(client, name, foreign, topic, version) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert add_partition(client, broker.name("nobody"), me, topic, version) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    higher = Producer(me.producer_id, me.epoch + 1)
    assert add_partition(client, name, higher, topic, version) == (90 if version >= 2 else 47)


@pytest.mark.parametrize("version", [4, 5])
def test_several_transactions_in_one_request(broker: BrokerUnderTest, client: RawClient, version: int) -> None:
    """AddPartitionsToTxn v4-5: enlisting and only asking, side by side; a brokers' request, open to anyone here."""
    topic, name, me = begun(broker, client)
    _, other, they = begun(broker, client)
    asked = [(name, me, topic, False), (other, they, topic, True)]
    expected = {name: {topic: 0}, other: {topic: ErrorCode.TRANSACTION_ABORTABLE}}
    assert batched(client, asked, version) == expected
    assert client.describe_transaction(name).transaction_state == "Ongoing"
    assert client.describe_transaction(other).transaction_state == "Empty"
    assert batched(client, [(name, me, topic, True)], version) == {name: {topic: 0}}
    higher = Producer(me.producer_id, me.epoch + 1)
    foreign = Producer(me.producer_id + 100_000, 0)
    assert batched(client, [(name, higher, topic, True)], version) == {name: {topic: ErrorCode.PRODUCER_FENCED}}
    unknown = {name: {topic: ErrorCode.INVALID_PRODUCER_ID_MAPPING}}
    assert batched(client, [(name, foreign, topic, True)], version) == unknown


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4])
def test_adding_offsets(broker: BrokerUnderTest, client: RawClient, version: int) -> None:
    topic, name, me = begun(broker, client)
    group = broker.name("g")
    assert add_offsets(client, name, Producer(me.producer_id, me.epoch + 1), group, version) == (
        90 if version >= 2 else 47
    )
    assert add_offsets(client, name, Producer(me.producer_id + 100_000, 0), group, version) == 49
    assert add_offsets(client, broker.name("nobody"), me, group, version) == 49
    assert add_offsets(client, name, me, group, version) == 0
    assert commit_offsets(client, name, me, group, topic, version=min(version, 4)) == 0
    assert client.end_transaction(name, me, commit=False, version=3).error_code == 0


@pytest.mark.parametrize(("version", "expected"), [(0, 48), (1, 48), (2, 48), (3, 48), (4, 120), (5, 0)])
def test_offsets_whose_group_was_not_added(
    broker: BrokerUnderTest, client: RawClient, version: int, expected: int
) -> None:
    topic, name, me = begun(broker, client)
    assert is_told(broker, commit_offsets(client, name, me, broker.name("g"), topic, version=version), expected)
    assert client.describe_transaction(name).transaction_state == ("Empty" if expected else "Ongoing")


def test_offsets_without_sense(broker: BrokerUnderTest, client: RawClient) -> None:
    """A partition that is not there: 3. A negative offset: taken by both."""
    topic, name, me = begun(broker, client)
    assert commit_offsets(client, name, me, broker.name("g"), broker.name("nowhere")) == 3
    assert commit_offsets(client, name, me, broker.name("g"), topic, -5) == 0


def test_a_first_batch_that_does_not_begin_at_zero(broker: BrokerUnderTest, client: RawClient) -> None:
    """Kafka: 45. Ours: 59 without a log start offset, the truth (no state of that producer); both have enlisted it."""
    topic, name, me = begun(broker, client)
    answer = client.produce(topic, [b"x"], transactional_id=name, producer=me, sequence=4)
    if broker.is_ours:
        assert (answer.error_code, answer.log_start_offset) == (ErrorCode.UNKNOWN_PRODUCER_ID, -2)
    else:
        assert answer.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert client.describe_transaction(name).transaction_state == "Ongoing"
    assert client.produce(topic, [b"x"], transactional_id=name, producer=me, sequence=0).error_code == 0


def test_a_first_batch_behind_one_of_an_older_request(broker: BrokerUnderTest, client: RawClient) -> None:
    """Kafka remembers of a refused batch that its request could not enlist, and then takes any sequence (K72)."""
    topic, name, me = begun(broker, client)
    older = client.produce(topic, [b"x"], transactional_id=name, producer=me, sequence=4, version=11)
    assert is_told(broker, older.error_code, ErrorCode.TRANSACTION_ABORTABLE)
    newer = client.produce(topic, [b"x"], transactional_id=name, producer=me, sequence=4)
    assert newer.error_code == (ErrorCode.UNKNOWN_PRODUCER_ID if broker.is_ours else ErrorCode.NONE)


def test_a_transactional_batch_without_a_transactional_id(broker: BrokerUnderTest, client: RawClient) -> None:
    topic, _name, me = begun(broker, client)
    batch = encode_batch(
        keys=[None],
        values=[b"x"],
        timestamps=1,
        producer_id=me.producer_id,
        producer_epoch=me.epoch,
        base_sequence=0,
        transactional=True,
    )
    answer = client.produce(topic, bytes(batch))
    assert answer.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_after_the_end_the_old_epoch_is_over(broker: BrokerUnderTest, client: RawClient) -> None:
    """K70: the duplicate of a batch of the open transaction is answered, after EndTxn v5 its epoch is old."""
    topic, name, me = begun(broker, client)
    first = client.produce(topic, [b"x"], transactional_id=name, producer=me, sequence=0)
    again = client.produce(topic, [b"x"], transactional_id=name, producer=me, sequence=0)
    assert (first.error_code, again.error_code, again.base_offset) == (0, 0, first.base_offset)
    assert client.end_transaction(name, me, commit=True).error_code == 0
    client.wait_for_state(name, "CompleteCommit")
    for sequence in (0, 1):
        late = client.produce(topic, [b"x"], transactional_id=name, producer=me, sequence=sequence)
        assert late.error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    following = Producer(me.producer_id, me.epoch + 1)
    # With the new epoch sequences begin at 0 again.
    wrong = client.produce(topic, [b"y"], transactional_id=name, producer=following, sequence=1)
    assert wrong.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert client.produce(topic, [b"y"], transactional_id=name, producer=following, sequence=0).error_code == 0
    (known,) = producers(client, topic)
    assert (known.producer_epoch, known.last_sequence, known.current_txn_start_offset) == (following.epoch, 0, 2)
