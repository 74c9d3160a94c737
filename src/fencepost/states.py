"""State machines as tables: the legal steps are listed, and every other pair of state and event is illegal.

What a machine may do is then one page that can be read, drawn (`tools/draw_states.py`) and tested; nothing else may set
its state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from typing import Generic, TypeVar

__all__ = ["StateTable"]

S = TypeVar("S", bound=Enum)
E = TypeVar("E", bound=Enum)


class StateTable(Generic[S, E]):
    """Total by construction: a step leads to a state, or raises what the machine's owner calls an illegal one."""

    def __init__(
        self, states: type[S], events: type[E], steps: Mapping[S, Mapping[E, S]], illegal: Callable[..., Exception]
    ) -> None:
        """`illegal(state, event, *about)` makes the exception; `about` is what `step` was told besides."""
        self.states = states
        self.events = events
        self._steps = steps
        self._illegal = illegal

    def step(self, state: S, event: E, *about: object) -> S:
        """The state that `event` leads to. Raises what `illegal` makes where it leads nowhere."""
        following = self.leads_to(state, event)
        if following is None:
            raise self._illegal(state, event, *about)
        return following

    def leads_to(self, state: S, event: E) -> S | None:
        """The state that `event` leads to; None where it is illegal."""
        return self._steps.get(state, {}).get(event)

    def may_follow(self, state: S, following: S) -> bool:
        """Whether some event leads from the one to the other."""
        return following in self._steps.get(state, {}).values()

    def __iter__(self) -> Iterator[tuple[S, E, S]]:
        """Every legal step: (state, event, next state)."""
        return ((state, event, following) for state, row in self._steps.items() for event, following in row.items())
