"""One Fetch request to one broker, and `fetch_range`, which reads a range of offsets of one partition.

A consumer's fetches use a session per broker (fetch_sessions.py). Those of `fetch_range` use none.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping
from typing import Final, NamedTuple, Self
from uuid import UUID

from fencepost.client.consumer.fetch_sessions import FINAL_EPOCH, FetchRequestData, PartitionFetch, ReadSession
from fencepost.client.net import retry
from fencepost.client.net.cluster import Cluster
from fencepost.client.records import Fetched, timestamp_type_of
from fencepost.client.types import Isolation, TopicPartition
from fencepost.config import ConsumerConfig
from fencepost.errors import (
    ConfigurationError,
    CorruptRecordError,
    DecompressionLimitError,
    DisconnectedError,
    KafkaError,
    KafkaTimeoutError,
    OffsetOutOfRangeError,
    ProtocolError,
    error_for,
)
from fencepost.protocol.codes import ErrorCode as E
from fencepost.protocol.errors import DecompressionLimit, WireError
from fencepost.protocol.fetch_wire import (
    FetchPartition,
    FetchPartitionResult,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    decode_response,
    encode_request,
)
from fencepost.protocol.records.compression import MAX_DECOMPRESSED_BYTES
from fencepost.protocol.records.decoding import Unreadable, decode_readable
from fencepost.values import Value

RANGE_FETCH_BYTES: Final = 8 * 1024 * 1024
CLOSE_PATIENCE_MS: Final = 500


class FetchSettings(Value):
    """Settings of fetch requests. Sizes are in bytes, times in ms."""

    isolation: Isolation = Isolation.READ_COMMITTED
    min_bytes: int = 1
    max_wait_ms: int = 500
    max_bytes: int = 52_428_800
    partition_bytes: int = 4_194_304
    check_crcs: bool = True
    decompressed_bytes: int = MAX_DECOMPRESSED_BYTES
    rack: str = ""
    request_timeout_ms: int = 30_000

    @classmethod
    def of(cls, config: ConsumerConfig) -> Self:
        """Return the fetch settings of a consumer."""
        return cls(
            isolation=Isolation[config.isolation_level.upper()],
            min_bytes=config.fetch_min_bytes,
            max_wait_ms=config.fetch_max_wait_ms,
            max_bytes=config.fetch_max_bytes,
            partition_bytes=config.max_partition_fetch_bytes,
            check_crcs=config.check_crcs,
            decompressed_bytes=config.max_decompressed_bytes,
            rack=config.client_rack,
            request_timeout_ms=config.request_timeout_ms,
        )


class Answer(NamedTuple):
    """The response of a broker for one partition. `fetched` is None if `error_code` is not 0.

    `error` is the reason why the data after `fetched` cannot be read.
    """

    error_code: int
    fetched: Fetched | None
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    preferred_replica: int = -1
    size_bytes: int = 0  # size of the data
    error: Exception | None = None


class FetchReply(NamedTuple):
    """A fetch response. `answers` does not contain partitions of the session without news."""

    answers: dict[TopicPartition, Answer]
    throttle_ms: int
    session_error: int = 0  # 70, 71 or 106: there is no data, fetch again


def request_name(partition: TopicPartition) -> str:
    """Return a description of the request for error messages."""
    return f"fetch of {partition.topic}-{partition.partition}"


def fetch_error(code: int, partition: TopicPartition, offset: int) -> KafkaError:
    """Return the exception for a partition's error code (not 0)."""
    operation = f"{request_name(partition)} at offset {offset}"
    if code == E.CORRUPT_MESSAGE:
        return CorruptRecordError(
            f"{operation}: the broker's data is damaged (CORRUPT_MESSAGE); seek() to an offset after the damage",
            code=code,
            topic=partition.topic,
            partition=partition.partition,
            offset=offset,
        )
    return error_for(code, operation)


