"""`Consumer` (blocking) and `AsyncConsumer` (asyncio): two thin faces of ConsumerCore."""

from __future__ import annotations

import asyncio
import inspect
import queue
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar, Unpack

from fencepost.client.assembly import cluster_for
from fencepost.client.asyncio_runtime import AsyncioRuntime
from fencepost.client.blocking_base import BlockingClient, blocking
from fencepost.client.consumer import ConsumerCore
from fencepost.client.records import Fetched, Record
from fencepost.client.types import GroupMetadata, OffsetAndMetadata, TopicPartition
from fencepost.config import ConsumerConfig, ConsumerSettings
from fencepost.errors import UsageError

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")


class RebalanceListener(Protocol):
    """What a rebalance tells the application; each method may be left out.

    With Consumer they run in the polling thread, inside poll; with AsyncConsumer they may be coroutine functions.
    """

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> Any:
        """These are about to be given up: the last moment to commit."""

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> Any:
        """These are ours now."""

    def on_partitions_lost(self, partitions: list[TopicPartition]) -> Any:
        """These are somebody else's already; commits would fail."""


def _method(listener: RebalanceListener | None, kind: str) -> Callable[[list[TopicPartition]], Any] | None:
    found: Callable[[list[TopicPartition]], Any] | None = getattr(listener, f"on_partitions_{kind}", None)
    return found


class AsyncConsumer(ConsumerCore):
    """The consumer for asyncio: make it inside a running loop; `async for record in consumer` reads for ever."""

    def __init__(self, bootstrap_servers: str | Sequence[str], **settings: Unpack[ConsumerSettings]) -> None:
        config = ConsumerConfig.make({"bootstrap_servers": bootstrap_servers, **settings})
        ConsumerCore.__init__(self, cluster_for(AsyncioRuntime(), config), config)

    @classmethod
    def from_config(cls, settings: Mapping[str, Any]) -> Self:
        """From Kafka's dotted names."""
        self = cls.__new__(cls)
        config = ConsumerConfig.from_dotted(settings)
        ConsumerCore.__init__(self, cluster_for(AsyncioRuntime(), config), config)
        return self

    def set_rebalance_listener(self, listener: RebalanceListener | None) -> None:
        """Who is told of rebalances."""

        async def tell(kind: str, partitions: list[TopicPartition]) -> None:
            method = _method(listener, kind)
            if method is not None:
                outcome = method(partitions)
                if inspect.isawaitable(outcome):
                    await outcome

        self.listener = tell

    async def __aiter__(self) -> AsyncIterator[Record]:
        while not self.closed:
            for record in await self.poll(1000):
                yield record

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()


class _Telling:
    """Carries rebalance news from the I/O thread to the thread that polls."""

    def __init__(self) -> None:
        self.listener: RebalanceListener | None = None
        self.news: queue.SimpleQueue[tuple[str, list[TopicPartition], asyncio.Future[None]] | None] = (
            queue.SimpleQueue()
        )

    async def tell(self, kind: str, partitions: list[TopicPartition]) -> None:
        """Runs in the I/O thread: hand over, wait until the polling thread has called the listener."""
        if _method(self.listener, kind) is None:
            return
        told: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.news.put((kind, partitions, told))
        await told

    def serve(self, kind: str, partitions: list[TopicPartition], told: asyncio.Future[None]) -> None:
        """Runs in the polling thread. The rebalance goes on even if the listener raises, and the poll raises that."""
        method = _method(self.listener, kind)
        try:
            if method is not None:
                method(partitions)
        finally:
            told.get_loop().call_soon_threadsafe(_done, told)


def _done(told: asyncio.Future[None]) -> None:
    if not told.done():
        told.set_result(None)


