"""Facts about a cluster at one time, as its brokers report them. A failed request is also a fact."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from fencepost.client.admin.acls import AclOperation
from fencepost.client.admin.group_descriptions import GroupDescription
from fencepost.client.admin.groups import GroupListing
from fencepost.client.admin.logs import LogDir
from fencepost.client.admin.share_offsets import ShareOffset
from fencepost.client.admin.topics import ClusterDescription, TopicDescription
from fencepost.client.admin.transactions import ProducerDescription, TransactionDescription, TransactionListing
from fencepost.client.diagnosis.coordinator_topics import UncreatedTopic
from fencepost.client.types import TopicPartition
from fencepost.errors import AuthorizationError, KafkaError, UnsupportedVersionError
from fencepost.protocol.codes import ErrorCode as E

__all__ = ["Ends", "Facts", "FailureKind", "SinkBatch", "UnansweredQuestion", "UnreadableRecords", "unknown_of"]


class FailureKind(Enum):
    """The reason why a request has no result."""

    NO_ANSWER = "no answer"
    NOT_ALLOWED = "not allowed"
    TOO_OLD = "too old"
    NOT_ASKED = "not asked"
    NO_COORDINATOR = "no coordinator"
    LOADING = "loading"


@dataclass(frozen=True, slots=True)
class UnansweredQuestion:
    """A request without a result: the part of the facts that is missing, and the reason.

    `which` restricts the part, such as " whose coordinator is broker 2"; "": all of it.
    """

    part: str
    reason: str
    failure_kind: FailureKind = FailureKind.NO_ANSWER
    which: str = ""

    @property
    def name(self) -> str:
        """The part, with its restriction."""
        return self.part + self.which


@dataclass(frozen=True, slots=True)
class Ends:
    """Last stable offset and high watermark of a partition."""

    stable: int
    end: int


@dataclass(frozen=True, slots=True)
class UnreadableRecords:
    """Records that cannot be read: their first offset, the offset after them (None: not known), and the reason."""

    offset: int
    next_offset: int | None
    reason: str


@dataclass(frozen=True, slots=True)
class SinkBatch:
    """The last decision of a query: its open and its lost transactions."""

    sink: str
    query: str
    batch: int
    open: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts about a cluster. A part that could not be requested is empty, and listed in `unknown`.

    Attributes:
        at_ms: Time of the responses, in ms since 1970.
        cluster: Brokers and controller.
        topics: Topics by name.
        ends: Offsets by partition.
        producers: For partitions whose last stable offset is before their end: their producers, or the reason why they
            are unknown.
        listed: All transactional ids.
        described: Open transactions, and those that may hold back readers, by transactional id.
        groups: All groups.
        committed: Committed offsets by group, or the error.
        damaged: UnreadableRecords by partition, where a group stands before the end.
        shared: Start offsets and lag by share group, or the error. No finding follows from them.
        members: Groups with their members, by group.
        silent: Reason by broker that does not answer.
        throttled: Throttle time in ms by broker.
        log_dirs: Log directories of the brokers that answer.
        least_in_sync: min.insync.replicas by topic.
        limits_in_sync: False if a broker rejects writes when min.insync.replicas exceeds the number of replicas.
        clock_ahead_ms: Time in ms by which the controller's clock is ahead of the local one.
        features: Feature levels.
        fences_by_group: False if a broker does not fence transactional offsets by group (KIP-447).
        rights: Operations on the cluster that this principal may perform; None if the brokers do not report them.
        hidden: Kinds of objects that brokers may hide from this principal.
        certificates: End of the certificate in ms since 1970, by address.
        uncreated: Coordinators' topics that do not exist yet, by key of COORDINATOR_TOPICS.
        sinks: Last decisions of Spark sinks.
        sinks_refused: Reason why Spark sinks cannot write exactly once.
        unknown: Requests without a result.
        since: Time in ms since 1970 since when a state is unchanged, from `StateAges`.
    """

    at_ms: int
    cluster: ClusterDescription
    topics: Mapping[str, TopicDescription] = field(default_factory=dict)
    ends: Mapping[TopicPartition, Ends] = field(default_factory=dict)
    producers: Mapping[TopicPartition, Sequence[ProducerDescription] | UnansweredQuestion] = field(default_factory=dict)
    listed: Sequence[TransactionListing] = ()
    described: Mapping[str, TransactionDescription] = field(default_factory=dict)
    groups: Sequence[GroupListing] = ()
    committed: Mapping[str, Mapping[TopicPartition, int] | KafkaError] = field(default_factory=dict)
    damaged: Mapping[TopicPartition, UnreadableRecords] = field(default_factory=dict)
    shared: Mapping[str, Mapping[TopicPartition, ShareOffset] | KafkaError] = field(default_factory=dict)
    members: Mapping[str, GroupDescription] = field(default_factory=dict)
    silent: Mapping[int, str] = field(default_factory=dict)
    throttled: Mapping[int, int] = field(default_factory=dict)
    log_dirs: Sequence[LogDir] = ()
    least_in_sync: Mapping[str, int] = field(default_factory=dict)
    limits_in_sync: bool | None = None
    clock_ahead_ms: int | None = None
    features: Mapping[str, int] | None = None
    fences_by_group: bool | None = None
    rights: Sequence[AclOperation] | None = None
    hidden: Sequence[str] = ()
    certificates: Mapping[str, int] = field(default_factory=dict)
    uncreated: Mapping[str, UncreatedTopic] = field(default_factory=dict)
    sinks: Sequence[SinkBatch] = ()
    sinks_refused: str | None = None
    unknown: Sequence[UnansweredQuestion] = ()
    since: Mapping[tuple[str, ...], int] = field(default_factory=dict)

    def knows(self, part: str) -> bool:
        """Return true if that part is known as a whole."""
        return all(each.part != part for each in self.unknown)


_CODES: Final = {
    E.COORDINATOR_LOAD_IN_PROGRESS: FailureKind.LOADING,
    E.COORDINATOR_NOT_AVAILABLE: FailureKind.NO_COORDINATOR,
    E.NOT_COORDINATOR: FailureKind.NO_COORDINATOR,
}
COORDINATED: Final = {"transactions": "transactions", "groups": "groups", "guarantee of Spark sinks": "transactions"}
"""Parts that coordinators report, and the kind of coordinator."""


def unknown_of(part: str, error: KafkaError, which: str = "") -> UnansweredQuestion:
    """Return the unanswered question for this error."""
    failure_kind, cause = FailureKind.NO_ANSWER, error
    while True:
        if isinstance(cause, AuthorizationError):
            failure_kind = FailureKind.NOT_ALLOWED
        elif isinstance(cause, UnsupportedVersionError):
            failure_kind = FailureKind.TOO_OLD
        elif part in COORDINATED and cause.code is not None:
            # A partition of the coordinator's topic without a leader means that there is no coordinator
            # (AdminBase._of_each_broker).
            leaderless = cause.code == E.LEADER_NOT_AVAILABLE
            failure_kind = FailureKind.NO_COORDINATOR if leaderless else _CODES.get(E(cause.code), failure_kind)
        if failure_kind is not FailureKind.NO_ANSWER or not isinstance(cause.__cause__, KafkaError):
            return UnansweredQuestion(part, str(error) or repr(error), failure_kind, which)
        cause = cause.__cause__