async def fetch(
    cluster: Cluster,
    node: int,
    partitions: Mapping[TopicPartition, PartitionFetch],
    settings: FetchSettings,
    session: ReadSession | None = None,
    room_bytes: int | None = None,
) -> FetchReply:
    """Fetch from each partition's offset.

    If this raises, the caller calls `session.lost`.

    Args:
        cluster: The cluster's metadata and connections.
        node: The broker.
        partitions: Offset and size by partition.
        settings: The settings.
        session: The fetch session with this broker; None: no session.
        room_bytes: Limit of decompressed data, in bytes; a single batch may exceed it. None: the limit of one batch.

    Raises:
        DisconnectedError, KafkaTimeoutError, ProtocolError: There is no usable response.
    """
    deadline_ms = cluster.runtime.now_ms() + settings.request_timeout_ms
    connection = await cluster.connection(node, deadline_ms)
    plan = session.plan(partitions) if session is not None else FetchRequestData(0, FINAL_EPOCH, dict(partitions), [])
    named = [*plan.partitions, *plan.forgotten, *partitions]
    ids = {
        partition.topic: topic.topic_id
        for partition in named
        if (topic := cluster.topics.get(partition.topic)) is not None
    }
    highest = 17 if all(ids.get(partition.topic) is not None for partition in named) else 12
    version = connection.version(retry.FETCH, 4, highest)
    body = await connection.exchange(
        retry.FETCH,
        version,
        encode_request(_request(plan, ids, settings), version),
        timeout_ms=settings.max_wait_ms + 2 * settings.request_timeout_ms,
        server_ms=settings.max_wait_ms,
    )
    try:
        reply = decode_response(body, version)
        if session is not None and not session.answered(reply.error_code, reply.session_id):
            return FetchReply({}, reply.throttle_ms, reply.error_code)
        if reply.error_code != 0:
            return FetchReply(
                {partition: Answer(reply.error_code, None, -1, -1, -1) for partition in partitions}, reply.throttle_ms
            )
        return FetchReply(_answers(reply, partitions, ids, settings, room_bytes), reply.throttle_ms)
    except WireError as error:
        raise ProtocolError(f"{connection.name}: fetched data cannot be read: {error}") from error


async def close_session(cluster: Cluster, node: int, session: ReadSession, settings: FetchSettings) -> None:
    """Close a session at its broker, if it is open there and a connection is open. Raises KafkaError."""
    plan = session.close()
    connection = cluster.live(node)
    if plan is None or connection is None:
        return
    version = connection.version(retry.FETCH, 7, 17)
    request = _request(plan, {}, settings)
    request.max_wait_ms = 0
    # Do not wait for the response: it may come after that of a fetch which the broker holds.
    body = encode_request(request, version)
    await connection.exchange(retry.FETCH, version, body, timeout_ms=CLOSE_PATIENCE_MS, awaited=False)


def _request(plan: FetchRequestData, ids: Mapping[str, UUID | None], settings: FetchSettings) -> FetchRequest:
    by_topic: dict[str, list[FetchPartition]] = defaultdict(list)
    for partition, ask in plan.partitions.items():
        by_topic[partition.topic].append(
            FetchPartition(partition.partition, ask.offset, ask.max_bytes, ask.leader_epoch)
        )
    gone: dict[str, list[int]] = defaultdict(list)
    for partition in plan.forgotten:
        gone[partition.topic].append(partition.partition)
    return FetchRequest(
        max_wait_ms=settings.max_wait_ms,
        min_bytes=settings.min_bytes,
        max_bytes=settings.max_bytes,
        isolation_level=int(settings.isolation),
        session_id=plan.session_id,
        session_epoch=plan.epoch,
        topics=[FetchTopic(name, ids.get(name), partitions) for name, partitions in by_topic.items()],
        forgotten=[ForgottenTopic(name, ids.get(name), numbers) for name, numbers in gone.items()],
        rack_id=settings.rack,
    )


def _answers(
    reply: FetchResponse,
    partitions: Mapping[TopicPartition, PartitionFetch],
    ids: Mapping[str, UUID | None],
    settings: FetchSettings,
    room_bytes: int | None,
) -> dict[TopicPartition, Answer]:
    """Return the decoded responses by partition. If the decompressed data reaches the limit, omit later partitions."""
    names = {topic_id: name for name, topic_id in ids.items()}
    found: dict[TopicPartition, Answer] = {}
    room_bytes = settings.decompressed_bytes if room_bytes is None else room_bytes
    for group in reply.topics:
        name = group.topic if group.topic is not None else names.get(group.topic_id, "")
        for result in group.partitions:
            partition = TopicPartition(name, result.partition)
            if partition in partitions and (room_bytes > 0 or result.error_code != 0):
                found[partition], used = _answer(partition, partitions[partition].offset, result, settings, room_bytes)
                room_bytes -= used
    return found


def _answer(
    partition: TopicPartition, offset: int, result: FetchPartitionResult, settings: FetchSettings, room_bytes: int
) -> tuple[Answer, int]:
    """Return the decoded response of this partition and its decompressed size in bytes."""
    offsets_and_replica = (
        result.high_watermark,
        result.last_stable_offset,
        result.log_start_offset,
        result.preferred_read_replica,
        len(result.records),
    )
    if result.error_code != 0:
        return Answer(result.error_code, None, *offsets_and_replica), 0
    committed = settings.isolation is Isolation.READ_COMMITTED
    try:
        columns, unreadable, decoded_bytes, epochs = decode_readable(
            result.records,
            start_offset=offset,
            aborted=(result.aborted or ()) if committed else None,
            check_crc=settings.check_crcs,
            max_batch_bytes=settings.decompressed_bytes,
            room_bytes=room_bytes,
        )
        if len(result.records) and unreadable is None and columns.next_offset <= offset:
            operation = f"{len(result.records)} bytes came, and no whole batch that reaches offset {offset}"
            unreadable = Unreadable(offset, offset + 1, WireError(operation))
        error = None if unreadable is None else _corrupt(partition, unreadable)
        fetched = Fetched(partition, columns, columns.next_offset, timestamp_type_of(result.records), epochs)
    except Exception as unexpected:  # noqa: BLE001 (the next poll raises it, and the other partitions continue)
        return Answer(0, None, *offsets_and_replica, error=unexpected), 0
    return Answer(0, fetched, *offsets_and_replica, error=error), decoded_bytes


