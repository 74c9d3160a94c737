"""Which of two engines works on many records at once: loops that numba compiles over numpy arrays (the extra `fast`),
or plain Python over the standard library's arrays. What comes out is the same; only the speed differs.

Every place that has both asks here, with its first batch of more than a few records. A shell: it looks at what is
installed.
"""

from __future__ import annotations

import logging
import os
import threading
from typing import Final

__all__ = ["VARIABLE", "is_compiled"]

VARIABLE: Final = "FENCEPOST_COMPILED"
"""Of the environment. 0: plain Python, whatever is installed."""

_PLAIN: Final = "batches of many records are made and read in plain Python, which gives the same and takes longer"

_log = logging.getLogger("fencepost")


class _IsCompiled:
    """See `is_compiled`."""

    def __init__(self) -> None:
        self._found: bool | None = None
        self._in_a_hurry: set[int] = set()
        self._looking: threading.Thread | None = None
        self._one_looks = threading.RLock()  # an import that fails in two threads at once fails in different ways
        self._importing = False

    def __call__(self) -> bool:
        found = self._found
        if found is None and threading.get_ident() in self._in_a_hurry:
            self._look_in_background()
            return False
        return self._look() if found is None else found

    def never_wait_in(self, thread_id: int) -> None:
        """To import numba takes a second or more: in this thread it is False until another thread has done that."""
        self._in_a_hurry.add(thread_id)

    def forked(self) -> None:
        """This is a forked child: a thread that was looking does not exist here."""
        self._one_looks, self._looking, self._importing = threading.RLock(), None, False

    def cache_clear(self) -> None:
        """Look again."""
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

        # No daemon: the program's end must not come in the middle of loading libraries.
        self._looking = threading.Thread(target=self._look, name="fencepost-numba", daemon=False)
        try:
            self._looking.start()
        except RuntimeError:  # the program ends, and Python gives no thread any more
            self._found = False


def _look() -> bool:
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


is_compiled: Final = _IsCompiled()
"""Whether the compiled loops can be used. Imports numba when it is first called, and says once why not."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=is_compiled.forked)
