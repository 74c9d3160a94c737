"""Optional dependencies by the names of the extras, such as `pip install 'fencepost[spark]'`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from typing import Final

from fencepost.errors import ConfigurationError

__all__ = ["extra_named", "require"]

_ARROW: Final = ("numpy", "pyarrow")
MODULES: Final = {
    "arrow": _ARROW,
    "spark": (*_ARROW, "pyspark"),
    "msk": ("aws_msk_iam_sasl_signer",),
    "oauth": ("jwt",),
    "kerberos": ("gssapi",),
    "pkcs12": ("cryptography",),
}
# System packages for extras that pip has to compile.
BEFORE: Final = {
    "kerberos": "after `apt install gcc python3-dev libkrb5-dev` (Debian, Ubuntu) "
    "or `dnf install gcc python3-devel krb5-devel` (Fedora, RHEL)"
}


@cache
def require(extra: str, what: str) -> None:
    """Raise ConfigurationError that names the extra, if one of its packages is missing. `what` is what needs it."""
    missing = [name for name in MODULES[extra] if find_spec(name) is None]
    if missing:
        raise ConfigurationError(
            f"{what} needs {', '.join(missing)}, not installed here: pip install 'fencepost[{extra}]'"
            + (f" {BEFORE[extra]}" if extra in BEFORE else "")
        )


@contextmanager
def extra_named(extra: str, what: str) -> Iterator[None]:
    """Add the extra that `what` needs to a ModuleNotFoundError raised in the block."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"{what} needs {error.name}, not installed here: pip install 'fencepost[{extra}]'", name=error.name
        ) from error
