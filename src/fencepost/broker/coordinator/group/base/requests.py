"""Requests to the group coordinator and its replies, as typed values instead of wire messages.

Field names are those of the wire messages where one exists. `api_version` is the version of the request being answered:
some answers depend on it. Error codes are `ErrorCode` values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, NamedTuple, TypeVar
from uuid import UUID

from fencepost.broker.coordinator.group.base.records import GroupRecord
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.logs.consumer_group_log import TopicIdPartition
from fencepost.values import Value

__all__ = [
    "AssignmentReply",
    "CommitOffsets",
    "CommitTransactionalOffsets",
    "DeletedGroup",
    "FetchOffsets",
    "FetchedOffset",
    "FetchedOffsets",
    "GroupResult",
    "Heartbeat",
    "Join",
    "Joined",
    "JoinedMember",
    "Leave",
    "LeavingMember",
    "Left",
    "LeftMember",
    "ListedGroup",
    "OffsetsDeleted",
    "Out",
    "PartitionError",
    "PartitionOffset",
    "Refusal",
    "SyncGroup",
    "Synced",
    "Token",
    "is_blank",
    "unknown_member",
]

_NAME_CHARACTERS: Final = 1_000  # of a client in the ids of its members
_TRIMMED: Final = bytes(range(0x21)).decode()  # the characters that `String.trim` of Java removes

Token = object
_Reply = TypeVar("_Reply")


class Join(Value, kw_only=True):
    """JoinGroup.

    `protocols` are in the member's order of preference. A rebalance timeout below 0 (v0) means the session's.
    """

    group_id: str
    member_id: str = ""
    group_instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    session_timeout_ms: int
    rebalance_timeout_ms: int = -1
    protocol_type: str
    protocols: Sequence[tuple[str, bytes]]
    api_version: int

    def new_member_id(self, unique: str) -> str:
        """Return a new member id.

        It begins with the client's name, as in Kafka, but is limited to the length of answers.
        """
        name = self.client_id if self.group_instance_id is None else self.group_instance_id
        return f"{name[:_NAME_CHARACTERS]}-{unique}"


class JoinedMember(Value):
    """A member as the leader sees it."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


class Joined(Value, kw_only=True):
    """The answer to a Join. A `protocol_name` of None is sent as "" below v7, which cannot carry a null."""

    error_code: ErrorCode = ErrorCode.NONE
    generation_id: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    member_id: str = ""
    members: Sequence[JoinedMember] = ()


class SyncGroup(Value, kw_only=True):
    """SyncGroup. The leader's request has all assignments. From v5 on each request names the protocol (KIP-559)."""

    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: Sequence[tuple[str, bytes]] = ()
    api_version: int = 0


class Synced(Value, kw_only=True):
    """The answer to a Sync."""

    error_code: ErrorCode = ErrorCode.NONE
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


class Heartbeat(Value, kw_only=True):
    """Heartbeat. Its answer is an error code."""

    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None = None


class Refusal(NamedTuple):
    """The refusal of a heartbeat."""

    error_code: ErrorCode
    message: str


def is_blank(text: str | None) -> bool:
    """Return true if the text is empty, or has only spaces and control characters. None is not blank."""
    return text is not None and not text.strip(_TRIMMED)


def unknown_member(group_id: str, member_id: str) -> Refusal:
    """Return the refusal of a heartbeat of a member that the group does not have."""
    return Refusal(ErrorCode.UNKNOWN_MEMBER_ID, f"Group {group_id} has no member {member_id}.")


class AssignmentReply(Value, kw_only=True):
    """The answer to a heartbeat of a member whose partitions the coordinator assigns.

    Without `assignment`, the member's assignment is unchanged.
    """

    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: frozenset[TopicIdPartition] | None = None


class LeavingMember(Value):
    """A leaving member: a member id, or an instance id with an empty one (an administrator removes a static member)."""

    member_id: str
    group_instance_id: str | None = None


class Leave(Value, kw_only=True):
    """LeaveGroup. Versions below 3 name one member."""

    group_id: str
    members: Sequence[LeavingMember]


class LeftMember(Value):
    """The result for one member."""

    member_id: str
    group_instance_id: str | None
    error_code: ErrorCode


