"""Processes that end with the tests that started them."""

from __future__ import annotations

import shutil
import threading


def dying_with_us(thread_stays: bool = False) -> list[str]:
    """Return a command prefix by which Linux kills the process when the tests are killed and cannot stop it.

    The kernel ties the process to the thread that starts it, so the prefix is empty in a thread that may end earlier.

    Args:
        thread_stays: The calling thread lives for as long as the process. The main thread always does.
    """
    setpriv = shutil.which("setpriv")
    if setpriv is None or not (thread_stays or threading.current_thread() is threading.main_thread()):
        return []
    return [setpriv, "--pdeathsig", "KILL"]
