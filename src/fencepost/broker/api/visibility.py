"""Waiting for the markers of answered EndTxn requests."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from fencepost.broker.connection import Call
from fencepost.broker.topics.topic import Partition

__all__ = ["when_ends_are_visible"]


def when_ends_are_visible(
    call: Call,
    now_ms: int,
    request: object,
    action: Callable[[int], object],
    partitions: Iterable[Partition | None] | None = None,
) -> None:
    """Call `action(now_ms)` when the markers of every transaction with an answered EndTxn are durable.

    EndTxn is answered when its decision is durable, before its markers are. Readers of committed records and offsets
    wait for the markers, a sync at most, so that a client can read its own commits. There is no wait if no marker is in
    progress, or none in `partitions`, if given.
    """
    core = call.core
    if core.transactions.writes_markers and (partitions is None or any(map(_awaits_markers, partitions))):
        core.durability.when_durable(now_ms, partial(call.resume, request, action))
    else:
        action(now_ms)


def _awaits_markers(partition: Partition | None) -> bool:
    log = None if partition is None else partition.opened
    return log is not None and bool(log.producers.undurable)