class Left(Value, kw_only=True):
    """The answer to a Leave."""

    error_code: ErrorCode = ErrorCode.NONE
    members: Sequence[LeftMember] = ()

    @property
    def single_error_code(self) -> ErrorCode:
        """The error code of the single member below version 3, which has no member list."""
        if self.error_code or not self.members:
            return self.error_code
        return self.members[0].error_code


class PartitionOffset(Value, kw_only=True):
    """An offset to commit. A null metadata is stored as ""."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int = -1
    metadata: str | None = None
    topic_id: UUID | None = None


class CommitOffsets(Value, kw_only=True):
    """OffsetCommit. `retention_ms` (v2-4) of -1 leaves the retention to the broker."""

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
    offsets: Sequence[PartitionOffset]
    retention_ms: int = -1
    api_version: int

    @property
    def has_member_epochs(self) -> bool:
        """True from v9 on: the client tells member epochs from generations, and knows 69 and 113 (KIP-848)."""
        return self.api_version >= 9


class CommitTransactionalOffsets(Value, kw_only=True):
    """TxnOffsetCommit. The caller has checked that the producer owns the transaction."""

    group_id: str
    producer_id: int
    producer_epoch: int
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
    offsets: Sequence[PartitionOffset]
    api_version: int = 0

    @property
    def has_member_epochs(self) -> bool:
        """True from v6 on: the client tells member epochs from generations, and knows 69 and 113 (KIP-1319)."""
        return self.api_version >= 6


class PartitionError(Value):
    """The result for one partition."""

    topic: str
    partition: int
    error_code: ErrorCode


class FetchOffsets(Value, kw_only=True):
    """OffsetFetch for one group (v8+ batch several). `partitions` of None asks for all.

    `member_id` and `member_epoch` (v9+) are those of a member of a consumer group.
    """

    group_id: str
    member_id: str | None = None
    member_epoch: int = -1
    partitions: Sequence[tuple[str, int]] | None
    require_stable: bool = False
    api_version: int


class FetchedOffset(Value):
    """A committed offset, or -1 when there is none."""

    topic: str
    partition: int
    offset: int = -1
    leader_epoch: int = -1
    metadata: str = ""
    error_code: ErrorCode = ErrorCode.NONE


class FetchedOffsets(Value):
    """The answer to a FetchOffsets."""

    group_id: str
    error_code: ErrorCode = ErrorCode.NONE
    offsets: Sequence[FetchedOffset] = ()


class OffsetsDeleted(Value):
    """The answer to an OffsetDelete: an error of the whole request, or one per partition."""

    error_code: ErrorCode = ErrorCode.NONE
    partitions: Sequence[PartitionError] = ()


class DeletedGroup(Value):
    """The result for one group of a DeleteGroups."""

    group_id: str
    error_code: ErrorCode


class ListedGroup(Value):
    """A group as ListGroups shows it."""

    group_id: str
    protocol_type: str
    group_state: str
    group_type: str


@dataclass(slots=True)
class GroupResult(Generic[_Reply]):
    """The consequences of a request, or of time that passed.

    The caller appends `records` in order, each to the partition of its group, and replays each. Once they are durable
    it sends `reply` to the request, and each of `replies` to the parked request of its token.

    It is not the `Result` of a transaction, which one function makes whole and which never changes. Here many functions
    add to it, and the additions for a group whose decision failed are taken back (`base/deadlines.py`).
    """

    reply: _Reply
    records: list[GroupRecord] = field(default_factory=list)
    replies: list[tuple[Token, Joined | Synced]] = field(default_factory=list)

    def refused(self, error_code: ErrorCode) -> list[tuple[Token, Joined | Synced]]:
        """Return the replies to parked requests if the log refused the records, instead of `replies`.

        Answers that were refusals anyway stand. With COORDINATOR_NOT_AVAILABLE or NOT_COORDINATOR a member comes back
        and its group goes on from there.
        """
        return [(token, _refused(answer, error_code)) for token, answer in self.replies]


Out = GroupResult[Any]


def _refused(answer: Joined | Synced, error_code: ErrorCode) -> Joined | Synced:
    if answer.error_code:
        return answer
    if isinstance(answer, Joined):
        return Joined(error_code=error_code, member_id=answer.member_id)
    return Synced(error_code=error_code)
