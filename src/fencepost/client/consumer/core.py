"""The consumer's core: subscription, polling, committing. The clients of `blocking` and `aio` use it.

It combines the positions (subscription.py, positions.py), the fetch loop (fetcher.py), commits (commits.py) and the
membership in a group (group/member.py). The application's functions (rebalance listener, callbacks, interceptors) run
only during its calls of poll, commit, unsubscribe and close.
"""

from __future__ import annotations

import logging
import re
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeVar

from fencepost.arguments import Int32OrMinusOne, Milliseconds
from fencepost.client.calling import CONSUMER_WAITS, CallUser, SlowCalls, call_first, call_here, raise_first
from fencepost.client.consumer.commits import Commits, OnCommit
from fencepost.client.consumer.deserializing import HandedRecords
from fencepost.client.consumer.fetch_requests import FetchSettings
from fencepost.client.consumer.fetcher import Fetcher
from fencepost.client.consumer.positions import Positions
from fencepost.client.consumer.queries import ConsumerQueries
from fencepost.client.consumer.rebalance_event import RebalanceEvent
from fencepost.client.consumer.stall_warning import StallWarning
from fencepost.client.consumer.subscription import HandOut, SubscriptionState, normalised
from fencepost.client.group.member import Member, SubscribedTopics, check_names
from fencepost.client.group.membership import member_for
from fencepost.client.interceptors import ConsumerInterceptors
from fencepost.client.metrics import ConsumerMetrics
from fencepost.client.net import list_offsets as offsets
from fencepost.client.net.cluster import Cluster
from fencepost.client.net.open_clients import CLOSE_MS
from fencepost.client.net.runtime import TaskHandle
from fencepost.client.net.tasks import within
from fencepost.client.net.turn import Polls, Soon, Turn, at_once
from fencepost.client.records import Fetched, Record, to_table
from fencepost.client.types import GroupMetadata, K, OffsetAndMetadata, RebalanceListener, TopicPartition
from fencepost.config import ConsumerConfig
from fencepost.errors import (
    ClosedError,
    ConfigurationError,
    GroupFencedError,
    KafkaTimeoutError,
    UsageError,
)
from fencepost.extras import require

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger("fencepost.client.consumer")

R = TypeVar("R")

EVERY_ROW: Final = 2**31  # regardless of max_poll_records, because a table has no objects for its rows


