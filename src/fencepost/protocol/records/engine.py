"""Choice between two engines for many records: loops compiled by numba (the extra `fast`), or plain Python.

Both give the same result and differ only in speed. Code that has both asks `is_compiled` at its first batch of more
than a few records. This module depends on the installed packages.
"""

from __future__ import annotations

import logging
import os
import threading
from typing import Final

__all__ = ["VARIABLE", "is_compiled"]

VARIABLE: Final = "FENCEPOST_COMPILED"
"""Environment variable. 0 selects plain Python, whatever is installed."""

_PLAIN: Final = "batches of many records are made and read in plain Python, which gives the same and takes longer"

_log = logging.getLogger("fencepost")


class _IsCompiled:
    """Implementation of `is_compiled`."""

    def __init__(self) -> None:
        self._found: bool | None = None
        self._in_a_hurry: set[int] = set()
        self._looking: threading.Thread | None = None
        self._one_looks = threading.RLock()  # an import that fails in two threads at once raises different errors
        self._importing = False

    def __call__(self) -> bool:
        found = self._found
        if found is None and threading.get_ident() in self._in_a_hurry:
            self._look_in_background()
            return False
        return self._look() if found is None else found

    def never_wait_in(self, thread_id: int) -> None:
        """Return False in this thread until another thread has imported numba, which takes a second or more."""
        self._in_a_hurry.add(thread_id)

    def forked(self) -> None:
        """Reset after a fork: a thread that was importing numba does not exist in the child."""
        self._one_looks, self._looking, self._importing = threading.RLock(), None, False

    def cache_clear(self) -> None:
        """Forget the result, so that the next call looks again."""
        self._found = None

    def _look(self) -> bool:
        with self._one_looks:
            if self._found is None and not self._importing:
                self._importing = True
                try:
                    self._found = _look()
                finally:
                    self._importing = False
            return bool(self._found)  # a signal handler that comes during the import does without

    def _look_in_background(self) -> None:
        if os.environ.get(VARIABLE) == "0" or (self._looking is not None and self._looking.is_alive()):
            return

        # Not a daemon: the program must not end while libraries are being loaded.
        self._looking = threading.Thread(target=self._look, name="fencepost-numba", daemon=False)
        try:
            self._looking.start()
        except RuntimeError:  # the interpreter is shutting down and starts no more threads
            self._found = False


def _look() -> bool:
    if os.environ.get(VARIABLE) == "0":
        return False
    try:
        import numba  # noqa: F401 - tests that the import works on this machine
    except (ImportError, OSError, RuntimeError, SystemError, AttributeError) as error:
        if isinstance(error, ModuleNotFoundError) and error.name == "numba":
            _log.info("%s: pip install 'fencepost[fast]' for compiled loops", _PLAIN)
        else:
            _log.warning("%s: numba cannot be imported (%s: %s)", _PLAIN, type(error).__name__, error)
        return False
    return True


is_compiled: Final = _IsCompiled()
"""Return true if the compiled loops can be used. The first call imports numba, and logs the reason if it cannot."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=is_compiled.forked)
