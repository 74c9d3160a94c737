"""The text of `--help`, the same for all commands. It imports neither typer nor argparse."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Collection, Iterable, Sequence
from textwrap import wrap
from typing import Final, NamedTuple

from fencepost.arguments import did_you_mean

__all__ = [
    "Help",
    "HelpRow",
    "help_text",
    "no_such_option",
    "notes",
    "number_words",
    "range_words",
    "terminal_width",
    "unexpected_argument",
    "usage_text",
]

STATUS: Final = "0 done; 1 not done or only in part, standard error has the reason; 2 invalid arguments."
_NARROWEST: Final = 40  # columns; names of options do not fit into fewer
_PARAGRAPH: Final = re.compile(r"\n\s*\n")
# Limits of a field of the protocol, not of the option's meaning.
_FIELD_LIMITS: Final = frozenset({2**15 - 1, 2**31 - 1, 2**63 - 1})
# Arguments that are given without their option, and the options of the commands that take such a value.
_WITHOUT_OPTION: Final = (
    (re.compile(r"[^\s=/]+:\d+"), ("--bootstrap-servers", "--listen")),
    (re.compile(r"[^\s=]+=.*"), ("--set", "--config")),
)


class HelpRow(NamedTuple):
    """A line of a list: the names of an option, an argument or a command, and its description."""

    names: str
    text: str


class Help(NamedTuple):
    """Contents of a command's help.

    `text` has paragraphs. The one that begins with "Example: " and the one that begins with "Status: ", whose entries
    are separated by semicolons, become sections.
    """

    usage: str
    text: str
    arguments: Sequence[HelpRow] = ()
    options: Sequence[HelpRow] = ()
    commands: Sequence[HelpRow] = ()


def terminal_width() -> int:
    """Return the width for text in columns: COLUMNS, or the width of the terminal, or 80."""
    return max(shutil.get_terminal_size().columns, _NARROWEST)


def help_text(shown: Help, width: int) -> str:
    """Return the help, with no line wider than `width` columns."""
    paragraphs = [" ".join(each.split()) for each in _PARAGRAPH.split(shown.text.strip())]
    examples = [each.removeprefix("Example: ") for each in paragraphs if each.startswith("Example: ")]
    status = [each.removeprefix("Status: ") for each in paragraphs if each.startswith("Status: ")]
    rest = [each for each in paragraphs if not each.startswith(("Example: ", "Status: "))]
    if not status and not shown.commands:
        status = [STATUS]
    parts = [usage_text(shown.usage, width)]
    parts += ["".join(f"  {line}\n" for line in _wrapped(each, width - 2)) for each in rest]
    for title, rows in (("Arguments", shown.arguments), ("Options", shown.options), ("Commands", shown.commands)):
        if rows:
            parts.append(f"{title}:\n" + "".join(_listed(rows, width)))
    if examples:
        parts.append("Example:\n" + "".join(line for each in examples for line in _command(each, width)))
    if status:
        parts.append("Exit status:\n" + "".join(line for each in status for line in _statuses(each, width)))
    return "\n".join(parts)


def usage_text(usage: str, width: int) -> str:
    """Return the line "Usage: ...", wrapped."""
    first, *others = _wrapped(f"Usage: {usage}", width - 4)
    return "".join([f"{first}\n", *(f"    {line}\n" for line in others)])


def no_such_option(given: str, options: Collection[str]) -> str:
    """Return the refusal of an unknown option, with the nearest of the command's options."""
    return f"No such option: {given}{did_you_mean(given, options)}"


def unexpected_argument(given: str, options: Collection[str]) -> str:
    """Return the refusal of an argument, with the option of the command that takes such a value."""
    takes = next(
        (each for form, several in _WITHOUT_OPTION if form.fullmatch(given) for each in several if each in options), ""
    )
    return f"unexpected argument: {given}" + (f"; did you mean '{takes} {given}'?" if takes else "")


def notes(*each: str) -> str:
    """Return what stands in brackets behind a description, such as the default. Empty texts are left out."""
    found = "; ".join(filter(None, each))
    return found and f" [{found}]"


def range_words(lowest: float | None, highest: float | None) -> str:
    """Return the values between two limits in words: "0 to 65535", "1 or more"."""
    if highest in _FIELD_LIMITS:
        highest = None
    if lowest is None:
        return "" if highest is None else f"at most {number_words(highest)}"
    return (
        f"{number_words(lowest)} or more" if highest is None else f"{number_words(lowest)} to {number_words(highest)}"
    )


def number_words(given: object) -> str:
    """Return a value as text, a whole number without a decimal point."""
    return str(int(given) if isinstance(given, float) and given.is_integer() else given)


def _wrapped(text: str, width: int) -> list[str]:
    return wrap(text, width, break_on_hyphens=False) or [""]


def _listed(rows: Sequence[HelpRow], width: int) -> Iterable[str]:
    """Yield lines with the names at the left. The description of longer names begins on its own line."""
    column = max((len(row.names) for row in rows if len(row.names) <= width // 3), default=width // 6)
    for names, text in rows:
        lines = _wrapped(text, width - column - 4)
        if len(names) > column:
            yield f"  {names}\n"
        else:
            yield f"  {names:{column}}  {lines.pop(0)}".rstrip() + "\n"
        yield from (f"  {'':{column}}  {line}".rstrip() + "\n" for line in lines)


def _command(text: str, width: int) -> Iterable[str]:
    """Yield the lines of a shell command. A line ends in a backslash where the command continues."""
    line = ""
    for word in shlex.split(text, posix=False):
        if line and len(line) + len(word) + 5 > width:
            yield f"  {line} \\\n"
            line = "  "
        line += word if not line.strip() else f" {word}"
    yield f"  {line}\n"


def _statuses(text: str, width: int) -> Iterable[str]:
    for each in text.removesuffix(".").split("; "):
        number, _, meaning = each.partition(" ")
        first, *others = _wrapped(meaning, width - 7)
        yield f"  {number:>3}  {first}\n"
        yield from (f"       {line}\n" for line in others)