class ConsumerCore(ConsumerQueries):
    """One consumer over one cluster view. Everything runs in the runtime, one call at a time, except `wakeup`."""

    def __init__(self, cluster: Cluster, config: ConsumerConfig, call_user: CallUser = call_here) -> None:
        self.cluster = cluster
        self.config = config
        self.closed = False
        self.listener: RebalanceListener | None = None
        self.call_user = call_user
        self.turn = Turn()
        self._runtime = cluster.runtime
        self._arrived = self._runtime.event()
        self._metrics = ConsumerMetrics.start()
        self._reading = SubscriptionState()
        self._positions = Positions(cluster, config, self._reading, self._arrived, self._metrics)
        self._settings = FetchSettings.of(config)
        self.isolation = self._settings.isolation
        self._fetcher = Fetcher(
            cluster, self._reading, self._settings, self._arrived, self._metrics, self._positions.out_of_range
        )
        self._slow = SlowCalls(f"consumer {config.client_id!r}", CONSUMER_WAITS, self._runtime.now_ms)
        self._interceptors = ConsumerInterceptors(config.interceptors, self._slow)
        self.records = HandedRecords(config, self._interceptors)
        self._commits = Commits(
            cluster,
            config,
            self._metrics,
            self._arrived,
            self.group_metadata,
            self._held,
            self._interceptors,
            self._reading.committed,
        )
        self._group: Member | None = None
        self._settling: TaskHandle | None = None
        self._settle_failures = self._settle_again_ms = 0  # consecutive failures, and the time of the next attempt
        self._rebalance_events: deque[RebalanceEvent] = deque()
        self._in_person = False  # close and unsubscribe report rebalances themselves
        self._failures: list[Exception] = []  # errors of the application's functions, in such a call
        self._closed_by_ms: int | None = None  # deadline of close()
        self.poll_ends = Polls(self._arrived.set)
        self._leaving = False
        self._failure: Exception | None = None  # an error of joining, for the next poll to raise
        self._stall_warning = StallWarning(config.group_id, self._runtime.now_ms)
        self._start_reports()

    # --- subscription and assignment ---

    def _check(self) -> None:
        if self.closed:
            raise ClosedError("the consumer is closed")

    def _deadline(self, timeout_ms: int | None) -> int:
        """Return the deadline of a call with this timeout; during close() it is at most the deadline of close()."""
        patience = self.config.default_api_timeout_ms if timeout_ms is None else timeout_ms
        deadline_ms = self._runtime.now_ms() + patience
        return deadline_ms if self._closed_by_ms is None else min(deadline_ms, self._closed_by_ms)

    async def assign(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Read these partitions without a group, in place of the former ones. Raises UsageError while subscribed."""
        self._check()
        if self._group is not None:
            raise UsageError("assign and subscribe exclude each other; unsubscribe first")
        wanted = [TopicPartition(*partition) for partition in partitions]
        check_names(partition.topic for partition in wanted)
        self._reading.replace(wanted)
        self._arrived.set()

    async def incremental_assign(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Read these partitions too. The others keep their positions. Raises UsageError while subscribed."""
        await self.assign([*self._reading.states, *partitions])

    async def incremental_unassign(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Read these assigned partitions no more. Raises UsageError while subscribed, or if one is not assigned."""
        gone = [TopicPartition(*each) for each in partitions]
        for each in gone:
            self._reading.state(each)
        await self.assign([each for each in self._reading.states if each not in gone])

    async def subscribe(
        self, topics: Iterable[str] | re.Pattern[str] = (), *, pattern: str | re.Pattern[str] | None = None
    ) -> None:
        """Subscribe to topics, or to all whose whole name matches `pattern`; the next poll joins the group.

        It replaces the previous subscription; an empty one unsubscribes. Raises ConfigurationError (InvalidTopicError
        for an invalid name), UsageError.
        """
        self._check()
        if self.config.group_id is None:
            raise ConfigurationError("subscribe needs a group_id; assign does not")
        wanted = SubscribedTopics.make(topics, pattern)
        if wanted.pattern is None and not wanted.names_now():
            await self.unsubscribe()
            return
        if self._group is None:
            if self._reading.states:
                raise UsageError("assign and subscribe exclude each other; unsubscribe first")
            self._stall_warning.joining()
            self._group = member_for(self.cluster, self.config, self._rebalanced, self._metrics)
        self._group.subscribe(wanted)

    async def unsubscribe(self) -> None:
        """Leave the group and read nothing. Raises the rebalance listener's errors, after it has left."""
        self._check()
        await self._leave_group()
        self._reading.replace([])
        raise_first(self._failures)

    async def _leave_group(self) -> None:
        """Leave the group, even if the rebalance listener raises. The end of the call raises its error."""
        if self._in_person:
            return  # called by a listener of this same call
        group, self._group = self._group, None
        if self._settling is not None:
            self._settling.cancel()
            self._settling = None
        self._rebalance_events.clear()
        if group is None:
            return
        self._in_person = True
        self._group = group  # commits while leaving still come from the member
        try:
            await group.end(self._deadline(None))
        finally:
            self._in_person = False
            self._group = None

    async def _rebalanced(self, kind: str, partitions: list[TopicPartition]) -> None:
        """Store an event of a rebalance until the application's next poll, because it may still process records."""
        if kind != "assigned":
            self._reading.hold(partitions)
        event = RebalanceEvent(kind, partitions, self._runtime.event())
        if self._in_person:
            try:
                await self._deliver_rebalance(event)
            except Exception as error:  # noqa: BLE001 (raised after the group was left)
                self._failures.append(error)
            return
        self._rebalance_events.append(event)
        self._arrived.set()
        await event.served.wait()

    async def _deliver_rebalance(self, event: RebalanceEvent) -> None:
        """Take or give up partitions during an application's call, and call its listener."""
        try:
            if event.kind == "assigned":
                self._reading.take(event.partitions)
            revoked = event.partitions if event.kind == "revoked" and self.config.enable_auto_commit else []
            done = await self._commits.revoked(revoked, self._to_commit(), {}, self._deadline(None))
            await event.deliver(self.listener, self.call_user, self._slow)
            if not self.config.enable_auto_offset_store:  # the listener may have stored positions
                await self._commits.revoked(revoked, self._to_commit(), done, self._deadline(None))
            if event.kind == "revoked":
                await self._commits.drain(self._deadline(None))
        except Exception:
            event.was_delivered = True  # the poll raises it; a second call would raise it again
            raise
        finally:
            if event.was_delivered or self._in_person:
                self._metrics.partitions_lost_total += len(event.partitions) if event.kind == "lost" else 0
                if event.kind != "assigned":
                    self._reading.give_up(event.partitions)

    async def _serve(self) -> None:
        """Handle rebalances, then commit callbacks. Raises the errors of the application's functions."""
        while self._rebalance_events:
            event = self._rebalance_events.popleft()
            try:
                await self._deliver_rebalance(event)
            finally:
                if event.was_delivered:
                    event.served.set()
                else:  # interrupted before the listener began: the next poll calls it
                    self._rebalance_events.appendleft(event)
        await self._call_back()

    async def _call_back(self) -> None:
        while self._commits.finished:
            await call_first(self._commits.finished, lambda call: call, self.call_user, self._slow)

    def _held(self) -> Mapping[TopicPartition, object]:
        return {} if self._group is None else self._reading.states

    def subscription(self) -> list[str]:
        """Return the subscribed topics; for a pattern, those that match now."""
        return [] if self._group is None else self._group.names()

    def group_metadata(self) -> GroupMetadata:
        """Return the member's identity for send_offsets_to_transaction. Raises UsageError without a group_id."""
        if self.config.group_id is None:
            raise UsageError("this consumer has no group_id")
        if self._group is None:
            return GroupMetadata(self.config.group_id)
        return self._group.metadata()

    def pause(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Return no records of these partitions until `resume`, also after a rebalance that keeps them here."""
        for state in [self._reading.state(partition) for partition in partitions]:
            state.paused = True

    def resume(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Undo `pause`."""
        for state in [self._reading.state(partition) for partition in partitions]:
            state.paused = False
        self._arrived.set()

    def paused(self) -> list[TopicPartition]:
        """Return the paused partitions."""
        return sorted(partition for partition, state in self._reading.states.items() if state.paused)

    # --- positions ---

    def seek(self, partition: tuple[str, int], offset: int, leader_epoch: Int32OrMinusOne = -1) -> None:
        """Continue at `offset`. With its committed leader epoch, log truncation is detected."""
        self._reading.seek(partition, offset, leader_epoch)
        self._arrived.set()

    async def seek_to_beginning(self, partitions: Iterable[tuple[str, int]] | None = None) -> None:
        """Continue at the log start offset (None: of all assigned partitions)."""
        await self._seek_all(partitions, offsets.EARLIEST)

    async def seek_to_end(self, partitions: Iterable[tuple[str, int]] | None = None) -> None:
        """Continue at the end; with read_committed at the last stable offset."""
        await self._seek_all(partitions, offsets.LATEST)

    async def seek_to_timestamp(self, timestamp_ms: int, partitions: Iterable[tuple[str, int]] | None = None) -> None:
        """Continue at the first record at or after the time in ms, or at the end if there is none."""
        await self._seek_all(partitions, timestamp_ms)

    async def _seek_all(self, partitions: Iterable[tuple[str, int]] | None, timestamp: int) -> None:
        self._check()
        wanted = self.assignment() if partitions is None else [TopicPartition(*partition) for partition in partitions]
        for partition in wanted:
            self._reading.state(partition)
        found = await self._positions.at(dict.fromkeys(wanted, timestamp), self._deadline(None))
        for partition, at in found.items():
            self._reading.seek(partition, at.offset, at.leader_epoch)
        self._arrived.set()

    async def position(self, partition: tuple[str, int], timeout_ms: Milliseconds | None = None) -> int:
        """Return the offset of the next record for poll. Raises KafkaTimeoutError, OffsetOutOfRangeError."""
        self._check()
        state = self._reading.state(partition)
        operation, attempt, deadline_ms = f"position of {partition}", 0, self._deadline(timeout_ms)
        while state.position is None:
            await self._positions.find(deadline_ms, TopicPartition(*partition))
            if state.position is None:
                await self.cluster.pause(attempt, deadline_ms, operation, KafkaTimeoutError(state.reason))
                attempt += 1
        return self.positions()[TopicPartition(*partition)].offset

    def positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the positions to commit now, of partitions with a known position.

        All polled records count as processed; for an iterator, only the records that it has returned.
        """
        return self._reading.positions()

    async def reset_to_committed(self, timeout_ms: Milliseconds | None = None) -> None:
        """Return to the group's committed offsets, or to the first position if there are none.

        Waits for offsets pending in a transaction. After a KafkaTimeoutError the next poll continues the search.
        """
        self._check()
        for state in self._reading.states.values():
            state.rewind.elsewhere = False
        self.forget_positions()
        await self._positions.find(self._deadline(timeout_ms))

    # --- called by a transaction block (see transaction_block.py) ---

    def check_for_transactions(self) -> None:
        """Raise ConfigurationError or UsageError unless positions are committed only in transactions."""
        self._check()
        if not self.config.enable_auto_offset_store:
            raise ConfigurationError("transaction(consumer) commits all polled records: drop enable_auto_offset_store")
        if self.config.enable_auto_commit:
            raise ConfigurationError("enable_auto_commit=True would commit positions outside of transaction(consumer)")
        self.group_metadata()
        self._reading.transactional = True

    def take_positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the positions to commit in a transaction. Raises GroupFencedError if partitions were revoked.

        Without positions, records of revoked partitions would be committed and read again elsewhere.
        """
        if self._reading.uncommitted_gone:
            raise GroupFencedError("the group took partitions away during the transaction; they will be read again")
        positions = self.positions()
        self._reading.attempted(positions)
        return positions

    def forget_positions(self) -> None:
        """Make the next poll return to the committed offsets. Called first after a failed transaction; does no I/O."""
        self._reading.transactional = True
        self._reading.forget()
        self._arrived.set()

    def transaction_ended(self, committed: Mapping[TopicPartition, OffsetAndMetadata] | None) -> None:
        """Record that the positions taken last are committed, or with None that they are not."""
        if committed is None:
            self._reading.attempted({})
        else:
            self._reading.committed(committed)

    # --- polling ---

    async def poll(self, timeout_ms: Milliseconds = 0, max_records: int | None = None) -> list[Record]:
        """Return the next records; wait at most `timeout_ms` for the first. Raises as `poll_columns`.

        Raises SerializationError if the next record cannot be deserialized; seek past it to continue.
        """
        return await self._polled(timeout_ms, max_records, self.records.awaited)

    async def _polled(self, timeout_ms: int, most: int | None, make: Callable[[HandOut], Awaitable[R]]) -> R:
        handed = await self.hand_out(timeout_ms, most)
        if handed.pieces:
            await self._runtime.sleep_ms(0)  # so that the next fetch is sent first
        result = await make(handed)
        handed.delivered = True
        return result

    def one_by_one(self, records: Iterable[Record]) -> Iterator[Record]:
        """Iterate over polled records, of which only those returned count as processed."""
        return self._reading.one_by_one(records)

    async def poll_arrow(
        self, timeout_ms: Milliseconds = 0, max_records: int | None = None, *, headers: bool = False
    ) -> pa.Table:
        """Poll as an Arrow table of bytes, with the columns of Spark's Kafka source (`records.arrow_schema`)."""
        require("arrow", "poll_arrow")

        async def make(handed: HandOut) -> pa.Table:
            return to_table(handed.pieces, headers=headers)

        return await self._polled(timeout_ms, EVERY_ROW if max_records is None else max_records, make)

    async def poll_columns(self, timeout_ms: Milliseconds = 0, max_records: int | None = None) -> list[Fetched]:
        """Poll as columns of bytes per partition; rebalances and, with enable_auto_commit, commits happen in this call.

        Raises UsageError without a subscription or assignment, WakeupError, OffsetOutOfRangeError and
        LogTruncationError (auto_offset_reset="none"), GroupFencedError, AuthorizationError, ProtocolError, and
        ConfigurationError if `max_records` is below 1.
        """
        handed = await self.hand_out(timeout_ms, max_records)
        handed.delivered = True
        return handed.pieces

    async def hand_out(self, timeout_ms: Milliseconds = 0, max_records: int | None = None) -> HandOut:
        """Poll like `poll_columns`.

        The caller marks the records as delivered, else the next poll returns them again.
        """
        self._check()
        if max_records is not None and max_records < 1:
            raise ConfigurationError(f"max_records is {max_records}; it must be at least 1")
        deadline_ms = self._runtime.now_ms() + timeout_ms
        if self._group is None and not self._reading.states:
            raise UsageError("nothing to read: call subscribe() or assign() first; AsyncConsumer's have to be awaited")
        most = self.config.max_poll_records if max_records is None else max_records
        self._metrics.polls_total += 1
        self._metrics.taken_back(self._reading.settle())
        number = self.poll_ends.begin()
        if self._commits.due():
            # Once per poll, before it takes records: the application has processed those of earlier polls.
            self._commits.start(self._to_commit(), self._deadline(self.config.default_api_timeout_ms), automatic=True)
        while True:
            self._arrived.clear()
            self.poll_ends.check(number)
            await self._serve()
            self.poll_ends.check(number)
            self._raise_failures()
            if self._take_part():
                self._positions.start()
                handed = self._reading.hand_out(most)
                self._fetcher.start()
                if handed.pieces:
                    self._metrics.consumed(handed.by_topic())
                    return handed
            left = deadline_ms - self._runtime.now_ms()
            if left <= 0:
                return HandOut()
            self._stall_warning.log_if_due(self._group, self._reading.missing(), self._positions.describe_missing)
            regular = 100 if self._group is not None else 1_000
            await self._arrived.wait(min(left, regular, self._fetcher.wait_ms(), self._positions.wait_ms()))

    def _raise_failures(self) -> None:
        failure = self._failure or self._positions.failure or self._fetcher.failure
        self._failure = self._positions.failure = self._fetcher.failure = None
        if failure is not None:
            raise failure

    def _take_part(self) -> bool:
        """Keep the membership alive; return true if records may be returned meanwhile. Raises GroupFencedError."""
        group = self._group
        if group is None:
            return True
        group.polled()
        if not group.settled and self._settling is None and self._runtime.now_ms() >= self._settle_again_ms:
            self._settling = self._runtime.spawn(self._settle(group))
        if group.settled and self._settling is None:
            self._stall_warning.settled()
            return True
        return not group.holds_back

    async def _settle(self, group: Member) -> None:
        """Join the group. This may take longer than one poll."""
        try:
            await group.settle(self._deadline(self.config.max_poll_interval_ms))
            self._settle_failures = 0
        except ClosedError:
            return  # the client was closed
        except Exception as error:  # noqa: BLE001 (the next poll raises it)
            self._failure = error
            self._settle_again_ms = self._runtime.now_ms() + self._positions.pause_ms(self._settle_failures)
            self._settle_failures += 1
        finally:
            if self._group is group:
                self._settling = None
            self._arrived.set()

    def state(self) -> str:
        """Return the membership and the reason of a wait in one line, for logs and tests."""
        group = "no group" if self._group is None else self._group.describe()
        missing = self._positions.describe_missing(self._reading.missing())
        settling = "" if self._settling is None else ", settling"
        return f"{group}{settling}; assigned {self.assignment()}; without position: {missing or 'none'}"

    # --- committing ---

    def store_offsets(self, positions: Mapping[K, OffsetAndMetadata | int]) -> None:
        """Set the positions that the next commit without positions takes, automatic commits included.

        A partition that is taken away loses its stored position, after the automatic commit. That commit also has the
        positions that the rebalance listener stores.

        Args:
            positions: The offsets after the last processed record, by assigned partition.

        Raises:
            UsageError: `enable_auto_offset_store` is not False, or a partition is not assigned. Nothing is stored.
        """
        self._check()
        if self.config.enable_auto_offset_store:
            raise UsageError("store_offsets() needs enable_auto_offset_store=False: else all polled records count")
        self._reading.store(normalised(positions))

    def _to_commit(self) -> dict[TopicPartition, OffsetAndMetadata]:
        return self._reading.positions() if self.config.enable_auto_offset_store else self._reading.stored()

    async def commit(
        self,
        positions: Mapping[K, OffsetAndMetadata | int] | None = None,
        timeout_ms: Milliseconds | None = None,
    ) -> None:
        """Commit `positions` (None: the current or the stored ones), after pending asynchronous commits.

        Raises GroupFencedError, KafkaTimeoutError, AuthorizationError.
        """
        self._check()
        self.group_metadata()
        chosen = self._to_commit() if positions is None else normalised(positions)
        await self._commits.perform(chosen, self._deadline(timeout_ms))
        await self._call_back()

    def commit_async(
        self,
        positions: Mapping[K, OffsetAndMetadata | int] | None = None,
        callback: OnCommit | None = None,
    ) -> None:
        """Commit without waiting. A later poll, commit or close calls `callback(error or None, positions)`.

        Callbacks are called in the order of the commits.
        """
        self._check()
        self.group_metadata()
        chosen = self._to_commit() if positions is None else normalised(positions)
        self._commits.start(chosen, self._deadline(None), callback)

    # --- other ---

    def wakeup(self, soon: Soon = at_once) -> None:
        """Make the current or the next poll raise WakeupError."""
        self.poll_ends.wakeup(soon)

    async def close(self, timeout_ms: Milliseconds | None = CLOSE_MS, *, commit: bool | None = None) -> None:
        """Commit, leave the group, and release all resources. May be called again.

        `timeout_ms` limits the wait for brokers (None: each request has its own limit), but not for listeners. A
        warning reports what remains until the session ends. With `commit` None it commits if enable_auto_commit is
        set, and logs a failure. With True it raises a failed commit, after it has closed.
        """
        if self.closed or self._leaving:
            return
        self._leaving = True
        self._closed_by_ms = None if timeout_ms is None else self._runtime.now_ms() + timeout_ms
        if commit is not None:
            self.config = replace(self.config, enable_auto_commit=False)
        try:
            if commit:
                await self.commit()
        finally:
            await self._end()

    async def _end(self) -> None:
        try:
            if self._group is not None:
                await self._leave_group()
            elif self.config.enable_auto_commit and self._reading.states:
                await self._commits.quietly(self._to_commit(), self._deadline(None))
            await self._commits.drain(self._deadline(None))
            try:
                await self._serve()
            except Exception as error:  # noqa: BLE001 (raised after everything was released)
                self._failures.append(error)
            await self.telemetry.end(self._deadline(None))
            await self._fetcher.close()
            raise_first(self._failures)
        finally:
            self.closed = True
            self._reading.drop(list(self._reading.states))  # an iterator ends, because later records are not committed
            self.poll_ends.close()  # also a poll around this call, which a callback or a signal handler makes
            await self._disconnect(self._deadline(None))

    async def leave(self, timeout_ms: int) -> None:
        """Close for an application that did not: without a commit and without calls of its listener."""
        self.listener, self.call_user = None, call_here
        await within(self._runtime, self.close(timeout_ms, commit=False), timeout_ms, "leaving the group")

    def close_warning(self) -> str:
        """Return a warning for a consumer that ends without leaving its group, or "" if it is not in a group."""
        if self.closed or self._group is None:
            return ""
        return f"group {self.config.group_id!r} waits for it until its session ends"
