"""The share consumer's core (KIP-932): polling, acknowledging. `blocking` and `aio` have the faces users see.

Requests to a broker go one by one in tasks (exchange.py); what they bring waits for the application's next poll. An
acknowledgement is sent once: when its answer is lost nobody knows whether it counted, and the lock is gone with the
connection, so it is told and not repeated.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple

from fencepost.arguments import Milliseconds
from fencepost.client.calling import CallUser, call_first, call_here
from fencepost.client.group.member import check_names
from fencepost.client.metrics import ShareConsumerMetrics
from fencepost.client.net.cluster import Cluster
from fencepost.client.net.open_clients import CLOSE_MS
from fencepost.client.net.tasks import within
from fencepost.client.net.turn import Polls, Soon, Turn, at_once
from fencepost.client.records import SharedRecord
from fencepost.client.share.exchange import Exchange, Outcome, Report
from fencepost.client.share.in_hand import InHand
from fencepost.client.share.member import ShareMember
from fencepost.client.share.session import Place, ShareSession
from fencepost.client.types import AcknowledgeType, TopicPartition
from fencepost.config import ShareConsumerConfig
from fencepost.errors import (
    ClosedError,
    ConfigurationError,
    KafkaError,
    KafkaTimeoutError,
    UsageError,
)

log = logging.getLogger("fencepost.client.share")

LOOK_AGAIN_MS: Final = 1_000
CLOSE_PATIENCE_MS: Final = 5_000

OnAcknowledged = Callable[[Mapping[TopicPartition, list[int]], KafkaError | None], Any]
"""Told of the offsets that were acknowledged, and why they do not count, if so."""


class _Handed(NamedTuple):
    record: SharedRecord
    place: Place
    session: ShareSession


@dataclass(slots=True)
class Shared:
    """What one poll took. The call that returns the records sets `delivered` as its last step; till then they are not
    in hand, and the next poll gives them, because this call was cut short.
    """

    taken: list[_Handed] = field(default_factory=list)
    delivered: bool = False

    @property
    def records(self) -> list[SharedRecord]:
        """The records alone."""
        return [each.record for each in self.taken]


class ShareConsumerCore:
    """One member of a share group; everything runs in the runtime, one call at a time (wakeup excepted)."""

    def __init__(self, cluster: Cluster, config: ShareConsumerConfig, call_user: CallUser = call_here) -> None:
        self.cluster = cluster
        self.config = config
        self.closed = False
        self.call_user = call_user
        self.turn = Turn()
        self._runtime = cluster.runtime
        self._arrived = self._runtime.event()
        self._metrics = ShareConsumerMetrics()
        self._in_hand = InHand()
        self._member: ShareMember | None = None
        self._exchange = Exchange(cluster, config, self._metrics, self._arrived)
        self._explicit = config.share_acknowledgement_mode == "explicit"
        self._last = Shared()  # what the last poll gave, until it is in hand
        self._returned: deque[_Handed] = deque()  # what it gave and did not reach the application
        self._callback: OnAcknowledged | None = None
        self.poll_ends = Polls(self._arrived.set)
        self._leaving = False

    # --- what to read ---

    def _check(self) -> None:
        if self.closed:
            raise ClosedError("the share consumer is closed")

    async def subscribe(self, topics: Iterable[str]) -> None:
        """Read what the group assigns of these topics; the next poll joins. It replaces the last."""
        self._check()
        names = tuple(topics) if not isinstance(topics, str) else ()
        if not names:
            raise ConfigurationError(f"subscribe({topics!r}): a list of topics is needed; unsubscribe() reads nothing")
        check_names(names)
        if self._member is None:
            self._member = ShareMember(self.cluster, self.config, self._metrics, self._arrived)
        self._member.subscribe(names)

    async def unsubscribe(self) -> None:
        """Acknowledge what was answered for, give the rest back, leave the group."""
        self._check()
        await self._leave(self._runtime.now_ms() + CLOSE_MS)

    async def _leave(self, deadline_ms: int) -> None:
        member, self._member = self._member, None
        self._in_hand.clear()
        self._last, self._returned = Shared(), deque()
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
        """The topics subscribed to."""
        return [] if self._member is None else list(self._member.topics)

    def assignment(self) -> list[TopicPartition]:
        """The partitions that are read now, with other members."""
        return [] if self._member is None else sorted(self._member.places.values())

    # --- polling ---

    async def poll(self, timeout_ms: Milliseconds = 0, max_records: int | None = None) -> list[SharedRecord]:
        """The next records, waiting up to `timeout_ms` for the first; each is locked for this member meanwhile.

        Implicitly, what the last poll gave is accepted by this call. Raises UsageError when something has not been
        acknowledged explicitly, CorruptRecordError, WakeupError, AuthorizationError, UnsupportedVersionError.
        """
        shared = await self.hand_out(timeout_ms, max_records)
        records = shared.records
        shared.delivered = True
        return records

    async def hand_out(self, timeout_ms: Milliseconds = 0, max_records: int | None = None) -> Shared:
        """As `poll`, but the caller says when the records have reached the application."""
        self._check()
        if max_records is not None and max_records < 1:
            raise ConfigurationError(f"max_records is {max_records}; it must be at least 1")
        member = self._member
        if member is None:
            raise UsageError("subscribe first")
        self._metrics.polls_total += 1
        number = self.poll_ends.begin()
        self._settle_last()
        self._exchange.tell_unsent()
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
            self._exchange.start(member.member_id, member.places, fetching=not got)
            if got:
                self._last = Shared(got)
                self._metrics.records_consumed_total += len(got)
                return self._last
            left = deadline_ms - self._runtime.now_ms()
            if left <= 0:
                return Shared()
            await self._arrived.wait(min(left, LOOK_AGAIN_MS, self._exchange.wait_ms()))

    def _settle_last(self) -> None:
        """What the last poll gave is answered for, or comes again because it was not delivered. Raises UsageError."""
        self._take_in_hand()
        last, self._last = self._last.taken, Shared()
        self._returned.extendleft(reversed(last))
        self._metrics.records_consumed_total -= len(last)
        if not self._explicit:
            self._accept()
            return
        unanswered = self._in_hand.unanswered()
        if unanswered:
            (topic, partition), offset = unanswered[0]
            raise UsageError(
                f"{len(unanswered)} records of the last poll are not acknowledged yet, the first is "
                f"{topic}-{partition} offset {offset}; share_acknowledgement_mode is explicit"
            )

    def _take_in_hand(self) -> None:
        """What the last poll gave and delivered is the application's to answer for."""
        if self._last.delivered:
            for record, place, session in self._last.taken:
                self._in_hand.hand_out(record, place, session)
            self._last = Shared()

    def _take(self, most: int) -> list[_Handed]:
        got: list[_Handed] = []
        while len(got) < most and self._returned:
            handed = self._returned.popleft()
            if handed.session.ended is None:
                got.append(handed)
        for record, place, session in self._exchange.take(most - len(got)):
            got.append(_Handed(record, place, session))
        return got

    # --- acknowledging ---

    def acknowledge(self, record: SharedRecord, kind: AcknowledgeType = AcknowledgeType.ACCEPT) -> None:
        """Say what became of a record that a poll gave; the next poll or commit sends it.

        RENEW lets its lock begin anew, and the record stays to be acknowledged. Raises UsageError when the record is
        not in hand, or acknowledgement is implicit.
        """
        self._check()
        if not self._explicit:
            raise UsageError(
                'acknowledge() needs share_acknowledgement_mode="explicit"; now the next poll acknowledges'
            )
        self._take_in_hand()
        self._exchange.tell_over(self._in_hand.answer(record, AcknowledgeType(kind)))

    async def commit(self, timeout_ms: Milliseconds | None = None) -> dict[TopicPartition, KafkaError | None]:
        """Send what was acknowledged (implicitly: all that was polled), and wait for all answers.

        Gives, for each partition of which this call has sent something, None or why it does not count:
        InvalidRecordStateError when the lock was over; what `may_have_taken_effect` may count all the same. Of what a
        poll or commit_async() has sent, only the callback is told. Raises KafkaTimeoutError when answers to what this
        call has sent are still missing.
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
            if not self._exchange.owes:
                break
            left = deadline_ms - self._runtime.now_ms()
            if left <= 0 and not report.unanswered and not self._exchange.has_to_say:
                break  # only answers to what polls have sent are missing
            if left <= 0:
                raise KafkaTimeoutError("acknowledgements are not answered yet", outcome_unknown=True)
            await self._arrived.wait(min(left, LOOK_AGAIN_MS))
        await self._serve()
        return report.results

    def commit_async(self) -> None:
        """As `commit`, without waiting; `set_acknowledgement_callback` tells how it went."""
        self._check()
        self._accept()
        if self._member is not None:
            self._exchange.start(self._member.member_id, {}, fetching=False)

    def _accept(self) -> None:
        self._take_in_hand()
        if not self._explicit:
            for session in self._in_hand.accept_all():
                self._exchange.tell_over(session)

    def set_acknowledgement_callback(self, callback: OnAcknowledged | None) -> None:
        """Called in poll, commit and close with the offsets that were acknowledged, and the error or None."""
        self._check()
        self._callback = callback

    async def _serve(self) -> None:
        """Tell how acknowledging went. Raises what the callback raises."""
        finished = self._exchange.finished
        while finished:
            if self._callback is not None:
                await call_first(finished, partial(_call_of, self._callback), self.call_user)
                continue
            offsets, error = finished.popleft()
            if error is not None:
                log.warning("share group %r: not acknowledged: %s: %s", self.config.group_id, offsets, error)

    def acquisition_lock_timeout_ms(self) -> int | None:
        """For how long a record is locked, as a broker said last; None before the first answer."""
        return self._exchange.lock_ms

    # --- other ---

    def metrics(self) -> dict[str, float]:
        """What was counted so far, and what is in hand now."""
        self._take_in_hand()
        return self._metrics.snapshot() | {"records_in_hand": float(len(self._in_hand))}

    def state(self) -> str:
        """One line for logs and tests."""
        self._take_in_hand()
        member = "not subscribed" if self._member is None else self._member.describe()
        return f"{member}; in hand {len(self._in_hand)}; {self._exchange.describe()}"

    def wakeup(self, soon: Soon = at_once) -> None:
        """Make the poll that runs now, or the next poll, raise WakeupError."""
        self.poll_ends.wakeup(soon)

    async def close(self, timeout_ms: Milliseconds | None = CLOSE_MS) -> None:
        """Send what was acknowledged, give everything else back, leave the group. May be called again.

        Implicitly, what the last poll gave is given back: nobody said that it was processed. commit() says so. Brokers
        that do not answer are waited for at most `timeout_ms` (None: 10 s).
        """
        if self.closed or self._leaving:
            return
        self._leaving = True
        try:
            await self._leave(self._runtime.now_ms() + (CLOSE_MS if timeout_ms is None else timeout_ms))
        finally:
            self.closed = True
            self.poll_ends.close()
            self.cluster.close()

    async def leave(self, timeout_ms: int) -> None:
        """Close without the application. For who forgot to close."""
        self._callback, self.call_user = None, call_here
        await within(self._runtime, self.close(timeout_ms), timeout_ms, "leaving the share group")

    def unsaid(self) -> str:
        """What the group will not learn if the consumer ends right now."""
        if self.closed or self._member is None:
            return ""
        return f"share group {self.config.group_id!r} waits until the locks of what it has are over"


def _call_of(callback: OnAcknowledged, outcome: Outcome) -> Callable[[], Any]:
    return partial(callback, *outcome)
