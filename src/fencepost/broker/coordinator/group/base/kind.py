"""The interface of a group kind. The coordinator drives all kinds through it.

Every kind implements `GroupKind`. `RecordedKind` is the base class of kinds whose members send one heartbeat to join,
stay and leave (KIP-848, KIP-932, KIP-1071). The state of their groups follows completely from the records.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, Self, TypeVar

from fencepost.broker.coordinator.group.base.deadlines import Deadline, DeadlineKind
from fencepost.broker.coordinator.group.base.records import LogCodec, LogKey, MismatchedRecord
from fencepost.broker.coordinator.group.base.requests import (
    CommitOffsets,
    CommitTransactionalOffsets,
    FetchOffsets,
    Heartbeat,
    Join,
    Joined,
    Leave,
    Left,
    LeftMember,
    ListedGroup,
    Out,
    Refusal,
    Synced,
    SyncGroup,
    Token,
)
from fencepost.broker.coordinator.group.base.settings import CoordinatorSettings
from fencepost.broker.coordinator.group.base.topics import Topics
from fencepost.broker.timing.deadlines import Deadlines
from fencepost.protocol.codes import ErrorCode

__all__ = [
    "AnyGroup",
    "DefaultKind",
    "GroupKind",
    "KindContext",
    "Kinds",
    "MemberRequest",
    "RecordedGroup",
    "RecordedKind",
    "refuse",
]

Described = TypeVar("Described")
K = TypeVar("K")


class AnyGroup(Protocol):
    """A group of any kind."""

    @property
    def group_id(self) -> str:
        """The group's id."""

    @property
    def is_empty(self) -> bool:
        """True if the group has no members, so that it can be deleted."""

    @property
    def is_unused(self) -> bool:
        """True if the group is empty and no client is about to join."""

    def subscribes_to(self, topic: str) -> bool:
        """Return true if a member subscribes to the topic."""

    def retention_start_ms(self, commit_ms: int) -> int | None:
        """Return the start of the retention of an offset committed at `commit_ms`; None if it does not expire."""


class KindContext(NamedTuple):
    """The parts of the coordinator that a kind uses."""

    settings: CoordinatorSettings
    deadlines: Deadlines[Deadline]
    topics: Topics
    new_uuid: Callable[[], str]
    kinds: Kinds
    """The kinds that precede it in the table."""


