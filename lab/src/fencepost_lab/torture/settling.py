"""The end of a run, with a client that no fault disturbs: end open transactions, read everything, clean up."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TypeVar

from fencepost.client.admin.core import AdminCore
from fencepost.client.consumer.fetch_requests import FetchSettings, fetch_range
from fencepost.client.net.asyncio_runtime import runtime_for
from fencepost.client.net.cluster import Cluster
from fencepost.client.net.io_thread import io_thread
from fencepost.client.net.list_offsets import LATEST
from fencepost.client.types import Isolation, TopicPartition
from fencepost.config import AdminConfig
from fencepost.errors import KafkaError, TopicAlreadyExistsError
from fencepost_lab.check.history.operations import Init, OffsetsFetch, Position, Read, RecordRun
from fencepost_lab.check.history.recorder import Recorder
from fencepost_lab.torture.access import Access

__all__ = ["clean_up", "create_topics", "settle", "with_admin"]

T = TypeVar("T")

JUDGES = ("judge-1", "judge-2")
ANSWER_MS = 60_000


def create_topics(access: Access, topics: Mapping[str, int]) -> None:
    """Create topics. Raises KafkaError, including for a topic that exists."""

    async def create(admin: AdminCore) -> None:
        there = sorted(topics.keys() & set(await admin.list_topics()))
        if there:
            raise TopicAlreadyExistsError(f"there are {', '.join(there)} already")
        for name, partitions in topics.items():
            await admin.create_topic(
                name, partitions, -1, exist_ok=True
            )  # an earlier attempt without an answer may have created it

    with_admin(access.config(default_api_timeout_ms=ANSWER_MS), create)


def clean_up(access: Access, topics: Iterable[str], groups: Iterable[str]) -> list[str]:
    """Delete topics and groups. Return a message for each one that could not be deleted."""
    left = []

    async def delete(admin: AdminCore) -> None:
        actions = [(f"topic {name}", admin.delete_topic(name, missing_ok=True)) for name in topics]
        actions += [(f"group {group}", admin.delete_group(group)) for group in groups]
        for what, action in actions:
            try:
                await action
            except KafkaError as error:
                left.append(f"{what}: {error}")

    with_admin(access.config(default_api_timeout_ms=ANSWER_MS), delete)
    return left


def settle(
    access: Access,
    recorder: Recorder,
    *,
    transactional_ids: Iterable[str],
    inputs: Mapping[str, str],
    topics: Mapping[str, int],
    patience_ms: int,
) -> None:
    """Fence all ids, read the groups' positions (`inputs`: group to topic), and read all partitions twice.

    An operation without an answer is recorded as unknown. A partition whose end is not reached within `patience_ms` is
    recorded as a failed read.
    """

    async def end(admin: AdminCore) -> None:
        for name in transactional_ids:
            init = recorder.invoke(Init(process=JUDGES[0], transactional_id=name))
            try:
                await admin.init_producer_id(name, timeout_ms=ANSWER_MS)
            except KafkaError as error:
                recorder.unknown(init, error)
            else:
                recorder.ok(init)
        for group, topic in inputs.items():
            partitions = [TopicPartition(topic, number) for number in range(topics[topic])]
            fetch = recorder.invoke(OffsetsFetch(process=JUDGES[0], group=group))
            try:
                found = await admin.group_offsets(group, partitions)
            except KafkaError as error:
                recorder.unknown(fetch, error)
            else:
                recorder.ok(fetch, offsets=[Position(*partition, at.offset) for partition, at in found.items()])
        for judge in JUDGES:
            for topic, count in topics.items():
                for number in range(count):
                    await _read(admin, recorder, judge, TopicPartition(topic, number), patience_ms)

    with_admin(access.config(default_api_timeout_ms=ANSWER_MS), end)


async def _read(admin: AdminCore, recorder: Recorder, judge: str, partition: TopicPartition, patience_ms: int) -> None:
    read = Read(process=judge, topic=partition.topic, partition=partition.partition, isolation="read_committed")
    recorder.invoke(read)
    batch = RecordRun(partition.topic, partition.partition, [], [])
    try:
        end = (await admin.list_offsets({partition: LATEST}, isolation=Isolation.READ_UNCOMMITTED))[partition].offset
        settings = FetchSettings(isolation=Isolation.READ_COMMITTED)
        async for fetched in fetch_range(admin.cluster, partition, 0, end, settings, patience_ms):
            batch.offsets.extend(fetched.columns.offsets.tolist())
            batch.values.extend((value or b"").decode() for value in fetched.columns.values())
    except KafkaError as error:
        recorder.fail(read, error, records=[batch])
    else:
        recorder.ok(read, records=[batch])


def with_admin(config: AdminConfig, use: Callable[[AdminCore], Awaitable[T]]) -> T:
    """Return the result of `use`, called with an admin client that is closed afterwards."""

    async def run() -> T:
        admin = AdminCore(Cluster(runtime_for(config), config))
        try:
            return await use(admin)
        finally:
            admin.cluster.close()

    return io_thread().run_through(run())  # asyncio.run would log a signal that comes in a task as a bug of the client
