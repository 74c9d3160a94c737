"""Faults on demand: which request, write or sync is to go wrong, and how.

Pure: a table of rules that is asked for every request and every access to the disk, and counts what it hits. The core
carries out what is decided for a request (`core_faults`), `faulty_files` what is decided for the disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum

__all__ = ["Action", "DiskFault", "DiskOperation", "FaultTable", "RequestFault"]


class Action(Enum):
    """What becomes of a request."""

    FAIL = "fail"
    """It is not executed; the answer says `code` wherever it has an error code."""
    DELAY = "delay"
    """It is executed `delay_ms` later; what its connection sends meanwhile waits behind it."""
    DELAY_REPLY = "delay reply"
    """It is executed at once and answered `delay_ms` later than it would have been."""
    DROP_REQUEST = "drop request"
    """It is not executed and the connection is reset."""
    DROP_REPLY = "drop reply"
    """It is executed; in place of the answer the connection is reset."""
    SWALLOW = "swallow"
    """It is neither executed nor answered; the connection stays."""


class DiskOperation(Enum):
    """What is done to the disk."""

    WRITE = "write"
    SYNC = "sync"
    READ = "read"


@dataclass(slots=True, eq=False)
class _Fault:
    """A rule that applies `times` times (None: always) after it has let `after` chances pass."""

    times: int | None = 1
    after: int = 0
    seen: int = 0
    hits: int = 0
    on_hit: Callable[[], None] | None = None

    @property
    def spent(self) -> bool:
        """Whether it never applies again."""
        return self.times is not None and self.hits >= self.times

    def take(self) -> bool:
        """A chance to apply: count it, and say whether it does."""
        if self.spent:
            return False
        self.seen += 1
        if self.seen <= self.after:
            return False
        self.hits += 1
        if self.on_hit is not None:
            self.on_hit()
        return True


@dataclass(slots=True, eq=False, kw_only=True)
class RequestFault(_Fault):
    """What happens to requests of one API. `client_id`, `topic`: only to those of that client, that name that topic."""

    api_key: int
    action: Action
    code: int = 0
    delay_ms: int = 0
    client_id: str | None = None
    topic: str | None = None


@dataclass(slots=True, eq=False, kw_only=True)
class DiskFault(_Fault):
    """What happens to one kind of access. `path`: only to files whose path below the data directory contains it.

    `error`: the errno that is raised, 0 for none; `delay_s` passes before that.
    """

    operation: DiskOperation
    error: int = 0
    delay_s: float = 0.0
    path: str = ""


class FaultTable:
    """The rules, in the order in which they were added: the first that applies counts.

    Rules may be added and removed by another thread than the one that asks: both tuples are replaced, never changed.
    """

    __slots__ = ("disk", "requests")

    def __init__(self) -> None:
        self.requests: tuple[RequestFault, ...] = ()
        self.disk: tuple[DiskFault, ...] = ()

    def add(self, fault: RequestFault | DiskFault) -> None:
        """Let the rule apply from now on."""
        if isinstance(fault, RequestFault):
            self.requests = (*self.requests, fault)
        else:
            self.disk = (*self.disk, fault)

    def remove(self, fault: RequestFault | DiskFault) -> None:
        """Let the rule apply no more."""
        self.requests = tuple(other for other in self.requests if other is not fault)
        self.disk = tuple(other for other in self.disk if other is not fault)

    def clear(self) -> None:
        """Remove all rules."""
        self.requests, self.disk = (), ()

    def for_request(self, api_key: int, client_id: str, topics: Callable[[], Iterable[str]]) -> RequestFault | None:
        """The rule that applies to this request, counted; `topics` are the names it speaks of."""
        for fault in self.requests:
            if fault.api_key != api_key or fault.client_id not in (None, client_id):
                continue
            if fault.topic is not None and fault.topic not in topics():
                continue
            if fault.take():
                return fault
        return None

    def for_disk(self, operation: DiskOperation, path: str) -> DiskFault | None:
        """The rule that applies to this access, counted."""
        for fault in self.disk:
            if fault.operation is operation and fault.path in path and fault.take():
                return fault
        return None
