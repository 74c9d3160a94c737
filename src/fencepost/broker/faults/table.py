"""Table of faults to inject into requests, writes and syncs.

The code is pure: rules that are checked for every request and every disk access, and counters of their use. The core
applies the faults of requests (`core_faults`), `faulty_files` those of the disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum

__all__ = ["DiskFault", "DiskOperation", "FaultAction", "FaultTable", "RequestFault"]


class FaultAction(Enum):
    """Effect of a fault on a request."""

    FAIL = "fail"
    """Do not execute it; answer `code` in every error code of the response."""
    DELAY = "delay"
    """Execute it `delay_ms` later; later requests of the connection wait for it."""
    DELAY_REPLY = "delay reply"
    """Execute it at once, and answer `delay_ms` later."""
    DROP_REQUEST = "drop request"
    """Do not execute it, and reset the connection."""
    DROP_REPLY = "drop reply"
    """Execute it, and reset the connection instead of answering."""
    SWALLOW = "swallow"
    """Neither execute nor answer it; the connection stays open."""


class DiskOperation(Enum):
    """Kind of disk access."""

    WRITE = "write"
    SYNC = "sync"
    READ = "read"


@dataclass(slots=True, eq=False)
class _Fault:
    """A rule that applies `times` times (None: always), after `after` matching events."""

    times: int | None = 1
    after: int = 0
    seen: int = 0
    hits: int = 0
    on_hit: Callable[[], None] | None = None

    @property
    def spent(self) -> bool:
        """True if it never applies again."""
        return self.times is not None and self.hits >= self.times

    def take(self) -> bool:
        """Count a matching event; return true if the rule applies to it."""
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
    """Fault for requests of one API, optionally only of a client id or with a topic."""

    api_key: int
    action: FaultAction
    code: int = 0
    delay_ms: int = 0
    client_id: str | None = None
    topic: str | None = None


@dataclass(slots=True, eq=False, kw_only=True)
class DiskFault(_Fault):
    """Fault for one kind of disk access, optionally only for files whose relative path contains `path`.

    `error` is the errno to raise, 0 for none; `delay_s` passes before that.
    """

    operation: DiskOperation
    error: int = 0
    delay_s: float = 0.0
    path: str = ""


class FaultTable:
    """Rules in order of addition. The first that applies is used.

    Another thread may add and remove rules: both tuples are replaced and never changed.
    """

    __slots__ = ("disk", "requests")

    def __init__(self) -> None:
        self.requests: tuple[RequestFault, ...] = ()
        self.disk: tuple[DiskFault, ...] = ()

    def add(self, fault: RequestFault | DiskFault) -> None:
        """Add a rule."""
        if isinstance(fault, RequestFault):
            self.requests = (*self.requests, fault)
        else:
            self.disk = (*self.disk, fault)

    def remove(self, fault: RequestFault | DiskFault) -> None:
        """Remove a rule."""
        self.requests = tuple(other for other in self.requests if other is not fault)
        self.disk = tuple(other for other in self.disk if other is not fault)

    def clear(self) -> None:
        """Remove all rules."""
        self.requests, self.disk = (), ()

    def for_request(self, api_key: int, client_id: str, topics: Callable[[], Iterable[str]]) -> RequestFault | None:
        """Return the rule that applies to this request, and count it. `topics` returns the request's topics."""
        for fault in self.requests:
            if fault.api_key != api_key or fault.client_id not in (None, client_id):
                continue
            if fault.topic is not None and fault.topic not in topics():
                continue
            if fault.take():
                return fault
        return None

    def for_disk(self, operation: DiskOperation, path: str) -> DiskFault | None:
        """Return the rule that applies to this access, and count it."""
        for fault in self.disk:
            if fault.operation is operation and fault.path in path and fault.take():
                return fault
        return None
