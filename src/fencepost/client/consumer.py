"""The consumer's core: positions, prefetching, polling, committing. `blocking` and `aio` have the faces users see.

While the application works on what one poll gave it, the next fetch of each partition is on its way (one round ahead).
Positions move when records are handed out, not when they are fetched.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from fencepost.client import offsets, retry
from fencepost.client.cluster import Cluster
from fencepost.client.fetching import (
    RANGE_FETCH_BYTES,
    RETRIABLE,
    Answer,
    FetchSettings,
    fetch,
    fetch_range,
    leaders_of,
)
from fencepost.client.group import Membership
from fencepost.client.group_offsets import commit, fetch_committed
from fencepost.client.records import Fetched, Record, arrow_schema, to_arrow, to_records
from fencepost.client.types import GroupMetadata, Isolation, OffsetAndMetadata, OffsetAt, TopicPartition
from fencepost.config import ConsumerConfig
from fencepost.errors import (
    ClosedError,
    ConfigurationError,
    DisconnectedError,
    GroupFencedError,
    KafkaError,
    KafkaTimeoutError,
    OffsetOutOfRangeError,
    RetriableError,
    UsageError,
    WakeupError,
    error_for,
)
from fencepost.protocol.codes import ErrorCode as E

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger("fencepost.client.consumer")

ROUNDS_AHEAD: Final = 2  # fetched answers of one partition that may wait: the one being handed out, and the next
Listener = Callable[[str, list[TopicPartition]], Awaitable[None]]


class _Place:
    """Where reading of one partition stands."""

    __slots__ = ("error", "fetch_offset", "high_watermark", "paused", "position", "ready", "resetting", "version")

    def __init__(self) -> None:
        self.position: int | None = None  # of the next record to hand out; None: not known yet
        self.fetch_offset = -1
        self.ready: deque[Fetched] = deque()
        self.paused = False
        self.resetting = False  # its position comes from auto_offset_reset, not from the group's commits
        self.version = 0  # raised by seek, so that older fetches are forgotten
        self.error: KafkaError | None = None
        self.high_watermark = -1

    def go_to(self, offset: int | None) -> None:
        self.position = offset
        self.fetch_offset = -1 if offset is None else offset
        self.ready.clear()
        self.version += 1
        self.error = None


async def _ignore(kind: str, partitions: list[TopicPartition]) -> None:
    """The listener of those who have none."""


class ConsumerCore:
    """One consumer over one cluster view; everything runs in the runtime, one call at a time (wakeup excepted)."""

    def __init__(self, cluster: Cluster, config: ConsumerConfig) -> None:
        self.cluster = cluster
        self.config = config
        self.closed = False
        self.listener: Listener = _ignore
        self._runtime = cluster.runtime
        self._settings = FetchSettings(
            isolation=Isolation[config.isolation_level.upper()],
            min_bytes=config.fetch_min_bytes,
            max_wait_ms=config.fetch_max_wait_ms,
            max_bytes=config.fetch_max_bytes,
            partition_bytes=config.max_partition_fetch_bytes,
            check_crcs=config.check_crcs,
            rack=config.client_rack,
            request_timeout_ms=config.request_timeout_ms,
        )
        self._places: dict[TopicPartition, _Place] = {}
        self._group: Membership | None = None
        self._in_flight: set[int] = set()  # nodes
        self._turn: deque[TopicPartition] = deque()  # who is served next
        self._arrived = self._runtime.event()
        self._woken = False
        self._settling = False
        self._finding = False
        self._failure: KafkaError | None = None  # what a task met with, for the next poll to raise
        self._not_before_ms = 0
        self._last_commit_ms = self._runtime.now_ms()

    # --- what to read ---

    def _check(self) -> None:
        if self.closed:
            raise ClosedError("the consumer is closed")

    def _deadline(self, timeout_ms: float | None) -> int:
        patience = self.config.default_api_timeout_ms if timeout_ms is None else timeout_ms
        return self._runtime.now_ms() + round(patience)

    async def assign(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Read these partitions, without a group's assignment. Replaces what was read before."""
        self._check()
        if self._group is not None:
            raise UsageError("assign and subscribe exclude each other; unsubscribe first")
        self._take([TopicPartition(*one) for one in partitions])

    async def subscribe(self, topics: Iterable[str]) -> None:
        """Read what the group assigns of these topics; the next poll joins. Raises ConfigurationError, UsageError."""
        self._check()
        if self.config.group_id is None:
            raise ConfigurationError("subscribe needs a group_id; assign does not")
        if isinstance(topics, str):
            raise ConfigurationError("subscribe takes a list of topics")
        if self._group is None:
            if self._places:
                raise UsageError("assign and subscribe exclude each other; unsubscribe first")
            self._group = Membership(self.cluster, self.config, self._rebalanced)
        self._group.subscribe(list(topics))

    async def unsubscribe(self) -> None:
        """Leave the group, read nothing."""
        self._check()
        if self._group is not None:
            await self._group.end()
            self._group = None
        self._take([])

    def _take(self, partitions: Sequence[TopicPartition]) -> None:
        self._places = {one: self._places.get(one) or _Place() for one in partitions}
        self._turn = deque(sorted(self._places))
        self._arrived.set()

    async def _rebalanced(self, kind: str, partitions: list[TopicPartition]) -> None:
        if kind == "assigned":
            self._take(partitions)
        elif kind == "revoked" and self.config.enable_auto_commit:
            await self._commit_quietly()
        await self.listener(kind, partitions)
        if kind != "assigned":
            self._take([])

    def assignment(self) -> list[TopicPartition]:
        """The partitions being read."""
        return sorted(self._places)

    def group_metadata(self) -> GroupMetadata:
        """Who we are in the group, for send_offsets_to_transaction. Raises UsageError without a group_id."""
        if self.config.group_id is None:
            raise UsageError("this consumer has no group_id")
        if self._group is None:
            return GroupMetadata(self.config.group_id)
        return self._group.metadata()

    def pause(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Hand out nothing of these partitions until `resume`."""
        for one in partitions:
            self._place(one).paused = True

    def resume(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Undo `pause`."""
        for one in partitions:
            self._place(one).paused = False
        self._arrived.set()

    def _place(self, one: tuple[str, int]) -> _Place:
        place = self._places.get(TopicPartition(*one))
        if place is None:
            raise UsageError(f"{one[0]}-{one[1]} is not assigned")
        return place

    # --- positions ---

    def seek(self, one: tuple[str, int], offset: int) -> None:
        """Read on from `offset`."""
        if offset < 0:
            raise ConfigurationError(f"offset {offset}")
        self._place(one).go_to(offset)
        self._arrived.set()

    async def seek_to_beginning(self, partitions: Iterable[tuple[str, int]] | None = None) -> None:
        """Read on from the log start (None: of all assigned partitions)."""
        await self._seek_all(partitions, offsets.EARLIEST)

    async def seek_to_end(self, partitions: Iterable[tuple[str, int]] | None = None) -> None:
        """Read on from the end (under read_committed: the last stable offset)."""
        await self._seek_all(partitions, offsets.LATEST)

    async def seek_to_timestamp(self, timestamp_ms: int, partitions: Iterable[tuple[str, int]] | None = None) -> None:
        """Read on from the first record at or after the time; from the end where there is none."""
        await self._seek_all(partitions, timestamp_ms)

    async def _seek_all(self, partitions: Iterable[tuple[str, int]] | None, timestamp: int) -> None:
        self._check()
        wanted = self.assignment() if partitions is None else [TopicPartition(*one) for one in partitions]
        for one in wanted:
            self._place(one)
        found = await self.offsets_for(dict.fromkeys(wanted, timestamp))
        missing = [one for one, at in found.items() if at.offset < 0]
        if missing:
            found |= await self.offsets_for(dict.fromkeys(missing, offsets.LATEST))
        for one, at in found.items():
            self._place(one).go_to(at.offset)
        self._arrived.set()

    async def offsets_for(
        self, wanted: Mapping[TopicPartition, int], timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAt]:
        """Offsets by timestamp, EARLIEST or LATEST, as this consumer's isolation level sees them."""
        asked = {TopicPartition(*one): at for one, at in wanted.items()}
        return await offsets.list_offsets(self.cluster, asked, self._settings.isolation, self._deadline(timeout_ms))

    async def position(self, one: tuple[str, int], timeout_ms: float | None = None) -> int:
        """The offset of the next record that poll hands out."""
        self._check()
        place = self._place(one)
        if place.position is None:
            await self._find_positions(self._deadline(timeout_ms))
        if place.position is None:
            raise KafkaTimeoutError(f"the position of {one} is not known")
        return place.position

    def positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """What to commit now: where reading goes on, per partition with a known position."""
        return {
            one: OffsetAndMetadata(place.position)
            for one, place in sorted(self._places.items())
            if place.position is not None
        }

    async def reset_to_committed(self, timeout_ms: float | None = None) -> None:
        """Go back to the last committed positions (after an aborted transaction); pending ones are waited for."""
        self._check()
        for place in self._places.values():
            place.go_to(None)
        await self._find_positions(self._deadline(timeout_ms))

    async def _find_positions(self, deadline_ms: int) -> None:
        """Positions from the group's commits, else by auto_offset_reset."""
        missing = [one for one, place in self._places.items() if place.position is None and not place.resetting]
        if not missing:
            return
        if self.config.group_id is not None:
            committed = await fetch_committed(
                self.cluster, self.config.group_id, missing, require_stable=True, deadline_ms=deadline_ms
            )
            for one, at in committed.items():
                self._found(one, at.offset)
            missing = [one for one in missing if one not in committed and one in self._places]
        await self._reset(missing, deadline_ms, "there is no committed offset")

    async def _reset(self, partitions: Sequence[TopicPartition], deadline_ms: int, why: str) -> None:
        if not partitions:
            return
        if self.config.auto_offset_reset == "none":
            names = ", ".join(f"{one.topic}-{one.partition}" for one in partitions)
            raise OffsetOutOfRangeError(f"{names}: {why}, and auto_offset_reset is none", code=1)
        timestamp = offsets.EARLIEST if self.config.auto_offset_reset == "earliest" else offsets.LATEST
        found = await offsets.list_offsets(
            self.cluster, dict.fromkeys(partitions, timestamp), self._settings.isolation, deadline_ms
        )
        for one, at in found.items():
            self._found(one, at.offset)

    def _found(self, one: TopicPartition, offset: int) -> None:
        """Take a position that was looked for, unless the partition is gone or a seek was faster."""
        place = self._places.get(one)
        if place is not None and place.position is None:
            place.go_to(offset)

    # --- polling ---

    async def poll(self, timeout_ms: float = 0, max_records: int | None = None) -> list[Record]:
        """The next records, waiting up to `timeout_ms` for the first. See `poll_columns` for what it raises."""
        records: list[Record] = []
        for fetched in await self.poll_columns(timeout_ms, max_records):
            records.extend(to_records(fetched))
        return records

    async def poll_arrow(
        self, timeout_ms: float = 0, max_records: int | None = None, *, headers: bool = False
    ) -> pa.Table:
        """As `poll`, as an Arrow table with the columns of Spark's Kafka source (`records.arrow_schema`)."""
        import pyarrow as pa

        most = 2**31 if max_records is None else max_records
        parts = [to_arrow(one, headers=headers) for one in await self.poll_columns(timeout_ms, most)]
        return pa.Table.from_batches(parts, schema=arrow_schema(headers=headers))

    async def poll_columns(self, timeout_ms: float = 0, max_records: int | None = None) -> list[Fetched]:
        """As `poll`, as columns per partition.

        Takes part in the group (rebalances happen here) and commits if enable_auto_commit. Raises WakeupError,
        OffsetOutOfRangeError (auto_offset_reset="none"), GroupFencedError, AuthorizationError, ProtocolError.
        """
        self._check()
        deadline_ms = self._runtime.now_ms() + round(timeout_ms)
        most = self.config.max_poll_records if max_records is None else max_records
        while True:
            self._arrived.clear()
            if self._woken:
                self._woken = False
                raise WakeupError("wakeup() was called")
            if await self._take_part(deadline_ms):
                await self._auto_commit()
                self._start_finding()
                got = self._hand_out(most)
                self._start_fetches()
                if got:
                    return got
            left = deadline_ms - self._runtime.now_ms()
            if left <= 0:
                return []
            await self._arrived.wait(min(left, self._check_again_ms()))

    def _check_again_ms(self) -> float:
        """How long to wait at most: a rebalance is noticed by looking, a back-off ends."""
        pause = self._not_before_ms - self._runtime.now_ms()
        regular = 100 if self._group is not None else 1000
        return min(pause, regular) if pause > 0 else regular

    async def _take_part(self, deadline_ms: int) -> bool:
        """Whether the group's assignment is current. Raises what a task of this consumer met with."""
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        if self._group is None:
            return True
        self._group.polled()
        return await self._settled(self._group, deadline_ms)

    def _start_finding(self) -> None:
        """Look for missing positions in a task, so that a poll does not wait longer than it was told to."""
        missing = any(place.position is None and not place.resetting for place in self._places.values())
        if missing and not self._finding and self._runtime.now_ms() >= self._not_before_ms:
            self._finding = True
            self._runtime.spawn(self._find())

    async def _find(self) -> None:
        try:
            await self._find_positions(self._deadline(None))
        except RetriableError as error:
            log.debug("positions are not known yet: %s", error)
            self._pause_fetches()
        except KafkaError as error:
            self._failure = error
        finally:
            self._finding = False
            self._arrived.set()

    async def _settled(self, group: Membership, deadline_ms: int) -> bool:
        """Whether the assignment is current; joining goes on in a task of its own when the poll's time is over."""
        if group.settled and not self._settling:
            return True
        if not self._settling:
            self._settling = True
            self._runtime.spawn(self._settle(group))
        await self._arrived.wait(max(deadline_ms - self._runtime.now_ms(), 0))
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        return group.settled and not self._settling

    async def _settle(self, group: Membership) -> None:
        try:
            await group.settle(self._deadline(self.config.max_poll_interval_ms))
        except KafkaError as error:
            self._failure = error
        finally:
            self._settling = False
            self._arrived.set()

    def _hand_out(self, most: int) -> list[Fetched]:
        got: list[Fetched] = []
        for _ in range(len(self._turn)):
            if most <= 0:
                break
            one = self._turn[0]
            self._turn.rotate(-1)
            place = self._places.get(one)
            if place is None or place.paused:
                continue
            if place.error is not None and not place.ready:
                error, place.error = place.error, None
                if got:
                    place.error = error
                    break
                raise error
            while place.ready and most > 0:
                fetched = place.ready.popleft()
                if len(fetched.columns) > most:
                    fetched, rest = fetched.split(most)
                    place.ready.appendleft(rest)
                place.position = fetched.next_offset
                if len(fetched.columns):
                    most -= len(fetched.columns)
                    got.append(fetched)
        return got

    # --- fetching ---

    def _start_fetches(self) -> None:
        if self._runtime.now_ms() < self._not_before_ms:
            return
        wanted = {
            one: place.fetch_offset
            for one, place in self._places.items()
            if place.position is not None
            and not place.paused
            and place.error is None
            and len(place.ready) < ROUNDS_AHEAD
        }
        by_node, unknown = leaders_of(self.cluster, wanted)
        for node, partitions in by_node.items():
            if node not in self._in_flight:
                self._in_flight.add(node)
                self._runtime.spawn(self._fetch(node, partitions))
        stale = [one.topic for one in self._places if self.cluster.is_stale(one.topic)]
        if (unknown or stale) and -1 not in self._in_flight:
            self._in_flight.add(-1)
            self._runtime.spawn(self._refresh({*unknown, *stale}))

    async def _refresh(self, topics: Iterable[str]) -> None:
        try:
            await self.cluster.refresh_quietly(topics, self._deadline(self.config.request_timeout_ms))
        except KafkaError as error:
            log.debug("metadata: %s", error)
        finally:
            self._in_flight.discard(-1)
            self._arrived.set()

    async def _fetch(self, node: int, partitions: dict[TopicPartition, int]) -> None:
        versions = {one: self._places[one].version for one in partitions if one in self._places}
        try:
            answers = await fetch(self.cluster, node, partitions, self._settings)
        except (DisconnectedError, KafkaTimeoutError) as error:
            log.debug("fetch from broker %d failed: %s", node, error)
            self._pause_fetches()
            await self._refresh({one.topic for one in partitions})
        except KafkaError as error:
            for one in partitions:
                if one in self._places:
                    self._places[one].error = error
        else:
            await self._take_answers(answers, versions)
        finally:
            self._in_flight.discard(node)
            self._arrived.set()

    def _pause_fetches(self) -> None:
        wait_ms = retry.backoff_ms(2, self._runtime.random(), first_ms=self.config.retry_backoff_ms)
        self._not_before_ms = self._runtime.now_ms() + round(wait_ms)

    async def _take_answers(
        self, answers: Mapping[TopicPartition, Answer], versions: Mapping[TopicPartition, int]
    ) -> None:
        stale: set[str] = set()
        for one, answer in answers.items():
            place = self._places.get(one)
            if place is None or place.version != versions.get(one):
                continue
            if answer.fetched is not None:
                place.high_watermark = answer.high_watermark
                if answer.fetched.next_offset > place.fetch_offset:
                    place.ready.append(answer.fetched)
                    place.fetch_offset = answer.fetched.next_offset
            elif answer.error_code == E.OFFSET_OUT_OF_RANGE:
                await self._out_of_range(one, place)
            elif retry.action(retry.FETCH, answer.error_code) in RETRIABLE:
                stale.add(one.topic)
            else:
                place.error = error_for(answer.error_code, f"fetch of {one.topic}-{one.partition}")
        if stale:
            self._pause_fetches()
            await self.cluster.refresh_quietly(stale, self._deadline(self.config.request_timeout_ms))

    async def _out_of_range(self, one: TopicPartition, place: _Place) -> None:
        version = place.version
        why = f"offset {place.fetch_offset} is not in the log"
        try:
            log.warning("%s-%d: %s; auto_offset_reset=%s", *one, why, self.config.auto_offset_reset)
            if self.config.auto_offset_reset != "none":
                place.go_to(None)
                version = place.version
                place.resetting = True
            await self._reset([one], self._deadline(None), why)
        except KafkaError as error:
            if place.version == version:
                place.error = error
        finally:
            place.resetting = False

    # --- committing ---

    async def commit(
        self,
        positions: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None,
        timeout_ms: float | None = None,
    ) -> None:
        """Commit `positions` (None: where reading goes on now). Raises GroupFencedError, KafkaTimeoutError."""
        self._check()
        group = self.group_metadata()
        chosen = self.positions() if positions is None else _normalised(positions)
        self._last_commit_ms = self._runtime.now_ms()
        await commit(self.cluster, group, chosen, self._deadline(timeout_ms))

    async def committed(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """The group's committed positions; partitions without one are left out."""
        self._check()
        group_id = self.group_metadata().group_id
        wanted = [TopicPartition(*one) for one in partitions]
        return await fetch_committed(
            self.cluster, group_id, wanted, require_stable=True, deadline_ms=self._deadline(timeout_ms)
        )

    async def _auto_commit(self) -> None:
        due_ms = self._last_commit_ms + self.config.auto_commit_interval_ms
        if self.config.enable_auto_commit and self._runtime.now_ms() >= due_ms:
            await self._commit_quietly()

    async def _commit_quietly(self) -> None:
        try:
            await self.commit(timeout_ms=self.config.auto_commit_interval_ms)
        except (RetriableError, GroupFencedError) as error:
            log.warning("auto commit failed: %s", error)

    # --- reading a range, other ---

    def fetch_range(
        self, topic: str, partition: int, start: int, end: int, *, timeout_ms: float | None = None
    ) -> AsyncIterator[Fetched]:
        """All visible records of [start, end), whatever is assigned; see `fetching.fetch_range`."""
        self._check()
        settings = FetchSettings(
            isolation=self._settings.isolation,
            max_wait_ms=self._settings.max_wait_ms,
            partition_bytes=max(self._settings.partition_bytes, RANGE_FETCH_BYTES),
            check_crcs=self._settings.check_crcs,
            request_timeout_ms=self._settings.request_timeout_ms,
        )
        patience_ms = round(self.config.default_api_timeout_ms if timeout_ms is None else timeout_ms)
        return fetch_range(self.cluster, TopicPartition(topic, partition), start, end, settings, patience_ms)

    async def partitions_for(self, topic: str, timeout_ms: float | None = None) -> list[int]:
        """The topic's partition numbers."""
        self._check()
        return sorted((await self.cluster.topic(topic, self._deadline(timeout_ms))).partitions)

    def wakeup(self) -> None:
        """Make the poll that runs now, or the next one, raise WakeupError."""
        self._woken = True
        self._arrived.set()

    async def close(self) -> None:
        """Commit if enable_auto_commit, leave the group, release everything. May be called again."""
        if self.closed:
            return
        try:
            if self._group is not None:
                await self._group.end()
            elif self.config.enable_auto_commit and self._places:
                await self._commit_quietly()
        finally:
            self.closed = True
            self.cluster.close()


def _normalised(
    positions: Mapping[TopicPartition, OffsetAndMetadata | int],
) -> dict[TopicPartition, OffsetAndMetadata]:
    return {TopicPartition(*one): OffsetAndMetadata(at) if isinstance(at, int) else at for one, at in positions.items()}
