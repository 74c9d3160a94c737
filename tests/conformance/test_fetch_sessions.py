"""Incremental fetch sessions (KIP-227) on the wire. Expected answers: Apache Kafka 4.4."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest

from fencepost.protocol import fetch_wire
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.fetch_wire import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from fencepost.protocol.messages import delete_topics as dt
from fencepost.protocol.messages import metadata as md
from fencepost.protocol.records.encoding import encode_batch
from tests.support.brokers import BrokerUnderTest
from tests.support.raw_client import RawClient

BY_NAME, BY_ID = 12, 17
Results = dict[int, tuple[int, int, int]]


class Reader:
    """Fetches of one topic; keeps count of the session as a client does."""

    def __init__(self, client: RawClient, topic: str, version: int) -> None:
        self.client = client
        self.version = version
        self.session_id, self.epoch = 0, 0
        request = md.MetadataRequest(topics=[md.MetadataRequestTopic(name=topic)])
        self.topic_id: UUID | None = client.call(request, 12).topics[0].topic_id
        self.topic: str | None = topic
        if version >= 13:
            self.topic = None
        else:
            self.topic_id = None

    def fetch(
        self,
        wanted: Sequence[tuple[int, int]] = (),
        forgotten: Sequence[int] = (),
        *,
        max_wait_ms: int = 0,
        max_bytes: int = 1 << 20,
        partition_bytes: int = 1 << 20,
        committed: bool = False,
    ) -> tuple[int, Results]:
        """(error code, {partition: (error code, high watermark, bytes of records)}) for (partition, offset)s wanted."""
        partitions = [FetchPartition(partition, offset, partition_bytes) for partition, offset in wanted]
        request = FetchRequest(
            max_wait_ms=max_wait_ms,
            max_bytes=max_bytes,
            isolation_level=int(committed),
            session_id=self.session_id,
            session_epoch=self.epoch,
            topics=[FetchTopic(self.topic, self.topic_id, partitions)] if partitions else [],
            forgotten=[ForgottenTopic(self.topic, self.topic_id, list(forgotten))] if forgotten else [],
        )
        body = b"".join(fetch_wire.encode_request(request, self.version))
        answer = fetch_wire.decode_response(self.client.exchange(1, self.version, body), self.version)
        if answer.error_code == 0 and self.epoch >= 0:
            self.session_id = answer.session_id
            self.epoch = self.epoch + 1 if answer.session_id else 0
        self.answered_id = answer.session_id
        found: Results = {}
        for topic in answer.topics:
            assert (topic.topic, topic.topic_id) == (self.topic, self.topic_id)
            for result in topic.partitions:
                found[result.partition] = (result.error_code, result.high_watermark, len(result.records))
        return answer.error_code, found


@pytest.fixture(params=[BY_NAME, BY_ID], ids=["by name", "by id"])
def reader(request: pytest.FixtureRequest, broker: BrokerUnderTest, client: RawClient) -> Reader:
    return Reader(client, client.create_topic(broker.name("t"), 3), request.param)


def name_of(reader: Reader) -> str:
    if reader.topic is not None:
        return reader.topic
    request = md.MetadataRequest(topics=[md.MetadataRequestTopic(name=None, topic_id=reader.topic_id)])
    return str(reader.client.call(request, 12).topics[0].name)


def produce(reader: Reader, partition: int, values: Sequence[bytes] = (b"v",)) -> int:
    """The size of the batch."""
    batch = encode_batch(keys=[None] * len(values), values=list(values), timestamps=0)
    done = reader.client.produce(name_of(reader), bytes(batch), partition=partition)
    assert done.error_code == 0
    return len(batch)


def test_only_news_is_told(reader: Reader) -> None:
    size = produce(reader, 0)
    assert reader.fetch([(0, 0), (1, 0), (2, 0)]) == (0, {0: (0, 1, size), 1: (0, 0, 0), 2: (0, 0, 0)})
    assert reader.session_id > 0
    # It is read again from where it was wanted last: the client has not said that it is further.
    assert reader.fetch() == (0, {0: (0, 1, size)})
    assert reader.fetch([(0, 1)]) == (0, {})
    assert reader.fetch() == (0, {})
    produce(reader, 2)
    assert reader.fetch(max_wait_ms=5000) == (0, {2: (0, 1, size)})
    assert reader.fetch([(2, 1)], forgotten=[1]) == (0, {})
    produce(reader, 1)
    assert reader.fetch() == (0, {})
    assert reader.fetch([(1, 1)]) == (0, {1: (0, 1, 0)})
    assert reader.fetch() == (0, {})


def test_an_answer_waits_for_news(reader: Reader, broker: BrokerUnderTest) -> None:
    assert reader.fetch([(0, 0)])[0] == 0
    with broker.connect() as other:
        reader.client, client = other, reader.client
        produce(reader, 0)
        reader.client = client
    assert reader.fetch(max_wait_ms=60_000)[1][0][1] == 1


def test_a_session_is_closed_and_counts_its_requests(reader: Reader) -> None:
    reader.fetch([(0, 0)])
    session_id = reader.session_id
    for epoch in (0, 2):
        if epoch:
            reader.epoch = epoch
            assert reader.fetch() == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, {})
            assert reader.answered_id == 0
    reader.epoch = 1
    assert reader.fetch() == (0, {})
    reader.epoch = 1
    assert reader.fetch() == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, {})
    reader.epoch = -1
    assert reader.fetch([(1, 0)]) == (0, {1: (0, 0, 0)})
    assert reader.answered_id == 0
    reader.session_id, reader.epoch = session_id, 2
    assert reader.fetch() == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, {})
    assert reader.answered_id == 0


def test_a_new_session_takes_the_old_one_s_place(reader: Reader) -> None:
    reader.fetch([(0, 0)])
    first = reader.session_id
    reader.epoch = 0
    assert reader.fetch([(1, 0)]) == (0, {1: (0, 0, 0)})
    assert reader.session_id not in (0, first)
    second = reader.session_id
    reader.session_id, reader.epoch = first, 1
    assert reader.fetch()[0] == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    reader.session_id = second
    assert reader.fetch() == (0, {})
    assert reader.fetch(forgotten=[1]) == (0, {})
    assert reader.answered_id == 0
    reader.session_id, reader.epoch = second, 3
    assert reader.fetch()[0] == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_session_that_was_never_there(reader: Reader) -> None:
    reader.session_id, reader.epoch = 0, 1
    assert reader.fetch([(0, 0)]) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, {})


def test_names_and_ids_are_not_mixed(broker: BrokerUnderTest, client: RawClient) -> None:
    topic = client.create_topic(broker.name("t"))
    named, known = Reader(client, topic, BY_NAME), Reader(client, topic, BY_ID)
    named.fetch([(0, 0)])
    known.session_id, known.epoch = named.session_id, named.epoch
    assert known.fetch() == (ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, {})
    assert named.fetch() == (0, {})


def test_an_error_is_told_each_time_and_recovery_too(reader: Reader) -> None:
    size = produce(reader, 0)
    assert reader.fetch([(0, 0), (1, 7)])[1][1][0] == ErrorCode.OFFSET_OUT_OF_RANGE
    for _ in range(2):
        assert reader.fetch([(0, 1)])[1].keys() == {1}
    assert reader.fetch([(1, 0)]) == (0, {1: (0, 0, 0)})
    assert reader.fetch([(0, 0)]) == (0, {0: (0, 1, size)})
    _, found = reader.fetch([(9, 0)])
    assert found[9][0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_no_partition_starves(reader: Reader) -> None:
    sizes = {produce(reader, partition, [b"x" * 1000] * 3) for partition in (0, 1, 2) for _ in range(4)}
    (size,) = sizes
    position = dict.fromkeys((0, 1, 2), 0)
    _, found = reader.fetch([(0, 0), (1, 0), (2, 0)], max_bytes=size, partition_bytes=size)
    served = []
    for _ in range(12):
        (partition,) = [each for each, (_, _, length) in found.items() if length]
        served.append(partition)
        position[partition] += 3
        _, found = reader.fetch([(partition, position[partition])], max_bytes=size, partition_bytes=size)
    assert set(position.values()) == {12}
    # The session begins with the first answer: from the second one on whoever was served goes to the end of the line.
    assert served == [0, *(0, 1, 2) * 3, 1, 2]


def test_a_topic_that_goes_is_told(reader: Reader, broker: BrokerUnderTest) -> None:
    name = name_of(reader)
    assert reader.fetch([(0, 0)])[0] == 0
    topics = [dt.DeleteTopicState(name=name)]
    request = dt.DeleteTopicsRequest(topics=topics, timeout_ms=30_000)
    assert reader.client.call(request, 6).responses[0].error_code == 0
    gone = {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if reader.version == BY_NAME else ErrorCode.UNKNOWN_TOPIC_ID}
    if not broker.is_ours:  # for a moment Kafka knows the name of the id still, and the log no more
        gone |= {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER}

    class LatestFetch:
        def __init__(self) -> None:
            code, self.found = reader.fetch()
            self.error_code: Any = code or (0 if 0 in self.found else ErrorCode.NOT_COORDINATOR)

    reported = reader.client.settled(LatestFetch)
    assert reported.found[0][0] in gone


def test_aborted_data_in_a_session(reader: Reader, broker: BrokerUnderTest) -> None:
    client, topic, name = reader.client, name_of(reader), broker.name("txn")
    reader.fetch([(0, 0), (1, 0)], committed=True)
    for commit in (False, True):
        me = client.start_producer(name)
        assert client.produce(topic, [b"v"], transactional_id=name, producer=me, sequence=0).error_code == 0
        _, found = reader.fetch(committed=True)
        # The aborted data of the first round is below the last stable offset by the second, and is passed on.
        assert (found[0][2] > 0) == commit
        assert client.end_transaction(name, me, commit=commit).error_code == 0
        client.wait_for_state(name, "CompleteCommit" if commit else "CompleteAbort")
    _, found = reader.fetch(committed=True, max_wait_ms=5000)
    assert found[0][:2] == (0, 4) and found[0][2] > 0
