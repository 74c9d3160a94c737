"""The common part of classic (classic.py) and KIP-848 membership (consumer_protocol.py), and the subscription.

A member reports "assigned", "revoked" and "lost" partitions to its listener, and waits until the listener returns. It
does not report partitions that it keeps in a rebalance.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, NamedTuple, Self

from fencepost.client.metrics import ConsumerMetrics
from fencepost.client.net.cluster import Cluster, Coordinator, CoordinatorKind
from fencepost.client.net.runtime import TaskHandle
from fencepost.client.types import GroupMetadata, TopicPartition
from fencepost.config import ConsumerConfig
from fencepost.errors import (
    ConfigurationError,
    DisconnectedError,
    InvalidTopicError,
    KafkaError,
    KafkaTimeoutError,
    error_for,
    without_traceback,
)
from fencepost.protocol.codes import ErrorCode as E
from fencepost.protocol.logs.topic_names import LONGEST_NAME, is_topic_name

log = logging.getLogger("fencepost.client.group")

MISSING_TOPIC_CHECK_MS: Final = 1_000  # interval of the search for a subscribed topic that does not exist yet
LOOK_PATIENCE_MS: Final = 5_000  # time limit of one metadata request; another follows later

# Called with the kind ("revoked", "assigned", "lost") and the partitions, and awaited before the rebalance continues.
Listener = Callable[[str, list[TopicPartition]], Awaitable[None]]


class RequestedTopics(NamedTuple):
    """A requested subscription: names, or a pattern that must match whole names."""

    names: tuple[str, ...] = ()
    pattern: re.Pattern[str] | None = None


def check_names(names: Iterable[str]) -> None:
    """Raise InvalidTopicError for a name that no topic can have. A consumer would wait for it forever."""
    for name in names:
        if is_topic_name(name):
            continue
        reason = f"a topic's name has 1 to {LONGEST_NAME} of the characters a-z, A-Z, 0-9, '.', '_' and '-'"
        if name.startswith("^"):
            reason += f"; a pattern is given as re.compile({name!r}), or by the keyword pattern"
        raise InvalidTopicError(f"{name!r} cannot be a topic: {reason}", code=E.INVALID_TOPIC_EXCEPTION)


class SubscribedTopics:
    """The topics of a subscription. The client matches a pattern with the names in metadata of all topics."""

    def __init__(self, wanted: RequestedTopics) -> None:
        self.pattern = wanted.pattern
        self._names = sorted(set(wanted.names))

    @classmethod
    def make(cls, names: Iterable[str] | re.Pattern[str], pattern: str | re.Pattern[str] | None) -> Self:
        """Create a subscription.

        Args:
            names: Names of topics, or a compiled pattern.
            pattern: A pattern instead of names.

        Raises:
            ConfigurationError: The pattern is invalid, or names were given too.
            InvalidTopicError: A name cannot be a topic's.
        """
        if isinstance(names, re.Pattern):
            return cls.make((), names)
        names = tuple(names)
        check_names(names)
        if pattern is not None and names:
            raise ConfigurationError("subscribe to topics or to a pattern, not both")
        try:
            compiled = re.compile(pattern) if pattern is not None else None
        except re.error as error:
            raise ConfigurationError(f"pattern {pattern!r}: {error}") from error
        return cls(RequestedTopics(names, compiled))

    def asks_for_the_same(self, other: SubscribedTopics) -> bool:
        """Return true for the same pattern, or without patterns for the same names."""
        if self.pattern is not None or other.pattern is not None:
            return self.pattern == other.pattern
        return self._names == other._names

    def names_now(self) -> list[str]:
        """Return the current names, in order."""
        return list(self._names)

    async def match(self, cluster: Cluster, deadline_ms: int) -> bool:
        """Match the pattern with the current topics. Return true if the names changed. Raises KafkaError."""
        if self.pattern is None:
            return False
        reply = await cluster.fetch_metadata(None, deadline_ms, create=False)
        found = sorted(
            topic.name
            for topic in reply.topics
            if topic.name is not None
            and topic.error_code == 0
            and not topic.is_internal
            and self.pattern.fullmatch(topic.name)
        )
        changed, self._names = found != self._names, found
        return changed


class Member:
    """One member of a group. `assignment` has its partitions. `generation_id` (or epoch) is -1 outside the group."""

    def __init__(self, cluster: Cluster, config: ConsumerConfig, listener: Listener, metrics: ConsumerMetrics) -> None:
        self.generation_id = -1
        self.member_id = ""
        self.assignment: list[TopicPartition] = []
        self.topics = SubscribedTopics(RequestedTopics())
        self._cluster = cluster
        self._runtime = cluster.runtime
        self._config = config
        self._group_id = config.group_id or ""
        self._target = Coordinator(CoordinatorKind.GROUP, self._group_id)
        self._listener = listener
        self._metrics = metrics
        self._last_poll_ms = self._runtime.now_ms()
        self._next_refresh_ms = self._next_report_ms = 0
        self._refresh_task = False
        self._heartbeats: TaskHandle | None = None
        self._fatal: Exception | None = None
        self._owner: GroupMetadata | None = None  # current or last identity as owner of the partitions
        self._awaiting = "the next poll"  # a text for the log of a consumer that makes no progress

    def subscribe(self, wanted: SubscribedTopics) -> None:
        """Replace the subscription."""
        raise NotImplementedError

    def metadata(self) -> GroupMetadata:
        """Return the identity for commits: that of the owner of the partitions being read.

        A member that was removed in the background keeps its last identity. Without a member id and generation the
        coordinator would accept its offsets unchecked, and records would be processed twice.
        """
        return self._owner or self._identity()

    def _identity(self) -> GroupMetadata:
        return GroupMetadata(self._group_id, self.generation_id, self.member_id, self._config.group_instance_id)

    def names(self) -> list[str]:
        """Return the subscribed topics, or the topics that the pattern matches now."""
        return self.topics.names_now()

    @property
    def settled(self) -> bool:
        """Return true if the assignment is current."""
        raise NotImplementedError

    @property
    def holds_back(self) -> bool:
        """Return true if no records may be handed out while the assignment is not current."""
        raise NotImplementedError

    def polled(self) -> None:
        """Record that the application is alive. Raises the error that ended the membership permanently."""
        self._last_poll_ms = self._runtime.now_ms()
        if self._fatal is not None:
            raise without_traceback(self._fatal)
        self._find_missing_topics()

    async def settle(self, deadline_ms: int) -> bool:
        """Take part in rebalances until the assignment is current.

        Return false if time ran out. The next call then continues. Raises final errors.
        """
        raise NotImplementedError

    async def end(self, deadline_ms: int) -> None:
        """Leave permanently: give up partitions, stop heartbeats. Waits for brokers until the deadline at most."""
        raise NotImplementedError

    def waiting_for(self) -> str:
        """Return the reason why the assignment is not current, with the lasting failure if there is one."""
        trouble = self._cluster.lasting_errors.latest()
        return self._awaiting if trouble is None else f"{self._awaiting}; last error: {trouble}"

    def describe(self) -> str:
        """Return the state in one line, for logs and tests."""
        raise NotImplementedError

    def _late(self) -> bool:
        """Return true and log a warning if the application has not polled for max_poll_interval_ms."""
        if self._runtime.now_ms() - self._last_poll_ms <= self._config.max_poll_interval_ms:
            return False
        log.warning(
            "group %r: no poll for max_poll_interval_ms (%d ms); leaving, so that other members get the partitions",
            self._group_id,
            self._config.max_poll_interval_ms,
        )
        return True

    def _not_left(self, error: KafkaError) -> None:
        """Log that the coordinator did not receive the request to leave."""
        log.warning("group %r: could not leave (%s); its partitions wait until its session ends", self._group_id, error)

    async def _give_up(self, kind: str, partitions: Sequence[TopicPartition]) -> None:
        """Report to the listener that these partitions are revoked or lost. They are owned until it returns."""
        if partitions:
            await self._listener(kind, sorted(partitions))
        gone = set(partitions)
        self.assignment = [partition for partition in self.assignment if partition not in gone]

    def _find_missing_topics(self) -> None:
        """Start a search for subscribed topics that do not exist, which reports lasting errors. Not for patterns."""
        now_ms = self._runtime.now_ms()
        if (
            self.generation_id < 0
            or self._refresh_task
            or now_ms < self._next_report_ms
            or self.topics.pattern is not None
        ):
            return
        self._next_report_ms = now_ms + MISSING_TOPIC_CHECK_MS
        known = self._cluster.topics
        missing = [name for name in self.topics.names_now() if name not in known or known[name].error_code != 0]
        if missing:
            self._refresh_task = True
            self._runtime.spawn(self._refresh_once(missing))

    def _report_missing_topics(self, topics: Sequence[str]) -> None:
        for name in topics:
            known, operation = self._cluster.topics.get(name), f"topic {name!r}"
            if known is not None and known.error_code != 0:
                self._cluster.lasting_errors.record(operation, error_for(known.error_code, operation))
            else:
                self._cluster.lasting_errors.succeeded(operation)

    def _refresh_if_due(self, topics: Sequence[str], *, often: bool) -> None:
        """Refresh the metadata of these topics (and match the pattern) in a task, if it is due."""
        now_ms = self._runtime.now_ms()
        if self._refresh_task or now_ms < self._next_refresh_ms:
            return
        wait_ms = self._cluster.config.metadata_max_age_ms
        self._next_refresh_ms = now_ms + (min(MISSING_TOPIC_CHECK_MS, wait_ms) if often else wait_ms)
        self._refresh_task = True
        self._runtime.spawn(self._refresh_once(list(topics)))

    async def _refresh_once(self, topics: list[str]) -> None:
        deadline_ms = self._runtime.now_ms() + LOOK_PATIENCE_MS
        try:
            if await self.topics.match(self._cluster, deadline_ms):
                self._topics_changed()
            if topics:
                await self._cluster.refresh(topics, deadline_ms)
                self._report_missing_topics(topics)
        except (DisconnectedError, KafkaTimeoutError) as error:
            log.info("group %r: no metadata of its topics yet: %s", self._group_id, error)
        except KafkaError as error:
            log.warning("group %r: metadata: %s", self._group_id, error)
        finally:
            self._refresh_task = False

    def _topics_changed(self) -> None:
        """Handle a change of the topics that the pattern matches."""
        raise NotImplementedError
