"""Usual requests in which one field is odd: empty, absent, at the end of its range, or listed twice.

Random requests seldom reach an error of one field, because another field is wrong as well. Here all others are usual.
"""

from __future__ import annotations

import copy
import dataclasses
import struct
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from tests.support.differential.comparing import FETCH, LEFT_OUT, PRODUCE, Comparison, Outcome, Question, encoded
from tests.support.differential.drawing import UNKNOWN_TOPIC_ID, Drawing, Focus, hints
from tests.support.kio_messages import taken_apart
from tests.support.typical_requests import Usual

__all__ = ["OddFields"]

DELETE_TOPICS = 20

_ODD: dict[Any, Sequence[Any]] = {
    str: ("", None, " ", "\0", ".", "a b", "a:b", "x" * 249, "x" * 250, "Zürich", "\u2003"),
    int: (-1, 0, 1, 2, 3, -2, 127, -128, 32_767, -32_768, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63)),
    float: (0.0, -1.0, float("nan"), float("inf"), 1e308),
    bytes: (b"", None, b"a", b"\xff" * 40),
    bool: (True, False),
    UUID: (UUID(int=0), UUID(int=1), UNKNOWN_TOPIC_ID),
}
_JOINS = frozenset({11, 68, 76, 88})
"""Each of these requests adds a member to a group, so each is about a group of its own."""
_EXCEPT = {
    (FETCH, "session_id"): "Kafka fails at the ends of its range",
    (22, "keep_prepared_txn"): "this broker alone supports it",
    (64, "broker_id"): "a broker that is not registered serves nobody",
    (65, "include_ending"): "this broker alone has it",
}


class _Case(NamedTuple):
    path: tuple[str | int, ...]
    value: Any
    """The odd value, or for a list how often its elements are there; None: no list."""


class OddFields(Comparison):
    """A comparison that sends such requests of one API, in its oldest and its newest version."""

    _number = 0

    def run_api(self, api_key: int, *, every: int = 1, first: int = 0) -> Outcome:
        """Send each case, or `every` so many from the case `first` on."""
        if api_key in LEFT_OUT:
            raise ValueError(f"API {api_key} is not compared")
        self.run(0)
        for version in sorted(set(self._versions[api_key])):
            usual = self._usual(api_key, version)
            cases = [case for case in _cases(usual[1]) if (api_key, case.path[-1]) not in _EXCEPT]
            for number in range(first, len(cases), every):
                self._number += 1
                if api_key in _JOINS:
                    usual = self._usual(api_key, version)
                self._send(api_key, version, usual, cases[number])
        return self._outcome

    def _usual(self, api_key: int, version: int) -> list[Any]:
        focus = Focus(
            topic=self._topics[0],
            partition=0,
            group=f"{self._name}-plain{self._number if api_key in _JOINS else ''}",
            transactional_id=f"{self._name}-txn-1",
            producer="txn-1",
            member="m1",
        )
        requests: list[Any] = []
        for side in self._sides:
            if api_key == PRODUCE:
                requests.append(self._produce(Usual(1), side, focus, version))
            elif api_key == FETCH:
                requests.append(self._fetch(Usual(1), side, focus))
            else:
                draw = Drawing(Usual(1), focus, self._topics, side, f"{self._name}-new-{api_key}")
                requests.append(draw.request(api_key))
            if api_key == DELETE_TOPICS:  # drawn with name and id, one of which is too much
                for topic in requests[-1].topics:
                    topic.topic_id = None
        return requests

    def _send(self, api_key: int, version: int, usual: Sequence[Any], case: _Case) -> None:
        requests = [_with(request, case) for request in usual]
        try:
            for request in requests:
                encoded(request, version)
        except (ValueError, TypeError, AttributeError, OverflowError, struct.error):
            return  # the message cannot carry it
        self._compare(Question(self._number, api_key, version, requests[0]), requests, None)


def _cases(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[_Case]:
    """Yield the cases of all fields of a request; of a list, those of its first element."""
    cls: Any = type(value)
    for field in dataclasses.fields(value):
        if field.name == "records":  # tests/support/fuzz/batches.py
            continue
        kind, is_array, _ = taken_apart(hints(cls)[field.name])
        now, here = getattr(value, field.name), (*path, field.name)
        if is_array:
            yield from (_Case(here, times) for times in (0, 2, 3, None))
            if now and dataclasses.is_dataclass(now[0]):
                yield from _cases(now[0], (*here, 0))
            elif now:
                yield from (_Case((*here, 0), odd) for odd in _ODD.get(kind, ()))
        elif dataclasses.is_dataclass(now):
            yield from _cases(now, here)
        else:
            yield from (_Case(here, odd) for odd in _ODD.get(kind, ()) if not _is_short_time(field.name, odd))


def _is_short_time(field: str, value: Any) -> bool:
    """Return true for a time limit so short that the load of the machine decides if a broker keeps it."""
    return field == "timeout_ms" and 0 < value < 1_000


def _with(request: Any, case: _Case) -> Any:
    changed = copy.deepcopy(request)
    owner = changed
    for step in case.path[:-1]:
        owner = owner[step] if isinstance(step, int) else getattr(owner, step)
    last = case.path[-1]
    if isinstance(last, int):
        owner[last] = case.value
        return changed
    now = getattr(owner, last)
    is_list = isinstance(now, list | tuple)
    value = list(now) * case.value if is_list and case.value is not None else case.value
    object.__setattr__(owner, last, value)
    return changed
