"""Public names that are loaded on first use (PEP 562), so that to import their package costs next to nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

__all__ = ["loaded_from"]


def loaded_from(
    package: dict[str, Any], homes: Mapping[str, str], extra: str = ""
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """A package's `__getattr__` and `__dir__`.

    `package`: its globals(). `homes`: the module of each name; a module that is its own home is the value itself.
    `extra`: what has to be installed for them.
    """

    def get(name: str) -> Any:
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module {package['__name__']!r} has no attribute {name!r}")
        module = _with_extra(home, extra) if extra else import_module(home)
        value = package[name] = module if home.endswith(f".{name}") else getattr(module, name)
        return value

    def names() -> list[str]:
        return sorted({*package, *homes})

    return get, names


def _with_extra(home: str, extra: str) -> Any:
    from fencepost.extras import extra_named

    with extra_named(extra, home):
        return import_module(home)
