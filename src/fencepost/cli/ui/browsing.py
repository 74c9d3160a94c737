"""Read the messages of a topic for the page, within limits of time, bytes and offsets."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Final, Protocol, TypeVar

from fencepost.cli.diagnosis.cluster_snapshot import Calls
from fencepost.cli.ui.messages import (
    MOST_PARTITIONS,
    Decode,
    EndMarker,
    EndState,
    PartitionSearch,
    Query,
    SeenMessage,
    WindowRecords,
    document,
    matches,
    outcomes,
    page_of,
)
from fencepost.cli.ui.web import HttpRefusal
from fencepost.client.diagnosis.collecting import checked
from fencepost.client.net.list_offsets import EARLIEST, LATEST
from fencepost.client.net.stored_batches import StoredBatches
from fencepost.client.net.tasks import gather
from fencepost.client.records import Fetched, timestamp_type_of, to_records
from fencepost.client.types import Isolation, TopicPartition
from fencepost.errors import KafkaError
from fencepost.protocol.errors import WireError
from fencepost.protocol.fetch_wire import FetchPartitionResult
from fencepost.protocol.records.aborted import AbortedFilter
from fencepost.protocol.records.batch import BatchHeader, iter_batches
from fencepost.protocol.records.decoding import decode_readable
from fencepost.protocol.records.markers import ABORT, COMMIT, control_type

__all__ = ["Browser"]

T = TypeVar("T")

SECONDS: Final = 5.0  # of one search
MOST_SCANNED: Final = 50_000  # records of one search
FETCH_BYTES: Final = 1024 * 1024
WINDOW_BYTES: Final = 4 * 1024 * 1024
DECODED_BYTES: Final = 64 * 1024 * 1024  # of one batch
AHEAD_FETCHES: Final = 8  # behind a window, for the markers of its transactions
AT_ONCE: Final = 2  # searches
PARTITIONS_AT_ONCE: Final = 4  # partitions of a search: each may decompress DECODED_BYTES


class ConnectionThread(Protocol):
    """The thread with the connections."""

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run to the end."""
        ...


