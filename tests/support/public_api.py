"""A description of the public API as text, one line for each name, method, field and parameter list.

`python -m tests.support.public_api` writes it to tests/golden/public_api.txt, which tests/unit/test_public_api.py
compares with the code.
"""

from __future__ import annotations

import enum
import inspect
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

SNAPSHOT = Path(__file__).parents[1] / "golden" / "public_api.txt"
MODULES = (
    "fencepost",
    "fencepost.config",
    "fencepost.errors",
    "fencepost.schemas",
    "fencepost.spark",
    "fencepost.testing",
)


def public_api() -> str:
    """Return the description of all public modules."""
    return "".join(f"{line}\n" for module in MODULES for line in _of_module(module))


def _of_module(name: str) -> Iterator[str]:
    module = import_module(name)
    for exported in sorted(_exported(module)):
        value = getattr(module, exported)
        if inspect.ismodule(value):
            yield f"{name}.{exported}: module"
        elif inspect.isclass(value):
            yield from _of_class(f"{name}.{exported}", value)
        elif callable(value):
            yield f"{name}.{exported}{_signature(value)}"
        else:
            yield f"{name}.{exported}: {type(value).__name__}"


def _exported(module: Any) -> list[str]:
    """`__all__`, or else what the module itself defines."""
    if hasattr(module, "__all__"):
        return list(module.__all__)
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", "") == module.__name__
    ]


def _of_class(name: str, cls: type) -> Iterator[str]:
    bases = [base.__name__ for base in cls.__mro__[1:] if base.__module__ != "builtins" and base.__name__[0] != "_"]
    yield f"{name}({', '.join(bases[:1])})"
    if issubclass(cls, enum.Enum):
        for member in cls:
            yield f"{name}.{member.name} = {member.value!r}"
        return
    if is_dataclass(cls):
        for field in fields(cls):
            if not field.name.startswith("_"):
                yield f"{name}.{field.name}: {field.type}"
    else:
        yield f"{name}.__init__{_signature(cls.__init__)}"
    for attribute, value in sorted(inspect.getmembers_static(cls)):
        if attribute.startswith("_"):
            continue
        if isinstance(value, staticmethod | classmethod):
            yield f"{name}.{attribute}{_signature(value.__func__)}"
        elif isinstance(value, property | cached_property):
            yield f"{name}.{attribute}: property"
        elif callable(value):
            yield f"{name}.{attribute}{_signature(value)}"


def _signature(function: Any) -> str:
    """Return the parameters, without the addresses that a default's text may contain."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return "(...)"
    return " ".join(str(signature).split(" at 0x", 1)[0].split())


if __name__ == "__main__":
    SNAPSHOT.write_text(public_api())
