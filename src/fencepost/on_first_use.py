"""Import of public names on first use (PEP 562), which keeps the import of their package fast."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

__all__ = ["loaded_from"]


def loaded_from(
    package: dict[str, Any], homes: Mapping[str, str], extra: str = ""
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return a package's `__getattr__` and `__dir__`.

    Args:
        package: The package's globals().
        homes: The module of each name. A name that is the last part of its module stands for the module itself.
        extra: The extra that the modules need, named in the error if it is not installed.
    """

    def get(name: str) -> Any:
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module {package['__name__']!r} has no attribute {name!r}")
        module = _loaded(home, extra)
        value = package[name] = module if home.endswith(f".{name}") else getattr(module, name)
        return value

    def names() -> list[str]:
        return sorted({*package, *homes})

    return get, names


def _loaded(home: str, extra: str) -> Any:
    """Import a module while garbage collection is off.

    An import creates thousands of objects that stay. Collections take a fourteenth of the import of a client.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return _with_extra(home, extra) if extra else import_module(home)
    finally:
        if was_enabled:
            gc.enable()


def _with_extra(home: str, extra: str) -> Any:
    from fencepost.extras import extra_named

    with extra_named(extra, home):
        return import_module(home)