class Consumer(BlockingClient[ConsumerCore]):
    """A blocking consumer for one thread (`wakeup` may come from any). Reads committed records by default."""

    def __init__(self, bootstrap_servers: str | Sequence[str], **settings: Unpack[ConsumerSettings]) -> None:
        self._make(ConsumerConfig.make({"bootstrap_servers": bootstrap_servers, **settings}))

    @classmethod
    def from_config(cls, settings: Mapping[str, Any]) -> Self:
        """From Kafka's dotted names."""
        self = cls.__new__(cls)
        self._make(ConsumerConfig.from_dotted(settings))
        return self

    def _make(self, config: ConsumerConfig) -> None:
        BlockingClient.__init__(self, lambda: ConsumerCore(cluster_for(AsyncioRuntime(), config), config))
        self._telling = _Telling()
        self._core.listener = self._telling.tell

    def _run_listening(self, call: Callable[[], Any]) -> Any:
        """Run a core call while serving rebalance news in this thread."""
        self._check()
        if self._telling.listener is None:
            return self._io.run(call())
        if self._io.is_current():
            raise UsageError("a blocking call from a callback would wait for itself")
        future = asyncio.run_coroutine_threadsafe(call(), self._io.loop)
        future.add_done_callback(lambda _: self._telling.news.put(None))
        try:
            while (news := self._telling.news.get()) is not None or not future.done():
                if news is not None:
                    self._telling.serve(*news)
            return future.result()
        except BaseException:
            if not future.done():
                future.cancel()
            raise

    # --- reading ---

    def subscribe(self, topics: Iterable[str], listener: RebalanceListener | None = None) -> None:
        """Read what the group assigns of these topics; `listener` is told of rebalances inside poll."""
        self._telling.listener = listener
        self._run(lambda core: core.subscribe(topics))

    def unsubscribe(self) -> None:
        """Leave the group, read nothing."""
        self._run_listening(self._core.unsubscribe)

    def poll(self, timeout_ms: float = 0, max_records: int | None = None) -> list[Record]:
        """The next records, waiting up to `timeout_ms` for the first. Raises as ConsumerCore.poll_columns."""
        records: list[Record] = self._run_listening(lambda: self._core.poll(timeout_ms, max_records))
        return records

    def poll_columns(self, timeout_ms: float = 0, max_records: int | None = None) -> list[Fetched]:
        """As `poll`, as columns per partition."""
        fetched: list[Fetched] = self._run_listening(lambda: self._core.poll_columns(timeout_ms, max_records))
        return fetched

    def poll_arrow(self, timeout_ms: float = 0, max_records: int | None = None, *, headers: bool = False) -> pa.Table:
        """As `poll`, as an Arrow table with the columns of Spark's Kafka source."""
        table: pa.Table = self._run_listening(lambda: self._core.poll_arrow(timeout_ms, max_records, headers=headers))
        return table

    def __iter__(self) -> Iterator[Record]:
        while not self._closed:
            yield from self.poll(1000)

    def fetch_range(
        self, topic: str, partition: int, start: int, end: int, *, timeout_ms: float | None = None
    ) -> Iterator[Fetched]:
        """All visible records of [start, end) of one partition as columns, whatever is assigned.

        The next piece is fetched while the caller works on the one before. Raises as `fetching.fetch_range`.
        """
        self._check()
        pieces = self._core.fetch_range(topic, partition, start, end, timeout_ms=timeout_ms)
        following = asyncio.run_coroutine_threadsafe(_next_of(pieces), self._io.loop)
        try:
            while (piece := following.result()) is not None:
                following = asyncio.run_coroutine_threadsafe(_next_of(pieces), self._io.loop)
                yield piece
        finally:
            following.cancel()

    assign = blocking(ConsumerCore.assign)
    seek_to_beginning = blocking(ConsumerCore.seek_to_beginning)
    seek_to_end = blocking(ConsumerCore.seek_to_end)
    seek_to_timestamp = blocking(ConsumerCore.seek_to_timestamp)
    offsets_for = blocking(ConsumerCore.offsets_for)
    position = blocking(ConsumerCore.position)
    reset_to_committed = blocking(ConsumerCore.reset_to_committed)
    commit = blocking(ConsumerCore.commit)
    committed = blocking(ConsumerCore.committed)
    partitions_for = blocking(ConsumerCore.partitions_for)

    def _in_loop(self, call: Callable[[], T]) -> T:
        async def run() -> T:
            return call()

        self._check()
        return self._io.run(run())

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Read on from `offset`."""
        self._in_loop(lambda: self._core.seek(partition, offset))

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Hand out nothing of these partitions until `resume`."""
        self._in_loop(lambda: self._core.pause(partitions))

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Undo `pause`."""
        self._in_loop(lambda: self._core.resume(partitions))

    def assignment(self) -> list[TopicPartition]:
        """The partitions being read."""
        return self._in_loop(self._core.assignment)

    def positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """What to commit now: where reading goes on, per partition with a known position."""
        return self._in_loop(self._core.positions)

    def group_metadata(self) -> GroupMetadata:
        """Who we are in the group, for send_offsets_to_transaction."""
        return self._in_loop(self._core.group_metadata)

    def wakeup(self) -> None:
        """Make the poll that runs now, or the next one, raise WakeupError. From any thread."""
        self._check()
        self._io.call_soon(self._core.wakeup)

    def close(self) -> None:
        """Commit if enable_auto_commit, leave the group, release everything. May be called again."""
        self._io.check_process()
        if not self._closed:
            try:
                self._run_listening(self._core.close)
            finally:
                self._closed = True


async def _next_of(pieces: AsyncIterator[Fetched]) -> Fetched | None:
    return await anext(pieces, None)
