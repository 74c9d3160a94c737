"""Parser for properties files, equivalent to java.util.Properties.

Kafka's programs read their settings with that class. A line parsed differently here would be a different setting. The
tests compare both parsers with generated files.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from fencepost.small_files import bare_reason, read_small

__all__ = ["read_properties", "read_settings"]

_log = logging.getLogger("fencepost")

_BLANKS: Final = " \t\f"
_LINE_END: Final = re.compile(r"\r\n|\r|\n")
_NAME: Final = re.compile(r"((?:[^\\=: \t\f]|\\.)*)[ \t\f]*[=:]?[ \t\f]*")
_ESCAPE: Final = re.compile(r"\\(u[0-9A-Fa-f]{4}|.)")
_ESCAPED: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_HALVES: Final = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_HALF: Final = re.compile("[\ud800-\udfff]")
_MARK: Final = "\ufeff".encode()
# Names of settings are in lower case. A line without a value counts as a setting only if its name has several parts.
# Otherwise it can be part of the value above, such as a key, and an error message would quote it.
_SETTING: Final = re.compile(r"[a-z][a-z0-9]*(?:[._-][a-z0-9]+)*")


class _Line(NamedTuple):
    """A logical line. `number` is the number of its first line in the file, from 1."""

    number: int
    text: str


class _Setting(NamedTuple):
    number: int
    value: str


def read_properties(file: Path, encoding: str = "iso-8859-1") -> dict[str, str]:
    """Read names and values.

    Args:
        file: The file. A file that begins with a UTF-8 byte order mark is read as UTF-8.
        encoding: ISO-8859-1 where Kafka reads the file as a byte stream, UTF-8 where it uses a reader.

    Returns:
        The values by name. If a name occurs several times, the last value is used and a warning is logged.

    Raises:
        ValueError: The file cannot be read, or a line is invalid. The message names the line and quotes nothing,
            because a line may contain a password.
    """
    return {name: found.value for name, found in _read(file, encoding).items()}


def read_settings(file: Path) -> dict[str, str]:
    """Read settings of a broker or client.

    Raises:
        ValueError: As for `read_properties`, or a name cannot be a setting's.
    """
    found = _read(file, "iso-8859-1")
    for name, (number, value) in found.items():
        if not _SETTING.fullmatch(name) or not (value or re.search("[._-]", name)):
            raise ValueError(f"{file}: line {number} is not NAME=VALUE of a setting")
    return {name: setting.value for name, setting in found.items()}


def _read(file: Path, encoding: str) -> dict[str, _Setting]:
    settings: dict[str, _Setting] = {}
    try:
        data = read_small(file, "iso-8859-1").encode("iso-8859-1")
        if data.startswith(_MARK):
            encoding = "utf-8-sig"
        for line in _logical_lines(data.decode(encoding)):
            name, value = _name_and_value(line)
            if encoding == "iso-8859-1" and _is_utf8(line.text):
                _log.warning(
                    "%s: line %d holds UTF-8 and is read as ISO-8859-1, as Java reads it; write \\uXXXX instead",
                    file,
                    line.number,
                )
            if name in settings:
                _log.warning(
                    "%s: line %d gives %s again; line %d has no effect", file, line.number, name, settings[name].number
                )
            settings[name] = _Setting(line.number, value)
    except (OSError, ValueError) as error:
        raise ValueError(f"{file}: {bare_reason(error)}") from error
    return settings


def _logical_lines(text: str) -> Iterator[_Line]:
    """Yield the lines that are neither blank nor a comment, joined with their continuation lines.

    A comment has no continuation lines, even if it ends with a backslash.
    """
    joined, first = "", 0
    for number, line in enumerate(_LINE_END.split(text), 1):
        part = line.lstrip(_BLANKS)
        if not joined:
            if not part or part[0] in "#!":
                continue
            first = number
        continues = (len(part) - len(part.rstrip("\\"))) % 2 == 1
        joined += part[:-1] if continues else part
        if not continues:
            yield _Line(first, joined)
            joined = ""
    if joined:
        yield _Line(first, joined)


def _name_and_value(line: _Line) -> tuple[str, str]:
    """Split a line. Raises ValueError, which names the line."""
    match = _NAME.match(line.text)
    if match is None or not match[1]:
        raise ValueError(f"line {line.number} has no name before its value")
    try:
        return _unescaped(match[1]), _unescaped(line.text[match.end() :])
    except ValueError as error:
        raise ValueError(f"line {line.number}: {error}") from None


def _unescaped(text: str) -> str:
    r"""Replace escapes: \t, \n, \r, \f, \uXXXX; any other escaped character stands for itself."""
    if "\\" not in text:
        return text

    def replacement(match: re.Match[str]) -> str:
        escaped = match[1]
        if escaped[0] != "u":
            return _ESCAPED.get(escaped, escaped)
        if len(escaped) == 1:
            raise ValueError(r"\u needs four hexadecimal digits")
        return chr(int(escaped[1:], 16))

    whole = _HALVES.sub(
        lambda pair: pair[0].encode("utf-16", "surrogatepass").decode("utf-16"), _ESCAPE.sub(replacement, text)
    )
    if _HALF.search(whole):
        raise ValueError(r"\uD800 to \uDFFF need their other half")
    return whole


def _is_utf8(text: str) -> bool:
    """Return true if text that was read as ISO-8859-1 contains non-ASCII bytes that are valid UTF-8."""
    if text.isascii():
        return False
    try:
        text.encode("iso-8859-1").decode()
    except UnicodeDecodeError:
        return False
    return True
