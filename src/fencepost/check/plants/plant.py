"""How a known defect is put into the running code for a while: functions are replaced, and put back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

__all__ = ["PLANTS", "Patches", "Plant", "plant", "planted"]

_ABSENT: Final = object()


class Patches:
    """Attributes that are replaced until `undo`."""

    def __init__(self) -> None:
        self._before: list[tuple[Any, str, Any]] = []

    def setattr(self, target: Any, name: str, value: Any) -> None:
        """Replace an attribute that is there. Raises AttributeError when it is not: the plant is out of date."""
        getattr(target, name)
        self._before.append((target, name, vars(target).get(name, _ABSENT)))
        setattr(target, name, value)

    def undo(self) -> None:
        """As it was."""
        while self._before:
            target, name, value = self._before.pop()
            if value is _ABSENT:
                delattr(target, name)
            else:
                setattr(target, name, value)


@dataclass(frozen=True, slots=True)
class Plant:
    """`world` is the simulation that can find it."""

    name: str
    summary: str
    world: str
    apply: Callable[[Patches], None]


PLANTS: Final[dict[str, Plant]] = {}


def plant(world: str) -> Callable[[Callable[[Patches], None]], Callable[[Patches], None]]:
    """Enter the function into `PLANTS`, under its own name with dashes; its docstring says what is wrong."""

    def enter(apply: Callable[[Patches], None]) -> Callable[[Patches], None]:
        name = apply.__name__.replace("_", "-")
        summary = " ".join((apply.__doc__ or "").split())
        PLANTS[name] = Plant(name, summary, world, apply)
        return apply

    return enter


@contextmanager
def planted(name: str) -> Iterator[Plant]:
    """With the defect of that name in place. Raises KeyError for an unknown one."""
    chosen = PLANTS[name]
    patches = Patches()
    try:
        chosen.apply(patches)
        yield chosen
    finally:
        patches.undo()