class Browser:
    """Searches messages. All calls may come from any thread."""

    def __init__(self, calls: Calls, runs: ConnectionThread, call_ms: int, decode: Decode | None) -> None:
        """Create a reader of messages.

        Args:
            calls: Calls of the cluster's clients.
            runs: Runs coroutines in the loop of the page.
            call_ms: Time limit of each request, in ms.
            decode: Decodes values with the schema registry; None without one.
        """
        self._calls = calls
        self._runs = runs
        self._call_ms = call_ms
        self._decode = decode
        self._room = threading.BoundedSemaphore(AT_ONCE)

    def search(self, query: Query, owners: Mapping[int, str], clock: Callable[[], float] = time.monotonic) -> Any:
        """Return a page of messages. `owners`: transactional ids by producer id.

        Raises:
            Refusal: Too many searches run, or the topic or partition does not exist.
            KafkaError: The brokers refuse or do not answer.
        """
        if not self._room.acquire(timeout=SECONDS):
            raise HttpRefusal(503, f"{AT_ONCE} searches are running; repeat this one when they are over")
        try:
            return self._search(query, owners, clock)
        finally:
            self._room.release()

    def _search(self, query: Query, owners: Mapping[int, str], clock: Callable[[], float]) -> Any:
        known = self._runs.run(self._calls.describe_topics([query.topic], api_timeout_ms=self._call_ms))
        numbers = sorted(known[query.topic].partitions) if query.topic in known else []
        if not numbers:
            return None
        if query.partition is not None and query.partition not in numbers:
            raise HttpRefusal(404, f"topic {query.topic!r} has no partition {query.partition}")
        partitions = numbers if query.partition is None else [query.partition]
        searches, unread = self._runs.run(
            self._searches(query, [TopicPartition(query.topic, at) for at in partitions[:MOST_PARTITIONS]])
        )
        until = clock() + SECONDS  # of reading: a leader that does not answer may have taken as long before
        ends = {search.partition.partition: [search.begin, search.end] for search in searches} if not query.at else {}
        scanned, flaws, is_whole = 0, list[str](), True
        while windows := [(search, window) for search in searches if (window := search.window()) is not None]:
            if clock() > until or scanned >= MOST_SCANNED:
                is_whole = False
                break
            for first in range(0, len(windows), PARTITIONS_AT_ONCE):
                some = windows[first : first + PARTITIONS_AT_ONCE]
                passages = self._runs.run(self._read_all([(search.partition, *window) for search, window in some]))
                for (search, _), window_records in zip(some, passages, strict=True):
                    if isinstance(window_records, KafkaError):
                        unread[search.partition] = window_records
                        searches.remove(search)
                        continue
                    matching = [
                        self._shown(each, query)
                        for each in window_records.messages
                        if matches(each, query, self._decode)
                    ]
                    if search.take(matching, window_records.reached):
                        scanned += len(window_records.messages)
                        flaws += window_records.flaws
                del passages  # their memory, before the next ones are read
                if clock() > until:
                    is_whole = False
                    break
        if unread and not searches:
            raise next(iter(unread.values()))
        flaws += [f"Partition {at.partition} is not read: {error}" for at, error in unread.items()]
        found, marks = page_of(searches)
        return {
            "name": query.topic,
            "partitions": len(numbers),
            "skipped": max(len(partitions) - MOST_PARTITIONS, 0),
            "ranges": ends,
            "rows": [{**each.row, "owner": owners.get(each.producer_id)} for each in found],
            "scanned": scanned,
            "is_whole": is_whole,
            "flaws": sorted(set(flaws))[:20],
            "cursor": ",".join(f"{number}:{mark}" for number, mark in marks.items()),
            "registry": self._decode is not None,
        }

    def _shown(self, message: SeenMessage, query: Query) -> SeenMessage:
        """Return the message with its row, and without the bytes that the row leaves out."""
        row = document(message, query, self._decode)
        return message._replace(row=row, record=message.record._replace(key=None, value=None, headers=()))

    def message(self, query: Query, owners: Mapping[int, str]) -> Any:
        """Return the message at an offset, or None if there is none there. Raises KafkaError."""
        offset = query.offset or 0
        partition = TopicPartition(query.topic, query.partition or 0)
        window_records = self._runs.run(self._read_at(query, partition, offset))
        if not window_records.messages:
            return {
                "name": query.topic,
                "partition": partition.partition,
                "offset": offset,
                "flaws": [*window_records.flaws],
            }
        (found,) = window_records.messages
        facts = document(found, query, self._decode, whole=True)
        return {"name": query.topic, **facts, "flaws": [*window_records.flaws], "owner": owners.get(found.producer_id)}

    # --- in the thread with the connections ---

    async def _searches(
        self, query: Query, partitions: Sequence[TopicPartition]
    ) -> tuple[list[PartitionSearch], dict[TopicPartition, KafkaError]]:
        """Return the searches, and the errors of partitions whose leader does not answer."""
        begins = await self._calls.offsets_at(EARLIEST, partitions, self._call_ms)
        ends = await self._calls.offsets_at(LATEST, begins.done, self._call_ms)
        unread = {**begins.failed, **ends.failed}
        starts = {partition: begins.done[partition].offset for partition in ends.done}
        stops = {partition: at.offset for partition, at in ends.done.items()}
        if query.timestamp_ms is not None and not query.at:
            found = await self._calls.offsets_at(query.timestamp_ms, starts, self._call_ms)
            unread |= found.failed
            starts = {
                partition: stops[partition] if at.offset < 0 else at.offset for partition, at in found.done.items()
            }
        elif query.offset is not None:
            starts = {partition: min(max(start, query.offset), stops[partition]) for partition, start in starts.items()}
        searches = []
        for partition in sorted(starts):
            begin, end = starts[partition], stops[partition]
            if query.at:
                mark = query.at.get(partition.partition)
                if mark is None:
                    continue
                begin, end = (begin, min(mark, end)) if query.newest else (max(mark, begin), end)
            searches.append(PartitionSearch(partition, begin, end, query.newest))
        return searches, unread

    async def _read_at(self, query: Query, partition: TopicPartition, offset: int) -> WindowRecords:
        """Return the record at an offset. Outside of the log there is none. Raises KafkaError."""
        searches, unread = await self._searches(query, [partition])
        for error in unread.values():
            raise error
        is_there = any(search.begin <= offset < search.end for search in searches)
        return await self._read(partition, offset, offset + 1) if is_there else WindowRecords([], offset)

    async def _read_all(self, windows: Sequence[tuple[TopicPartition, int, int]]) -> list[WindowRecords | KafkaError]:
        answers = await gather(self._calls.cluster.runtime, [self._read(*window) for window in windows])
        return list(map(checked, answers))

    async def _read(self, partition: TopicPartition, start: int, stop: int) -> WindowRecords:
        """Return the records of a window, or of its first part if it has too many bytes."""
        window = _Window(partition, start, stop)
        while window.at < stop and window.size_bytes < WINDOW_BYTES:
            if window.take(await self._fetch(partition, window.at, Isolation.READ_COMMITTED)):
                continue
            everything = await self._fetch(partition, window.at, Isolation.READ_UNCOMMITTED)
            if not window.take(everything):
                window.take_gap(everything.high_watermark)
        ahead, fetches = window.at, 0
        while window.undecided() and fetches < AHEAD_FETCHES:
            after = window.look_ahead(await self._fetch(partition, ahead, Isolation.READ_UNCOMMITTED))
            if after <= ahead:
                break
            ahead, fetches = after, fetches + 1
        open_from: dict[int, int] | None = None
        if window.undecided():
            try:
                found = await self._calls.describe_producers([partition], api_timeout_ms=self._call_ms)
                open_from = {each.producer_id: each.transaction_start_offset for each in found[partition]}
            except KafkaError as error:
                window.flaws.append(f"Partition {partition.partition}: open transactions are not known: {error}")
        return window.window_records(open_from)

    async def _fetch(self, partition: TopicPartition, offset: int, isolation: Isolation) -> FetchPartitionResult:
        cluster = self._calls.cluster
        deadline_ms = cluster.runtime.now_ms() + self._call_ms
        stored = StoredBatches(cluster, isolation, FETCH_BYTES, wait_ms=0)
        return await stored.fetch_once(partition, offset, deadline_ms)


