"""Progress of long work: one line on the terminal, which is rewritten, and erased before other output.

`main` shows it if a command is silent for a while. Commands call `step` with a description of their present work.
Without a terminal on standard error nothing is written.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from fencepost.cli.printable import printable

__all__ = ["AFTER_S", "ERASE", "EVERY_S", "ProgressLine", "make_way", "paused", "shown_on_terminal", "step"]

AFTER_S: Final = 2.0  # of silence
EVERY_S: Final = 1.0
ERASE: Final = "\r\x1b[K"
_NARROWEST: Final = 20  # columns
_ERROR: Final = 2  # descriptor of standard error


class ProgressLine:
    """The line about one command. Any thread may call its methods."""

    def __init__(self, write: Callable[[str], object], now_s: Callable[[], float], columns: Callable[[], int]) -> None:
        """Begin a time of silence.

        Args:
            write: Writes text to the terminal at once.
            now_s: Returns the time in seconds.
            columns: Returns the width of the terminal.
        """
        self._write, self._now_s, self._columns = write, now_s, columns
        self._lock = threading.RLock()  # a signal handler may print while this thread holds it
        self._begun_s = self._quiet_from_s = now_s()
        self._step = ""
        self._is_shown = False
        self._pauses = 0

    def step(self, words: str) -> None:
        """Set the words about the present step. The next `tick` shows them."""
        self._step = words

    def tick(self) -> None:
        """Write the line, if nothing else was written for AFTER_S seconds."""
        with self._lock:
            now_s = self._now_s()
            if self._pauses or now_s - self._quiet_from_s < AFTER_S:
                return
            words, seconds = printable(self._step) or "working", f" ({now_s - self._begun_s:.0f} s)"
            most = max(self._columns(), _NARROWEST) - 1 - len(seconds)
            line = f"fencepost: {words}"
            self._write(ERASE + (line if len(line) <= most else f"{line[: most - 1]}…") + seconds)
            self._is_shown = True

    def make_way(self) -> None:
        """Erase the line, because something else is written to the terminal."""
        with self._lock:
            self._quiet_from_s = self._now_s()
            if self._is_shown:
                self._write(ERASE)
                self._is_shown = False

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Show no line in the block."""
        with self._lock:
            self.make_way()
            self._pauses += 1
        try:
            yield
        finally:
            with self._lock:
                self._pauses -= 1
                self._quiet_from_s = self._now_s()


class _Terminal:
    """The terminal of this process, with the line of the running command."""

    progress: ProgressLine | None = None


def step(words: str) -> None:
    """Set the description of the command's present work."""
    if _Terminal.progress is not None:
        _Terminal.progress.step(words)


def make_way(descriptor: int) -> None:
    """Erase the line, if the descriptor that is written to is a terminal."""
    if _Terminal.progress is not None and os.isatty(descriptor):
        _Terminal.progress.make_way()


@contextmanager
def paused() -> Iterator[None]:
    """Show no line in the block, in which a person types."""
    if _Terminal.progress is None:
        yield
        return
    with _Terminal.progress.paused():
        yield


@contextmanager
def shown_on_terminal() -> Iterator[None]:
    """Show the progress of the command in the block, if standard error is a terminal."""
    if _Terminal.progress is not None or not os.isatty(_ERROR):
        yield
        return
    progress = ProgressLine(_write, time.monotonic, _columns)
    ended = threading.Event()

    def show() -> None:
        while not ended.wait(EVERY_S):
            progress.tick()

    thread = threading.Thread(target=show, name="fencepost progress", daemon=True)
    _Terminal.progress = progress
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        _Terminal.progress = None
        progress.make_way()


def _write(text: str) -> None:
    try:
        os.write(_ERROR, text.encode(errors="replace"))
    except OSError:
        return  # as for other messages on standard error: a lost one changes no status


def _columns() -> int:
    try:
        return os.get_terminal_size(_ERROR).columns or 80  # 0: the terminal does not know
    except OSError:
        return 80
