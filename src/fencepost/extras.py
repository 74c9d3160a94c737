"""What `pip install fencepost` leaves to those who want it, by the names of the extras."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from typing import Final

from fencepost.errors import ConfigurationError

__all__ = ["extra_named", "require"]

_FAST: Final = ("numpy", "numba")
_ARROW: Final = (*_FAST, "pyarrow")
MODULES: Final = {
    "fast": _FAST,
    "arrow": _ARROW,
    "spark": (*_ARROW, "pyspark"),
    "msk": ("aws_msk_iam_sasl_signer",),
    "kerberos": ("gssapi",),
}
# What pip cannot install: these are compiled when they are installed.
BEFORE: Final = {
    "kerberos": "after `apt install gcc python3-dev libkrb5-dev` (Debian, Ubuntu) "
    "or `dnf install gcc python3-devel krb5-devel` (Fedora, RHEL)"
}


@cache
def require(extra: str, what: str) -> None:
    """`what` works only with this extra. Raises ConfigurationError that names it, where a package of it is missing."""
    missing = [name for name in MODULES[extra] if find_spec(name) is None]
    if missing:
        raise ConfigurationError(
            f"{what} needs {', '.join(missing)}, not installed here: pip install 'fencepost[{extra}]'"
            + (f" {BEFORE[extra]}" if extra in BEFORE else "")
        )


@contextmanager
def extra_named(extra: str, what: str) -> Iterator[None]:
    """A package that the block imports and that is missing is told with the extra that `what` needs."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"{what} needs {error.name}, not installed here: pip install 'fencepost[{extra}]'", name=error.name
        ) from error
