"""One Fetch request to one broker, decoded; and `fetch_range`, which reads an exact range of one partition.

Fetches are without sessions (KIP-227): every request names all its partitions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from fencepost.client import retry
from fencepost.client.cluster import Cluster
from fencepost.client.records import Fetched, timestamp_type_of
from fencepost.client.retry import Action
from fencepost.client.types import Isolation, TopicPartition
from fencepost.errors import (
    ConfigurationError,
    DisconnectedError,
    KafkaError,
    KafkaTimeoutError,
    OffsetOutOfRangeError,
    ProtocolError,
    error_for,
)
from fencepost.protocol.codes import ErrorCode as E
from fencepost.protocol.columns import decode_batches
from fencepost.protocol.errors import ProtocolError as WireError
from fencepost.protocol.fetch_wire import (
    FetchPartition,
    FetchPartitionResult,
    FetchRequest,
    FetchTopic,
    decode_response,
    encode_request,
)

RETRIABLE: Final = (Action.RETRY, Action.REFRESH_LEADER, Action.REFRESH_COORDINATOR)
RANGE_FETCH_BYTES: Final = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class FetchSettings:
    """How to fetch; sizes in bytes, times in ms."""

    isolation: Isolation = Isolation.READ_COMMITTED
    min_bytes: int = 1
    max_wait_ms: int = 500
    max_bytes: int = 52_428_800
    partition_bytes: int = 4_194_304
    check_crcs: bool = True
    rack: str = ""
    request_timeout_ms: int = 30_000


class Answer(NamedTuple):
    """What a broker said of one partition. `fetched` is None when `error_code` is not 0."""

    error_code: int
    fetched: Fetched | None
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int


async def fetch(
    cluster: Cluster, node: int, wanted: Mapping[TopicPartition, int], settings: FetchSettings
) -> dict[TopicPartition, Answer]:
    """Fetch from each partition's offset. Raises DisconnectedError, KafkaTimeoutError, ProtocolError."""
    deadline_ms = cluster.runtime.now_ms() + settings.request_timeout_ms
    connection = await cluster.connection(node, deadline_ms)
    by_topic: dict[str, list[FetchPartition]] = defaultdict(list)
    for tp, offset in wanted.items():
        by_topic[tp.topic].append(FetchPartition(tp.partition, offset, settings.partition_bytes))
    ids = {name: topic.topic_id for name in by_topic if (topic := cluster.topics.get(name)) is not None}
    highest = 17 if all(ids.get(name) is not None for name in by_topic) else 12
    version = connection.version(retry.FETCH, 4, highest)
    request = FetchRequest(
        max_wait_ms=settings.max_wait_ms,
        min_bytes=settings.min_bytes,
        max_bytes=settings.max_bytes,
        isolation_level=int(settings.isolation),
        topics=[FetchTopic(name, ids.get(name), partitions) for name, partitions in by_topic.items()],
        rack_id=settings.rack,
    )
    body = await connection.exchange(
        retry.FETCH,
        version,
        encode_request(request, version),
        timeout_ms=settings.max_wait_ms + 2 * settings.request_timeout_ms,
        server_ms=settings.max_wait_ms,
    )
    names = {topic_id: name for name, topic_id in ids.items()}
    try:
        reply = decode_response(body, version)
        if reply.error_code != 0:
            return {one: Answer(reply.error_code, None, -1, -1, -1) for one in wanted}
        found = {}
        for group in reply.topics:
            name = group.topic if group.topic is not None else names.get(group.topic_id, "")
            for result in group.partitions:
                place = TopicPartition(name, result.partition)
                if place in wanted:
                    found[place] = _answer(place, wanted[place], result, settings)
    except WireError as error:
        raise ProtocolError(f"{connection.name}: fetched data cannot be read: {error}") from error
    return found


def _answer(one: TopicPartition, offset: int, result: FetchPartitionResult, settings: FetchSettings) -> Answer:
    watermarks = (result.high_watermark, result.last_stable_offset, result.log_start_offset)
    if result.error_code != 0:
        return Answer(result.error_code, None, *watermarks)
    committed = settings.isolation is Isolation.READ_COMMITTED
    columns = decode_batches(
        result.records,
        start_offset=offset,
        aborted=(result.aborted or ()) if committed else None,
        check_crc=settings.check_crcs,
    )
    return Answer(0, Fetched(one, columns, columns.next_offset, timestamp_type_of(result.records)), *watermarks)


