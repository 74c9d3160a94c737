"""Output of commands: tables, JSON, questions and errors."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, Final, NoReturn

import typer

from fencepost.cli.command_help import HelpedApp, HelpedGroup
from fencepost.cli.printable import printable
from fencepost.cli.progress import paused
from fencepost.counted import some_of
from fencepost.errors import ItemsFailedError, KafkaError
from fencepost.process.signal_handlers import handled
from fencepost.small_files import os_reason

__all__ = [
    "MOST_SECONDS",
    "CommandChanges",
    "Json",
    "Yes",
    "changes_reported",
    "command_group",
    "confirmed",
    "failures_reported",
    "print_json",
    "print_line",
    "print_table",
    "refuse",
    "report_done",
    "stopped_by_signals",
]

AGAIN_S: Final = 0.02
MOST_NAMED: Final = 5
MOST_SECONDS: Final = 366 * 86_400  # of an option; infinity is no number of milliseconds

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


def command_group(about: str, *, cls: type[HelpedGroup] = HelpedGroup, add_completion: bool = False) -> typer.Typer:
    """Return a command with subcommands."""
    return HelpedApp(
        cls=cls,
        add_completion=add_completion,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        no_args_is_help=True,
        context_settings={"help_option_names": ["-h", "--help"]},
        help=about,
    )


def confirmed(question: str, *, yes: bool) -> None:
    """Ask on standard error, unless `yes`.

    Exits with status 1 and the reason if the answer is not yes, or standard input is closed.
    """
    if yes:
        return
    sys.stdout.flush()  # the question is about it
    # Not typer's prompt, which adds a blank line to the command's output.
    with paused():
        sys.stderr.write(f"{printable(question)} [y/N]: ")
        sys.stderr.flush()
        answer = "" if sys.stdin is None else sys.stdin.readline()
        if not answer.endswith("\n"):
            sys.stderr.write("\n")
    if answer.strip().lower() not in ("y", "yes"):
        if not answer:
            refuse("nothing was done: standard input has no answer; --yes does not ask")
        refuse("nothing was done: the answer was not yes")


@contextmanager
def failures_reported(status: int = 1) -> Iterator[None]:
    """Print an error of the block in one line, and exit with the status."""
    try:
        yield
    except (OSError, KafkaError) as error:
        refuse(os_reason(error), status)


class CommandChanges:
    """The changes that a command makes in turn, each within `change`."""

    def __init__(self) -> None:
        self._count = 0
        self._is_begun = False
        self._doubt = ""
        self._rest: Sequence[str] = ()

    @contextmanager
    def change(self, words: str, rest: Sequence[str] = (), *, has_steps: bool = False) -> Iterator[None]:
        """Make a change in the block.

        Args:
            words: The change as a sentence, such as "topic orders was created".
            rest: The objects that are to be changed after it.
            has_steps: The change is made by several requests, so that a refusal does not mean that nothing was done.
        """
        self._is_begun, self._doubt, self._rest = True, words, rest
        try:
            yield
        except (KafkaError, OSError) as error:
            if not has_steps and not (isinstance(error, KafkaError) and error.may_have_taken_effect):
                self._doubt = ""
            raise
        self._is_begun, self._doubt = False, ""
        self._count += 1

    def outcome(self, error: KafkaError | OSError | None = None) -> str:
        """Return in words what a command leaves that ends with this error; None: it is interrupted."""
        if isinstance(error, ItemsFailedError) and error.results and self._is_begun:
            return _parts(error)
        if self._doubt:
            rest = f"; not tried: {some_of(self._rest, MOST_NAMED)}" if self._rest else ""
            return f"it is unknown if {self._doubt}{rest}"
        return "nothing else was changed" if self._count else "nothing was changed"


@contextmanager
def changes_reported() -> Iterator[CommandChanges]:
    """Say at an error or Ctrl-C in the block what was changed, and exit with status 1 after an error."""
    changes = CommandChanges()
    try:
        yield changes
    except KeyboardInterrupt:
        sys.stderr.write(f"fencepost: interrupted: {printable(changes.outcome())}\n")
        raise
    except (KafkaError, OSError) as error:
        refuse(f"{os_reason(error)}\n{changes.outcome(error)}")


def _parts(error: ItemsFailedError) -> str:
    """Return the items of a request by their outcome."""
    unknown = [item for item, reason in error.errors.items() if reason.may_have_taken_effect]
    failed = [item for item in error.errors if item not in unknown]
    parts = {"done": [*error.results], "not done": failed, "unknown": unknown}
    return "; ".join(f"{word}: {some_of([*map(_name, items)], MOST_NAMED)}" for word, items in parts.items() if items)


def _name(item: Any) -> str:
    return "-".join(map(str, item)) if isinstance(item, tuple) else str(item)  # a tuple is topic and partition


def refuse(words: str, status: int = 1) -> NoReturn:
    """Print the reason on standard error, and exit with the status."""
    sys.stderr.write("fencepost: " + "\n".join(map(printable, words.split("\n"))) + "\n")
    raise typer.Exit(status)


def warn(words: str) -> None:
    """Print a warning on standard error."""
    sys.stderr.write(f"fencepost: warning: {printable(words)}\n")


class Stopped:
    """The signal that stopped a block.

    Attributes:
        by: Its number, or None.
        waits: True while a signal does not interrupt.
    """

    by: int | None = None
    waits: bool = False

    @contextmanager
    def after(self) -> Iterator[None]:
        """Let a signal interrupt after this block, not in it: two effects of the block belong together."""
        self.waits = True
        try:
            yield
        finally:
            self.waits = False
        if self.by is not None:
            raise KeyboardInterrupt


@contextmanager
def stopped_by_signals() -> Iterator[Stopped]:
    """Raise KeyboardInterrupt in the block also for SIGTERM, so that it ends cleanly.

    A KeyboardInterrupt that leaves the block exits with 128 + the signal's number.

    Python drops an exception raised while an object is finalized; the signal is then sent again after AGAIN_S.
    """
    stopped = Stopped()

    def stop(number: int, _frame: object) -> None:
        stopped.by = number
        if not stopped.waits:
            raise KeyboardInterrupt

    def dropped(unraisable: sys.UnraisableHookArgs) -> None:
        if isinstance(unraisable.exc_value, KeyboardInterrupt) and stopped.by is not None:
            threading.Timer(AGAIN_S, os.kill, (os.getpid(), stopped.by)).start()
        else:
            original(unraisable)

    with handled((signal.SIGINT, signal.SIGTERM), stop):
        original, sys.unraisablehook = sys.unraisablehook, dropped
        try:
            yield stopped
        except KeyboardInterrupt as error:
            if stopped.by is None:
                raise
            raise typer.Exit(128 + stopped.by) from error
        finally:
            sys.unraisablehook = original


def print_table(rows: Iterable[Sequence[str]]) -> None:
    """Print rows in columns, the first row being the header; the same on a terminal and in a pipe.

    rich's tables have 80 columns in a pipe, and cut cells that do not fit. So rich is used only for the width of a
    text.
    """
    from rich.cells import cell_len

    table = [tuple(map(printable, row)) for row in rows]
    widths = [max(map(cell_len, column)) for column in zip(*table, strict=True)]
    for row in table:
        line = "  ".join(cell + " " * (width - cell_len(cell)) for cell, width in zip(row, widths, strict=True))
        sys.stdout.write(line.rstrip() + "\n")


def print_line(words: str) -> None:
    """Print one line, with control characters escaped."""
    sys.stdout.write(f"{printable(words)}\n")


def report_done(words: str, done: str, *, as_json: bool, **facts: Any) -> None:
    """Report one completed step: in words, or as a line of JSON. A later step may fail."""
    if as_json:
        sys.stdout.write(json.dumps({"done": done, **facts}) + "\n")
    else:
        print_line(words)


def print_json(found: Any) -> None:
    """Print a value as indented JSON."""
    sys.stdout.write(json.dumps(found, indent=2) + "\n")