class _Window:
    """Decodes the batches of one window, and finds the ends of their transactions."""

    def __init__(self, partition: TopicPartition, start: int, stop: int) -> None:
        self._partition, self._stop = partition, stop
        self.at = start
        self.size_bytes = 0
        self.flaws: list[str] = []
        self._messages: list[SeenMessage] = []
        self._markers: dict[int, list[EndMarker]] = defaultdict(list)

    def take(self, result: FetchPartitionResult) -> bool:
        """Take a response. Returns false if it has nothing at or behind the position."""
        before = self.at
        is_aborted = None if result.aborted is None else AbortedFilter(result.aborted)
        try:
            for header, batch in iter_batches(result.records, allow_partial=True):
                if self._is_marker(header, batch):
                    if is_aborted is not None:
                        is_aborted(header, batch)
                elif header.last_offset >= self.at and header.base_offset < self._stop:
                    outcome = None
                    if is_aborted is not None and header.is_transactional:
                        outcome = EndState.ABORTED if is_aborted(header, batch) else EndState.COMMITTED
                    self._decode(header, batch, outcome)
                self.at = max(self.at, header.last_offset + 1)
                self.size_bytes += header.size_bytes
                if self.at >= self._stop:
                    break
        except WireError as error:
            self._flaw(self.at, str(error))
            self.at = self._stop
        return self.at > before

    def take_gap(self, high_watermark: int) -> None:
        """Step over offsets without records: compaction has removed them, or they are transaction markers."""
        if high_watermark < self._stop:
            self._flaw(self.at, f"the leader returned none, and its high watermark is {high_watermark}")
        self.at = self._stop

    def look_ahead(self, result: FetchPartitionResult) -> int:
        """Take the markers of a response behind the window. Returns the next offset, -1 if nothing came."""
        after = -1
        try:
            for header, batch in iter_batches(result.records, allow_partial=True):
                self._is_marker(header, batch)
                after = header.last_offset + 1
        except WireError:
            return after  # a search that reaches this batch reports it
        return after

    def undecided(self) -> bool:
        """Return true if a record's transaction has no known end."""
        known = outcomes(self._written(), self._markers, None)
        return EndState.UNKNOWN in known

    def window_records(self, open_from: Mapping[int, int] | None) -> WindowRecords:
        """Return the records with the outcomes of their transactions."""
        decided = iter(outcomes(self._written(), self._markers, open_from))
        messages = [
            each._replace(outcome=next(decided)) if each.outcome is EndState.UNKNOWN else each
            for each in self._messages
        ]
        return WindowRecords(messages, self.at, self.flaws)

    def _written(self) -> list[tuple[int, int]]:
        return [(each.producer_id, each.record.offset) for each in self._messages if each.outcome is EndState.UNKNOWN]

    def _is_marker(self, header: BatchHeader, batch: memoryview) -> bool:
        if not header.is_control:
            return False
        kind = control_type(batch)
        if kind in (ABORT, COMMIT):
            self._markers[header.producer_id].append(EndMarker(header.base_offset, kind == COMMIT))
        return True

    def _decode(self, header: BatchHeader, batch: memoryview, outcome: EndState | None) -> None:
        if outcome is None:
            outcome = EndState.UNKNOWN if header.is_transactional else EndState.NONE
        decoded = decode_readable(batch, start_offset=self.at, max_batch_bytes=DECODED_BYTES)
        fetched = Fetched(self._partition, decoded.columns, decoded.columns.next_offset, timestamp_type_of(batch))
        for record in to_records(fetched):
            if record.offset >= self._stop:
                break
            self._messages.append(SeenMessage(record, header.producer_id, outcome))
        if decoded.unreadable is not None:
            self._flaw(decoded.unreadable.offset, str(decoded.unreadable.error))

    def _flaw(self, offset: int, reason: str) -> None:
        self.flaws.append(
            f"Partition {self._partition.partition}: records from offset {offset} on cannot be read: {reason}"
        )
