"""Transactional ids without an open transaction.

Most ids are idle; they are stored for a week and rarely used.

Each has its name, 62 packed bytes and the memory of its outcomes. The ids are in the order of their last use, so the
first one is the next to expire.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import islice, takewhile
from typing import Final

from fencepost.broker.coordinator.txn.model import BumpCause, Transaction
from fencepost.broker.coordinator.txn.states import IDLE, TxnState

__all__ = ["PACKED_BYTES", "IdleIds", "Summary", "is_idle", "pack", "packed_last_update_ms"]

_PACKED = struct.Struct(">bqhiqqqhqhbhhhi")
PACKED_BYTES: Final = _PACKED.size
_LAST_UPDATE: Final = struct.Struct(">q")
_LAST_UPDATE_AT: Final = struct.calcsize(">bqhi")
_STATE_AND_ID: Final = struct.Struct(">bq")
_START_AT: Final = struct.calcsize(">bqhiq")
_NEXT_ID_AT: Final = struct.calcsize(">bqhiqq")
_HOLES: Final = 1_000  # removed names that a dictionary may hold before it is copied

Summary = tuple[str, TxnState, int, int, int]
"""Name, state, producer id, next producer id, start in ms."""


def is_idle(transaction: Transaction) -> bool:
    """Return true if the state can be packed: no transaction is open, and no marker is missing."""
    return transaction.state in IDLE and not transaction.partitions


def packed_last_update_ms(packed: bytes) -> int:
    """Return the time of the last change of a packed state."""
    (last_update_ms,) = _LAST_UPDATE.unpack_from(packed, _LAST_UPDATE_AT)
    return int(last_update_ms)


class IdleIds:
    """Packed states by name, the longest unused first."""

    __slots__ = ("_holes", "_is_sorted", "_newest_ms", "_packed")

    def __init__(self) -> None:
        self._packed: dict[str, bytes] = {}
        self._is_sorted = True
        self._newest_ms = -1
        self._holes = 0

    def __len__(self) -> int:
        return len(self._packed)

    def __iter__(self) -> Iterator[Transaction]:
        return (_unpack(name, packed) for name, packed in self._packed.items())

    def summaries(self) -> Iterator[Summary]:
        """Yield the values of a listing without unpacking every state."""
        for name, packed in self._packed.items():
            state, producer_id = _STATE_AND_ID.unpack_from(packed)
            (start_ms,) = _LAST_UPDATE.unpack_from(packed, _START_AT)
            (next_producer_id,) = _LAST_UPDATE.unpack_from(packed, _NEXT_ID_AT)
            yield name, TxnState(state), producer_id, next_producer_id, start_ms

    def packed(self) -> Iterator[tuple[str, bytes]]:
        """Yield all packed states."""
        return iter(self._packed.items())

    def get(self, name: str) -> Transaction | None:
        packed = self._packed.get(name)
        return None if packed is None else _unpack(name, packed)

    def put(self, name: str, packed: bytes) -> int:
        """Set the state of the name. Return the time of its last use."""
        if name in self._packed:
            self.discard(name)
        used_ms = packed_last_update_ms(packed)
        self._is_sorted = self._is_sorted and used_ms >= self._newest_ms
        self._newest_ms = max(self._newest_ms, used_ms)
        self._packed[name] = packed
        return used_ms

    def pop(self, name: str) -> Transaction | None:
        """Remove the name and return its state."""
        transaction = self.get(name)
        self.discard(name)
        return transaction

    def discard(self, name: str) -> None:
        """Forget the name."""
        if self._packed.pop(name, None) is None:
            return
        self._holes += 1
        if self._holes > len(self._packed) + _HOLES:
            # A dictionary is searched from its first slot on, including removed entries.
            self._packed, self._holes = dict(self._packed), 0

    def oldest_ms(self) -> int | None:
        """Return the time of last use of the longest unused id; None if there are no ids."""
        self._sort()
        first = next(iter(self._packed.values()), None)
        return None if first is None else packed_last_update_ms(first)

    def take_due(self, is_due: Callable[[int], bool], limit: int) -> list[Transaction]:
        """Remove and return due ids, the longest unused first, at most `limit`.

        `is_due` is called with a time of last use. If it is true for one time, it is true for every earlier one.
        """
        self._sort()
        due = list(takewhile(lambda item: is_due(packed_last_update_ms(item[1])), islice(self._packed.items(), limit)))
        return [transaction for name, _ in due if (transaction := self.pop(name)) is not None]

    def _sort(self) -> None:
        if not self._is_sorted:
            self._packed = dict(sorted(self._packed.items(), key=_age))
            self._is_sorted, self._holes = True, 0


def _age(item: tuple[str, bytes]) -> int:
    return packed_last_update_ms(item[1])


def pack(transaction: Transaction) -> bytes:
    packed = _PACKED.pack(
        transaction.state,
        transaction.producer_id,
        transaction.producer_epoch,
        transaction.timeout_ms,
        transaction.last_update_ms,
        transaction.start_ms,
        transaction.next_producer_id,
        transaction.next_producer_epoch,
        transaction.previous_producer_id,
        transaction.last_producer_epoch,
        transaction.last_bump,
        transaction.client_transaction_version,
        transaction.init_version,
        transaction.add_partitions_version,
        transaction.next_timeout_ms,
    )
    return packed + transaction.endings


@lru_cache(256)  # the state of an id in use is read several times before it changes
def _unpack(name: str, packed: bytes) -> Transaction:
    state, pid, epoch, timeout_ms, used_ms, start_ms, next_pid, next_epoch, last_pid, last_epoch, cause, *numbers = (
        _PACKED.unpack_from(packed)
    )
    transaction_version, init_version, add_version, next_timeout_ms = numbers
    return Transaction(
        name,
        TxnState(state),
        pid,
        epoch,
        timeout_ms,
        used_ms,
        start_ms,
        frozenset(),
        next_pid,
        next_epoch,
        last_pid,
        last_epoch,
        BumpCause(cause),
        transaction_version,
        init_version,
        add_version,
        next_timeout_ms,
        packed[PACKED_BYTES:],
    )
