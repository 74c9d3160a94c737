"""Errors of the sink for unreadable answers: only classes of the client, with the place of the damage."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from fencepost.client.net.cluster import Cluster as RealCluster
from fencepost.client.net.lasting_errors import LastingErrors
from fencepost.errors import (
    CorruptRecordError,
    DisconnectedError,
    KafkaError,
    ProtocolError,
    TopicAuthorizationError,
    error_for,
)
from fencepost.protocol import fetch_wire, produce_wire
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.fetch_wire import FetchPartitionResult, FetchResponse, FetchTopicResult
from fencepost.protocol.records.encoding import encode_pairs
from fencepost.spark.errors import CorruptDecisionError
from fencepost.spark.sink import wire
from fencepost.spark.sink.decision_store import DecisionStore, partition_of


class Cluster(RealCluster):
    """A cluster that answers every request with these bytes: it is its own connection, clock and admin client."""

    topics: Any
    runtime: Any

    def __init__(self, answer: bytes) -> None:
        self.answer = memoryview(answer)
        self.failures: list[KafkaError] = []  # of `reach`, first to last
        self.refreshed = 0
        self.topics = {"t": SimpleNamespace(topic_id=None)}
        self.runtime = self.cluster = self
        self.lasting_errors = LastingErrors(self.now_ms)

    def now_ms(self) -> int:
        return 0

    async def reach(self, *_: Any) -> Any:
        if self.failures:
            raise self.failures.pop(0)
        return self

    async def refresh_quietly(self, *_: Any) -> None:
        self.refreshed += 1

    async def pause(self, attempt: int, *_: Any) -> None:
        assert attempt < 5

    def version(self, *_: Any) -> int:
        return 12

    async def exchange(self, *_: Any, **__: Any) -> memoryview:
        return self.answer

    async def topic(self, *_: Any, **__: Any) -> Any:
        return self.topics["t"]

    async def describe_topics(self, *_: Any, **__: Any) -> Any:
        return {"t": SimpleNamespace(partitions={n: SimpleNamespace(replicas=(1,)) for n in range(16)})}

    async def describe_configs(self, *_: Any, **__: Any) -> dict[str, str]:
        return {}

    async def list_offsets(self, wanted: dict[Any, int], **_: Any) -> Any:
        return {partition: SimpleNamespace(offset=1 if at == -1 else 0) for partition, at in wanted.items()}


def answered(records: bytes, partition: int = 0, code: int = 0) -> bytes:
    result = FetchPartitionResult(partition=partition, error_code=code, records=memoryview(records))
    return b"".join(fetch_wire.encode_response(FetchResponse(topics=[FetchTopicResult("t", None, [result])]), 12))


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


WHOLE = bytes(encode_pairs([(b"key", b"value")], 1))


def read(cluster: Any) -> list[bytes]:
    async def all_of_it() -> list[bytes]:
        return [bytes(batch) async for _, batch in wire.batches(cluster, "t", 0, 0, 1, 1000)]

    return asyncio.run(all_of_it())


def test_what_is_whole_is_read() -> None:
    assert read(Cluster(answered(WHOLE))) == [WHOLE]


@pytest.mark.parametrize(
    ("records", "why"),
    [
        (flipped(WHOLE, len(WHOLE) - 3), "checksum"),  # in the value: nothing but the checksum tells of it
        (flipped(WHOLE, 16), "magic"),
        (WHOLE[:-1], "without a complete batch"),
    ],
)
def test_damaged_records_are_told_with_their_place(records: bytes, why: str) -> None:
    with pytest.raises(
        CorruptRecordError, match=f"t-0: the records from offset 0 on cannot be read: .*{why}"
    ) as reported:
        read(Cluster(answered(records)))
    assert (reported.value.topic, reported.value.partition, reported.value.offset) == ("t", 0, 0)


def test_damage_that_the_broker_reports_is_told_with_its_place() -> None:
    with pytest.raises(CorruptRecordError, match="fetch of t-0 at 0: CORRUPT_MESSAGE") as reported:
        read(Cluster(answered(b"", code=ErrorCode.CORRUPT_MESSAGE)))
    assert (reported.value.topic, reported.value.partition, reported.value.offset) == ("t", 0, 0)


@pytest.mark.parametrize("code", [ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None])
def test_a_partition_without_a_leader_is_waited_for(code: ErrorCode | None) -> None:
    """While brokers are restarted one by one, every partition is without for a moment."""

    def failing(cluster: Cluster) -> Any:
        error = DisconnectedError("its leader is gone") if code is None else error_for(code, "t-0")
        cluster.failures = [error, error]
        return cluster

    cluster = failing(Cluster(answered(WHOLE)))
    assert (read(cluster), cluster.refreshed) == ([WHOLE], 2)
    done = produce_wire.ProduceResponse([produce_wire.ProducePartitionResult(topic="t", topic_id=None, partition=0)])
    cluster = failing(Cluster(b"".join(produce_wire.encode_response(done, 12))))
    assert (asyncio.run(wire.produce_batch(cluster, None, "t", 0, WHOLE, 1000)), cluster.refreshed) == (0, 2)
    refused = Cluster(b"")
    refused.failures = [TopicAuthorizationError("no")]
    with pytest.raises(TopicAuthorizationError):
        read(refused)


def test_an_answer_that_is_none_is_told_with_what_was_asked() -> None:
    with pytest.raises(ProtocolError, match="fetch of t-0 at 0: the answer cannot be read"):
        read(Cluster(answered(WHOLE)[:-20]))
    with pytest.raises(ProtocolError, match="produce to t-0: the answer cannot be read"):
        asyncio.run(wire.produce_batch(Cluster(b"\0"), None, "t", 0, WHOLE, 1000))


def test_a_decision_whose_record_cannot_be_read_is_a_corrupt_one() -> None:
    from fencepost.protocol.records.batch import HEADER_BYTES, seal

    rubbish = bytes(seal(b"\xff" * 3, record_count=1, base_timestamp=0, max_timestamp=0))
    assert len(rubbish) > HEADER_BYTES
    store = DecisionStore(Cluster(answered(rubbish, partition_of("s"))), "t")  # type: ignore[arg-type]
    with pytest.raises(CorruptDecisionError, match=rf"t-{partition_of('s')} at offset 0: the records cannot be read"):
        asyncio.run(store.read("s", 1000))
