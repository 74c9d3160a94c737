"""Which of two engines works on many records at once: loops that numba compiles over numpy arrays (the extra `fast`),
or plain Python over the standard library's arrays. What comes out is the same; only the speed differs.

Every place that has both asks here, with its first batch of more than a few records. A shell: it looks at what is
installed.
"""

from __future__ import annotations

import logging
import os
from functools import cache
from typing import Final

__all__ = ["VARIABLE", "is_compiled"]

VARIABLE: Final = "FENCEPOST_COMPILED"
"""Of the environment. 0: plain Python, whatever is installed."""

_PLAIN: Final = "batches of many records are made and read in plain Python, which gives the same and takes longer"

_log = logging.getLogger("fencepost")


@cache
def is_compiled() -> bool:
    """Whether the compiled loops can be used. Imports numba, and says once why not."""
    if os.environ.get(VARIABLE) == "0":
        return False
    try:
        import numba  # noqa: F401 - whether it can be, on this machine
    except (ImportError, OSError, RuntimeError, SystemError, AttributeError) as error:
        if isinstance(error, ModuleNotFoundError) and error.name == "numba":
            _log.info("%s: pip install 'fencepost[fast]' for compiled loops", _PLAIN)
        else:
            _log.warning("%s: numba cannot be imported (%s: %s)", _PLAIN, type(error).__name__, error)
        return False
    return True
