"""Choice, made once at import, between the native loops over record batches and their twins in plain Python.

The native module is the distribution `fencepost-native`. Both forms give the same results and differ only in speed. A
module that was built from other sources is refused. This module depends on the installed packages.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Any, Final

from fencepost.protocol.records.native_stamp import STAMP

__all__ = ["VARIABLE", "is_native", "native"]

VARIABLE: Final = "FENCEPOST_NATIVE"
"""Environment variable. 0: plain Python, whatever is installed. 1: the import fails without the native module."""

_PLAIN: Final = "record batches: plain Python, which gives the same results and takes longer"

_log = logging.getLogger("fencepost")


def _chosen() -> Any:
    """Return the native module, or None.

    Raises:
        ImportError: The environment variable asks for a module that is not usable, or has another value.
    """
    requested = os.environ.get(VARIABLE, "")
    if requested not in {"", "0", "1"}:
        raise ImportError(f"{VARIABLE}={requested}: must be 0 (plain Python), 1 (the native module) or unset (either)")
    if requested == "0":
        _log.info("%s: %s=0", _PLAIN, VARIABLE)
        return None
    try:
        import fencepost_native as found
    except (ImportError, OSError, SystemError) as error:
        is_missing = isinstance(error, ModuleNotFoundError) and error.name == "fencepost_native"
        reason = (
            "pip install 'fencepost[native]' for native loops" if is_missing else f"{type(error).__name__}: {error}"
        )
        level = logging.INFO if is_missing else logging.WARNING
    else:
        if found.STAMP == STAMP:
            _log.info("record batches: native loops (fencepost-native, %s)", STAMP)
            return found
        reason = f"fencepost-native was built from other sources ({found.STAMP}, not {STAMP}); install the same release"
        level = logging.WARNING
    if requested == "1":
        raise ImportError(f"{VARIABLE}=1, but the native loops are not usable: {reason}")
    _log.log(level, "%s: %s", _PLAIN, reason)
    return None


if TYPE_CHECKING:
    import fencepost_native as native
else:
    native = _chosen()

is_native: bool = native is not None
"""True if the native loops are used. Code looks here at each call, so that a test can switch them off."""