class GroupKind(ABC, Generic[Described]):
    """The groups of one kind.

    Only `replay` changes what is persisted of them, when running and when loading. `Described` is the answer to a
    describe request.
    """

    name: ClassVar[str]
    """The group type in ListGroups, and the protocol type of groups that have no other."""
    log: ClassVar[LogCodec]
    """The encoding of this kind's records."""
    decides_once: ClassVar[bool]
    """True if a group gets one decision, and the next one only after its records were replayed."""
    expires: ClassVar[bool] = True
    """True if an unused group is deleted when it has no offsets."""
    groups: tuple[Mapping[str, object], ...]
    """The dictionaries with all groups of this kind, by their ids."""

    def __init__(self, context: KindContext) -> None:
        self._settings = context.settings
        self._deadlines = context.deadlines
        self._topics = context.topics
        self._new_uuid = context.new_uuid

    # The groups

    def __contains__(self, group_id: object) -> bool:
        """Return true if there is such a group of this kind."""
        return any(group_id in groups for groups in self.groups)

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of persisted groups."""

    @abstractmethod
    def __iter__(self) -> Iterator[str]:
        """Iterate over the ids of the persisted groups."""

    @abstractmethod
    def find(self, group_id: str) -> AnyGroup | None:
        """Return the group with the id; None if there is none of this kind."""

    @abstractmethod
    def snapshot(self) -> Mapping[str, object]:
        """Return the persisted groups by id, as comparable values."""

    @abstractmethod
    def listed(self) -> Iterable[ListedGroup]:
        """Return the groups as ListGroups shows them."""

    @abstractmethod
    def describe(self, group_id: str) -> Described | None:
        """Describe a group; None if there is none of this kind."""

    @abstractmethod
    def missing(self, group_id: str, message: str) -> Described:
        """Return the answer to a describe request for another id."""

    @abstractmethod
    def delete(self, group_id: str, out: Out) -> None:
        """Write the tombstones of an empty group. The caller deletes its offsets."""

    # The log and the time

    @abstractmethod
    def replay(self, key: LogKey, value: object) -> None:
        """Apply a record of this kind. Raises MismatchedRecord."""

    @abstractmethod
    def load(self, now_ms: int, out: Out) -> None:
        """Start all timers after the records were replayed. Members get a full session and revocation timeout."""

    @abstractmethod
    def on_deadline(self, now_ms: int, deadline: Deadline, out: Out) -> None:
        """React to an expired deadline of this kind."""

    # Members with the classic protocol. By default, a kind has none.

    def join(self, now_ms: int, request: Join, token: Token, out: Out) -> None:
        """Answer JoinGroup in `out`, or park it. A group of another kind does not reveal its members."""
        out.replies.append((token, Joined(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)))

    def sync(self, now_ms: int, request: SyncGroup, token: Token, out: Out) -> None:
        """Answer SyncGroup in `out`, or park it."""
        out.replies.append((token, Synced(error_code=ErrorCode.UNKNOWN_MEMBER_ID)))

    def member_heartbeat(self, now_ms: int, request: Heartbeat) -> ErrorCode:
        """Answer Heartbeat. REBALANCE_IN_PROGRESS asks the member to rejoin."""
        return ErrorCode.UNKNOWN_MEMBER_ID

    def leave(self, now_ms: int, request: Leave, out: Out) -> Left:
        """Answer LeaveGroup."""
        unknown = ErrorCode.UNKNOWN_MEMBER_ID
        return Left(
            members=[LeftMember(member.member_id, member.group_instance_id, unknown) for member in request.members]
        )

    # Offsets. By default, everybody may read and delete them.

    @abstractmethod
    def refused_commits(
        self, now_ms: int, request: CommitOffsets | CommitTransactionalOffsets
    ) -> Mapping[tuple[str, int], ErrorCode]:
        """Return the refused partitions of a commit, with their errors."""

    def check_fetch(self, request: FetchOffsets) -> ErrorCode:
        """Return the error of a fetch of offsets."""
        return ErrorCode.NONE

    def check_offset_delete(self, group_id: str) -> ErrorCode:
        """Return the error of a deletion of offsets."""
        return ErrorCode.NONE

    # Changes of a group's kind

    def gives_way(self, group_id: str) -> bool:
        """Return true if any kind with committed offsets may take over the group."""
        return False

    def replaced(self, now_ms: int, group_id: str, out: Out) -> None:
        """Write the tombstones of a group that another kind takes over, and answer its parked requests."""
        self.delete(group_id, out)

    def _deadline(self, kind: DeadlineKind, group_id: str, member_id: str = "") -> Deadline:
        return Deadline(self.name, kind, group_id, member_id)


class DefaultKind(GroupKind[Described]):
    """The kind of an id that has only offsets."""

    @abstractmethod
    def has_offsets(self, group_id: str) -> None:
        """Register a group id that has an offset and belongs to no other kind."""

    @abstractmethod
    def has_other_kind(self, group_id: str) -> None:
        """Remove a registered id, because its group now has another kind."""


class Kinds:
    """The kinds of one coordinator, in the order of the table. The first is the default kind."""

    def __init__(self) -> None:
        self._all: list[GroupKind[Any]] = []
        # the default kind last: while a group changes its kind, it has both
        self._searched: list[tuple[Mapping[str, object], GroupKind[Any]]] = []

    def add(self, kind: GroupKind[Any]) -> None:
        """Add the next kind."""
        self._all.append(kind)
        self._searched[:0] = [(groups, kind) for groups in kind.groups]

    def __iter__(self) -> Iterator[GroupKind[Any]]:
        return iter(self._all)

    def get(self, kind: type[K]) -> K:
        """Return the kind of this class. Raises LookupError."""
        for each in self._all:
            if isinstance(each, kind):
                return each
        raise LookupError(f"{kind.__name__} is not in the table of kinds")

    def named(self, name: str) -> GroupKind[Any]:
        """Return the kind with the name. Raises LookupError."""
        for each in self._all:
            if each.name == name:
                return each
        raise LookupError(f"{name} is not in the table of kinds")

    def of(self, group_id: str) -> GroupKind[Any] | None:
        """Return the kind of a group; None if there is no such group."""
        for groups, kind in self._searched:
            if group_id in groups:
                return kind
        return None


class MemberRequest(Protocol):
    """A heartbeat that joins a group, stays in it or leaves it."""

    @property
    def group_id(self) -> str:
        """The group."""

    @property
    def member_id(self) -> str:
        """The member."""

    @property
    def member_epoch(self) -> int:
        """The member's epoch; 0 to join, below 0 to leave."""