def _corrupt(partition: TopicPartition, unreadable: Unreadable) -> CorruptRecordError:
    """Return the error for a batch that cannot be read."""
    offset, next_offset, cause = unreadable
    too_large = isinstance(cause, DecompressionLimit)
    advice = "max_decompressed_bytes is the limit; " if too_large else ""
    error = (DecompressionLimitError if too_large else CorruptRecordError)(
        f"{partition.topic}-{partition.partition}: the records from offset {offset} on cannot be read: {cause}; "
        f"{advice}seek(({partition.topic!r}, {partition.partition}), {next_offset}) steps over them",
        topic=partition.topic,
        partition=partition.partition,
        offset=offset,
        next_offset=next_offset,
    )
    error.__cause__ = cause
    return error


async def fetch_range(
    cluster: Cluster,
    partition: TopicPartition,
    start: int,
    end: int,
    settings: FetchSettings,
    patience_ms: int,
) -> AsyncIterator[Fetched]:
    """Yield all visible records with start <= offset < end, in order.

    Markers, aborted and compacted records are gaps. Pieces without records are not yielded. The iterator ends when
    `end` is reached, also if the last offsets before it are gaps.

    Raises:
        OffsetOutOfRangeError: `start` is below the log start offset, or after the end of the log.
        KafkaTimeoutError: Nothing new arrived for `patience_ms`, for example because the last stable offset is below
            `end`.
        CorruptRecordError: The next record cannot be read. All records before it were yielded.
        KafkaError: The broker's final error.
    """
    if start < 0 or end < start:
        raise ConfigurationError(f"not a range of offsets: {start} to {end}")
    offset = start
    attempt = 0
    deadline_ms = cluster.runtime.now_ms() + patience_ms
    while offset < end:
        got, error = await _fetch_next(cluster, partition, offset, settings, deadline_ms)
        if got is None or got.next_offset <= offset:
            await _pause_without_progress(cluster, partition, attempt, deadline_ms, error)
            attempt += 1 if error is not None else 0
            continue
        if attempt:
            attempt = 0
            cluster.lasting_errors.succeeded(request_name(partition))
        offset = got.next_offset
        deadline_ms = cluster.runtime.now_ms() + patience_ms
        inside = got if offset <= end else _before(got, end)
        if len(inside.columns):
            yield inside


async def _fetch_next(
    cluster: Cluster, partition: TopicPartition, offset: int, settings: FetchSettings, deadline_ms: int
) -> tuple[Fetched | None, KafkaError | None]:
    """Return the next records, or the retriable error that prevented the fetch. Raises final errors."""
    await cluster.topic(partition.topic, deadline_ms)
    leader = cluster.leader(partition.topic, partition.partition)
    if leader < 0:
        return None, error_for(E.LEADER_NOT_AVAILABLE, f"{partition.topic}-{partition.partition}")
    try:
        wanted = {partition: PartitionFetch(offset, settings.partition_bytes)}
        answer = (await fetch(cluster, leader, wanted, settings)).answers.get(partition)
    except (DisconnectedError, KafkaTimeoutError) as error:
        return None, error
    if answer is None:
        return None, DisconnectedError(
            f"broker {leader} left {partition.topic}-{partition.partition} out of its answer"
        )
    if answer.error is not None and (answer.fetched is None or answer.fetched.next_offset <= offset):
        raise answer.error
    if answer.error_code == 0:
        return answer.fetched, None
    if answer.error_code == E.OFFSET_OUT_OF_RANGE:
        operation = f"{partition.topic}-{partition.partition} at offset {offset}"
        raise OffsetOutOfRangeError(f"{operation}: not in the log", code=answer.error_code)
    refused = fetch_error(answer.error_code, partition, offset)
    if retry.action(retry.FETCH, answer.error_code) not in retry.RETRIABLE:
        raise refused
    return None, refused


async def _pause_without_progress(
    cluster: Cluster, partition: TopicPartition, attempt: int, deadline_ms: int, error: KafkaError | None
) -> None:
    if error is not None:
        await cluster.pause_after(error, attempt, deadline_ms, request_name(partition))
        await cluster.refresh_quietly([partition.topic], deadline_ms)
    elif cluster.runtime.now_ms() >= deadline_ms:
        raise KafkaTimeoutError(
            f"{partition.topic}-{partition.partition}: nothing new to read before the end of the range"
        )


def _before(got: Fetched, end: int) -> Fetched:
    rows = bisect_left(got.columns.offsets, end)
    return got._replace(columns=got.columns.select(slice(0, rows)), next_offset=end)
