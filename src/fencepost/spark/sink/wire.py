"""Three requests of the sink that a plain client does not offer.

`init_once` sends InitProducerId, and never repeats it after its answer was lost. `produce_batch` sends the sealed batch
of a decision, with the identity and sequence that it was sealed with. Its refusal is a step's answer, not an error.
`batches` returns the committed batches of a partition without decoding them into columns, because the pair in a
batch's header names the claim that decided. The client's producer and consumer cannot do this
(docs/decisions/decision-record-requests.md).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from fencepost.client.net import retry
from fencepost.client.net.cluster import Cluster, Leader
from fencepost.client.net.connection import BrokerConnection
from fencepost.client.net.retry import RETRIABLE, Action
from fencepost.client.net.stored_batches import StoredBatches
from fencepost.client.net.transaction_calls import enlist, must_enlist, once, to_enlist
from fencepost.client.types import Isolation, TopicPartition
from fencepost.errors import CorruptRecordError, ProtocolError, error_for
from fencepost.protocol import produce_wire
from fencepost.protocol.cursor import Buffer
from fencepost.protocol.errors import CorruptBatch, WireError
from fencepost.protocol.fetch_wire import FetchPartitionResult
from fencepost.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from fencepost.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from fencepost.protocol.produce_wire import ProducePartition, ProduceRequest
from fencepost.protocol.records.aborted import AbortedFilter
from fencepost.protocol.records.batch import BatchHeader, iter_batches, parse_header, verify_crc
from fencepost.protocol.transactions import FIRST_ENLISTING_PRODUCE
from fencepost.spark.sink.abilities import VERIFYING_VERSION

__all__ = ["batches", "check_verifies", "init_once", "produce_batch"]

FETCH_MAX_BYTES: Final = 16 * 1024 * 1024
FETCH_WAIT_MS: Final = 250  # the longest wait of a fetch while the last stable offset does not move


async def init_once(
    cluster: Cluster, request: InitProducerIdRequest, deadline_ms: int
) -> InitProducerIdResponse | None:
    """Send InitProducerId, and return the answer; None if it may have been lost. See `once`."""
    versions = (6, 6) if request.enable2_pc or request.keep_prepared_txn else (3, 5)
    reply: InitProducerIdResponse | None = await once(
        cluster, request, request.transactional_id or "", versions, lambda answer: int(answer.error_code), deadline_ms
    )
    return reply


def check_verifies(connection: BrokerConnection) -> None:
    """Raise UnsupportedVersionError if this broker accepts a batch after its transaction's end (KIP-890, part 1).

    The connection ends with the broker's process, so its requests cannot reach another release on the same node.
    """
    connection.version(AddPartitionsToTxnRequest.API_KEY, VERIFYING_VERSION, VERIFYING_VERSION)


async def produce_batch(
    cluster: Cluster,
    transactional_id: str | None,
    topic: str,
    partition: int,
    batch: Buffer,
    deadline_ms: int,
    *,
    verified: bool = False,
) -> int:
    """Produce a batch (acks=all), repeated unchanged until it is answered. Return 0, or the code of the refusal.

    46 (a duplicate that is too old to have an offset) counts as 0. A transactional batch enlists its partition itself
    (v12, KIP-890), where brokers allow that. `verified`: only send it to a broker that verifies its transaction.
    Raises KafkaTimeoutError, ProtocolError, UnsupportedVersionError.
    """
    operation = f"produce to {topic}-{partition}"
    leader = Leader(topic, partition)
    is_enlisted = transactional_id is None

    async def ask() -> int:
        nonlocal is_enlisted
        connection = await cluster.reach(leader, deadline_ms)
        if verified:
            check_verifies(connection)
        topic_id = cluster.topics[topic].topic_id
        lowest, highest = (12 if transactional_id is not None else 3), (12 if topic_id is None else 13)
        if transactional_id is not None and must_enlist(cluster):
            lowest, highest = 3, FIRST_ENLISTING_PRODUCE - 1
            if not is_enlisted:
                header = parse_header(batch)
                request = to_enlist(transactional_id, header.producer_id, header.producer_epoch, [leader])
                refused = await enlist(cluster, request, deadline_ms)
                if refused:
                    return refused
                is_enlisted = True
        version = connection.version(retry.PRODUCE, lowest, highest)
        left = max(deadline_ms - cluster.runtime.now_ms(), 0)
        sealed = ProducePartition(topic, topic_id, partition, batch)
        body = produce_wire.encode_request(ProduceRequest(transactional_id, -1, min(left, 30_000), [sealed]), version)
        raw = await connection.exchange(retry.PRODUCE, version, body, timeout_ms=left)
        try:
            results = produce_wire.decode_response(raw, version).partitions
        except WireError as error:
            raise ProtocolError(f"{operation}: the answer cannot be read: {error}") from error
        if len(results) != 1:
            raise ProtocolError(f"{operation} was answered with {len(results)} results")
        code = results[0].error_code
        step = retry.action(retry.PRODUCE, code)
        if step in RETRIABLE:
            raise error_for(code, operation, results[0].error_message)
        return 0 if step is Action.OK else code

    return await cluster.until_answered(operation, ask, deadline_ms, target=leader, api_key=retry.PRODUCE)


async def _fetch_some(
    cluster: Cluster, partition: TopicPartition, position: int, deadline_ms: int
) -> FetchPartitionResult:
    """Fetch until there is a committed record from `position` on. Raises OffsetOutOfRangeError, KafkaTimeoutError."""
    stored = StoredBatches(cluster, Isolation.READ_COMMITTED, FETCH_MAX_BYTES, FETCH_WAIT_MS)
    attempt = 0
    while True:
        result = await stored.fetch(partition, position, deadline_ms)
        if len(result.records):
            return result
        await cluster.pause(attempt, deadline_ms, f"read {partition.topic}-{partition.partition} at {position}", None)
        attempt += 1


async def batches(
    cluster: Cluster, topic: str, partition: int, start: int, end: int, deadline_ms: int
) -> AsyncIterator[tuple[BatchHeader, memoryview]]:
    """Yield every committed data batch with a record in [start, end). Wait until the last stable offset passes `end`.

    A batch that begins before `start` is yielded whole. Raises OffsetOutOfRangeError, KafkaTimeoutError, and
    CorruptRecordError for damaged or truncated batches.
    """
    position = start
    while position < end:
        result = await _fetch_some(cluster, TopicPartition(topic, partition), position, deadline_ms)
        is_aborted = AbortedFilter(result.aborted or ())
        before = position
        try:
            for header, batch in iter_batches(result.records, allow_partial=True):
                if not verify_crc(batch):
                    raise CorruptBatch(f"the checksum of the batch at offset {header.base_offset} is wrong")
                dropped = is_aborted(header, batch) or header.is_control
                if not dropped and header.last_offset >= start and header.base_offset < end:
                    yield header, batch
                position = max(position, header.last_offset + 1)
            if position == before:
                raise CorruptBatch(f"a fetch returned {len(result.records)} bytes without a complete batch")
        except WireError as error:
            raise CorruptRecordError(
                f"{topic}-{partition}: the records from offset {position} on cannot be read: {error}",
                topic=topic,
                partition=partition,
                offset=position,
            ) from error
