"""Produce requests of several connections that have arrived together: one append for all batches of a partition.

Each request has the common form, and is handled by the functions of the straight path. The order of requests of
different connections is free, so those for one partition are taken together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, NamedTuple

from fencepost.broker.api.records.produce_common import CommonProduce, read_common
from fencepost.broker.api.records.produce_straight import ANSWERED, append_together, take, targets_of
from fencepost.broker.connection import Connection, Core
from fencepost.protocol.cursor import Buffer
from fencepost.protocol.records.batch import TRANSACTIONAL

__all__ = ["take_singles"]

_API_KEY: Final = 0


class _Single(NamedTuple):
    number: int
    connection: Connection
    frame: memoryview
    produce: CommonProduce


def take_singles(core: Core, requests: Mapping[int, tuple[Connection, Buffer]], now_ms: int) -> list[int]:
    """Handle requests of different connections, of which none has an unanswered one.

    Return the numbers of those handled, in that order. `handle_frame` must handle the others.
    """
    handled = list[int]()
    for group in _groups(requests):
        count = _attempt(core, group, partial(_take_jointly, core, group, now_ms)) if len(group) > 1 else 0
        handled.extend(single.number for single in group[:count])
        for single in group[count:]:
            alone = partial(take, core, single.connection, single.frame, now_ms, (), single.produce)
            if _attempt(core, [single], alone):
                handled.append(single.number)
    return handled


def _attempt(core: Core, singles: list[_Single], work: Callable[[], int]) -> int:
    """Return the number of requests that `work` handled. If it fails, close their connections."""
    try:
        return work()
    except Exception as error:  # noqa: BLE001 - a failed request must not end other connections
        for single in singles:
            core.request_failed(single.connection, error)
        return len(singles)


def _groups(requests: Mapping[int, tuple[Connection, Buffer]]) -> list[list[_Single]]:
    """Return the requests of the common form, with those together that one append can take."""
    groups: dict[object, list[_Single]] = {}
    for number, (connection, buffer) in requests.items():
        frame = memoryview(buffer)
        produce = read_common(frame)
        if produce is None:
            continue
        key: object = number
        if len(produce.batches) == 1 and produce.acks in ANSWERED:
            topic, index, _, header, checked = produce.batches[0]
            if header is not None and checked is not None and not header.attributes & TRANSACTIONAL:
                key = topic, index, produce.version
        groups.setdefault(key, []).append(_Single(number, connection, frame, produce))
    return list(groups.values())


def _take_jointly(core: Core, group: list[_Single], now_ms: int) -> int:
    """Append the batches of a group with one write. Return the number of its first requests that are answered."""
    targets = None if core.durability.waits else targets_of(core, group[0].produce)
    if targets is None:
        return 0
    answers = append_together(core, now_ms, targets[0], [single.produce for single in group])
    for (_, connection, frame, produce), answer in zip(group, answers, strict=False):
        core.began(connection, _API_KEY, produce.version, produce.client_id or "", len(frame))
        core.answer_at_once(connection, _API_KEY, answer)
    return len(answers)
