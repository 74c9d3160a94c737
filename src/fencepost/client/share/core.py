"""The share consumer's core (KIP-932): polling and acknowledging. The clients of `blocking` and `aio` use it.

Tasks send requests to a broker one by one (exchange.py); their results wait for the application's next poll. An
acknowledgement is sent once. If its response is lost, its outcome is unknown and the lock ended with the connection. So
it is reported and not repeated.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple

from fencepost.arguments import Milliseconds
from fencepost.client.calling import SHARES_WAIT, CallUser, SlowCalls, UserCall, call_first, call_here
from fencepost.client.group.member import check_names
from fencepost.client.metrics import ShareConsumerMetrics
from fencepost.client.net.cluster import Cluster
from fencepost.client.net.open_clients import CLOSE_MS
from fencepost.client.net.tasks import within
from fencepost.client.net.turn import Polls, Soon, Turn, at_once
from fencepost.client.records import SharedRecord
from fencepost.client.share.acquired_records import AcquiredRecords
from fencepost.client.share.exchange import Exchange, Outcome, Report
from fencepost.client.share.member import ShareMember
from fencepost.client.share.session import ShareReadSession
from fencepost.client.telemetry.reporting import ReportingCore
from fencepost.client.telemetry.standard_names import SHARE_CONSUMER
from fencepost.client.types import AcknowledgeType, TopicPartition
from fencepost.config import ShareConsumerConfig
from fencepost.counted import counted_noun
from fencepost.errors import (
    ClosedError,
    ConfigurationError,
    KafkaError,
    KafkaTimeoutError,
    UsageError,
)
from fencepost.protocol.logs.consumer_group_log import TopicIdPartition

log = logging.getLogger("fencepost.client.share")

LOOK_AGAIN_MS: Final = 1_000
CLOSE_PATIENCE_MS: Final = 5_000

OnAcknowledged = Callable[[Mapping[TopicPartition, list[int]], KafkaError | None], Any]
"""Called with the acknowledged offsets and their error, or None."""


class _HandedOutRecord(NamedTuple):
    record: SharedRecord
    partition: TopicIdPartition
    session: ShareReadSession


@dataclass(slots=True)
class SharedHandOut:
    """Records of one poll.

    The call that returns them sets `delivered` as its last step. Until then they are not in hand; if the call was cut
    short, the next poll returns them again.
    """

    taken: list[_HandedOutRecord] = field(default_factory=list)
    delivered: bool = False

    @property
    def records(self) -> list[SharedRecord]:
        """The records without partition and session."""
        return [each.record for each in self.taken]


class ShareConsumerCore(ReportingCore):
    """A member of a share group. Everything runs in the runtime, one call at a time except wakeup."""

    ROLE = SHARE_CONSUMER

    def __init__(self, cluster: Cluster, config: ShareConsumerConfig, call_user: CallUser = call_here) -> None:
        self.cluster = cluster
        self.config = config
        self.closed = False
        self.call_user = call_user
        self.turn = Turn()
        self._runtime = cluster.runtime
        self._arrived = self._runtime.event()
        self._metrics = ShareConsumerMetrics()
        self._acquired = AcquiredRecords()
        self._member: ShareMember | None = None
        self._exchange = Exchange(cluster, config, self._metrics, self._arrived)
        self._explicit = config.share_acknowledgement_mode == "explicit"
        self._last = SharedHandOut()  # records of the last poll, until they are in hand
        self._returned: deque[_HandedOutRecord] = deque()  # undelivered records, for the next poll
        self._callback: OnAcknowledged | None = None
        self._slow = SlowCalls(f"share consumer {config.client_id!r}", SHARES_WAIT, self._runtime.now_ms)
        self.poll_ends = Polls(self._arrived.set)
        self._leaving = False
        self._start_reports()

    # --- subscription ---

    def _check(self) -> None:
        if self.closed:
            raise ClosedError("the share consumer is closed")

    async def subscribe(self, topics: Iterable[str]) -> None:
        """Subscribe to topics, whose partitions the group assigns; the next poll joins.

        It replaces the previous subscription.

        Raises:
            ConfigurationError: The list is empty or a name is invalid.
        """
        self._check()
        names = tuple(topics) if not isinstance(topics, str) else ()
        if not names:
            raise ConfigurationError(f"subscribe({topics!r}): a list of topics is needed; unsubscribe() reads nothing")
        check_names(names)
        if self._member is None:
            self._member = ShareMember(self.cluster, self.config, self._metrics, self._arrived)
        self._member.subscribe(names)

    async def unsubscribe(self) -> None:
        """Send pending acknowledgements, release the other records, and leave the group."""
        self._check()
        await self._leave(self._runtime.now_ms() + CLOSE_MS)

    async def _leave(self, deadline_ms: int) -> None:
        member, self._member = self._member, None
        self._acquired.clear()
        self._last, self._returned = SharedHandOut(), deque()
        if member is None:
            return
        try:
            ends_ms = min(deadline_ms, self._runtime.now_ms() + CLOSE_PATIENCE_MS)
            left_ms = max(ends_ms - self._runtime.now_ms(), 0)
            await within(
                self._runtime, self._exchange.end(member.member_id, ends_ms), left_ms, "the end of its sessions"
            )
        except KafkaTimeoutError as error:
            log.warning("share group %r: %s; records come again when their locks are over", self.config.group_id, error)
        finally:
            await member.end(deadline_ms)
            await self._serve()

    def subscription(self) -> list[str]:
        """Return the subscribed topics."""
        return [] if self._member is None else list(self._member.topics)

    def assignment(self) -> list[TopicPartition]:
        """Return the partitions being read, which other members may read too."""
        return [] if self._member is None else sorted(self._member.partitions.values())

    # --- polling ---

    async def poll(self, timeout_ms: Milliseconds = 0, max_records: int | None = None) -> list[SharedRecord]:
        """Return the next records, each locked for this member.

        With implicit acknowledgement, this call accepts the records of the previous poll.

        Args:
            timeout_ms: Maximum wait for the first record, in ms.
            max_records: Maximum number of records; default: max_poll_records.

        Raises:
            UsageError: There is no subscription, or a record lacks an explicit acknowledgement.
            CorruptRecordError: A record cannot be read.
            WakeupError: `wakeup` was called.
            AuthorizationError: The principal may not read the topic or use the group.
            UnsupportedVersionError: The broker does not support share groups.
        """
        shared = await self.hand_out(timeout_ms, max_records)
        records = shared.records
        shared.delivered = True
        return records

    async def hand_out(self, timeout_ms: Milliseconds = 0, max_records: int | None = None) -> SharedHandOut:
        """Poll; the caller marks the records as delivered."""
        self._check()
        if max_records is not None and max_records < 1:
            raise ConfigurationError(f"max_records is {max_records}; it must be at least 1")
        member = self._member
        if member is None:
            raise UsageError("subscribe first")
        self._metrics.polls_total += 1
        number = self.poll_ends.begin()
        self._settle_last()
        self._exchange.report_unsent()
        most = self.config.max_poll_records if max_records is None else max_records
        deadline_ms = self._runtime.now_ms() + timeout_ms
        while True:
            self._arrived.clear()
            self.poll_ends.check(number)
            await self._serve()
            self.poll_ends.check(number)
            if self._member is not member:
                raise UsageError("a callback has unsubscribed during this poll")
            member.polled()
            self._exchange.raise_failure()
            got = self._take(most)
            self._exchange.start(member.member_id, member.partitions, fetching=not got)
            if got:
                self._last = SharedHandOut(got)
                self._metrics.records_consumed_total += len(got)
                return self._last
            left = deadline_ms - self._runtime.now_ms()
            if left <= 0:
                return SharedHandOut()
            await self._arrived.wait(min(left, LOOK_AGAIN_MS, self._exchange.wait_ms()))

    def _settle_last(self) -> None:
        """Acknowledge the records of the previous poll, or return them again if undelivered. Raises UsageError."""
        self._take_in_hand()
        last, self._last = self._last.taken, SharedHandOut()
        self._returned.extendleft(reversed(last))
        self._metrics.records_consumed_total -= len(last)
        if not self._explicit:
            self._accept()
            return
        unanswered = self._acquired.unanswered()
        if unanswered:
            (topic, partition), offset = unanswered[0]
            raise UsageError(
                f"not acknowledged yet: {counted_noun(len(unanswered), 'record')} of the last poll, the first is "
                f"{topic}-{partition} offset {offset}; share_acknowledgement_mode is explicit"
            )
        self._acquired.settle()

    def _take_in_hand(self) -> None:
        """Add the delivered records of the previous poll to those that the application must acknowledge."""
        if self._last.delivered:
            for record, partition, session in self._last.taken:
                self._acquired.hand_out(record, partition, session)
            self._last = SharedHandOut()

    def _take(self, most: int) -> list[_HandedOutRecord]:
        got: list[_HandedOutRecord] = []
        while len(got) < most and self._returned:
            handed = self._returned.popleft()
            if handed.session.ended is None:
                got.append(handed)
        for record, partition, session in self._exchange.take(most - len(got)):
            got.append(_HandedOutRecord(record, partition, session))
        return got

    # --- acknowledging ---

    def acknowledge(self, record: SharedRecord, kind: AcknowledgeType = AcknowledgeType.ACCEPT) -> None:
        """Acknowledge a polled record; the next poll or commit sends the acknowledgement.

        Until then another call for the same record replaces it.

        Args:
            record: The record.
            kind: ACCEPT, RELEASE or REJECT; RENEW restarts the lock, and the record must be acknowledged later.

        Raises:
            UsageError: The acknowledgement was sent, the lock is over, or acknowledgement is implicit.
        """
        self._check()
        if not self._explicit:
            raise UsageError(
                'acknowledge() needs share_acknowledgement_mode="explicit"; now the next poll acknowledges'
            )
        self._take_in_hand()
        self._exchange.fail_acknowledgements(self._acquired.acknowledge(record, AcknowledgeType(kind)))

    async def commit(self, timeout_ms: Milliseconds | None = None) -> dict[TopicPartition, KafkaError | None]:
        """Send pending acknowledgements (implicit mode: for all polled records), and wait for all responses.

        Returns:
            For each partition of which this call sent acknowledgements, None or their error: InvalidRecordStateError
            if the lock had expired. An error with `may_have_taken_effect` may have succeeded. The callback, not this
            result, reports the acknowledgements sent by a poll or commit_async().

        Raises:
            KafkaTimeoutError: Responses to this call are missing.
        """
        self._check()
        self._accept()
        patience = self.config.default_api_timeout_ms if timeout_ms is None else timeout_ms
        deadline_ms = self._runtime.now_ms() + patience
        report = Report()
        while self._member is not None:
            self._arrived.clear()
            self._exchange.start(self._member.member_id, {}, fetching=False, report=report)
            await self._serve()
            if not self._exchange.has_pending:
                break
            left = deadline_ms - self._runtime.now_ms()
            if left <= 0 and not report.unanswered and not self._exchange.has_unsent:
                break  # only responses to requests of earlier polls are missing
            if left <= 0:
                raise KafkaTimeoutError("acknowledgements are not answered yet", outcome_unknown=True)
            await self._arrived.wait(min(left, LOOK_AGAIN_MS))
        await self._serve()
        return report.results

    def commit_async(self) -> None:
        """Send pending acknowledgements without waiting. The acknowledgement callback reports the result."""
        self._check()
        self._accept()
        if self._member is not None:
            self._exchange.start(self._member.member_id, {}, fetching=False)

    def _accept(self) -> None:
        self._take_in_hand()
        if self._explicit:
            self._acquired.settle()
            return
        for session in self._acquired.accept_all():
            self._exchange.fail_acknowledgements(session)

    def set_acknowledgement_callback(self, callback: OnAcknowledged | None) -> None:
        """Set the function that poll, commit and close call with acknowledged offsets and the error or None."""
        self._check()
        self._callback = callback

    async def _serve(self) -> None:
        """Report acknowledgements. Raises the callback's errors."""
        finished = self._exchange.finished
        while finished:
            if self._callback is not None:
                await call_first(finished, partial(_call_of, self._callback), self.call_user, self._slow)
                continue
            offsets, error = finished.popleft()
            if error is not None:
                log.warning("share group %r: not acknowledged: %s: %s", self.config.group_id, offsets, error)

    def acquisition_lock_timeout_ms(self) -> int | None:
        """Return the duration of a lock in ms as a broker last reported it; None before the first response."""
        return self._exchange.lock_ms

    # --- other ---

    def metrics(self) -> dict[str, float]:
        """Return counters, and the number of records in hand. Any thread may call it."""
        last = self._last
        in_hand = len(self._acquired) + (len(last.taken) if last.delivered else 0)
        return self._metrics.snapshot() | {"records_in_hand": in_hand} | self.cluster.links.metrics(self.cluster.nodes)

    def state(self) -> str:
        """Return the state in one line, for logs and tests."""
        self._take_in_hand()
        member = "not subscribed" if self._member is None else self._member.describe()
        return f"{member}; in hand {len(self._acquired)}; {self._exchange.describe()}"

    def wakeup(self, soon: Soon = at_once) -> None:
        """Make the current or the next poll raise WakeupError."""
        self.poll_ends.wakeup(soon)

    async def close(self, timeout_ms: Milliseconds | None = CLOSE_MS) -> None:
        """Send pending acknowledgements, release all other records, and leave the group. It may be called again.

        In implicit mode the records of the last poll are released, because nothing shows that they were processed;
        commit() accepts them.

        Args:
            timeout_ms: Maximum wait for brokers, in ms; None: 10 s.
        """
        if self.closed or self._leaving:
            return
        self._leaving = True
        deadline_ms = self._runtime.now_ms() + (CLOSE_MS if timeout_ms is None else timeout_ms)
        try:
            await self._leave(deadline_ms)
            await self.telemetry.end(deadline_ms)
        finally:
            self.closed = True
            self.poll_ends.close()
            await self._disconnect(deadline_ms)

    async def leave(self, timeout_ms: int) -> None:
        """Close for an application that did not."""
        self._callback, self.call_user = None, call_here
        await within(self._runtime, self.close(timeout_ms), timeout_ms, "leaving the share group")

    def close_warning(self) -> str:
        """Return a warning for a consumer that ends without leaving its group, or "" if it is not in a group."""
        if self.closed or self._member is None:
            return ""
        return f"share group {self.config.group_id!r} waits until its record locks expire"


def _call_of(callback: OnAcknowledged, outcome: Outcome) -> UserCall:
    return UserCall(partial(callback, *outcome), "acknowledgement callback")
