"""Fetches batches of one partition as its leader stores them: without a session, and without decoding records."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from fencepost.client.net import retry
from fencepost.client.net.cluster import Cluster, Leader
from fencepost.client.types import Isolation, TopicPartition
from fencepost.counted import counted_noun
from fencepost.errors import CorruptRecordError, ProtocolError, error_for
from fencepost.protocol import fetch_wire
from fencepost.protocol.codes import ErrorCode, describe
from fencepost.protocol.errors import WireError
from fencepost.protocol.fetch_wire import FetchPartition, FetchPartitionResult, FetchRequest, FetchTopic

__all__ = ["StoredBatches"]


class StoredBatches(NamedTuple):
    """The way to fetch batches of one partition at a time.

    Attributes:
        cluster: The cluster's metadata and connections.
        isolation: With READ_COMMITTED a result ends at the last stable offset, and lists aborted transactions.
        max_bytes: Size limit of a result, in bytes. Its first batch may exceed it.
        wait_ms: Time in ms for which the broker may wait for records.
    """

    cluster: Cluster
    isolation: Isolation
    max_bytes: int
    wait_ms: int

    async def fetch(self, partition: TopicPartition, offset: int, deadline_ms: int) -> FetchPartitionResult:
        """Call `fetch_once`, again after errors that may pass. Raises KafkaTimeoutError at the deadline."""
        ask = partial(self.fetch_once, partition, offset, deadline_ms)
        leader = Leader(*partition)
        operation = _request_name(partition, offset)
        return await self.cluster.until_answered(operation, ask, deadline_ms, target=leader, api_key=retry.FETCH)

    async def fetch_once(self, partition: TopicPartition, offset: int, deadline_ms: int) -> FetchPartitionResult:
        """Send one Fetch to the partition's leader. Its result has no error, and may have no records.

        Its first batch may begin before `offset`.

        Raises:
            CorruptRecordError: The leader's data is damaged at `offset`.
            ProtocolError: The response cannot be read, or has not one result.
            KafkaError: The leader is unknown or unreachable, or refuses.
        """
        operation = _request_name(partition, offset)
        connection = await self.cluster.reach(Leader(*partition), deadline_ms)
        topic_id = self.cluster.topics[partition.topic].topic_id
        version = connection.version(retry.FETCH, 4, 12 if topic_id is None else fetch_wire.VERSIONS[1])
        wanted = FetchTopic(partition.topic, topic_id, [FetchPartition(partition.partition, offset, self.max_bytes)])
        request = FetchRequest(
            max_wait_ms=self.wait_ms, max_bytes=self.max_bytes, isolation_level=int(self.isolation), topics=[wanted]
        )
        left_ms = max(deadline_ms - self.cluster.runtime.now_ms(), 0)
        body = fetch_wire.encode_request(request, version)
        raw = await connection.exchange(retry.FETCH, version, body, timeout_ms=left_ms, server_ms=self.wait_ms)
        try:
            reply = fetch_wire.decode_response(raw, version)
        except WireError as error:
            raise ProtocolError(f"{operation}: the answer cannot be read: {error}") from error
        results = [result for group in reply.topics for result in group.partitions]
        if reply.error_code == 0 and len(results) != 1:
            raise ProtocolError(f"{operation} was answered with {counted_noun(len(results), 'partition')}")
        code = reply.error_code or results[0].error_code
        if code == ErrorCode.CORRUPT_MESSAGE:
            words = f"{operation}: {describe(code)}: the stored data is damaged there"
            raise CorruptRecordError(
                words, code=code, topic=partition.topic, partition=partition.partition, offset=offset
            )
        if code != 0:
            raise error_for(code, operation)
        return results[0]


def _request_name(partition: TopicPartition, offset: int) -> str:
    return f"fetch of {partition.topic}-{partition.partition} at {offset}"