async def fetch_range(
    cluster: Cluster,
    one: TopicPartition,
    start: int,
    end: int,
    settings: FetchSettings,
    patience_ms: int,
) -> AsyncIterator[Fetched]:
    """All visible records with start <= offset < end, in order; ends at `end` whatever gaps lie before it.

    Markers, aborted and compacted records are gaps; what is empty of records is not yielded. Raises
    OffsetOutOfRangeError when `start` is below the log start (or beyond its end), KafkaTimeoutError when nothing new
    arrived for `patience_ms` (the end lies behind the last stable offset), and errors of final codes.
    """
    if start < 0 or end < start:
        raise ConfigurationError(f"not a range of offsets: {start} to {end}")
    offset = start
    attempt = 0
    deadline_ms = cluster.runtime.now_ms() + patience_ms
    while offset < end:
        got, error = await _fetch_next(cluster, one, offset, settings, deadline_ms)
        if got is None or got.next_offset <= offset:
            await _pause_without_progress(cluster, one, attempt, deadline_ms, error)
            attempt += 1 if error is not None else 0
            continue
        attempt = 0
        offset = got.next_offset
        deadline_ms = cluster.runtime.now_ms() + patience_ms
        inside = got if offset <= end else _before(got, end)
        if len(inside.columns):
            yield inside


async def _fetch_next(
    cluster: Cluster, one: TopicPartition, offset: int, settings: FetchSettings, deadline_ms: int
) -> tuple[Fetched | None, KafkaError | None]:
    """What comes next, or the retriable error that kept it away. Raises final errors."""
    await cluster.topic(one.topic, deadline_ms)
    leader = cluster.leader(one.topic, one.partition)
    if leader < 0:
        return None, error_for(E.LEADER_NOT_AVAILABLE, f"{one.topic}-{one.partition}")
    try:
        answer = (await fetch(cluster, leader, {one: offset}, settings)).get(one)
    except (DisconnectedError, KafkaTimeoutError) as error:
        return None, error
    if answer is None:
        return None, DisconnectedError(f"broker {leader} left {one.topic}-{one.partition} out of its answer")
    if answer.error_code == 0:
        return answer.fetched, None
    what = f"{one.topic}-{one.partition} at offset {offset}"
    if answer.error_code == E.OFFSET_OUT_OF_RANGE:
        raise OffsetOutOfRangeError(f"{what}: not in the log", code=answer.error_code)
    refused = error_for(answer.error_code, what)
    if retry.action(retry.FETCH, answer.error_code) not in RETRIABLE:
        raise refused
    return None, refused


async def _pause_without_progress(
    cluster: Cluster, one: TopicPartition, attempt: int, deadline_ms: int, error: KafkaError | None
) -> None:
    if error is not None:
        await cluster.pause(attempt, deadline_ms, f"fetch of {one.topic}-{one.partition}", error)
        await cluster.refresh_quietly([one.topic], deadline_ms)
    elif cluster.runtime.now_ms() >= deadline_ms:
        raise KafkaTimeoutError(f"{one.topic}-{one.partition}: nothing new to read before the end of the range")


def _before(got: Fetched, end: int) -> Fetched:
    rows = int(got.columns.offsets.searchsorted(end))
    return got._replace(columns=got.columns.select(slice(0, rows)), next_offset=end)


def leaders_of(
    cluster: Cluster, wanted: Mapping[TopicPartition, int]
) -> tuple[dict[int, dict[TopicPartition, int]], Sequence[str]]:
    """Group by leader; and the topics of partitions whose leader is not known."""
    by_node: dict[int, dict[TopicPartition, int]] = defaultdict(dict)
    unknown = set()
    for one, offset in wanted.items():
        leader = cluster.leader(one.topic, one.partition)
        if leader < 0:
            unknown.add(one.topic)
        else:
            by_node[leader][one] = offset
    return by_node, sorted(unknown)
