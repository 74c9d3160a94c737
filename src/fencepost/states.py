"""State machines as tables of legal transitions. Every other pair of state and event is illegal.

A table can be read, drawn (`tools/draw_states.py`) and tested. No other code may set the state of its machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from typing import Generic, TypeVar

__all__ = ["StateTable", "illegal"]

S = TypeVar("S", bound=Enum)
E = TypeVar("E", bound=Enum)


def illegal(machine: str, error: Callable[[str], Exception]) -> Callable[[Enum, Enum], Exception]:
    """Return the function that creates the exception for an illegal event of a machine.

    Args:
        machine: Noun for the message, such as "a fetch session".
        error: Class of the exception.
    """

    def create(state: Enum, event: Enum) -> Exception:
        return error(f"{event.name} cannot happen to {machine} in state {state.name}")

    return create


class StateTable(Generic[S, E]):
    """Table of a state machine's transitions.

    Args:
        states: The states.
        events: The events.
        steps: The next state by state and event.
        illegal: Creates the exception for an illegal event from (state, event, *about).
    """

    def __init__(
        self, states: type[S], events: type[E], steps: Mapping[S, Mapping[E, S]], illegal: Callable[..., Exception]
    ) -> None:
        self.states = states
        self.events = events
        self._steps = steps
        self._illegal = illegal
        self._follows = {(state, following) for state, row in steps.items() for following in row.values()}

    def step(self, state: S, event: E, *about: object) -> S:
        """Return the next state after `event`.

        Args:
            state: The current state.
            event: The event.
            *about: Details for the exception.

        Raises:
            Exception: What `illegal` returns, if the event is illegal in this state.
        """
        following = self.leads_to(state, event)
        if following is None:
            raise self._illegal(state, event, *about)
        return following

    def leads_to(self, state: S, event: E) -> S | None:
        """Return the next state after `event`, or None if the event is illegal."""
        return self._steps.get(state, {}).get(event)

    def may_follow(self, state: S, following: S) -> bool:
        """Return true if some event leads from `state` to `following`."""
        return (state, following) in self._follows

    def __iter__(self) -> Iterator[tuple[S, E, S]]:
        """Iterate over the legal transitions: (state, event, next state)."""
        return ((state, event, following) for state, row in self._steps.items() for event, following in row.items())