class RecordedGroup(ABC):
    """A group whose state follows completely from its records. `__slots__` lists its attributes."""

    __slots__: tuple[str, ...] = ()

    group_id: str
    members: Mapping[str, object]

    @abstractmethod
    def replay(self, key: LogKey, value: object) -> bool:
        """Apply a record of this group, except for a tombstone of the group. Return false if it is inconsistent."""

    @abstractmethod
    def subscribes_to(self, topic: str) -> bool:
        """Return true if a member subscribes to the topic."""

    @property
    @abstractmethod
    def state(self) -> str:
        """The state's name on the wire, derived from epochs and members."""

    @property
    def is_empty(self) -> bool:
        """True if the group has no members."""
        return not self.members

    is_unused = is_empty

    def retention_start_ms(self, commit_ms: int) -> int | None:
        """Return the time of the commit."""
        return commit_ms

    def copy(self) -> Self:
        """Return an independent copy."""
        copied = object.__new__(type(self))
        for name in self.__slots__:
            value = getattr(self, name)
            setattr(copied, name, dict(value) if isinstance(value, dict) else value)
        return copied

    def snapshot(self) -> object:
        """Return the complete state as a comparable value."""
        return tuple(getattr(self, name) for name in self.__slots__)


G = TypeVar("G", bound=RecordedGroup)
Q = TypeVar("Q", bound=MemberRequest)
R = TypeVar("R")


class RecordedKind(GroupKind[Described], Generic[Described, G, Q, R]):
    """A kind whose groups (`G`) are in the log completely, except for timers. `Q` and `R`: heartbeat and its answer."""

    decides_once = True
    group_key: ClassVar[type]
    """The type of the key whose tombstone deletes a group."""
    max_size_setting: ClassVar[str]
    """The setting with the largest number of members of a group."""
    reply: Callable[..., R]
    """The type of the answer to a heartbeat."""
    described: Callable[..., Described]
    """The type of the answer to a describe request."""
    dead: ClassVar[str]
    """The state in the answer to a describe request for another id."""

    def __init__(self, context: KindContext) -> None:
        super().__init__(context)
        self._groups: dict[str, G] = {}
        self.groups = (self._groups,)
        self._max_size = context.settings.number(self.max_size_setting)

    # The heartbeat

    @abstractmethod
    def check(self, request: Q) -> Refusal | None:
        """Return the error of a request that is invalid by itself, or None."""

    @abstractmethod
    def heartbeat(self, now_ms: int, request: Q, out: Out) -> R:
        """Handle a checked heartbeat, including joins and leaves. Without a group, it is a join."""

    def refusing(self, error_code: ErrorCode, message: str) -> R:
        """Return the answer that refuses a heartbeat."""
        return self.reply(error_code=error_code, error_message=message)

    def _full(self, group: G, member_id: str) -> Refusal | None:
        """Return the refusal of a new member beyond the limit."""
        if member_id in group.members or len(group.members) < self._max_size:
            return None
        return Refusal(ErrorCode.GROUP_MAX_SIZE_REACHED, f"Group {group.group_id} is full.")

    def on_deadline(self, now_ms: int, deadline: Deadline, out: Out) -> None:
        group = self.find(deadline.group_id)
        member = None if group is None else group.members.get(deadline.member_id)
        if group is not None and member is not None:
            self.expire(now_ms, group, member, deadline.kind, out)

    @abstractmethod
    def expire(self, now_ms: int, group: G, member: Any, kind: DeadlineKind, out: Out) -> None:
        """Handle the end of a member's session, or of its time to release revoked partitions."""

    def takes_over(self, present: GroupKind[Any], group_id: str) -> bool:
        """Return true if a joining member turns this group of another kind into one of this kind."""
        return present.gives_way(group_id)

    @abstractmethod
    def new_group(self, group_id: str) -> G:
        """Return a group without records."""

    # The groups

    def __len__(self) -> int:
        return len(self._groups)

    def __iter__(self) -> Iterator[str]:
        return iter(self._groups)

    def find(self, group_id: str) -> G | None:
        return self._groups.get(group_id)

    def missing(self, group_id: str, message: str) -> Described:
        error_code = ErrorCode.GROUP_ID_NOT_FOUND
        return self.described(group_id=group_id, error_code=error_code, error_message=message, state=self.dead)

    def snapshot(self) -> Mapping[str, object]:
        return {group_id: group.snapshot() for group_id, group in self._groups.items()}

    def listed(self) -> Iterable[ListedGroup]:
        return [ListedGroup(group.group_id, self.name, group.state, self.name) for group in self._groups.values()]

    def replay(self, key: LogKey, value: object) -> None:
        group = self._groups.get(key.group_id)
        if value is None and (group is None or isinstance(key, self.group_key)):
            self._groups.pop(key.group_id, None)
            return
        if group is None:
            group = self._groups[key.group_id] = self.new_group(key.group_id)
        if not group.replay(key, value):
            raise MismatchedRecord(f"{key} with {value}")


def refuse(
    request: CommitOffsets | CommitTransactionalOffsets, error: ErrorCode
) -> Mapping[tuple[str, int], ErrorCode]:
    """Return the refusal of all partitions of a commit, or no refusals if the error is NONE."""
    named: Collection[tuple[str, int]] = [(wanted.topic, wanted.partition) for wanted in request.offsets]
    return dict.fromkeys(named, error) if error else {}
